"""The record: the journal of a run, grouped by call, for the replay.

A call has an identity inside its scope: name and occurrence (`price#1`), or the explicit key of the user. The record
keeps all entries of one call together. It is built from the live path, which excludes what a rollback removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from holdfast.engine.commands import EntryData
from holdfast.engine.state_edits import Edits
from holdfast.ids import full_name, is_named, local_name

Positioned = tuple[int, EntryData]
Calls = dict[str, list[Positioned]]
"""The entries of each call, by its full name."""
FINAL: Final = frozenset(
    {"step", "outcome", "answered", "received", "sent", "child_ended", "child_started", "refused", "compensated"}
    | {"value", "loop", "saved", "sleep", "map", "gather", "breakpoint"}
)
"""Kinds of entries that end a call."""
KEPT: Final = ("version", "definition", "cancelling")
"""Kinds of entries that every resume needs, in any turn of a loop."""


class ScopeRecord:
    """The recorded calls of one scope."""

    __slots__ = ("calls", "logs", "order")

    def __init__(self) -> None:
        self.calls: dict[str, list[EntryData]] = {}
        self.order: list[str] = []
        """The calls without an explicit key, in the order of their first entries."""
        self.logs = 0


class Record:
    """The recorded facts of a run that are needed to continue it."""

    def __init__(self) -> None:
        self.scopes: dict[str, ScopeRecord] = {}
        self.started: EntryData = {}
        self.ended: EntryData | None = None
        self.versions: dict[str, int] = {}
        self.kept: list[int] = []
        """The positions of entries of the kinds KEPT."""
        self.definition: Any = None
        """The definition of a declared workflow's run; None for other runs."""
        self.children: dict[str, EntryData] = {}
        """Children whose start is recorded and whose end is not."""
        self.gates: set[str] = set()
        self.unreached: list[str] = []
        """Open gates that the code did not reach when the run last waited."""
        self.timers: set[str] = set()
        self.cancelled_by: str | None = None
        self.cancelled_via = ""
        self.diverged: Exception | None = None
        """Why the code cannot continue with this journal."""
        self.rollback: list[EntryData] = []
        """The entries of an unfinished rollback."""
        self.fatal: Exception | None = None
        """The run fails with this error, even if a task or a framework between loses it."""
        self.edits: Edits | None = None
        """Changes of the state from outside that are not applied yet."""

    def scope(self, path: str) -> ScopeRecord | None:
        """The recorded calls of the scope; None if there are none."""
        return self.scopes.get(path)

    def unseen(self, prefix: str = "", path: str = "") -> EntryData | None:
        """The first recorded call that the code has not reached, of all or in the scopes below `path`."""
        scopes = [scope for name, scope in self.scopes.items() if name == path or name.startswith(prefix)]
        left = [calls[0] for scope in scopes for calls in scope.calls.values() if "seen" not in calls[0]]
        return min(left, key=lambda entry: entry["position"]) if left else None

    def unreached_gates(self) -> list[str]:
        """The open gates of recorded calls that the code has not reached."""
        left = [
            entries for scope in self.scopes.values() for entries in scope.calls.values() if "seen" not in entries[0]
        ]
        asked = [entry["gate"] for entries in left for entry in entries if entry["kind"] == "asked"]
        return sorted(self.gates.intersection(asked))


def live_path(entries: Iterable[Positioned]) -> list[Positioned]:
    """The journal without the entries that rollbacks removed: those after `to`, and void ones.

    The entries `rolled_back` and, in a fork, `forked` stay.
    """
    live: list[Positioned] = []
    for position, entry in entries:
        if entry["kind"] in ("rolled_back", "forked"):
            while live and live[-1][0] > entry["to"]:
                live.pop()
            void = set(entry["void"])
            live = [(at, kept) for at, kept in live if at not in void] if void else live
        live.append((position, entry))
    return live


def calls_of(live: Iterable[Positioned]) -> Calls:
    """The calls of a live path in the order of their first entries; log lines are not calls."""
    calls: Calls = {}
    for position, entry in live:
        if "call" in entry and entry["kind"] != "log":
            calls.setdefault(full_name(entry.get("in", ""), entry["call"]), []).append((position, entry))
    return calls


