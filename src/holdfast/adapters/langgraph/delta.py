"""The history of delta channels: what ancestors wrote since the last stored value.

A LangGraph `DeltaChannel` stores its value only now and then; in between, its value is that one and what was written
since, found by walking from parent to parent. Two things differ here from LangGraph's own savers. Ancestors are read
in pages. And when ancestors are removed, what they contributed is kept: a *fold*, attached to the checkpoint whose
parent went, says what the walk would have found. So nothing is read back as empty because it was pruned: a parent that
is missing without a fold is an error.

    fold := {channel: {"writes": [[task id, value], …], "seed": value}}     values as in record.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import DeltaChannelHistory
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.reading import PAGE, Found, Reader
from holdfast.adapters.langgraph.record import Stored, loaded, sorted_writes
from holdfast.adapters.langgraph.threads import Spot, spot_of
from holdfast.errors import DamagedData
from holdfast.model.rows import CheckpointRow
from holdfast.store.port import CheckpointQuery, Select
from holdfast.verbs.core import Core
from holdfast.verbs.lineage import FOLD

Result = TypeVar("Result")

_RACES_MAX: Final = 20


class Line(NamedTuple):
    """What ancestors contributed to one channel; writes newest first, as the walk meets them."""

    writes: list[list[Any]]
    """Task ids and values."""
    seed: list[Stored]
    """None or one."""


def history(
    core: Core, serde: SerializerProtocol, config: RunnableConfig, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """For each channel, the nearest stored value above the checkpoint, and what was written since, oldest first."""
    if not channels:
        return {}
    spot = spot_of(config)
    lines = in_peace(core, spot.thread_id, lambda: walk(core, spot, channels))
    found: dict[str, DeltaChannelHistory] = {}
    for channel, line in lines.items():
        writes = [(write[0], channel, loaded(serde, write[1])) for write in reversed(line.writes)]
        found[channel] = {"writes": writes}
        if line.seed:
            found[channel]["seed"] = loaded(serde, line.seed[0])
    return found


def walk(core: Core, spot: Spot, channels: Iterable[str]) -> dict[str, Line]:
    """The lines of these channels above the checkpoint at `spot`, or above the newest of its namespace."""
    lines = {channel: Line([], []) for channel in channels}
    open_ = set(lines)
    for step, found in enumerate(_upwards(core, spot, open_)):
        if step:  # what is stored at the first is its own, and not its history
            _take(found, lines, open_)
        fold = found.attached.get(FOLD)
        if fold is not None:
            _unfold(fold, lines, open_)
            break
        if not open_:
            break
    return lines


def _take(found: Found, lines: dict[str, Line], open_: set[str]) -> None:
    for write in reversed(sorted_writes(found.attached)):
        if write.channel in open_:
            lines[write.channel].writes.append([write.task_id, write.value])
    for channel in [channel for channel in open_ if channel in found.record["values"]]:
        lines[channel].seed.append(found.record["values"][channel])
        open_.discard(channel)


def _unfold(fold: Mapping[str, Any], lines: dict[str, Line], open_: set[str]) -> None:
    for channel in open_ & fold.keys():
        lines[channel].writes.extend(reversed(fold[channel]["writes"]))
        lines[channel].seed.extend([fold[channel]["seed"]] if "seed" in fold[channel] else [])
    open_.clear()


def in_peace(core: Core, thread_id: str, read: Callable[[], Result]) -> Result:
    """Read again if something seemed to be missing and the thread was changed meanwhile: it may only be pruned."""
    seen: object = None
    for _ in range(_RACES_MAX):
        try:
            return read()
        except DamagedData:
            before, seen = seen, _look(core, thread_id)
            if seen == before:
                raise
    return read()


def _look(core: Core, thread_id: str) -> object:
    """Something that is another if anything was added to the thread or removed from it."""
    run = core.port.run(thread_id)
    if run is None:
        return None
    beside = core.port.attachments(run.run, None, None)
    return run, [row.number for row in core.port.checkpoints(run.run, 0, -1)], [row.number for row in beside]


def folded(lines: Mapping[str, Line]) -> dict[str, Any]:
    """These lines as a fold."""
    return {
        channel: {"writes": line.writes[::-1], **({"seed": line.seed[0]} if line.seed else {})}
        for channel, line in lines.items()
        if line.writes or line.seed
    }


def _upwards(core: Core, spot: Spot, open_: set[str]) -> Iterator[Found]:
    """The checkpoint and its ancestors, read in pages, up to where the channels in `open_` were first written to.

    A removed parent is damage only if one of these channels had a version by then: else it cannot have written to any,
    as with a channel that the graph got later.
    """
    first = core.port.whole_checkpoint(spot.thread_id, Select(spot.lane, spot.checkpoint_id))
    if first is None or first[1] is None:
        return
    run, row, beside = first
    assert row is not None
    reader = Reader(core, run, {(row.lane, row.checkpoint_id): beside})
    near: dict[str, CheckpointRow] = {}
    met: set[str] = set()
    while True:
        found = reader.found(row)
        yield found
        if row.parent_id is None:
            return
        met.add(row.checkpoint_id)
        if row.parent_id in met:
            raise DamagedData(f"thread {spot.thread_id!r}", f"the parents of {row.parent_id!r} lead back to it")
        if row.parent_id not in near:
            older = _older(core, spot, row)
            reader.attachments_of(older)
            there = {(other.number, other.checkpoint_id) for other in _older(core, spot, row)}
            near = {name: other for other in older if (other.number, name := other.checkpoint_id) in there}
        parent = near.get(row.parent_id) or _one(core, spot, row.parent_id, reader)
        if parent is None:
            if open_.isdisjoint(found.frame.versions):
                return
            raise DamagedData(
                f"thread {spot.thread_id!r}",
                f"checkpoint {row.checkpoint_id!r} needs what its parent {row.parent_id!r} wrote, which is missing",
            )
        row = parent


def _older(core: Core, spot: Spot, row: CheckpointRow) -> list[CheckpointRow]:
    query = CheckpointQuery(spot.thread_id, lane=spot.lane, before=(0, row.number), limit=PAGE)
    return [older for _, older in core.port.find_checkpoints(query)]


def _one(core: Core, spot: Spot, checkpoint_id: str, reader: Reader) -> CheckpointRow | None:
    """An ancestor that is not among the checkpoints saved just before: a branch goes on from far back."""
    found = core.port.whole_checkpoint(spot.thread_id, Select(spot.lane, checkpoint_id))
    if found is None or found[1] is None:
        return None
    reader.know(found[1], found[2])
    return found[1]
