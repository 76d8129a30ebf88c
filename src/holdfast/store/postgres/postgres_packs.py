"""Packs on PostgreSQL: chunks move into them and are removed from them, while the rows of their family are locked."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.packs import NewPack
from holdfast.store.port import SweepResult
from holdfast.store.postgres.dialect import Byteas, columns_of
from holdfast.store.postgres.postgres_writer import Writer
from holdfast.store.postgres.transaction import Transaction
from holdfast.store.sql.statements import Columns


def pack(writer: Writer, sequence: str, family: int, new: NewPack) -> bool:
    """Store the pack, and move its chunks there; False if one of them does not exist. It may be repeated."""
    transaction = writer.begin(("lock_family", (family,)))
    with transaction.rolled_back_on_error():
        names = Byteas([name for name, _ in new.chunks])
        ((found,),) = transaction.execute("count_chunks", family, names, family, names)
        if found < len(new.chunks):
            return transaction.commit(lambda: False)
        ((number,),) = transaction.execute("new_pack_number", sequence)
        places = [(family, name, *place) for name, place in new.places(number).items()]
        statements: list[tuple[str, Columns]] = [
            ("insert_pack", (number, family, new.size, new.body)),
            ("set_places", columns_of("ibiii", places)),
            ("delete_chunks_by_hash", (family, names)),
            ("delete_empty_packs", (family, family)),
        ]
        transaction.send(statements)
        return transaction.commit(lambda: True)


def remove_chunks(transaction: Transaction, family: int, names: Sequence[bytes]) -> SweepResult:
    """Remove these chunks, and the packs that have none left."""
    loose: dict[bytes, int] = dict(transaction.execute("delete_chunks_by_hash", family, Byteas(names)))
    packed = {name for (name,) in transaction.execute("delete_places_by_hash", family, Byteas(names))}
    emptied = transaction.execute("delete_empty_packs", family, family) if packed else []
    size = sum(loose.values()) + sum(stored for (stored,) in emptied)
    return SweepResult(len(loose.keys() | packed), size)