def record_of(entries: Iterable[Positioned]) -> Record:
    """The record of a live path."""
    record = Record()
    for position, entry in entries:
        entry["position"] = position
        if "call" in entry:
            _note_call(record, entry)
        else:
            _note_fact(record, entry)
    return record


def _note_call(record: Record, entry: EntryData) -> None:
    path = entry.get("in", "")
    scope = record.scopes.get(path)
    if scope is None:
        scope = record.scopes[path] = ScopeRecord()
    if entry["kind"] == "log":
        scope.logs += 1
        return
    call = entry["call"]
    known = scope.calls.get(call)
    if known is None:
        scope.calls[call] = [entry]
        if "keyed" not in entry:
            scope.order.append(call)
    else:
        known.append(entry)
    if entry["kind"] not in ("step", "value"):
        _note_open(record, entry)


def _note_open(record: Record, entry: EntryData) -> None:
    """Note open gates, timers and children."""
    match entry["kind"]:
        case "asked":
            record.gates.add(entry["gate"])
        case "answered":
            record.gates.discard(entry["gate"])
        case "child":
            record.children[entry["child"]] = entry
        case "child_ended":
            record.children.pop(entry["child"], None)
        case "cancelling":
            record.cancelled_by, record.cancelled_via = entry["by"], entry.get("via", "")
            record.kept.append(entry["position"])
    if "timer" in entry:
        record.timers.add(entry["timer"])


def _note_fact(record: Record, entry: EntryData) -> None:
    match entry["kind"]:
        case "started":
            record.started = entry
            record.definition = entry.get("definition")
        case "completed" | "failed" | "cancelled":
            record.ended = entry
        case "version":
            record.versions[entry["name"]] = entry["number"]
            record.kept.append(entry["position"])
        case "definition":
            record.definition = entry["definition"]
            record.kept.append(entry["position"])
        case "unreached":
            record.unreached = entry["gates"]
        case "rolling_back":
            record.rollback = [entry]
        case "undoing" | "undone" | "undo_failed":
            record.rollback.append(entry)
        case "rolled_back":
            record.rollback = []


def describe_entry(entry: EntryData) -> str:
    """The name of an entry in errors."""
    name = entry.get("call")
    return describe_call(entry["kind"], full_name(entry.get("in", ""), name)) if name else str(entry["kind"])


def describe_call(kind: str, name: str) -> str:
    """The name of a call in errors, from the kind of its first entry."""
    noun = {"asked": "gate", "intent": "effect"}.get(kind, kind)
    return f"{noun} {name!r}"


_STAGES: Final = "loop#1"
"""The loop of a declared workflow; each of its turns is a stage."""
LISTED_MAX: Final = 10


class Place(NamedTuple):
    """A call or stage that a name may mean: the position before it, and its full name."""

    position: int
    name: str


def find_places(live: list[Positioned], nodes: Mapping[int, str | None], name: str) -> list[Place]:
    """The places that `name` may mean, oldest first: a call's full name, a stage, or a call's short name.

    `nodes`: the next stage, by the position that a checkpoint covers.
    """
    calls = {full: entries[0][0] for full, entries in calls_of(live).items()}
    if name in calls:
        return [Place(calls[name] - 1, name)]
    stages = [Place(position, stage) for position, stage in _stages(live, nodes) if stage == name]
    return stages or [Place(position - 1, full) for full, position in calls.items() if is_named(full, name)]


def known_names(live: list[Positioned], nodes: Mapping[int, str | None]) -> list[str]:
    """The names of the run's places, oldest first: its stages, and its calls by their local names."""
    stages = [stage for _, stage in _stages(live, nodes)]
    return list(dict.fromkeys([*stages, *map(local_name, calls_of(live))]))


def _stages(live: list[Positioned], nodes: Mapping[int, str | None]) -> list[tuple[int, str]]:
    """The stages that a declared workflow reached, each with the position before it; rounds of a stage are one."""
    started = live[0][1] if live else {}
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
