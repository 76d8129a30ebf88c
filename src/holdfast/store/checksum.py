"""The checksums of rows, stored in their field `seal`.

    seal := CRC-32 of (incarnation, row)

`incarnation` is the 16 random bytes of the run the row belongs to, and `row` the MessagePack array of all its fields in
the order of `model/rows.py`, with a seal of 0. So a row that was altered, truncated, or moved to another run does not
match its checksum. Fields of a run after `seal` are left out of the array if none of them is set, because rows of
earlier versions do not have them. Checksums detect accidental damage, including every flip of up to three bits; they do
not protect against an attacker with write access. Chunks need none: they are named by their hash.
"""

from __future__ import annotations

from typing import Final, TypeVar
from zlib import crc32

import msgspec
from blake3 import blake3

from holdfast.errors import DamagedData
from holdfast.model.rows import NO_RUN, Row, RunRow

ChecksummedRow = TypeVar("ChecksummedRow", bound=Row)
"""A row with a field `seal`."""

_encode = msgspec.msgpack.Encoder().encode
_replace = msgspec.structs.replace
_set = msgspec.structs.force_setattr
_EMPTY: Final = _encode(NO_RUN)
_LATER: Final = len(RunRow.__struct_fields__) - RunRow.__struct_fields__.index("seal") - 1
"""How many fields of a run were added after the first version of its row."""
_UNSET: Final = _EMPTY[-_LATER - 1 :]
"""How the encoding of a row ends if these are not set: an empty `seal`, and a byte for each."""
_HEADER: Final = b"\xdc" + (len(RunRow.__struct_fields__) - _LATER).to_bytes(2, "big")
"""How the array of the first version begins."""


def with_checksum(row: ChecksummedRow, incarnation: bytes) -> ChecksummedRow:
    """Set the checksum of a new row, in place: its `seal` is 0, and no other code has a reference to it yet."""
    _set(row, "seal", _checksum(row, incarnation))
    return row


def _checksum(row: Row, incarnation: bytes) -> int:
    """The checksum of a row whose `seal` is 0."""
    data = _encode(row)
    if type(row) is RunRow and data.endswith(_UNSET):
        data = _HEADER + data[len(_HEADER) : -_LATER]
    return crc32(data, crc32(incarnation))


def verify_checksum(row: ChecksummedRow, incarnation: bytes, place: str) -> ChecksummedRow:
    """Return `row` if it matches its checksum, else raise DamagedData with `place`."""
    try:
        matches = _checksum(_replace(row, seal=0), incarnation) == getattr(row, "seal", None)
    except TypeError:  # a damaged field may have any type
        matches = False
    if not matches:
        raise DamagedData(place, "it does not match its checksum")
    return row


def verify_run(row: RunRow) -> RunRow:
    """Return the run's row if it matches its checksum."""
    return verify_checksum(row, row.incarnation, f"run {row.run_id!r}")


def with_new_commit_id(row: RunRow) -> RunRow:
    """The run's row after a change without a commit: a new commit id makes writers read it again."""
    return _with_next_commit_id(row, row.gc_epoch)


def next_epoch(row: RunRow) -> RunRow:
    """The run's row after a sweep: writers must check again which chunks are stored."""
    return _with_next_commit_id(row, row.gc_epoch + 1)


def _with_next_commit_id(row: RunRow, gc_epoch: int) -> RunRow:
    commit_id = blake3(row.commit_id).digest(len(row.commit_id))
    return with_checksum(_replace(row, gc_epoch=gc_epoch, commit_id=commit_id, seal=0), row.incarnation)
