"""Packs in SQLite: chunks move into them and are removed from them. Callers are inside a write transaction."""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from holdfast.store.packs import NewPack
from holdfast.store.port import SweepResult
from holdfast.store.sql.statements import statements


class ChunkRemoved(Exception):
    """A chunk of a new pack does not exist: the transaction must be rolled back."""


def move_to_pack(connection: apsw.Connection, family: int, pack: NewPack) -> None:
    """Store the pack, and move its chunks there. Raises ChunkRemoved."""
    execute, sql = connection.execute, statements()
    number = execute(sql["new_pack_number"]).get
    was_packed = False
    for name, place in pack.places(number).items():
        is_loose = execute(sql["delete_chunk"], (family, name)).get is not None
        if execute(sql["place"], (family, name)).get is not None:
            was_packed = True
        elif not is_loose:
            raise ChunkRemoved
        execute(sql["set_place"], (family, name, *place))
    execute(sql["insert_pack"], (number, family, pack.size, pack.body), can_cache=False)
    if was_packed:
        execute(sql["delete_empty_packs"], (family, family)).fetchall()


def remove_chunks(connection: apsw.Connection, family: int, names: Iterable[bytes]) -> SweepResult:
    """Remove these chunks, and the packs that have none left."""
    execute, sql = connection.execute, statements()
    chunks = size = 0
    was_packed = False
    for name in names:
        loose = execute(sql["delete_chunk"], (family, name)).get
        execute(sql["delete_place"], (family, name))
        is_packed = connection.changes() > 0
        chunks, size = chunks + (loose is not None or is_packed), size + (loose or 0)
        was_packed = was_packed or is_packed
    if was_packed:
        size += sum(stored for (stored,) in execute(sql["delete_empty_packs"], (family, family)))
    return SweepResult(chunks, size)
