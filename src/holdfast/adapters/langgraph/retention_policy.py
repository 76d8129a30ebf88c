"""Rules that choose the checkpoints of a thread to remove.

`keep_latest` and `keep_recent` keep the newest checkpoint of each namespace, unless it belongs to a finished call of a
subgraph. The rules are pure: they use only the rows of the checkpoints.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from holdfast.adapters.langgraph.thread import lane_of
from holdfast.errors import InvalidInput
from holdfast.model.rows import CheckpointRow
from holdfast.operations.views import metadata_dict

Choose = Callable[[list[CheckpointRow]], set[int]]
"""A rule: receives the checkpoints of a thread, oldest first, and returns the numbers of those to remove."""


def remove_named(which: set[tuple[int, str]]) -> Choose:
    """Return a rule that removes the checkpoints with these numbers and ids."""
    return lambda rows: {row.number for row in rows if (row.number, row.checkpoint_id) in which}


def _all_but_newest(rows: Iterable[CheckpointRow], count: int) -> set[int]:
    """Return the checkpoints that are not among the newest `count` of their lane."""
    lanes: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        lanes[row.lane].append(row.number)
    return {number for numbers in lanes.values() for number in numbers[:-count]}


def keep_latest(rows: list[CheckpointRow]) -> set[int]:
    """Choose all checkpoints but the newest of each namespace, and all of finished subgraph calls."""
    gone = _all_but_newest(rows, 1)
    return gone | _finished_calls(rows, gone)


def _finished_calls(rows: list[CheckpointRow], gone: set[int]) -> set[int]:
    """Return the checkpoints of subgraph calls to remove with the checkpoints they were called from.

    Every call of a subgraph has its own namespace, named by its task, and its metadata names the checkpoints it was
    called from: that of the graph and those of enclosing subgraphs. Neither numbers nor ids decide, because a call may
    be saved before the checkpoint it was called from, and clocks may go backwards. So a call is kept if the checkpoint
    it was called from is kept, is not saved yet or is unknown. A subgraph with memory across calls has a namespace
    without a task, and is kept.
    """
    removed = {(row.lane, row.checkpoint_id) for row in rows if row.number in gone}
    newest = {row.lane: row for row in rows if ":" in row.lane}
    finished = {lane for lane, row in newest.items() if any(caller in removed for caller in _callers(row))}
    return {row.number for row in rows if _enclosing_lanes(row.lane) & finished}


def _callers(row: CheckpointRow) -> Iterator[tuple[str, str]]:
    """Iterate over the lanes and ids of the checkpoints that a subgraph was called from."""
    parents = metadata_dict(row.metadata, f"checkpoint {row.checkpoint_id!r}").get("parents")
    for namespace, checkpoint_id in parents.items() if isinstance(parents, dict) else ():
        with suppress(InvalidInput):  # not a valid namespace
            yield lane_of(namespace), str(checkpoint_id)


def _enclosing_lanes(lane: str) -> set[str]:
    """Return the lane and the lanes of the enclosing calls."""
    parts = lane.split("|")
    return {"|".join(parts[: end + 1]) for end in range(len(parts))}


def keep_recent(last: int | None, since_us: int | None) -> Choose:
    """Return a rule that keeps the `last` checkpoints per namespace and those since `since_us`."""

    def choose(rows: list[CheckpointRow]) -> set[int]:
        old = {row.number for row in rows if since_us is None or row.created_us < since_us}
        gone = old & _all_but_newest(rows, 1 if last is None else last)
        gone -= _replay_starts(rows, gone)
        return gone | _finished_calls(rows, gone)

    return choose


def _replay_starts(rows: list[CheckpointRow], gone: set[int]) -> set[int]:
    """Return the checkpoints of subgraphs with memory that replays of kept ones start from.

    LangGraph reads the one with the largest id below that of the graph's checkpoint.
    """
    lanes: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in rows:
        lanes[row.lane].append((row.checkpoint_id, row.number))
    kept = [checkpoint_id for checkpoint_id, number in lanes.pop("", []) if number not in gone]
    found: set[int] = set()
    for places in (sorted(places) for lane, places in lanes.items() if ":" not in lane):
        below = {bisect_left(places, (checkpoint_id, 0)) for checkpoint_id in kept} - {0}
        found |= {places[end - 1][1] for end in below}
    return found
