"""Positions by name: where in a run's journal a stage or a call was begun. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdfast.engine.record import Positioned, full_name
from holdfast.model.names import is_named, local_name

_STAGES: Final = "loop#1"
"""The loop of a declared workflow, each turn of which is a stage."""
LISTED_MAX: Final = 10


class Place(NamedTuple):
    """A place that a name may mean: the position just before it, and its full name."""

    position: int
    name: str


def find_places(live: list[Positioned], nodes: Mapping[int, str | None], name: str) -> list[Place]:
    """The places that `name` may mean, oldest first: a call's full name, a stage, or a call's short name.

    `nodes`: which stage comes next, by the position that a checkpoint covers.
    """
    calls: dict[str, int] = {}
    for position, entry in live:
        if "call" in entry and entry["kind"] != "log":
            calls.setdefault(full_name(entry.get("in", ""), entry["call"]), position)
    if name in calls:
        return [Place(calls[name] - 1, name)]
    stages = [Place(position, stage) for position, stage in _stages(live, nodes) if stage == name]
    return stages or [Place(position - 1, full) for full, position in calls.items() if is_named(full, name)]


def known_names(live: list[Positioned], nodes: Mapping[int, str | None]) -> list[str]:
    """The names that places of the run go by, oldest first: its stages, and its calls as they are shown."""
    calls = [
        local_name(full_name(entry.get("in", ""), entry["call"]))
        for _, entry in live
        if "call" in entry and entry["kind"] != "log"
    ]
    return list(dict.fromkeys([stage for _, stage in _stages(live, nodes)] + calls))


def _stages(live: list[Positioned], nodes: Mapping[int, str | None]) -> list[tuple[int, str]]:
    """The stages a declared workflow came to, each with the position before it; rounds of a stage are one."""
    started: Any = live[0][1] if live else {}
    graph = (started.get("definition") or {}).get("graph")
    if not isinstance(graph, dict):
        return []
    first = graph.get("start") or next((stage.get("id") for stage in graph.get("stages", ())), None)
    found: list[tuple[int, str]] = [(1, first)] if isinstance(first, str) else []
    for position, entry in live:
        begins = entry["kind"] in ("rolled_back", "forked") or (entry["kind"] == "turn" and entry["loop"] == _STAGES)
        node = nodes.get(position) if begins else None
        if node and (not found or found[-1][1] != node):
            found.append((position, node))
    return found
