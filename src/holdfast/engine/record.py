"""The record: what the journal says a run has done, sorted so that a replay finds it.

A call has an identity inside its scope: name and occurrence (`price#1`), or the explicit key the user gave. All
entries about one call stand together. Everything reads the live path: what a rollback took back is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.engine.commands import EntryData
from holdfast.engine.edits import Edits
from holdfast.errors import InvalidInput, RunError

Positioned = tuple[int, EntryData]

FINAL: Final = frozenset(
    {
        "step",
        "outcome",
        "answered",
        "received",
        "sent",
        "child_ended",
        "child_started",
        "value",
        "loop",
        "saved",
        "sleep",
        "refused",
        "map",
        "gather",
        "breakpoint",
        "compensated",
    }
)
"""Kinds of entries after which nothing more comes of a call."""
KEPT: Final = ("version", "definition", "cancelling")
"""Kinds of entries that matter in whatever turn of a loop they stand."""


class ScopeRecord:
    """What is recorded of one scope."""

    __slots__ = ("calls", "logs", "order")

    def __init__(self) -> None:
        self.calls: dict[str, list[EntryData]] = {}
        self.order: list[str] = []
        """The calls without an explicit key, in the order in which they were first recorded."""
        self.logs = 0


class Record:
    """What is recorded of a run, as far as it is needed to go on."""

    def __init__(self) -> None:
        self.scopes: dict[str, ScopeRecord] = {}
        self.started: EntryData = {}
        self.ended: EntryData | None = None
        self.versions: dict[str, int] = {}
        self.kept: list[int] = []
        """Where these, definitions and a cancellation are recorded."""
        self.definition: Any = None
        """What a declared workflow's run goes by; None for other runs."""
        self.children: dict[str, EntryData] = {}
        """Children that were started and have not ended, as far as is recorded."""
        self.gates: set[str] = set()
        self.unreached: list[str] = []
        """Open gates that the code did not come to when the run last waited."""
        self.timers: set[str] = set()
        self.cancelled_by: str | None = None
        self.diverged: RunError | None = None
        """Why the code cannot go on with this journal."""
        self.rollback: list[EntryData] = []
        """The entries of a rollback that has begun and not ended."""
        self.misused: InvalidInput | None = None
        """Two calls without a key were made at once: the run fails, even if a task that no code looks at raised it."""
        self.edits: Edits | None = None
        """Changes of the state from outside that are still to be applied."""

    def scope(self, path: str) -> ScopeRecord | None:
        """What is recorded of the scope, if anything."""
        return self.scopes.get(path)

    def unseen(self, prefix: str = "", path: str = "") -> EntryData | None:
        """The first recorded call that the code has not come to, of all or in the scopes below `path`."""
        scopes = [scope for name, scope in self.scopes.items() if name == path or name.startswith(prefix)]
        left = [calls[0] for scope in scopes for calls in scope.calls.values() if "seen" not in calls[0]]
        return min(left, key=lambda entry: entry["position"]) if left else None

    def unreached_gates(self) -> list[str]:
        """The open gates of recorded calls that the code has not come to."""
        left = [
            entries for scope in self.scopes.values() for entries in scope.calls.values() if "seen" not in entries[0]
        ]
        asked = [entry["gate"] for entries in left for entry in entries if entry["kind"] == "asked"]
        return sorted(self.gates.intersection(asked))


def live_path(entries: Iterable[Positioned]) -> list[Positioned]:
    """The journal without what rollbacks took back: what came after `to`, and calls that were cut in two.

    The entries that say so, `rolled_back` and for a fork `forked`, stay.
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


def record_of(entries: Iterable[Positioned]) -> Record:
    """Sort the entries of a live path."""
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
        _note_standing(record, entry)


def _note_standing(record: Record, entry: EntryData) -> None:
    """Keep account of what stands open: gates, timers, children."""
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
            record.cancelled_by = entry["by"]
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


def full_name(scope: str, call: str) -> str:
    """How a call is named to users: its scope and its identity in it."""
    return f"{scope}/{call}" if scope else call


def shown(entry: EntryData) -> str:
    """How an entry is named in errors."""
    name: Any = entry.get("call")
    return f"{entry['kind']} {full_name(entry.get('in', ''), name)!r}" if name else str(entry["kind"])
