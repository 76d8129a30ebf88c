"""Metadata and tags, and the search for checkpoints that all stores share.

Metadata is a MessagePack map of key to encoded value. For each key the store also keeps a tag: the key and the value's
encoding, or its hash if that is long. A filter is a set of tags, compared as bytes: keys and values are bound, never
inserted into a statement.

A database searches the metadata of checkpoints by bytes, which may also occur inside a value. So every row that it
finds is checked, and the search continues until the page is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec
from blake3 import blake3

from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.store.port import CheckpointQuery

if TYPE_CHECKING:
    from holdfast.store.folded_run import FoldedRun


_LONG: Final = 64
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def write_metadata(values: Iterable[tuple[str, bytes]]) -> bytes:
    """Metadata from keys and encoded values."""
    return _encode(dict(values))


def read_metadata(data: bytes) -> dict[str, bytes]:
    """Keys and encoded values."""
    return _decode(data) if data else {}


def tag_needle(key: str, value: bytes) -> bytes:
    """Bytes that all metadata with this key and encoded value contains; other metadata may contain them in a value."""
    return _encode(key) + _encode(value)


def has_tags(data: bytes, tags: Sequence[tuple[str, bytes]]) -> bool:
    """Whether the metadata has all these keys with these encoded values; False if it cannot be decoded."""
    if not tags:
        return True
    if not all(tag_needle(key, value) in data for key, value in tags):
        return False
    try:
        values = read_metadata(data)
    except msgspec.MsgspecError:
        return False
    return all(values.get(key) == value for key, value in tags)


def tag(key: str, value: bytes) -> tuple[str, bytes]:
    """The tag of a key and value. No MessagePack value starts with 0xC1, so a hash is not mistaken for one."""
    return key, value if len(value) <= _LONG else b"\xc1" + blake3(value).digest()


def merged_metadata(
    data: bytes, changes: Iterable[tuple[str, bytes]]
) -> tuple[bytes, list[tuple[str, bytes]], list[tuple[str, bytes]]]:
    """The metadata with the changes, the tags to remove, and the tags to add."""
    values = read_metadata(data)
    old, new = [], []
    for key, value in changes:
        before = values.get(key)
        if before == value:
            continue
        if before is not None:
            old.append(tag(key, before))
        new.append(tag(key, value))
        values[key] = value
    return _encode(values) if new else data, old, new


Found = tuple[RunRow, CheckpointRow]


def is_wanted(query: CheckpointQuery, run: RunRow, row: CheckpointRow) -> bool:
    """Whether the checkpoint matches the query, on any page."""
    return (
        query.run_id in (None, run.run_id)
        and query.workflow in (None, run.workflow)
        and query.lane in (None, row.lane)
        and query.checkpoint_id in (None, row.checkpoint_id)
        and (query.by_id is None or _place_by_id(query, run, row) < query.by_id)
        and (query.before is None or _place(query, run, row) < query.before)
        and has_tags(row.metadata, query.tags)
    )


def _place(query: CheckpointQuery, run: RunRow, row: CheckpointRow) -> tuple[int, int]:
    """Its place in the order, which is also the cursor of the next page."""
    return (0, row.number) if query.run_id is not None else (row.created_us, run.run << 32 | row.number)


def _place_by_id(query: CheckpointQuery, run: RunRow, row: CheckpointRow) -> tuple[str, int]:
    """Its place in the order of ids."""
    return row.checkpoint_id, _place(query, run, row)[1]


def found_in(runs: Iterable[FoldedRun], query: CheckpointQuery) -> list[Found]:
    """The checkpoints of these runs that match."""
    rows = [(run.row, row) for run in runs for row in run.checkpoints.values()]
    if query.by_id is None:
        rows.sort(key=lambda pair: _place(query, *pair), reverse=True)
    else:
        rows.sort(key=lambda pair: _place_by_id(query, *pair), reverse=True)
    wanted = (pair for pair in rows if is_wanted(query, *pair))
    return list(islice(wanted, query.limit if query.limit >= 0 else None))


def found_by_pages(query: CheckpointQuery, page: Callable[[CheckpointQuery], list[Found]]) -> list[Found]:
    """The checkpoints that match, of those that a database finds page by page."""
    found: list[Found] = []
    while True:
        rows = page(query)
        found += [pair for pair in rows if has_tags(pair[1].metadata, query.tags)]
        if query.limit < 0:
            return found
        if len(found) >= query.limit or len(rows) < query.limit:
            return found[: query.limit]
        query = next_page(query, *rows[-1])


def next_page(query: CheckpointQuery, run: RunRow, row: CheckpointRow) -> CheckpointQuery:
    """The query for the checkpoints after this one."""
    if query.by_id is None:
        return query._replace(before=_place(query, run, row))
    return query._replace(by_id=_place_by_id(query, run, row))
