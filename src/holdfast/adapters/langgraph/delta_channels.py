"""The history of delta channels: writes of ancestors since the last stored value.

A LangGraph `DeltaChannel` stores its value only at some checkpoints. In between, its value is the last stored one plus
the writes since, found by walking from parent to parent. Unlike LangGraph's own savers, this module reads ancestors in
pages, and keeps the contribution of removed ancestors as a *fold*, attached to the checkpoint whose parent was removed.
A pruned history is therefore never read as empty: a missing parent without a fold is an error.

The saver keeps the last history of each lane. A call for a later checkpoint reads only the checkpoints since. If the
thread has newer attachments than theirs, one may belong to an older ancestor, and everything is read again.

    fold := {channel: {"writes": [[task id, value], …], "seed": value}}     values as in record_codec
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import DeltaChannelHistory

from holdfast.adapters.langgraph.cache import LaneCache
from holdfast.adapters.langgraph.get import PAGE, ReadCheckpoint, Reader
from holdfast.adapters.langgraph.messages import Codec, Decoded
from holdfast.adapters.langgraph.record_codec import Stored, sorted_writes
from holdfast.adapters.langgraph.thread import ThreadRef, thread_ref
from holdfast.errors import DamagedData
from holdfast.model.rows import AttachmentRow, CheckpointRow, RunRow
from holdfast.operations.checkpoint_needs import FOLD
from holdfast.operations.context import StoreContext
from holdfast.store.port import CheckpointQuery, Select

Result = TypeVar("Result")

_RACES_MAX: Final = 20
Fold = dict[str, dict[str, Any]]


class ChannelHistory(NamedTuple):
    """The contribution of ancestors to one channel; writes newest first."""

    writes: list[list[Any]]
    """Task ids and values."""
    seed: list[Stored]
    """The nearest stored value: a list of at most one item."""


class KeptHistory(NamedTuple):
    """What a walk found before one checkpoint."""

    run: RunRow
    """As it was before the walk read anything else."""
    row: CheckpointRow
    lines: dict[str, ChannelHistory]
    size: int


Histories = LaneCache[KeptHistory]


def history(
    core: StoreContext, codec: Codec, histories: Histories, config: RunnableConfig, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """Return each channel's nearest stored value of an ancestor, and the writes since, oldest first."""
    if not channels:
        return {}
    ref = thread_ref(config)
    lines = retry_if_changed(core, ref.thread_id, lambda: walk(core, ref, channels, codec.decoded, histories))
    found: dict[str, DeltaChannelHistory] = {}
    for channel, line in lines.items():
        writes = [(write[0], channel, codec.load(write[1])) for write in reversed(line.writes)]
        found[channel] = {"writes": writes}
        if line.seed:
            found[channel]["seed"] = codec.load(line.seed[0])
    return found


def walk(
    core: StoreContext,
    ref: ThreadRef,
    channels: Iterable[str],
    decoded: Decoded | None = None,
    histories: Histories | None = None,
) -> dict[str, ChannelHistory]:
    """Return the histories of these channels before the checkpoint at `ref`, by default the newest."""
    lines = {channel: ChannelHistory([], []) for channel in channels}
    kept = histories.get(ref.thread_id, ref.lane) if histories is not None else None
    if kept is not None and not lines.keys() <= kept.lines.keys():
        kept = None
    open_, first, newer = set(lines), None, set[int]()
    for found in _ancestors(core, ref, open_, decoded, kept.row.number if kept is not None else 0):
        if first is None:
            first = found
        else:  # the checkpoint itself is not part of its history
            _add_writes(found, lines, open_)
        newer.update(found.numbers)
        fold = found.attached.get(FOLD)
        if fold is not None:
            _add_fold(fold, lines, open_)
        elif kept is not None and found.row == kept.row and _is_current(first.run, kept, newer):
            for channel in open_:
                lines[channel].writes.extend(kept.lines[channel].writes)
                lines[channel].seed.extend(kept.lines[channel].seed)
            break
        if fold is not None or not open_:
            break
    if histories is not None and first is not None:
        size = sum(_size(value) for line in lines.values() for value in (*line.writes, line.seed))
        histories.note(ref.thread_id, ref.lane, KeptHistory(first.run, first.row, lines, size))
    return lines


def _is_current(run: RunRow, kept: KeptHistory, newer: set[int]) -> bool:
    """Return whether no ancestor has changed since its history was read.

    Attachments have consecutive numbers. If `newer` has all those since, none of them belongs to an ancestor.
    """
    same = (run.incarnation, run.rewrites) == (kept.run.incarnation, kept.run.rewrites)
    return (
        same and run.attached >= kept.run.attached and newer.issuperset(range(kept.run.attached + 1, run.attached + 1))
    )


