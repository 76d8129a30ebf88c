"""Reading: get_tuple and list. Every read fetches what it needs and holds nothing when it returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.recent import Kept, Recent
from holdfast.adapters.langgraph.record import (
    Frame,
    checked_record,
    checkpoint_of,
    loaded,
    metadata_of,
    read_frame,
    sorted_writes,
)
from holdfast.adapters.langgraph.thawing import Patterns, thawed
from holdfast.adapters.langgraph.threads import WORKFLOW, Spot, config_of, lane_of, spot_of, thread_row
from holdfast.errors import DamagedData, InvalidInput
from holdfast.ids import check_id
from holdfast.model.rows import AttachmentRow, CheckpointRow, RunRow
from holdfast.state.decoder import decode
from holdfast.store.port import CheckpointQuery, Select
from holdfast.store.seal import check_run, check_seal
from holdfast.verbs.core import Core
from holdfast.verbs.shown import checked_checkpoint, checkpoint_place
from holdfast.verbs.values import metadata_pairs

PAGE: Final = 100
"""Checkpoints of one thread read at once."""
PAGE_OF_ALL: Final = 500
"""Likewise of all threads, where finding each page costs a look at every checkpoint."""
_RACES_MAX: Final = 20


class Found(NamedTuple):
    """A checkpoint with what lies beside it."""

    run: RunRow
    row: CheckpointRow
    record: dict[str, Any]
    frame: Frame
    attached: dict[str, Any]
    size: int
    """Of the record, in bytes, about."""


class Reader:
    """Reads checkpoints of one thread; what they share is fetched once."""

    def __init__(self, core: Core, run: RunRow) -> None:
        self.core = core
        self.run = thread_row(check_run(run))
        self._chunks: dict[bytes, bytes] = {}
        self._size = 0
        self._attached: dict[tuple[str, str], list[AttachmentRow]] = {}

    def attachments_of(self, rows: Iterable[CheckpointRow]) -> None:
        """Fetch what lies beside these checkpoints, in one go."""
        places = [(row.lane, row.checkpoint_id) for row in rows]
        self._attached.update({place: [] for place in places})
        for found in self.core.port.attachments_of(self.run.run, places) if places else ():
            self._attached[found.lane, found.checkpoint_id].append(found)

    def found(self, row: CheckpointRow, kept: Kept | None = None) -> Found:
        """The checkpoint with its record and what lies beside it, all of it checked.

        If its root is that of the `kept` one, so is the record, and need not be fetched.
        """
        where = (row.lane, row.checkpoint_id)
        if where not in self._attached:
            self.attachments_of([row])
        place = checkpoint_place(self.run.run_id, checked_checkpoint(self.run, row))
        if kept is not None and kept.root == row.root:
            record, size = kept.record, kept.size
        else:
            record, size = checked_record(self._decoded(row.root, place), place), self._size
        beside = sorted(self._attached[where], key=lambda found: found.number)
        attached = {found.key: self._value(found) for found in beside}
        return Found(self.run, row, record, read_frame(record["frame"], place), attached, size)

    def _value(self, row: AttachmentRow) -> Any:
        place = f"attachment {row.key!r} of checkpoint {row.checkpoint_id!r} in thread {self.run.run_id!r}"
        check_seal(row, self.run.incarnation, place)
        return self._decoded(row.root, place)

    def _decoded(self, root: bytes, place: str) -> Any:
        value, hashes = decode(root, self._fetch, place)
        self._size = len(root)
        if hashes:
            self.core.memory.note(self.run, hashes)
            self._size += sum(len(self._chunks[name]) for name in hashes)
        return value

    def _fetch(self, hashes: list[bytes]) -> Mapping[bytes, bytes]:
        missing = [name for name in hashes if name not in self._chunks]
        if missing:
            self._chunks.update(self.core.port.chunks(self.run.family, missing))
        return self._chunks


def get_tuple(core: Core, serde: SerializerProtocol, recent: Recent, config: RunnableConfig) -> CheckpointTuple | None:
    """The checkpoint a config names, or the newest of its namespace."""
    spot = spot_of(config)
    kept = recent.get(spot.thread_id, spot.lane)
    found = find(core, spot, kept)
    if found is None:
        return None
    values: dict[str, Any] = {}
    patterns: dict[str, Patterns] = {}
    for channel, value in found.record["values"].items():
        values[channel], made = thawed(serde, value, kept.patterns.get(channel) if kept else None)
        if made is not None:
            patterns[channel] = made
    row, versions = found.row, dict(found.frame.versions)
    recent.note(
        spot.thread_id, spot.lane, Kept(row.checkpoint_id, row.root, versions, found.record, found.size, patterns)
    )
    return tuple_of(serde, found, values)


def find(core: Core, spot: Spot, kept: Kept | None = None) -> Found | None:
    """The checkpoint, checked. One that is removed while it is read is not taken for a damaged one."""
    select = Select(spot.lane, spot.checkpoint_id)
    for _ in range(_RACES_MAX):
        pair = _row(core, spot.thread_id, select)
        if pair is None:
            return None
        try:
            return Reader(core, pair[0]).found(pair[1], kept)
        except DamagedData:
            if _row(core, spot.thread_id, select) == pair:
                raise
    raise DamagedData(f"thread {spot.thread_id!r}", f"it changed {_RACES_MAX} times while it was read")


def _row(core: Core, thread_id: str, select: Select) -> tuple[RunRow, CheckpointRow] | None:
    found = core.port.checkpoint(thread_id, select)
    if found is None:
        return None
    run, row = found
    if row is not None:
        return run, row
    if select == Select() and check_run(run).head:
        raise DamagedData(f"thread {thread_id!r}", f"its newest checkpoint, number {run.head}, is missing")
    return None


def tuple_of(serde: SerializerProtocol, found: Found, values: dict[str, Any] | None = None) -> CheckpointTuple:
    """As LangGraph wants it; `values` are the channels' values, if they were made already."""
    run, row, record, frame, attached, _ = found
    namespace = record.get("ns", row.lane)
    if values is None:
        values = {channel: loaded(serde, value) for channel, value in record["values"].items()}
    return CheckpointTuple(
        config_of(run.run_id, namespace, row.checkpoint_id),
        checkpoint_of(serde, row.checkpoint_id, frame, values),
        metadata_of(serde, row.metadata, checkpoint_place(run.run_id, row)),
        config_of(run.run_id, namespace, row.parent_id) if row.parent_id else None,
        [write.pending(serde) for write in sorted_writes(attached)],
    )


