"""The entries of a workflow's journal, put together: one draft for each call, fact and rollback, in order.

All entries about one call belong to one draft. A rollback takes drafts back, as it does with entries: those that have
one behind the position it goes to, or one it declares void. The same call may then come again, as another draft.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from holdfast.engine.record import full_name

KINDS: Final = {
    "step": "step", "attempt": "step", "intent": "effect", "outcome": "effect", "asked": "ask", "answered": "ask",
    "sleep": "sleep", "wait": "wait", "received": "wait", "child": "child", "child_ended": "child",
    "child_started": "child", "map": "map", "gather": "gather", "loop": "loop", "value": "value", "sent": "send",
    "saved": "checkpoint", "refused": "call", "cancelling": "call", "breakpoint": "breakpoint",
    "compensating": "compensate",
}  # fmt: skip
"""What kind of row the first entry of a call makes."""
_ROLLBACK: Final = frozenset({"rolling_back", "undoing", "undone", "undo_failed", "rolled_back"})
FACTS: Final = {
    "started": "started", "completed": "ended", "failed": "ended", "cancelled": "ended", "version": "version",
    "paused": "paused", "diverged": "diverged", "forked": "forked", "pruned": "pruned", "definition": "definition",
    "unreached": "unreached",
}  # fmt: skip
"""Entries that stand for themselves."""


class Met(NamedTuple):
    """An entry as it was met."""

    position: int
    kind: str
    created_us: int
    data: dict[str, Any]
    commit: bytes = b""
    """Entries of one commit were written together."""


class Draft(msgspec.Struct):
    """Entries that will be one row."""

    kind: str
    name: str
    call: str
    scope: str
    entries: list[Met]
    taken_back: bool = False
    parts: list[Draft] = []
    """Of a turn: what was done in it."""

    @property
    def first(self) -> Met:
        return self.entries[0]

    @property
    def last(self) -> Met:
        return self.entries[-1]

    def of(self, *kinds: str) -> Met | None:
        """The newest entry of these kinds."""
        return next((met for met in reversed(self.entries) if met.kind in kinds), None)


def number_of(value: object) -> int:
    """A whole number that an entry tells, or 0."""
    return value if type(value) is int else 0


def text_of(value: object) -> str:
    """A text that an entry tells, or an empty one."""
    return value if type(value) is str else ""


def drafted(entries: list[Met]) -> list[Draft]:
    """All drafts, in the order of their first entries; turns of a loop stand before what was done in them."""
    work = _Drafting()
    for met in entries:
        work.add(met)
    return sorted(work.drafts, key=lambda draft: (draft.first.position, draft.kind != "turn"))


class _Drafting:
    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self._calls: dict[str, Draft] = {}
        self._rollback: Draft | None = None
        self._turn_ends: dict[str, int] = {}
        """How many drafts there were when the last turn of a loop ended: the next turn begins behind them."""

    def add(self, met: Met) -> None:
        call = met.data.get("call")
        if type(call) is str and (met.kind in KINDS or full_name(text_of(met.data.get("in")), call) in self._calls):
            self._add_call(met, call)
        elif met.kind == "turn":
            self._end_turn(met)
        elif met.kind in _ROLLBACK:
            self._add_rollback(met)
        else:
            kind = FACTS.get(met.kind, "log" if met.kind == "log" else "entry")
            name = text_of(met.data.get("name")) or met.kind
            self.drafts.append(Draft(kind, name, "", text_of(met.data.get("in")), [met]))
        if met.kind in ("rolled_back", "forked"):
            self._take_back(met)

    def _add_call(self, met: Met, call: str) -> None:
        scope = text_of(met.data.get("in"))
        name = full_name(scope, call)
        known = self._calls.get(name)
        if known is not None:
            known.entries.append(met)
            return
        plain = text_of(met.data.get("name")) or call.rpartition("#")[0] or call
        draft = self._calls[name] = Draft(KINDS[met.kind], plain, name, scope, [met])
        self.drafts.append(draft)

    def _end_turn(self, met: Met) -> None:
        """A turn is known when it ends: what was done in its scope is part of it."""
        loop, number = text_of(met.data.get("loop")), number_of(met.data.get("turn"))
        scope = f"{loop}[{number}]"
        since = self.drafts[self._turn_ends.get(loop, 0) :]
        parts = [draft for draft in since if not draft.taken_back and is_within(draft.scope, scope)]
        first = parts[0].first if parts else met
        entries = [first._replace(kind="turn", data=met.data), met] if parts else [met]
        outer = loop.rpartition("/")[0]
        self.drafts.append(Draft("turn", f"turn {number}", scope, outer, entries, parts=parts))
        self._calls[scope] = self.drafts[-1]
        self._turn_ends[loop] = len(self.drafts)

    def _add_rollback(self, met: Met) -> None:
        if met.kind == "rolling_back" or self._rollback is None:
            self._rollback = Draft("rollback", "rollback", "", "", [met])
            self.drafts.append(self._rollback)
        else:
            self._rollback.entries.append(met)
        if met.kind == "rolled_back":
            self._rollback = None

    def _take_back(self, met: Met) -> None:
        to = number_of(met.data.get("to"))
        told = met.data.get("void")
        void = {at for at in told if type(at) is int} if isinstance(told, list) else set()
        for draft in self.drafts:
            if draft.kind in ("rollback", "forked", "pruned") or draft.taken_back:
                continue
            if any(entry.position > to or entry.position in void for entry in draft.entries):
                draft.taken_back = True
        self._calls = {name: draft for name, draft in self._calls.items() if not draft.taken_back}


def is_within(scope: str, outer: str) -> bool:
    """Whether a scope is `outer` or lies in it."""
    return scope == outer or scope.startswith(f"{outer}/")
