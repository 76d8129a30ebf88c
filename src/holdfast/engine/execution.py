"""One execution of a run: from being claimed to being released. What its calls share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from holdfast.engine.commands import EntryData, Item, Now, Plan, ReadInbox, Snapshot, Write, Written
from holdfast.engine.line import Line
from holdfast.engine.record import KEPT, Record
from holdfast.engine.retry import ONCE, Retry
from holdfast.engine.scope import Scope
from holdfast.engine.verdicts import Classifier
from holdfast.errors import Cancelled, InvalidInput, MissingAwait, Suspended
from holdfast.model.status import PAUSED, READY, WAITING

US: Final = 1_000_000
SHORT_WAIT_US: Final = 1 * US
"""Waits up to this long are waited for in the process; longer ones give the run back until the time comes."""


class Codec(Protocol):
    """What the engine must know of values. Pure."""

    def digest(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """A digest of a call's arguments; None if they cannot be encoded."""
        ...

    def settled(self, value: Any) -> Any:
        """`value` as a replay will give it. Raises Unstorable."""
        ...

    def effect_token(self, incarnation: bytes, key: str, epoch: int) -> str:
        """The idempotency key of an effect."""
        ...


def _is_suspension(error: BaseException) -> bool:
    return isinstance(error, Suspended) or (
        isinstance(error, BaseExceptionGroup) and any(_is_suspension(part) for part in error.exceptions)
    )


