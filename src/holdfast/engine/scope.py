"""Scopes, which give calls their identity and compare them with the record.

The main flow of a run is the root scope, with the path "". Each branch of `map` or `gather` and each turn of a loop has
its own scope, named after the call that made it: `gather#1[3]`, `loop#1[17]`. Inside a scope, calls without a key run
one after the other, so the n-th call of a name is the same call in every replay.
"""

from __future__ import annotations

import hashlib
import re
from types import TracebackType
from typing import Any, Final

from holdfast import errors
from holdfast.engine.commands import EntryData
from holdfast.engine.failures import FailureData, failure_of
from holdfast.engine.record import FINAL, Record, ScopeRecord, describe_call, describe_entry
from holdfast.errors import Cancelled, Conflict, Diverged, InvalidInput, NotFound
from holdfast.ids import check_id, full_name


def _is_final(entry: EntryData) -> bool:
    return entry["kind"] in FINAL


def check_key(what: str, key: object) -> str:
    """A user's name for a call: an id that cannot be mistaken for one of the engine's, such as `price#1`."""
    name = check_id(what, key)
    if "[" in name or _ENDS_IN_NUMBER.search(name):
        raise InvalidInput(
            f"{what} {name!r} could be mistaken for a name made by the engine: "
            "leave out '[', and do not end it in '#', '@', '?' or '%' and a number"
        )
    return name


_ENDS_IN_NUMBER: Final = re.compile(r"[#@?%]\d+\Z")
_PATH_MAX: Final = 160


class Scope:
    """One flow of calls, used by one thread or task at a time."""

    def __init__(self, run_id: str, record: Record, path: str = "", *, main: bool = True, outer: Scope | None = None):
        self.run_id = run_id
        self._outer = outer
        self.path = path
        self.whole = record
        self._record = record.scope(path) if record.scopes else None
        self._counts: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._next = 0
        self._last_gate = _last_gate(self._record)
        self.busy = ""
        """The call without a key that is in flight."""
        shared = outer if main else None
        self.pending: list[EntryData] = shared.pending if shared else []
        """Entries for the next commit of this scope. The scopes of the main flow share them."""
        self.take: list[int] = shared.take if shared else []
        """Inbox items that the next commit takes."""
        self.in_flight: set[str] = shared.in_flight if shared else set()
        """The calls that are in flight."""
        self.cleanup: bool = outer is not None and outer.cleanup
        """The cancellation was raised here; the calls that follow are cleanup."""
        self.main = main
        """Not inside a branch."""
        self.made: set[str] = set()
        """Calls for which an entry was made."""
        self.written: set[str] = set()
        """Calls whose entry was written."""
        self.stopped: BaseException | None = None
        self.parked: BaseException | None = None
        """A call with a key waits here: other calls with a key may continue, calls without a key may not."""
        self.logged = self._record.logs if self._record else 0
        """The number of the next log lines that the journal already has."""

    def inner(self, call: str, *, main: bool) -> Scope:
        """The scope of a branch or turn of `call`. Long paths of deeply nested scopes are shortened."""
        path = full_name(self.path, call)
        if len(path) > _PATH_MAX:
            path = f"…{hashlib.blake2s(path.encode(), digest_size=12).hexdigest()}"
        return Scope(self.run_id, self.whole, path, main=main, outer=self)

    def full_name(self, call: str) -> str:
        """The call's full name."""
        return full_name(self.path, call)

    @property
    def has_unreplayed(self) -> bool:
        """Whether the record has calls in or around this scope that the code has not reached yet."""
        prefix = f"{self.path}/" if self.path else ""
        inside = any(path == self.path or path.startswith(prefix) for path in self.whole.scopes)
        return self._next_unreplayed() is not None or (inside and self.whole.unseen(prefix, self.path) is not None)

    def _next_unreplayed(self) -> EntryData | None:
        """The recorded call that this scope, or one around it, must repeat before it makes new ones."""
        scope: Scope | None = self
        while scope is not None:
            record = scope._record
            if record is not None and scope._next < len(record.order):
                return record.calls[record.order[scope._next]][0]
            scope = scope._outer
        return None

    @property
    def missed_gate(self) -> EntryData | None:
        """The gate with a key at which this scope last waited, if the code has not reached it."""
        gate = self._last_gate
        return gate if gate is not None and "seen" not in gate else None

    def call(self, name: str, key: str | None, kinds: tuple[str, ...], *, again: bool = False) -> InCall:
        """A call as a context manager: `with scope.call(…) as (call, entries)`."""
        call, entries = self.enter(name, key, kinds, again=again)
        return InCall(self, call, entries, keyed=key is not None)

    def enter(
        self, name: str, key: str | None, kinds: tuple[str, ...], *, again: bool = False
    ) -> tuple[str, list[EntryData]]:
        """The identity of a call, and its recorded entries. `kinds` are the kinds that its first entry may have.

        `again`: a key may be used again, because it names the effect and not the call.
        """
        if self.stopped is not None:
            raise self.stopped
        if key is None:
            if self.parked is not None:
                raise self.parked
            if self.busy:
                error = InvalidInput(
                    f"{name!r} was called while {self.busy!r} of run {self.run_id!r} has not finished; the function of "
                    "a step or effect cannot make calls of the run; run.gather, run.map and key= allow concurrent calls"
                )
                self.whole.fatal = self.whole.fatal or error
                raise error
            call = self.busy = self.next_occurrence(name)
        else:
            call = check_key("key", key)
            count = self._keys[call] = self._keys.get(call, 0) + 1
            if count > 1 and not again:
                raise InvalidInput(f"the key {key!r} was already used in this scope of run {self.run_id!r}")
            call = call if count == 1 else f"{call}%{count}"
        entries = self._match_record(call, key is not None, kinds) if self._record is not None else []
        if self.whole.edits is not None and not entries:
            self.whole.edits.enter([], _is_final)
        if not entries and self._outer is not None:
            missed = self._outer._next_unreplayed()
            if missed is not None:
                raise self.diverged(missed, call, kinds)
        return call, entries

    def next_occurrence(self, name: str) -> str:
        """`name` with its next number."""
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{name}#{count}"

    def _match_record(self, call: str, keyed: bool, kinds: tuple[str, ...]) -> list[EntryData]:
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
            raise to_refusal(entries[-1]["error"])
        return entries

    def leave(self) -> None:
        """Mark the call without a key as over."""
        self.busy = ""

    def diverged(
        self, entry: EntryData, call: str, kinds: tuple[str, ...], changed: str = "", hint: str = ""
    ) -> Diverged:
        """Stop the scope with an error that names the recorded entry and the call of the code."""
        self.leave()
        found = describe_call(kinds[0], self.full_name(call))
        error = Diverged(self.run_id, describe_entry(entry), found, entry["position"], hint, changed)
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


