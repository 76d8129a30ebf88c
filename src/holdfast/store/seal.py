"""Seals: a checksum that vouches for a row.

    seal := CRC-32 of (incarnation, row)

`incarnation` is the 16 random bytes of the run the row belongs to, and `row` the MessagePack array of all its fields in
the order of `model/rows.py`, with a seal of 0. So a row that was altered, cut, or moved to another run does not fit its
seal. Seals find accidents, every flip of up to three bits among them; they are no proof against somebody who can write
to the store. Chunks need none: their hash is their name.
"""

from __future__ import annotations

from typing import Any, TypeVar
from zlib import crc32

import msgspec
from blake3 import blake3

from holdfast.errors import DamagedData
from holdfast.model.rows import RunRow

SealedRow = TypeVar("SealedRow", bound=Any)

_encode = msgspec.msgpack.Encoder().encode
_replace = msgspec.structs.replace
_set = msgspec.structs.force_setattr


def sealed(row: SealedRow, incarnation: bytes) -> SealedRow:
    """Put the seal on a row that was only just made: its seal is 0, and nobody else has it yet."""
    _set(row, "seal", crc32(_encode(row), crc32(incarnation)))
    return row


def check_seal(row: SealedRow, incarnation: bytes, place: str) -> SealedRow:
    """Return `row` if it fits its seal, else raise DamagedData naming `place`."""
    try:
        fits = crc32(_encode(_replace(row, seal=0)), crc32(incarnation)) == row.seal
    except TypeError:  # damage may leave anything, even nothing, where bytes should be
        fits = False
    if not fits:
        raise DamagedData(place, "it does not fit its seal")
    return row


def check_run(row: RunRow) -> RunRow:
    """Return the run's row if it fits its seal."""
    return check_seal(row, row.incarnation, f"run {row.run_id!r}")


def touched(row: RunRow) -> RunRow:
    """The run's row after a change that is no commit: its commit id is another, so whoever remembers it looks again."""
    return _with_next_commit_id(row, row.gc_epoch)


def next_epoch(row: RunRow) -> RunRow:
    """The run's row after a sweep: whoever relies on chunks it has not just written must look again."""
    return _with_next_commit_id(row, row.gc_epoch + 1)


def _with_next_commit_id(row: RunRow, gc_epoch: int) -> RunRow:
    commit_id = blake3(row.commit_id).digest(len(row.commit_id))
    return sealed(_replace(row, gc_epoch=gc_epoch, commit_id=commit_id, seal=0), row.incarnation)