class Execution:
    """One execution of a run."""

    unsatisfied = ""
    """The stage of a declared workflow that ended in this turn without its condition being met."""

    def __init__(
        self,
        run_id: str,
        incarnation: bytes,
        codec: Codec,
        record: Record,
        line: Line,
        *,
        attempt: int = 1,
        version: int = 1,
        retry: Retry = ONCE,
        cleanup_s: float = 30.0,
        branches: int = 8,
        upgrade: Callable[[dict[str, Any], int], dict[str, Any]] | None = None,
        undos: frozenset[str] = frozenset(),
        classify: Classifier | None = None,
    ) -> None:
        self.run_id = run_id
        self.incarnation = incarnation
        self.codec = codec
        self.record = record
        self.line = line
        self.attempt = attempt
        self.version = version
        self.retry = retry
        self.cleanup_us = int(cleanup_s * US)
        self.branches = branches
        """How many branches go on at a time, if a call does not say."""
        self.forked = line.forked
        """How a fork treats effects its family performed: "" for a run of its own, else reuse, perform or ask."""
        self.upgrade = upgrade
        self.undos = undos
        self.classify = classify
        """What the exceptions of effects prove, for the whole app."""
        self.root = Scope(run_id, record)
        line.kept = record.kept
        self.state: dict[str, Any] = {}
        self.next_node: str | None = None
        """What a checkpoint says comes next; workflows that have names for their stages set it."""
        self.position = self.began_at = 0
        """Where the journal ends, and where it ended when this execution began."""
        # --- the inbox
        self.inbox_newest = self.inbox_read = 0
        self.waits_read: int | None = None
        """Up to where calls had read the inbox when they began to wait: the earliest counts."""
        self.items: dict[int, Item] = {}
        self._claimed: dict[int, object] = {}
        # --- what outsiders want
        by = record.cancelled_by
        self.cancel = Item(0, "cancel", "cancel", by, 0, None) if by is not None else None
        self.alarm = by is not None
        """Something of this must be looked at before the next call."""
        self.pause: Item | None = None
        self._requests: list[int] = []
        self.give_way = False
        self.cancel_until_us: int | None = None
        self.flying: set[str] = set()
        """The keys of effects that are under way."""
        self.releasing = False
        """The run is being given back by a commit that is under way."""
        # --- calls without await
        self.unawaited: dict[int, Callable[[], MissingAwait]] = {}
        """Calls that were created and are not awaited yet, with the error for each."""
        self.missing_await: MissingAwait | None = None
        """A call was dropped without being awaited: nothing more is done."""
        # --- how it stands
        self.stopped: BaseException | None = None
        self.released = ""
        """The status in which the run was given back; empty while it is held."""

    # --- the inbox ---------------------------------------------------------------------------------------------------

    def read_inbox(self, scope: Scope) -> Plan[None]:
        """Take note of what has come in since the last look."""
        newest = self.inbox_newest
        items: list[Item] = yield ReadInbox(self.inbox_read)
        for item in items:
            match item.kind:
                case "cancel":
                    self.cancel = self.cancel or item
                    self._requests.append(item.number)
                    self.alarm = True
                case "pause":
                    self.pause = self.pause or item
                    self._requests.append(item.number)
                    self.alarm = True
                case "timer":
                    scope.take.append(item.number)
                case _:
                    self.items[item.number] = item
        self.inbox_read = max(newest, self.inbox_read, *[item.number for item in items])

    def find_item(self, kinds: tuple[str, ...], name: str) -> Item | None:
        """The oldest item of that kind and name that nobody has taken."""
        for number in sorted(self.items):
            item = self.items.get(number)
            if item is not None and item.kind in kinds and item.name == name and self._claim(number):
                self.items.pop(number, None)
                return item
        return None

    def _claim(self, number: int) -> bool:
        """Branches may look at the same moment: one of them gets it."""
        token = object()
        return self._claimed.setdefault(number, token) is token

    # --- before a call is carried out --------------------------------------------------------------------------------

    def attend(self, scope: Scope, call: str, keyed: bool, *, lasting: bool = False) -> Plan[None]:
        """See to what outsiders want, before `call` is carried out. `lasting` calls are not for cleaning up."""
        stopped = self.stopped or self.record.diverged
        if stopped is not None:
            raise stopped
        if self.releasing:
            raise self.suspended(scope)
        if self.inbox_newest > self.inbox_read:
            yield from self.read_inbox(scope)
        if self.cancel is not None:
            yield from self._attend_cancel(scope, call, keyed, lasting)
        elif self.give_way or self.pause is not None:
            raise self.suspended(scope)

    def _attend_cancel(self, scope: Scope, call: str, keyed: bool, lasting: bool) -> Plan[None]:
        assert self.cancel is not None
        now_us: int = yield Now()
        if self.cancel_until_us is None:
            self.cancel_until_us = now_us + self.cleanup_us
        if scope.cleanup and not lasting and now_us < self.cancel_until_us:
            return
        if not scope.cleanup:
            scope.take += self._requests
            yield from self.write(scope, [scope.entry("cancelling", call, keyed, by=self.cancel.by)])
            scope.cleanup = True
        raise Cancelled(f"run {self.run_id!r} was cancelled by {self.cancel.by!r}")

    # --- commits -----------------------------------------------------------------------------------------------------

    def write(self, scope: Scope, entries: list[EntryData], **more: Any) -> Plan[Written]:
        """One commit, with what the scope has pending."""
        pending, take = scope.pending.copy(), scope.take.copy()
        if pending:
            entries = pending + entries
            scope.pending.clear()
        if take:
            more["take"] = take
            scope.take.clear()
        try:
            written: Written = yield Write(entries, **more)
        except Exception:  # refused, so nothing was written: it travels with the next commit
            scope.made.difference_update({entry.get("call", "") for entry in entries} - scope.written)
            scope.pending[:0], scope.take[:0] = pending, take
            raise
        self.position = written.position
        scope.written.update([entry["call"] for entry in entries if "call" in entry])
        for back, entry in enumerate(reversed(entries)):
            if entry["kind"] in KEPT:
                self.line.kept.append(written.position - back)
        if written.inbox > self.inbox_newest:
            self.inbox_newest = written.inbox
        return written

    @property
    def is_waiting(self) -> bool:
        """Whether something in this execution cannot go on now; then the run has not ended, whatever code returned."""
        return self.waits_read is not None

    def find_missing_await(self, error: BaseException | None) -> MissingAwait | None:
        """After the workflow's function has ended with `error`: the call that it should have awaited.

        An error of the workflow's own stands. A run that waits will come again to the calls it still has to await.
        """
        if isinstance(error, MissingAwait):
            self.missing_await = self.missing_await or error
        elif self.cancel is not None or (isinstance(error, Exception | SystemExit) and not self.is_waiting):
            return None
        if self.missing_await is None and not self.is_waiting and self.unawaited:
            self.missing_await = next(iter(self.unawaited.values()))()
        return self.missing_await

    def stop(self) -> None:
        """Ask the execution to give way at its next call."""
        self.give_way = self.alarm = True

    def suspended(self, scope: Scope, read: int | None = None) -> Suspended:
        """The interrupt for a scope that cannot go on now, having looked at the inbox as far as `read`."""
        read = self.inbox_read if read is None else read
        self.waits_read = read if self.waits_read is None else min(self.waits_read, read)
        error = Suspended(f"run {self.run_id!r} is suspended; it will go on from here")
        if scope.busy:
            scope.stopped = error
        else:
            scope.parked = error
        return error

    def check_unwinding(self, error: BaseException | None) -> None:
        """Stop a call that code makes while it handles `error`, if that says that the run waits.

        A `finally` block or a context manager runs then, but the run has not left it: it will go on inside.
        """
        suspended = error
        while isinstance(suspended, BaseExceptionGroup):
            suspended = next((part for part in suspended.exceptions if _is_suspension(part)), None)
        if isinstance(suspended, Suspended):
            raise suspended

    def wait(self, scope: Scope, entries: list[EntryData], read: int | None = None, **more: Any) -> Plan[Any]:
        """Record that a call waits, and stop. `read`: how far it had read the inbox when it looked.

        If nothing else is under way the run is given back in the same commit.
        """
        before, error = self.waits_read, self.suspended(scope, read)
        try:
            if scope.main and scope.busy and not self.alarm and len(scope.flying) <= 1:
                more.update(status=WAITING, inbox_read=self.waits_read)
                unreached = self._unreached()
                yield from self._released(scope, entries + unreached, error, more)
                self._note_unreached(unreached)
            elif entries or more or scope.pending:
                yield from self.write(scope, entries, **more)
        except Exception:  # what was to be written cannot be stored, so nobody waits
            self._waits_not(scope, before)
            raise
        raise error

    def _unreached(self) -> list[EntryData]:
        """What to record about open gates the code does not come to any more; nothing if that is recorded already."""
        gates = self.record.unreached_gates()
        return [] if gates == self.record.unreached else [{"kind": "unreached", "gates": gates}]

    def _note_unreached(self, recorded: list[EntryData]) -> None:
        for entry in recorded:
            self.record.unreached = entry["gates"]

    def rest(self, scope: Scope, entries: list[EntryData]) -> Plan[Any]:
        """Record that the run has paused itself, in the same commit that gives it back, and stop."""
        before, error = self.waits_read, self.suspended(scope)
        try:
            yield from self._released(scope, entries, error, {"status": PAUSED})
        except Exception:
            self._waits_not(scope, before)
            raise
        raise error

    def _released(self, scope: Scope, entries: list[EntryData], error: Suspended, more: dict[str, Any]) -> Plan[None]:
        self.releasing = self.alarm = True
        written = yield from self.write(scope, entries, release=True, snapshot=self.snapshot(entries), **more)
        self.released = written.status
        self.stopped = error

    def _waits_not(self, scope: Scope, before: int | None) -> None:
        scope.stopped = scope.parked = None
        self.waits_read, self.releasing = before, False
        self.alarm = self.give_way or self.cancel is not None or self.pause is not None

    def give_back(self) -> Plan[None]:
        """After everything has stopped: give the run back, if that has not happened yet."""
        if self.released:
            return
        root, entries = self.root, []
        if self.cancel is not None or self.give_way:
            status = READY
        elif self.pause is not None:
            status = PAUSED
            root.take += self._requests
            entries.append({"kind": "paused", "by": self.pause.by})
        else:
            status, entries = WAITING, self._unreached()
        more: dict[str, Any] = {"status": status, "release": True}
        if status == WAITING:
            more["inbox_read"] = self.waits_read
        try:
            written = yield from self.write(root, entries, **more, snapshot=self.snapshot(entries))
        except (
            InvalidInput,
            MissingAwait,
        ):  # the state cannot be stored; a replay makes it again and raises
            written = yield from self.write(root, entries, **more)
        self.released = written.status
        self._note_unreached([entry for entry in entries if entry["kind"] == "unreached"])

    def snapshot(self, entries: list[EntryData]) -> Snapshot | None:
        """The state as a checkpoint, if there is any, and if this execution has come further than the one before."""
        if not self.state or not (entries or self.root.pending or self.position > self.began_at):
            return None
        resume = self.line.resume(self.position, self.version)
        return Snapshot(self.state, resume, self.position, next_node=self.next_node)