def _size(value: object) -> int:
    """The approximate size of a stored value, of a write or of several."""
    if isinstance(value, (bytes, str)):
        return len(value) + 64
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 64 + sum(map(_size, parts))


def _add_writes(found: ReadCheckpoint, lines: dict[str, ChannelHistory], open_: set[str]) -> None:
    for write in reversed(sorted_writes(found.attached)):
        if write.channel in open_:
            lines[write.channel].writes.append([write.task_id, write.value])
    for channel in [channel for channel in open_ if channel in found.record["values"]]:
        lines[channel].seed.append(found.record["values"][channel])
        open_.discard(channel)


def _add_fold(fold: Fold, lines: dict[str, ChannelHistory], open_: set[str]) -> None:
    for channel in open_ & fold.keys():
        lines[channel].writes.extend(reversed(fold[channel]["writes"]))
        lines[channel].seed.extend([fold[channel]["seed"]] if "seed" in fold[channel] else [])
    open_.clear()


def retry_if_changed(core: StoreContext, thread_id: str, read: Callable[[], Result]) -> Result:
    """Read, and retry if data is missing and the thread has changed. A prune may have removed the data."""
    seen: object = None
    for _ in range(_RACES_MAX):
        try:
            return read()
        except DamagedData:
            before, seen = seen, _thread_version(core, thread_id)
            if seen == before:
                raise
    return read()


def _thread_version(core: StoreContext, thread_id: str) -> object:
    """Return a value that changes with every addition to the thread and every removal."""
    run = core.port.run(thread_id)
    if run is None:
        return None
    attached = core.port.rows(AttachmentRow, run.run)
    return run, [row.number for row in core.port.rows(CheckpointRow, run.run)], [row.number for row in attached]


def to_fold(lines: Mapping[str, ChannelHistory]) -> Fold:
    """Convert histories to a fold."""
    return {
        channel: {"writes": line.writes[::-1], **({"seed": line.seed[0]} if line.seed else {})}
        for channel, line in lines.items()
        if line.writes or line.seed
    }


def _ancestors(
    core: StoreContext, ref: ThreadRef, open_: set[str], decoded: Decoded | None, known: int
) -> Iterator[ReadCheckpoint]:
    """Iterate over a checkpoint and its ancestors, which are read in pages. The first page ends at the number `known`.

    The caller stops when the channels in `open_` have no more history. A missing parent is damage only if one of these
    channels already had a version: otherwise the parent cannot have written to it, as with a channel that was added to
    the graph later.
    """
    first = core.port.checkpoint(ref.thread_id, Select(ref.lane, ref.checkpoint_id), attachments=True)
    if first is None or first[1] is None:
        return
    run, row, attached = first
    assert row is not None
    reader = Reader(core, run, {(row.lane, row.checkpoint_id): attached}, decoded)
    near: dict[str, CheckpointRow] = {}
    met: set[str] = set()
    while True:
        found = reader.read(row)
        yield found
        if row.parent_id is None:
            return
        met.add(row.checkpoint_id)
        if row.parent_id in met:
            raise DamagedData(f"thread {ref.thread_id!r}", f"the parents of {row.parent_id!r} lead back to it")
        if row.parent_id not in near:
            limit = min(PAGE, row.number - known) if known < row.number else PAGE
            older = _read_older(core, ref, row, limit)
            reader.fetch_attachments(older)
            there = {(other.number, other.checkpoint_id) for other in _read_older(core, ref, row, limit)}
            near = {name: other for other in older if (other.number, name := other.checkpoint_id) in there}
        parent = near.get(row.parent_id) or _read_parent(core, ref, row.parent_id, reader)
        if parent is None:
            if open_.isdisjoint(found.frame().versions):
                return
            raise DamagedData(
                f"thread {ref.thread_id!r}",
                f"checkpoint {row.checkpoint_id!r} needs the writes of its parent {row.parent_id!r}, which is missing",
            )
        row = parent


def _read_older(core: StoreContext, ref: ThreadRef, row: CheckpointRow, limit: int) -> list[CheckpointRow]:
    query = CheckpointQuery(ref.thread_id, lane=ref.lane, before=(0, row.number), limit=limit)
    return [older for _, older in core.port.find_checkpoints(query)]


def _read_parent(core: StoreContext, ref: ThreadRef, checkpoint_id: str, reader: Reader) -> CheckpointRow | None:
    """Read a parent that is not in the page before its child. A branch may start far back."""
    found = core.port.checkpoint(ref.thread_id, Select(ref.lane, checkpoint_id), attachments=True)
    if found is None or found[1] is None:
        return None
    reader.add_attachments(found[1], found[2])
    return found[1]
