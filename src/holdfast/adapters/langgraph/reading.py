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
    searched_for,
    sorted_writes,
)
from holdfast.adapters.langgraph.thawing import Patterns, thawed
from holdfast.adapters.langgraph.threads import WORKFLOW, Spot, config_of, lane_of, spot_of, thread_row
from holdfast.errors import DamagedData, InvalidInput
from holdfast.ids import check_id
from holdfast.limits import ID_BYTES_MAX
from holdfast.model.rows import AttachmentRow, CheckpointRow, RunRow
from holdfast.state.decoder import decode
from holdfast.store.finding import behind
from holdfast.store.port import CheckpointQuery, Select
from holdfast.store.seal import check_run, check_seal
from holdfast.verbs.core import Core
from holdfast.verbs.shown import checked_checkpoint, checkpoint_place

PAGE: Final = 100
"""Checkpoints of one thread read at once."""
PAGE_OF_ALL: Final = 500
"""Likewise of all threads, where finding each page costs a look at every checkpoint."""
_BEHIND_ALL_IDS: Final = "\U0010ffff" * (ID_BYTES_MAX // 4 + 1)
"""Sorts behind every id there can be."""
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

    def __init__(
        self, core: Core, run: RunRow, attached: dict[tuple[str, str], list[AttachmentRow]] | None = None
    ) -> None:
        self.core = core
        self.run = thread_row(check_run(run))
        self._chunks: dict[bytes, bytes] = {}
        self._size = 0
        self._attached = attached or {}

    def attachments_of(self, rows: Iterable[CheckpointRow]) -> None:
        """Fetch what lies beside these checkpoints, in one go.

        They go together with their checkpoints, so whoever fetches them must then see whether those are still there.
        """
        places = [(row.lane, row.checkpoint_id) for row in rows]
        self._attached.update({place: [] for place in places})
        for found in self.core.port.attachments_of(self.run.run, places) if places else ():
            self._attached[found.lane, found.checkpoint_id].append(found)

    def know(self, row: CheckpointRow, beside: list[AttachmentRow]) -> None:
        """Take what lies beside a checkpoint as fetched."""
        self._attached[row.lane, row.checkpoint_id] = beside

    def found(self, row: CheckpointRow, kept: Kept | None = None) -> Found:
        """The checkpoint with its record and what lies beside it, all of it checked.

        If its root is that of the `kept` one, so is the record, and need not be fetched.
        """
        where = (row.lane, row.checkpoint_id)
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
    return tuple_of(serde, found, has_parent(core, found.run, row), values)


def find(core: Core, spot: Spot, kept: Kept | None = None) -> Found | None:
    """The checkpoint, checked. One that is removed while it is read is not taken for a damaged one."""
    select = Select(spot.lane, spot.checkpoint_id)
    for _ in range(_RACES_MAX):
        whole = _whole(core, spot.thread_id, select)
        if whole is None:
            return None
        run, row, beside = whole
        try:
            return Reader(core, run, {(row.lane, row.checkpoint_id): beside}).found(row, kept)
        except DamagedData:
            if _whole(core, spot.thread_id, select) == whole:
                raise
    raise DamagedData(f"thread {spot.thread_id!r}", f"it changed {_RACES_MAX} times while it was read")


def _whole(core: Core, thread_id: str, select: Select) -> tuple[RunRow, CheckpointRow, list[AttachmentRow]] | None:
    found = core.port.whole_checkpoint(thread_id, select)
    if found is None:
        return None
    run, row, beside = found
    if row is not None:
        return run, row, beside
    if select == Select() and check_run(run).head:
        raise DamagedData(f"thread {thread_id!r}", f"its newest checkpoint, number {run.head}, is missing")
    return None


def has_parent(core: Core, run: RunRow, row: CheckpointRow) -> bool:
    """Whether the checkpoint's parent is stored. It may have been removed, by whatever means."""
    if row.parent_id is None:
        return False
    found = core.port.checkpoint(run.run_id, Select(row.lane, row.parent_id))
    return found is not None and found[1] is not None


def tuple_of(
    serde: SerializerProtocol, found: Found, parent: bool, values: dict[str, Any] | None = None
) -> CheckpointTuple:
    """As LangGraph wants it; `values` are the channels' values, if they were made already.

    Without a stored `parent` it has none: a graph called with the config of a removed one would begin empty.
    """
    run, row, record, frame, attached, _ = found
    namespace = record.get("ns", row.lane)
    if values is None:
        values = {channel: loaded(serde, value) for channel, value in record["values"].items()}
    return CheckpointTuple(
        config_of(run.run_id, namespace, row.checkpoint_id),
        checkpoint_of(serde, row.checkpoint_id, frame, values),
        metadata_of(serde, row.metadata, record.get("more", {}), checkpoint_place(run.run_id, row)),
        config_of(run.run_id, namespace, row.parent_id) if parent and row.parent_id else None,
        [write.pending(serde) for write in sorted_writes(attached)],
    )


class Listing:
    """What `list` was asked for, checked, and how far it has come.

    The checkpoints of one namespace come in the order of their saves, those of several in the order of their ids:
    a graph and its subgraphs save side by side, so the order of their saves means nothing.
    """

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
            searched_for(wanted) if wanted else (),
            by_id=(_BEHIND_ALL_IDS, 0) if namespace is None and self._thread_id is not None else None,
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
        found = [made for made in self._tuples(core, serde, rows) if made is not None]
        if rows:
            self._query = behind(self._query, *rows[-1])
        if self._left is not None:
            self._left -= len(found)
            self.over = self.over or self._left == 0
        return found

    def _tuples(
        self, core: Core, serde: SerializerProtocol, rows: list[tuple[RunRow, CheckpointRow]]
    ) -> Iterable[CheckpointTuple | None]:
        """The rows' tuples; None in place of one that was removed meanwhile."""
        readers: dict[int, Reader] = {}
        for run, _ in rows:
            if run.run not in readers:
                readers[run.run] = Reader(core, run)
                readers[run.run].attachments_of(other for owner, other in rows if owner.run == run.run)
        there = {(run.run, row.number): row for run, row in core.port.find_checkpoints(self._query)}
        stored = {(number, row.lane, row.checkpoint_id) for (number, _), row in there.items()}
        for run, row in rows:
            parent = (run.run, row.lane, row.parent_id) in stored or has_parent(core, run, row)
            try:
                if (run.run, row.number) in there:
                    yield tuple_of(serde, readers[run.run].found(row), parent)
                    continue
            except DamagedData:
                pass
            found = find(core, Spot(run.run_id, row.lane, row.lane, row.checkpoint_id))
            yield None if found is None else tuple_of(serde, found, parent)

    def _begin(self, core: Core) -> None:
        """Begin behind the checkpoint that `before` names, if it is one of those that are listed in the order of saves.

        Ids say what is older than any other, as with LangGraph's own savers: a subgraph's checkpoint may be saved
        before the graph's checkpoint that it was called from.
        """
        named, self._before = self._before, {}
        checkpoint_id = _text("checkpoint_id", named.get("checkpoint_id"))
        if checkpoint_id is None:
            return
        found = None if self._query.by_id else self._listed(core, named, checkpoint_id)
        self._query = behind(self._query, *found) if found else self._query._replace(by_id=(checkpoint_id, 0))

    def _listed(self, core: Core, named: dict[str, Any], checkpoint_id: str) -> tuple[RunRow, CheckpointRow] | None:
        """The checkpoint that `before` names, if its namespace is the one that is listed."""
        thread_id = _text("thread_id", named.get("thread_id", self._thread_id))
        namespace = named.get("checkpoint_ns")
        lane = self._query.lane if namespace is None else lane_of(namespace)
        if thread_id is None or self._thread_id not in (None, thread_id) or self._query.lane not in (None, lane):
            return None
        run, row = core.port.checkpoint(thread_id, Select(lane or "", checkpoint_id)) or (None, None)
        return (run, row) if run is not None and row is not None else None


def _text(what: str, value: object) -> str | None:
    return None if value is None else check_id(what, str(value))
