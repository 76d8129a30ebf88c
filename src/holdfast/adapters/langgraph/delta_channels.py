"""The history of delta channels: writes of ancestors since the last stored value.

A LangGraph `DeltaChannel` stores its value only at some checkpoints. In between, its value is the last stored one plus
the writes since, found by walking from parent to parent. Unlike LangGraph's own savers, this module reads ancestors in
pages, and keeps the contribution of removed ancestors as a *fold*, attached to the checkpoint whose parent was removed.
A pruned history is therefore never read as empty: a missing parent without a fold is an error.

    fold := {channel: {"writes": [[task id, value], …], "seed": value}}     values as in record_codec
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import DeltaChannelHistory

from holdfast.adapters.langgraph.get import PAGE, ReadCheckpoint, Reader
from holdfast.adapters.langgraph.messages import Codec, Decoded
from holdfast.adapters.langgraph.record_codec import Stored, sorted_writes
from holdfast.adapters.langgraph.thread import ThreadRef, thread_ref
from holdfast.errors import DamagedData
from holdfast.model.rows import AttachmentRow, CheckpointRow
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


def history(
    core: StoreContext, codec: Codec, config: RunnableConfig, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """Return each channel's nearest stored value of an ancestor, and the writes since, oldest first."""
    if not channels:
        return {}
    ref = thread_ref(config)
    lines = retry_if_changed(core, ref.thread_id, lambda: walk(core, ref, channels, codec.decoded))
    found: dict[str, DeltaChannelHistory] = {}
    for channel, line in lines.items():
        writes = [(write[0], channel, codec.load(write[1])) for write in reversed(line.writes)]
        found[channel] = {"writes": writes}
        if line.seed:
            found[channel]["seed"] = codec.load(line.seed[0])
    return found


def walk(
    core: StoreContext, ref: ThreadRef, channels: Iterable[str], decoded: Decoded | None = None
) -> dict[str, ChannelHistory]:
    """Return the histories of these channels before the checkpoint at `ref`, by default the newest."""
    lines = {channel: ChannelHistory([], []) for channel in channels}
    open_ = set(lines)
    for step, found in enumerate(_ancestors(core, ref, open_, decoded)):
        if step:  # the checkpoint itself is not part of its history
            _add_writes(found, lines, open_)
        fold = found.attached.get(FOLD)
        if fold is not None:
            _add_fold(fold, lines, open_)
            break
        if not open_:
            break
    return lines


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
    core: StoreContext, ref: ThreadRef, open_: set[str], decoded: Decoded | None
) -> Iterator[ReadCheckpoint]:
    """Iterate over a checkpoint and its ancestors, which are read in pages.

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
            older = _read_older(core, ref, row)
            reader.fetch_attachments(older)
            there = {(other.number, other.checkpoint_id) for other in _read_older(core, ref, row)}
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


def _read_older(core: StoreContext, ref: ThreadRef, row: CheckpointRow) -> list[CheckpointRow]:
    query = CheckpointQuery(ref.thread_id, lane=ref.lane, before=(0, row.number), limit=PAGE)
    return [older for _, older in core.port.find_checkpoints(query)]


def _read_parent(core: StoreContext, ref: ThreadRef, checkpoint_id: str, reader: Reader) -> CheckpointRow | None:
    """Read a parent that is not in the page before its child. A branch may start far back."""
    found = core.port.checkpoint(ref.thread_id, Select(ref.lane, checkpoint_id), attachments=True)
    if found is None or found[1] is None:
        return None
    reader.add_attachments(found[1], found[2])
    return found[1]
