"""Scopes: where a call gets its identity, and where the code is held against the record.

The run's own line of work is the root scope, with the path "". Each branch of `map` or `gather` and each turn of a loop
has a scope of its own, named after the call that made it: `gather#1[3]`, `loop#1[17]`. Inside a scope calls without a
key happen one after the other, so the n-th call of a name is the same call in every replay.
"""

from __future__ import annotations

import hashlib
import re
from types import TracebackType
from typing import Any, Final

from holdfast import errors
from holdfast.engine.commands import EntryData
from holdfast.engine.failures import failure_of
from holdfast.engine.record import FINAL, Record, full_name, shown
from holdfast.errors import Cancelled, Conflict, Diverged, InvalidInput, NotFound
from holdfast.ids import check_id


def _is_final(entry: EntryData) -> bool:
    return entry["kind"] in FINAL


def check_key(what: str, key: object) -> str:
    """A user's name for a call: an id that cannot be taken for one of the engine's, as `price#1`."""
    name = check_id(what, key)
    if "[" in name or _ENDS_IN_NUMBER.search(name):
        raise InvalidInput(
            f"{what} {name!r} could be taken for a name made by the engine: "
            "leave out '[', and do not end it in '#', '@', '?' or '%' and a number"
        )
    return name


_ENDS_IN_NUMBER: Final = re.compile(r"[#@?%]\d+\Z")
_PATH_MAX: Final = 160


class Scope:
    """One line of work. It is used by one thread or task at a time."""

    __slots__ = (
        "_counts", "_keys", "_next", "_outer", "_record", "busy", "cleanup", "flying", "logged", "made", "main",
        "parked", "path", "pending", "run_id", "stopped", "take", "whole", "written",
    )  # fmt: skip

    def __init__(self, run_id: str, record: Record, path: str = "", *, main: bool = True, outer: Scope | None = None):
        self.run_id = run_id
        self._outer = outer
        self.path = path
        self.whole = record
        self._record = record.scope(path) if record.scopes else None
        self._counts: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._next = 0
        self.busy = ""
        """The call without a key that is in flight."""
        shared = outer if main else None
        self.pending: list[EntryData] = shared.pending if shared else []
        """Entries that travel with the next commit of this scope. The scopes of the main line share them."""
        self.take: list[int] = shared.take if shared else []
        """Inbox items that are taken with it."""
        self.flying: set[str] = shared.flying if shared else set()
        """The calls that are under way."""
        self.cleanup: bool = outer is not None and outer.cleanup
        """The cancellation was raised here; what follows is cleaning up."""
        self.main = main
        """Not inside a branch."""
        self.made: set[str] = set()
        """Calls for which an entry was made."""
        self.written: set[str] = set()
        """Those of them whose entry was written."""
        self.stopped: BaseException | None = None
        self.parked: BaseException | None = None
        """A call with a key waits here: others with a key may go on beside it, the line of work itself may not."""
        self.logged = self._record.logs if self._record else 0
        """How many of the next log lines are in the journal already."""

    def inner(self, call: str, *, main: bool) -> Scope:
        """The scope of a branch or turn of `call`. Very long paths, of scopes deep in one another, are shortened."""
        path = full_name(self.path, call)
        if len(path) > _PATH_MAX:
            path = f"…{hashlib.blake2s(path.encode(), digest_size=12).hexdigest()}"
        return Scope(self.run_id, self.whole, path, main=main, outer=self)

    def named(self, call: str) -> str:
        """The call's full name."""
        return full_name(self.path, call)

    @property
    def behind(self) -> bool:
        """Whether the record has calls in or around this scope that the code has not come to yet."""
        prefix = f"{self.path}/" if self.path else ""
        inside = any(path == self.path or path.startswith(prefix) for path in self.whole.scopes)
        return self._missed() is not None or (inside and self.whole.unseen(prefix, self.path) is not None)

    def _missed(self) -> EntryData | None:
        """What this scope, or one around it, should have done before it does anything new."""
        scope: Scope | None = self
        while scope is not None:
            record = scope._record
            if record is not None and scope._next < len(record.order):
                return record.calls[record.order[scope._next]][0]
            scope = scope._outer
        return None

    def call(self, name: str, key: str | None, kinds: tuple[str, ...], *, again: bool = False) -> InCall:
        """A call, from its beginning to its end: `with scope.call(…) as (call, entries)`."""
        call, entries = self.enter(name, key, kinds, again=again)
        return InCall(self, call, entries, keyed=key is not None)

    def enter(
        self, name: str, key: str | None, kinds: tuple[str, ...], *, again: bool = False
    ) -> tuple[str, list[EntryData]]:
        """Give the call its identity and what is recorded of it. `kinds` are the kinds its first entry may have.

        `again`: a key may be used again, since it names what is done and not the call.
        """
        if self.stopped is not None:
            raise self.stopped
        if key is None:
            if self.parked is not None:
                raise self.parked
            if self.busy:
                error = InvalidInput(
                    f"{name!r} was called while {self.busy!r} is still in flight in the same scope of run "
                    f"{self.run_id!r}; use run.gather or run.map, or give such calls a key="
                )
                self.whole.misused = self.whole.misused or error
                raise error
            call = self.busy = self.counted(name)
        else:
            call = check_key("key", key)
            count = self._keys[call] = self._keys.get(call, 0) + 1
            if count > 1 and not again:
                raise InvalidInput(f"the key {key!r} was already used in this scope of run {self.run_id!r}")
            call = call if count == 1 else f"{call}%{count}"
        entries = self._recorded(call, key is not None, kinds) if self._record is not None else []
        if self.whole.edits is not None and not entries:
            self.whole.edits.enter([], _is_final)
        if not entries and self._outer is not None:
            missed = self._outer._missed()
            if missed is not None:
                raise self.diverged(missed, call, kinds)
        return call, entries

    def counted(self, name: str) -> str:
        """`name` with the number of times it was counted."""
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{name}#{count}"

    def _recorded(self, call: str, keyed: bool, kinds: tuple[str, ...]) -> list[EntryData]:
        record = self._record
        assert record is not None
        entries = record.calls.get(call)
        order = record.order
        if not keyed and self._next < len(order):
            if order[self._next] != call:
                raise self.diverged(record.calls[order[self._next]][0], call, kinds)
            self._next += 1
        if entries is None:
            return []
        kind = entries[0]["kind"]
        if kind not in kinds and kind not in ("cancelling", "refused"):
            raise self.diverged(entries[0], call, kinds)
        entries[0]["seen"] = True
        if self.whole.edits is not None:
            self.whole.edits.enter(entries, _is_final)
        last = entries[-1]["kind"]
        if last == "cancelling":
            self.leave()
            self.cleanup = True
            raise Cancelled(f"run {self.run_id!r} was cancelled")
        if last == "refused":
            self.leave()
            raise refusal_of(entries[-1]["error"])
        return entries

    def leave(self) -> None:
        """The call without a key is over."""
        self.busy = ""

    def diverged(self, entry: EntryData, call: str, kinds: tuple[str, ...], changed: str = "") -> Diverged:
        """The error that says what stands in the journal and what the code does instead."""
        self.leave()
        found = f"{kinds[0]} {self.named(call)!r}"
        error = Diverged(self.run_id, shown(entry), found, entry["position"], changed=changed)
        self.stopped = self.whole.diverged = error
        return error

    def entry(self, kind: str, call: str, keyed: bool, **data: Any) -> EntryData:
        """An entry about a call of this scope."""
        self.made.add(call)
        entry: EntryData = {"kind": kind, "call": call, **data}
        if self.path:
            entry["in"] = self.path
        if keyed:
            entry["keyed"] = True
        return entry


