"""Calls of a workflow: journal entries grouped by call, and turns shown as stages.

All entries about one call belong to one record. A rollback takes back the records that have an entry after the position
it returns to, or an entry it declares void. The same call may then appear again, as another record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from holdfast.ids import full_name
from holdfast.inspect.views import Row

if TYPE_CHECKING:
    from holdfast.engine.commands import EntryData

KINDS: Final = {
    **{kind: kind for kind in ("step", "sleep", "wait", "child", "map", "gather", "loop", "value", "breakpoint")},
    **dict.fromkeys(("intent", "outcome"), "effect"),
    **dict.fromkeys(("asked", "answered"), "ask"),
    **dict.fromkeys(("child_started", "child_ended"), "child"),
    **dict.fromkeys(("refused", "cancelling"), "call"),
    "attempt": "step",
    "received": "wait",
    "sent": "send",
    "saved": "checkpoint",
    "compensating": "compensate",
}
"""The kind of row for each kind of a call's first entry."""
_ROLLBACK: Final = frozenset({"rolling_back", "undoing", "undone", "undo_failed", "rolled_back"})
FACTS: Final = {
    **dict.fromkeys(("completed", "failed", "cancelled"), "ended"),
    **{
        kind: kind for kind in ("started", "version", "paused", "resumed", "diverged", "forked", "pruned", "definition")
    },
    "unreached": "unreached",
}
"""The kind of row for each kind of entry that is not part of a call."""


class JournalEntry(NamedTuple):
    """An entry of the journal, decoded."""

    position: int
    kind: str
    created_us: int
    data: EntryData
    commit: bytes = b""
    """Entries of one commit were written together."""

    @property
    def scope(self) -> str:
        """The scope of the call it is about."""
        return text_of(self.data.get("in"))

    @property
    def call(self) -> str:
        """The full name of the call it is about."""
        return full_name(self.scope, text_of(self.data.get("call")))

    @property
    def began_us(self) -> int:
        """When the work that it records began: its own time, less what the function took."""
        return self.created_us - max(0, number_of(self.data.get("us")))


class CallRecord(msgspec.Struct):
    """The entries that become one row."""

    kind: str
    name: str
    call: str
    scope: str
    entries: list[JournalEntry]
    taken_back: bool = False
    parts: list[CallRecord] = []
    """Of a turn: the records of the calls in it."""

    @property
    def first(self) -> JournalEntry:
        return self.entries[0]

    @property
    def last(self) -> JournalEntry:
        return self.entries[-1]

    def of(self, *kinds: str) -> JournalEntry | None:
        """Return the newest entry of these kinds."""
        return next((met for met in reversed(self.entries) if met.kind in kinds), None)


def number_of(value: object) -> int:
    """A whole number from an entry; 0 if it is not one."""
    return value if type(value) is int else 0


def text_of(value: object) -> str:
    """A text from an entry; empty if it is not one."""
    return value if type(value) is str else ""


def is_retry(kind: str, data: Mapping[str, object]) -> bool:
    """Whether an entry is about the retry of a failed run, which is recorded like a rollback.

    Entries of earlier versions do not have the field.
    """
    return kind in ("rolling_back", "rolled_back") and data.get("retry") is True


def group_calls(entries: list[JournalEntry]) -> list[CallRecord]:
    """All records, in the order of their first entries; a turn of a loop precedes the calls in it."""
    work = _Grouping()
    for met in entries:
        work.add(met)
    if not is_declared(entries):
        work.add_last_turns()
    return sorted(work.drafts, key=lambda draft: (draft.first.position, draft.kind != "turn"))