class Listing:
    """What `list` was asked for, checked, and how far it has come."""

    def __init__(
        self,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidInput(f"limit must be a whole number from 0 on, not {limit!r}")
        asked = (config or {}).get("configurable") or {}
        self._thread_id = _text("thread_id", asked.get("thread_id"))
        namespace = asked.get("checkpoint_ns")
        self._query = CheckpointQuery(
            self._thread_id,
            WORKFLOW,
            None if namespace is None else lane_of(namespace),
            _text("checkpoint_id", asked.get("checkpoint_id")),
            metadata_pairs(wanted) if wanted else (),
            limit=PAGE if self._thread_id is not None else PAGE_OF_ALL,
        )
        self._before = ((before or {}).get("configurable") or {}) if before else {}
        self._left = limit
        self.over = limit == 0

    def page(self, core: Core, serde: SerializerProtocol) -> list[CheckpointTuple]:
        """The next checkpoints, newest first."""
        if self._before:
            self._begin(core)
        if self._left is not None:
            self._query = self._query._replace(limit=min(self._query.limit, self._left))
        rows = core.port.find_checkpoints(self._query)
        self.over = len(rows) < self._query.limit
        found = [made for made in _tuples(core, serde, rows) if made is not None]
        if rows:
            self._query = self._query._replace(before=self._cursor(*rows[-1]))
        if self._left is not None:
            self._left -= len(found)
            self.over = self.over or self._left == 0
        return found

    def _begin(self, core: Core) -> None:
        """Begin behind the checkpoint that `before` names. If that is gone, ids say what is older."""
        named, self._before = self._before, {}
        thread_id, checkpoint_id = named.get("thread_id", self._thread_id), named.get("checkpoint_id")
        if checkpoint_id is None:
            return
        if thread_id is not None and self._thread_id in (None, str(thread_id)):
            spot = spot_of({"configurable": {**named, "thread_id": thread_id}})
            found = core.port.checkpoint(spot.thread_id, Select(spot.lane, spot.checkpoint_id))
            if found is not None and found[1] is not None:
                self._query = self._query._replace(before=self._cursor(found[0], found[1]))
                return
        self._query = self._query._replace(before_id=_text("checkpoint_id", checkpoint_id))

    def _cursor(self, run: RunRow, row: CheckpointRow) -> tuple[int, int]:
        return (0, row.number) if self._thread_id is not None else (row.created_us, run.run << 32 | row.number)


def _tuples(
    core: Core, serde: SerializerProtocol, rows: list[tuple[RunRow, CheckpointRow]]
) -> Iterable[CheckpointTuple | None]:
    """The rows' tuples; None in place of one that was removed meanwhile."""
    readers: dict[int, Reader] = {}
    for run, row in rows:
        reader = readers.get(run.run)
        if reader is None:
            reader = readers[run.run] = Reader(core, run)
            reader.attachments_of(other for owner, other in rows if owner.run == run.run)
        try:
            yield tuple_of(serde, reader.found(row))
        except DamagedData:
            found = find(core, Spot(run.run_id, row.lane, row.lane, row.checkpoint_id))
            yield None if found is None else tuple_of(serde, found)


def _text(what: str, value: object) -> str | None:
    return None if value is None else check_id(what, str(value))
