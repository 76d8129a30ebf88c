"""Reads of the saver: get_tuple and list.

Every read fetches what it needs and holds no resource when it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from holdfast.adapters.langgraph import record_codec
from holdfast.adapters.langgraph.cache import CachedCheckpoint, CheckpointCache
from holdfast.adapters.langgraph.messages import Codec, Decoded
from holdfast.adapters.langgraph.thread import WORKFLOW, ThreadRef, config_of, lane_of, require_thread, thread_ref
from holdfast.errors import DamagedData, InvalidInput
from holdfast.ids import check_id
from holdfast.limits import ID_BYTES_MAX
from holdfast.model.rows import AttachmentRow, CheckpointRow, RunRow
from holdfast.operations.context import StoreContext
from holdfast.operations.views import checked_checkpoint, checkpoint_place
from holdfast.state.rope import decode
from holdfast.store.checksum import verify_checksum, verify_run
from holdfast.store.port import CheckpointQuery, Select
from holdfast.store.search import next_page

PAGE: Final = 100
"""Checkpoints of one thread read at once."""
PAGE_OF_ALL: Final = 500
"""Checkpoints of all threads read at once; finding such a page scans every checkpoint."""
_BEHIND_ALL_IDS: Final = "\U0010ffff" * (ID_BYTES_MAX // 4 + 1)
"""A text that sorts after every valid id."""
_RACES_MAX: Final = 20


class ReadCheckpoint(NamedTuple):
    """A checkpoint with its attachments."""

    run: RunRow
    row: CheckpointRow
    record: record_codec.Record
    attached: record_codec.Record
    """The values of the attachments, by key."""
    size: int
    """The approximate size of the record in bytes."""
    numbers: list[int]
    """The numbers of the attachments."""

    def frame(self) -> record_codec.Frame:
        """Decode the frame."""
        return record_codec.read_frame(self.record["frame"], checkpoint_place(self.run.run_id, self.row))


class Reader:
    """Reads checkpoints of one thread; shared chunks are fetched once."""

    def __init__(
        self,
        core: StoreContext,
        run: RunRow,
        attached: dict[tuple[str, str], list[AttachmentRow]] | None = None,
        decoded: Decoded | None = None,
    ) -> None:
        self.core = core
        self.run = require_thread(verify_run(run))
        self._fetch = core.fetch(run.family)
        self._chunks: dict[bytes, bytes] = {}
        self._attached = attached or {}
        self._decoded = decoded

    def fetch_attachments(self, rows: Iterable[CheckpointRow]) -> None:
        """Fetch the attachments of these checkpoints in one read.

        Attachments are removed with their checkpoints, so the caller must then check that those still exist.
        """
        places = [(row.lane, row.checkpoint_id) for row in rows]
        self._attached.update({place: [] for place in places})
        for found in self.core.port.rows(AttachmentRow, self.run.run, keys=places) if places else ():
            self._attached[found.lane, found.checkpoint_id].append(found)

    def add_attachments(self, row: CheckpointRow, attached: list[AttachmentRow]) -> None:
        """Add attachments that were fetched with their checkpoint."""
        self._attached[row.lane, row.checkpoint_id] = attached

    def read(self, row: CheckpointRow) -> ReadCheckpoint:
        """Read and verify a checkpoint with its record and attachments."""
        where = (row.lane, row.checkpoint_id)
        place = checkpoint_place(self.run.run_id, checked_checkpoint(self.run, row))
        stored, size = self._decode(row.root, place)
        record = record_codec.check_record(stored, place)
        attachments = sorted(self._attached[where], key=lambda found: found.number)
        attached = {found.key: self._value(found) for found in attachments}
        return ReadCheckpoint(self.run, row, record, attached, size, [found.number for found in attachments])

    def _value(self, row: AttachmentRow) -> object:
        place = f"attachment {row.key!r} of checkpoint {row.checkpoint_id!r} in thread {self.run.run_id!r}"
        verify_checksum(row, self.run.incarnation, place)
        return self._decode(row.root, place)[0]

    def _decode(self, root: bytes, place: str) -> tuple[object, int]:
        """Return the value behind a root, and its approximate size. An equal root has an equal value."""
        known = self._decoded.get(root) if self._decoded is not None else None
        if known is not None:
            return known
        value, hashes = decode(root, self._fetch, place, self._chunks)
        size = len(root)
        if hashes:
            self.core.memory.note(self.run, hashes)
            size += sum([len(self._chunks[name]) for name in hashes])
        if self._decoded is not None:
            self._decoded.add(root, value, size)
        return value, size


def get_tuple(
    core: StoreContext, codec: Codec, cache: CheckpointCache, config: RunnableConfig
) -> CheckpointTuple | None:
    """Return the checkpoint that a config names, or the newest of its namespace."""
    ref = thread_ref(config)
    kept = cache.get(ref.thread_id, ref.lane)
    found = find(core, ref, codec.decoded)
    if found is None:
        return None
    row, versions, images = found.row, found.frame().versions, kept.images if kept else {}
    read = CachedCheckpoint(row.checkpoint_id, row.root, versions, found.record, found.size, images)
    cache.note(ref.thread_id, ref.lane, read)
    return tuple_of(codec, found, has_parent(core, found.run, row))


def find(core: StoreContext, ref: ThreadRef, decoded: Decoded | None = None) -> ReadCheckpoint | None:
    """Read and verify a checkpoint. One that is removed during the read is not reported as damaged."""
    select = Select(ref.lane, ref.checkpoint_id)
    for _ in range(_RACES_MAX):
        rows = _rows(core, ref.thread_id, select)
        if rows is None:
            return None
        run, row, attached = rows
        try:
            return Reader(core, run, {(row.lane, row.checkpoint_id): attached}, decoded).read(row)
        except DamagedData:
            if _rows(core, ref.thread_id, select) == rows:
                raise
    raise DamagedData(f"thread {ref.thread_id!r}", f"it changed {_RACES_MAX} times while it was read")


def _rows(
    core: StoreContext, thread_id: str, select: Select
) -> tuple[RunRow, CheckpointRow, list[AttachmentRow]] | None:
    found = core.port.checkpoint(thread_id, select, attachments=True)
    if found is None:
        return None
    run, row, attached = found
    if row is not None:
        return run, row, attached
    if select == Select() and verify_run(run).head:
        raise DamagedData(f"thread {thread_id!r}", f"its newest checkpoint, number {run.head}, is missing")
    return None


def has_parent(core: StoreContext, run: RunRow, row: CheckpointRow) -> bool:
    """Return whether the parent of a checkpoint is stored; it may have been removed."""
    if row.parent_id is None:
        return False
    found = core.port.checkpoint(run.run_id, Select(row.lane, row.parent_id))
    return found is not None and found[1] is not None


def tuple_of(codec: Codec, found: ReadCheckpoint, parent: bool) -> CheckpointTuple:
    """Convert a checkpoint to LangGraph's form.

    A parent that is not stored is not named: a graph that is called with the config of a removed checkpoint would start
    empty.
    """
    run, row, record, attached = found[:4]
    namespace = record.get("ns", row.lane)
    values = {channel: codec.load(value) for channel, value in record["values"].items()}
    serde = codec.serde
    return CheckpointTuple(
        config_of(run.run_id, namespace, row.checkpoint_id),
        record_codec.checkpoint_of(serde, row.checkpoint_id, found.frame(), values),
        record_codec.metadata_of(serde, row.metadata, record.get("more", {}), checkpoint_place(run.run_id, row)),
        config_of(run.run_id, namespace, row.parent_id) if parent and row.parent_id else None,
        [(write.task_id, write.channel, codec.load(write.value)) for write in record_codec.sorted_writes(attached)],
    )


class Listing:
    """The checked arguments of `list`, and its progress.

    The checkpoints of one namespace are listed in the order of their saves, those of several in the order of their ids:
    a graph and its subgraphs save concurrently, so the order of their saves has no meaning.
    """

    def __init__(
        self,
        config: RunnableConfig | None,
        wanted: Mapping[str, object] | None,
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
            record_codec.encode_filter(wanted) if wanted else (),
            by_id=(_BEHIND_ALL_IDS, 0) if namespace is None and self._thread_id is not None else None,
            limit=PAGE if self._thread_id is not None else PAGE_OF_ALL,
        )
        self._before = ((before or {}).get("configurable") or {}) if before else {}
        self._left = limit
        self.over = limit == 0

    def page(self, core: StoreContext, codec: Codec) -> list[CheckpointTuple]:
        """Return the next checkpoints, newest first."""
        if self._before:
            self._begin(core)
        if self._left is not None:
            self._query = self._query._replace(limit=min(self._query.limit, self._left))
        rows = core.port.find_checkpoints(self._query)
        self.over = len(rows) < self._query.limit
        found = [one for one in self._tuples(core, codec, rows) if one is not None]
        if rows:
            self._query = next_page(self._query, *rows[-1])
        if self._left is not None:
            self._left -= len(found)
            self.over = self.over or self._left == 0
        return found

    def _tuples(
        self, core: StoreContext, codec: Codec, rows: list[tuple[RunRow, CheckpointRow]]
    ) -> Iterable[CheckpointTuple | None]:
        """Convert the rows; None for a checkpoint that was removed meanwhile."""
        readers: dict[int, Reader] = {}
        for run, _ in rows:
            if run.run not in readers:
                readers[run.run] = Reader(core, run, decoded=codec.decoded)
                readers[run.run].fetch_attachments(other for owner, other in rows if owner.run == run.run)
        there = {(run.run, row.number): row for run, row in core.port.find_checkpoints(self._query)}
        stored = {(number, row.lane, row.checkpoint_id) for (number, _), row in there.items()}
        for run, row in rows:
            parent = (run.run, row.lane, row.parent_id) in stored or has_parent(core, run, row)
            try:
                if (run.run, row.number) in there:
                    yield tuple_of(codec, readers[run.run].read(row), parent)
                    continue
            except DamagedData:
                pass
            found = find(core, ThreadRef(run.run_id, row.lane, row.lane, row.checkpoint_id))
            yield None if found is None else tuple_of(codec, found, parent)

    def _begin(self, core: StoreContext) -> None:
        """Start after the checkpoint that `before` names, if it is listed in the order of saves.

        Otherwise ids decide which is older, as with LangGraph's own savers: the checkpoint of a subgraph may be saved
        before the checkpoint that it was called from.
        """
        named, self._before = self._before, {}
        checkpoint_id = _text("checkpoint_id", named.get("checkpoint_id"))
        if checkpoint_id is None:
            return
        found = None if self._query.by_id else self._find_before(core, named, checkpoint_id)
        self._query = next_page(self._query, *found) if found else self._query._replace(by_id=(checkpoint_id, 0))

    def _find_before(
        self, core: StoreContext, named: Mapping[str, Any], checkpoint_id: str
    ) -> tuple[RunRow, CheckpointRow] | None:
        """Return the checkpoint that `before` names, if its namespace is the listed one."""
        thread_id = _text("thread_id", named.get("thread_id", self._thread_id))
        namespace = named.get("checkpoint_ns")
        lane = self._query.lane if namespace is None else lane_of(namespace)
        if thread_id is None or self._thread_id not in (None, thread_id) or self._query.lane not in (None, lane):
            return None
        found = core.port.checkpoint(thread_id, Select(lane or "", checkpoint_id))
        return (found.run, found.checkpoint) if found is not None and found.checkpoint is not None else None


def _text(what: str, value: object) -> str | None:
    return None if value is None else check_id(what, str(value))