def _last_gate(record: ScopeRecord | None) -> EntryData | None:
    """The last call of a scope if it is a gate with a key and all other calls are over.

    Unless calls of the scope ran concurrently, the code made no further call before that gate was answered.
    """
    if record is None or not record.calls:
        return None
    last = max(record.calls.values(), key=lambda entries: int(entries[0]["position"]))
    if last[0]["kind"] != "asked" or "keyed" not in last[0]:
        return None
    return last[0] if all(entries is last or _is_final(entries[-1]) for entries in record.calls.values()) else None


class InCall:
    """A call in flight. A refusal is recorded as well, so that a replay raises the same error."""

    __slots__ = ("_call", "_entries", "_keyed", "_scope")

    def __init__(self, scope: Scope, call: str, entries: list[EntryData], *, keyed: bool) -> None:
        self._scope = scope
        self._call = call
        self._entries = entries
        self._keyed = keyed

    def __enter__(self) -> tuple[str, list[EntryData]]:
        self._scope.in_flight.add(self._scope.full_name(self._call))
        return self._call, self._entries

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        scope = self._scope
        scope.in_flight.discard(scope.full_name(self._call))
        if not self._keyed:
            scope.busy = ""
        if isinstance(error, REFUSALS) and not self._entries and self._call not in scope.made:
            failure = {**failure_of(error, causes=0), "facts": _plain_attributes(error)}
            scope.pending.append(scope.entry("refused", self._call, self._keyed, error=failure))


REFUSALS: Final = (InvalidInput, Conflict, NotFound)
"""Errors of a wrong call, raised before it had any effect."""

_KINDS: Final = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, REFUSALS)
}


def to_refusal(failure: FailureData) -> Exception:
    """The recorded refusal. Only Holdfast's own types are created."""
    kind = _KINDS.get(failure["type"], InvalidInput)
    error = kind.__new__(kind)
    error.args = (failure["message"],)
    error.__dict__.update(failure.get("facts", {}))
    return error


def _plain_attributes(error: BaseException) -> dict[str, object]:
    """The attributes of a refusal that are plain values."""
    plain = (str, int, float, bool, type(None))
    return {
        name: value
        for name, value in vars(error).items()
        if name != "hint_code"
        and (type(value) in plain or (type(value) is list and all(type(part) is str for part in value)))
    }