class _Grouping:
    def __init__(self) -> None:
        self.drafts: list[CallRecord] = []
        self._calls: dict[str, CallRecord] = {}
        self._rollback: CallRecord | None = None
        self._turn_ends: dict[str, int] = {}
        """How many records there were when the last turn of a loop ended: the next turn begins after them."""

    def add(self, met: JournalEntry) -> None:
        call = met.data.get("call")
        if type(call) is str and (met.kind in KINDS or met.call in self._calls):
            self._add_call(met, call)
        elif met.kind == "turn":
            self._end_turn(met)
        elif met.kind in _ROLLBACK:
            self._add_rollback(met)
        else:
            kind = FACTS.get(met.kind, "log" if met.kind == "log" else "entry")
            name = text_of(met.data.get("name")) or met.kind
            self.drafts.append(CallRecord(kind, name, "", met.scope, [met]))
        if met.kind in ("rolled_back", "forked"):
            self._take_back(met)

    def _add_call(self, met: JournalEntry, call: str) -> None:
        name = met.call
        known = self._calls.get(name)
        if known is not None:
            known.entries.append(met)
            return
        plain = text_of(met.data.get("name")) or call.rpartition("#")[0] or call
        draft = self._calls[name] = CallRecord(KINDS[met.kind], plain, name, met.scope, [met])
        self.drafts.append(draft)
        if met.kind == "loop":
            self._turn_ends.setdefault(name, 0)

    def _end_turn(self, met: JournalEntry) -> None:
        loop, number = text_of(met.data.get("loop")), number_of(met.data.get("turn"))
        self._add_turn(loop, number, met)

    def add_last_turns(self) -> None:
        """Add the turn that each loop is in, or was left in: the journal has no entry for its end."""
        for loop, at in list(self._turn_ends.items()):
            turn = re.compile(re.escape(loop) + r"\[([0-9]{1,18})\]")
            scopes = [turn.match(draft.scope) for draft in self.drafts[at:] if not draft.taken_back]
            number = next((int(found[1]) for found in scopes if found), 0)
            if number and f"{loop}[{number}]" not in self._calls:
                self._add_turn(loop, number, None)

    def _add_turn(self, loop: str, number: int, end: JournalEntry | None) -> None:
        """Add the record of a turn. No entry marks its start, so it begins when the first call in it began.

        A turn without calls begins when the one before it ended, the first one with its loop.
        """
        scope = f"{loop}[{number}]"
        since = self.drafts[self._turn_ends.get(loop, 0) :]
        parts = [draft for draft in since if not draft.taken_back and is_within(draft.scope, scope)]
        data: EntryData = {"turn": number} if end is None else end.data
        entries = [end or parts[-1].last._replace(kind="in_turn", data=data)]
        before = self._calls.get(f"{loop}[{number - 1}]" if number > 1 else loop)
        if parts:
            began_us = min(draft.first.began_us for draft in parts)
            entries.insert(0, parts[0].first._replace(kind="turn", data=data, created_us=began_us))
        elif before is not None:
            entries.insert(0, entries[0]._replace(created_us=before.last.created_us))
        outer = loop.rpartition("/")[0]
        self.drafts.append(CallRecord("turn", f"turn {number}", scope, outer, entries, parts=parts))
        self._calls[scope] = self.drafts[-1]
        self._turn_ends[loop] = len(self.drafts)

    def _add_rollback(self, met: JournalEntry) -> None:
        if met.kind == "rolling_back" or self._rollback is None:
            self._rollback = CallRecord("rollback", "rollback", "", "", [met])
            self.drafts.append(self._rollback)
        else:
            self._rollback.entries.append(met)
        if met.kind == "rolled_back":
            self._rollback = None

    def _take_back(self, met: JournalEntry) -> None:
        to = number_of(met.data.get("to"))
        positions = met.data.get("void")
        void = {at for at in positions if type(at) is int} if isinstance(positions, list) else set()
        for draft in self.drafts:
            if draft.kind in ("rollback", "forked", "pruned") or draft.taken_back:
                continue
            if any(entry.position > to or entry.position in void for entry in draft.entries):
                draft.taken_back = True
        self._calls = {name: draft for name, draft in self._calls.items() if not draft.taken_back}


def is_within(scope: str, outer: str) -> bool:
    """Whether a scope is `outer` or lies in it."""
    return scope == outer or scope.startswith(f"{outer}/")


# --- stages of declared workflows ------------------------------------------------------------------------------------
#
# A declared workflow has one loop, and each turn of it is shown as a stage. A checkpoint names the stage that comes
# next, and so the following turn. The first turn, and one after a rollback, is named by its first call, which has the
# name of its stage.

LAST_TURN: Final = "the last turn; includes calls after the loop"
"""The text of a turn without an end. After a `break`, the engine records the calls in the scope of that turn."""
UNSATISFIED: Final = "unsatisfied"
_LOOP_SCOPE: Final = "loop#1["


def is_declared(entries: Sequence[JournalEntry]) -> bool:
    """Whether a journal begins with the definition of its workflow."""
    return bool(entries) and entries[0].kind == "started" and isinstance(entries[0].data.get("definition"), dict)


def with_stages(rows: Sequence[Row], last: JournalEntry | None = None) -> list[Row]:
    """Return the rows with turns as stages. `last`: the last entry, which ends the last stage."""
    rows = _with_last_stage(rows, last)
    found: list[Row] = []
    coming: str | None = None
    for at, row in enumerate(rows):
        if row.kind != "turn":
            coming = row.next_node if row.kind in ("rollback", "forked") else coming
            found.append(row)
            continue
        name = coming or _first_call(rows, at) or row.name
        if row.state == UNSATISFIED:
            row = msgspec.structs.replace(row, text="ended before its `until` condition was met")  # noqa: PLW2901
        found.append(msgspec.structs.replace(row, kind="stage", name=name))
        coming = row.next_node
    return found