class InCall:
    """A call under way. What was refused is recorded as well, so that a replay is refused the same way."""

    __slots__ = ("_call", "_entries", "_keyed", "_scope")

    def __init__(self, scope: Scope, call: str, entries: list[EntryData], *, keyed: bool) -> None:
        self._scope = scope
        self._call = call
        self._entries = entries
        self._keyed = keyed

    def __enter__(self) -> tuple[str, list[EntryData]]:
        self._scope.flying.add(self._scope.named(self._call))
        return self._call, self._entries

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        scope = self._scope
        scope.flying.discard(scope.named(self._call))
        if not self._keyed:
            scope.busy = ""
        if isinstance(error, REFUSALS) and not self._entries and self._call not in scope.made:
            failure = {**failure_of(error, causes=0), "facts": _facts(error)}
            scope.pending.append(scope.entry("refused", self._call, self._keyed, error=failure))


REFUSALS: Final = (InvalidInput, Conflict, NotFound)
"""What a call may raise because it is wrong, before anything came of it."""

_KINDS: Final = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, REFUSALS)
}


def refusal_of(failure: dict[str, Any]) -> Exception:
    """A refusal as it was recorded. Only the library's own kinds are made anew."""
    kind = _KINDS.get(failure["type"], InvalidInput)
    error = kind.__new__(kind)
    error.args = (failure["message"],)
    error.__dict__.update(failure.get("facts", {}))
    return error


def _facts(error: BaseException) -> dict[str, Any]:
    """The attributes of a refusal, as far as they are plain."""
    plain = (str, int, float, bool, type(None))
    return {
        name: value
        for name, value in vars(error).items()
        if type(value) in plain or (type(value) is list and all(type(part) is str for part in value))
    }
