"""Seals: eight bytes that vouch for a row.

    seal := the first 8 bytes of BLAKE3(incarnation, row)

`incarnation` is the 16 random bytes of the run the row belongs to, and `row` the MessagePack array of the name of its
kind and all its fields in the order of `model/rows.py`, with an empty seal. So a row that was altered, cut, or moved to
another run does not fit its seal. Seals find accidents; they are no proof against somebody who can write to the store.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from blake3 import blake3

from holdfast.errors import DamagedData
from holdfast.model.rows import RunRow

SealedRow = TypeVar("SealedRow", bound=Any)

_encode = msgspec.msgpack.Encoder().encode
_replace = msgspec.structs.replace


def make_seal(row: Any, incarnation: bytes) -> bytes:
    """The seal for `row`, whose own seal is empty."""
    return blake3(incarnation + _encode((type(row).__name__, row))).digest(8)


def sealed(row: SealedRow, incarnation: bytes) -> SealedRow:
    """`row` with its seal."""
    if row.seal:
        row = _replace(row, seal=b"")
    return _replace(row, seal=make_seal(row, incarnation))


def check_seal(row: SealedRow, incarnation: bytes, place: str) -> SealedRow:
    """Return `row` if it fits its seal, else raise DamagedData naming `place`."""
    if make_seal(_replace(row, seal=b""), incarnation) != row.seal:
        raise DamagedData(place, "it does not fit its seal")
    return row


def check_run(row: RunRow) -> RunRow:
    """Return the run's row if it fits its seal."""
    return check_seal(row, row.incarnation, f"run {row.run_id!r}")


def next_epoch(row: RunRow) -> RunRow:
    """The run's row after a sweep: whoever relies on chunks it has not just written must look again."""
    commit_id = blake3(row.commit_id).digest(len(row.commit_id))
    return sealed(_replace(row, gc_epoch=row.gc_epoch + 1, commit_id=commit_id), row.incarnation)