def _with_last_stage(rows: Sequence[Row], last: JournalEntry | None) -> Sequence[Row]:
    """Add a turn for the last stage, if that ended before its condition was met."""
    if last is None or last.kind != "completed" or not last.data.get("unsatisfied"):
        return rows
    scopes = [
        row.scope.partition("/")[0] for row in rows if row.state != "taken_back" and row.scope.startswith(_LOOP_SCOPE)
    ]
    if not scopes:
        return rows
    at = next(at for at, row in enumerate(rows) if row.state != "taken_back" and row.scope.startswith(scopes[-1]))
    first, number = rows[at], scopes[-1].removeprefix(_LOOP_SCOPE).rstrip("]")
    turn = Row(
        kind="turn",
        name=f"turn {number}",
        call=scopes[-1],
        state=UNSATISFIED,
        started_at=first.started_at,
        ended_at=rows[-1].ended_at,
        first=first.first,
        last=last.position,
    )
    return [*rows[:at], turn, *rows[at:]]


def _first_call(rows: Sequence[Row], at: int) -> str:
    """Return the name of the first call in a turn, whose row follows that of the turn."""
    scope = rows[at].call
    inside = next((row for row in rows[at + 1 : at + 2] if row.scope == scope), None)
    return inside.call.rpartition("/")[2].rpartition("#")[0] if inside is not None else ""


STAGES_MAX: Final = 60
"""If there are more finished stages, the older ones are joined in one row."""
_LOOP: Final = "loop#1"


def has_stages(rows: tuple[Row, ...]) -> bool:
    """Whether these are the rows of a declared workflow's run."""
    first = rows[0].result if rows and rows[0].kind == "started" else None
    return isinstance(first, dict) and "definition" in first


def fold_stages(rows: tuple[Row, ...], most: int | None = STAGES_MAX) -> tuple[Row, ...]:
    """Remove the loop and raise its rows to its depth; a stage of one call is shown as that call.

    Example:
        fold_stages(timeline(store, "order-17").rows)
    """
    calls = [row.call for row in rows if row.kind == "stage"]
    old = calls[:-most] if most is not None and len(calls) > most else []
    rowed = _stages_with_rows(rows)
    found: list[Row] = []
    for row in rows:
        if row.kind == "loop" and row.call == _LOOP:
            continue
        if row.call in old or row.scope.partition("/")[0] in old:
            if row.kind == "stage":
                found = _join_stages(found, row, old)
        elif row.kind != "stage":
            found.append(msgspec.structs.replace(row, depth=_depth(row, rowed)))
        elif row.call in rowed:
            found.append(msgspec.structs.replace(row, depth=0))
    return tuple(found)


def _stages_with_rows(rows: tuple[Row, ...]) -> set[str]:
    """Return the stages with a row of their own: they made not exactly one call, or ended unsatisfied."""
    counts: dict[str, int] = {}
    for row in rows:
        if row.kind not in ("stage", "gap") and row.scope.startswith(f"{_LOOP}["):
            counts[row.scope] = counts.get(row.scope, 0) + 1
    return {row.call for row in rows if row.kind == "stage" and (counts.get(row.call) != 1 or row.state == UNSATISFIED)}


def _depth(row: Row, rowed: set[str]) -> int:
    """Raise a row by two levels, or by one if its stage has a row."""
    turn = row.scope.partition("/")[0]
    if not turn.startswith(f"{_LOOP}[") and row.kind != "gap":
        return row.depth
    return max(0, row.depth - (1 if turn in rowed else 2))


def _join_stages(found: list[Row], row: Row, old: list[str]) -> list[Row]:
    """Join an older stage with the row of those before it."""
    if found and found[-1].kind == "stages":
        first = found[-1]
        took = None
        if first.started_at is not None and row.ended_at is not None:
            took = int((row.ended_at - first.started_at).total_seconds() * 1_000_000)
        last = {"last": row.last, "ended_at": row.ended_at, "duration_us": took, "next_node": row.next_node}
        last |= {"state": row.state} if row.state == UNSATISFIED else {}
        return [*found[:-1], msgspec.structs.replace(first, **last)]
    return [*found, msgspec.structs.replace(row, kind="stages", name=f"stages 1 to {len(old)}", depth=0)]
