"""One execution of a run, from claim to release, shared by its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, Protocol, TypeVar

from holdfast.drivers import Plan
from holdfast.engine.commands import EntryData, Item, Now, ReadInbox, Snapshot, StateData, Write, WriteOptions, Written
from holdfast.engine.failures import Classifier
from holdfast.engine.record import KEPT, Record
from holdfast.engine.resume_point import ResumePoint
from holdfast.engine.retry import ONCE, Retry
from holdfast.engine.scope import Scope
from holdfast.errors import Cancelled, InvalidInput, MissingAwait, Suspended
from holdfast.model.rows import PAUSED, READY, WAITING

US: Final = 1_000_000
SHORT_WAIT_US: Final = 1 * US
"""Shorter waits keep the process; longer ones release the run until the time comes."""


class Codec(Protocol):
    """Encoding of values, as far as the engine needs it. Pure."""

    def digest(self, args: tuple[object, ...], kwargs: dict[str, object]) -> str | None:
        """A digest of the arguments of a call; None if they cannot be encoded."""
        ...

    def round_trip(self, value: object) -> Any:
        """`value` as a replay returns it. Raises Unstorable."""
        ...

    def record(self, value: object) -> tuple[object, bytes]:
        """`value` as a replay returns it, and its encoding; empty if encoding it again is cheap."""
        ...

    def effect_token(self, incarnation: bytes, key: str, epoch: int) -> str:
        """The idempotency key of an effect."""
        ...

    def replace_content(self, state: StateData, new: StateData) -> None:
        """Replace what the state of a run contains."""
        ...


def _is_suspension(error: BaseException) -> bool:
    return isinstance(error, Suspended) or (
        isinstance(error, BaseExceptionGroup) and any(_is_suspension(part) for part in error.exceptions)
    )


class Execution:
    """One execution of a run."""

    unsatisfied = ""
    """The stage of a declared workflow that ended in this turn although its condition was not met."""
    exiting: BaseException | None = None
    """The task was cancelled, or the process is exiting: raised by every further call."""
    handled: BaseException | None = None
    """The exception that the caller was handling when it called the workflow."""

    def __init__(
        self,
        run_id: str,
        incarnation: bytes,
        codec: Codec,
        record: Record,
        line: ResumePoint,
        *,
        attempt: int = 1,
        version: int = 1,
        retry: Retry = ONCE,
        cleanup_s: float = 30.0,
        branches: int = 8,
        upgrade: Callable[[StateData, int], StateData] | None = None,
        undos: frozenset[str] = frozenset(),
        classify: Classifier | None = None,
    ) -> None:
        self.run_id = run_id
        self.incarnation = incarnation
        self.codec = codec
        self.record = record
        self.resume_point = line
        self.attempt = attempt
        self.version = version
        self.retry = retry
        self.cleanup_us = int(cleanup_s * US)
        self.branches = branches
        """The default limit of concurrent branches."""
        self.forked = line.forked
        """How a fork treats effects of its family: reuse, perform or ask; empty if the run is not a fork."""
        self.upgrade = upgrade
        self.undos = undos
        self.classify = classify
        """The classifier of the app for the exceptions of effects."""
        self.root = Scope(run_id, record)
        line.kept = record.kept
        self.state: StateData = {}
        self.next_node: str | None = None
        """The next stage, for checkpoints; workflows with named stages set it."""
        self.position = self.began_at = 0
        """The end of the journal, now and at the start of this execution."""
        # --- the inbox
        self.inbox_newest = self.inbox_read = 0
        self.waits_read: int | None = None
        """The inbox position up to which waiting calls had read when they began to wait; the earliest counts."""
        self.items: dict[int, Item] = {}
        self._claimed: dict[int, object] = {}
        # --- requests from outside
        by = record.cancelled_by
        self.cancel = Item(0, "cancel", "cancel", by, 0, None, record.cancelled_via) if by is not None else None
        self.interrupt_pending = by is not None
        """The next call must first check for a cancel, a pause or a stop."""
        self.pause: Item | None = None
        self._requests: list[int] = []
        self.should_yield = False
        self.cancel_until_us: int | None = None
        self.in_flight: set[str] = set()
        """The keys of effects in flight."""
        self.releasing = False
        """A commit that releases the run is in flight."""
        # --- calls without await
        self.unawaited: dict[int, Callable[[], MissingAwait]] = {}
        """Calls that were created and not awaited yet, with the error for each."""
        self.missing_await: MissingAwait | None = None
        """A call was dropped without being awaited: the execution stops."""
        # --- the end
        self.stopped: BaseException | None = None
        self.released = ""
        """The status in which the run was released; empty while it is claimed."""

    # --- the inbox ---------------------------------------------------------------------------------------------------

    def read_inbox(self, scope: Scope) -> Plan[None]:
        """Read the items that arrived since the last read."""
        newest = self.inbox_newest
        items: list[Item] = yield ReadInbox(self.inbox_read)
        for item in items:
            match item.kind:
                case "cancel":
                    self.cancel = self.cancel or item
                    self._requests.append(item.number)
                    self.interrupt_pending = True
                case "pause":
                    self.pause = self.pause or item
                    self._requests.append(item.number)
                    self.interrupt_pending = True
                case "timer":
                    scope.take.append(item.number)
                case _:
                    self.items[item.number] = item
        self.inbox_read = max(newest, self.inbox_read, *[item.number for item in items])

    def find_item(self, kinds: tuple[str, ...], name: str) -> Item | None:
        """The oldest item of that kind and name that was not taken."""
        for number in sorted(self.items):
            item = self.items.get(number)
            if item is not None and item.kind in kinds and item.name == name and self._claim(number):
                self.items.pop(number, None)
                return item
        return None

    def _claim(self, number: int) -> bool:
        """Whether the caller gets the item: only one of several concurrent branches does."""
        token = object()
        return self._claimed.setdefault(number, token) is token

    # --- before a call is executed -----------------------------------------------------------------------------------

    def check_interrupts(self, scope: Scope, call: str, keyed: bool, *, lasting: bool = False) -> Plan[None]:
        """Act on a pending cancel, pause or stop before `call` runs. `lasting` calls are not allowed during cleanup."""
        stopped = self.stopped or self.record.diverged
        if stopped is not None:
            raise stopped
        if self.releasing:
            raise self.suspended(scope)
        if self.inbox_newest > self.inbox_read:
            yield from self.read_inbox(scope)
        if self.cancel is not None:
            yield from self._check_cancel(scope, call, keyed, lasting)
        elif self.should_yield or self.pause is not None:
            raise self.suspended(scope)

    def _check_cancel(self, scope: Scope, call: str, keyed: bool, lasting: bool) -> Plan[None]:
        assert self.cancel is not None
        now_us: int = yield Now()
        if self.cancel_until_us is None:
            self.cancel_until_us = now_us + self.cleanup_us
        if scope.cleanup and not lasting and now_us < self.cancel_until_us:
            return
        if not scope.cleanup:
            self.take_requests(scope)
            entry = scope.entry("cancelling", call, keyed, by=self.cancel.by, **self.cancel.source)
            yield from self.write(scope, [entry])
            scope.cleanup = True
        raise Cancelled(f"run {self.run_id!r} was cancelled by {self.cancel.by!r}")

    def take_requests(self, scope: Scope) -> None:
        """Take the requests to cancel or pause, with the next commit of the scope."""
        scope.take += self._requests
        self._requests = []

    # --- commits -----------------------------------------------------------------------------------------------------

    def write(self, scope: Scope, entries: list[EntryData], **more: Any) -> Plan[Written]:
        """One commit, with the pending entries of the scope. `more`: other fields of `Write`."""
        pending, take = scope.pending.copy(), scope.take.copy()
        if pending:
            entries = pending + entries
            scope.pending.clear()
        if take:
            more["take"] = take
            scope.take.clear()
        try:
            written: Written = yield Write(entries, **more)
        except Exception:  # nothing was written, so the pending entries join the next commit
            scope.made.difference_update({entry.get("call", "") for entry in entries} - scope.written)
            scope.pending[:0], scope.take[:0] = pending, take
            raise
        self.position = written.position
        scope.written.update([entry["call"] for entry in entries if "call" in entry])
        for back, entry in enumerate(reversed(entries)):
            if entry["kind"] in KEPT:
                self.resume_point.kept.append(written.position - back)
        if written.inbox > self.inbox_newest:
            self.inbox_newest = written.inbox
        return written

    @property
    def is_waiting(self) -> bool:
        """Whether a call of this execution waits; then the run has not ended, even if its code returned."""
        return self.waits_read is not None

    def find_missing_await(self, error: BaseException | None) -> MissingAwait | None:
        """The call that the workflow's function, which ended with `error`, should have awaited.

        An error of the workflow itself takes precedence. A run that waits will reach the calls it has to await again.
        """
        is_refusal = isinstance(error, TypeError) and "UnawaitedCall" in str(error)  # of Python itself, as json.dumps
        if isinstance(error, MissingAwait):
            self.missing_await = self.missing_await or error
        elif self.cancel is not None:
            return None
        elif isinstance(error, Exception | SystemExit) and not self.is_waiting and not is_refusal:
            return None
        if self.missing_await is None and not self.is_waiting and self.unawaited:
            self.missing_await = next(iter(self.unawaited.values()))()
        return self.missing_await

    def stop(self) -> None:
        """Ask the execution to stop at its next call."""
        self.should_yield = self.interrupt_pending = True

    def suspended(self, scope: Scope, read: int | None = None) -> Suspended:
        """The interrupt for a scope that cannot continue now, having read the inbox up to `read`."""
        read = self.inbox_read if read is None else read
        self.waits_read = read if self.waits_read is None else min(self.waits_read, read)
        error = Suspended(f"run {self.run_id!r} is suspended; it will continue from here")
        if scope.busy:
            scope.stopped = error
        else:
            scope.parked = error
        return error

    def check_unwinding(self, error: BaseException | None) -> None:
        """Stop a call that code makes while it handles `error`, if that means that the run waits or is interrupted.

        A `finally` block or a context manager runs then, but the run will continue inside it.
        """
        if self.exiting is not None:
            raise self.exiting
        if isinstance(error, KeyboardInterrupt) and error is not self.handled:
            raise error
        suspended = error
        while isinstance(suspended, BaseExceptionGroup):
            suspended = next((part for part in suspended.exceptions if _is_suspension(part)), None)
        if isinstance(suspended, Suspended):
            raise suspended

    def suspend_on(
        self, scope: Scope, entries: list[EntryData], read: int | None = None, **more: Any
    ) -> Plan[NoReturn]:
        """Record that a call waits, and stop. `read`: the inbox position up to which it had read.

        If nothing else is in flight, the same commit releases the run.
        """
        before, error = self.waits_read, self.suspended(scope, read)
        try:
            if scope.main and scope.busy and not self.interrupt_pending and len(scope.in_flight) <= 1:
                more.update(status=WAITING, inbox_read=self.waits_read)
                unreached = self._unreached_entries()
                yield from self._release_and_stop(scope, entries + unreached, error, more)
                self._note_unreached(unreached)
            elif entries or more or scope.pending:
                yield from self.write(scope, entries, **more)
        except Exception:  # an entry cannot be stored, so the call does not wait
            self._cancel_wait(scope, before)
            raise
        raise error

    def _unreached_entries(self) -> list[EntryData]:
        """The entry about open gates that the code no longer reaches; empty if it is already recorded."""
        gates = self.record.unreached_gates()
        return [] if gates == self.record.unreached else [{"kind": "unreached", "gates": gates}]

    def _note_unreached(self, recorded: list[EntryData]) -> None:
        for entry in recorded:
            self.record.unreached = entry["gates"]

    def pause_here(self, scope: Scope, entries: list[EntryData]) -> Plan[NoReturn]:
        """Record that the run pauses itself, in the commit that releases it, and stop."""
        before, error = self.waits_read, self.suspended(scope)
        try:
            yield from self._release_and_stop(scope, entries, error, {"status": PAUSED})
        except Exception:
            self._cancel_wait(scope, before)
            raise
        raise error

    def _release_and_stop(
        self, scope: Scope, entries: list[EntryData], error: Suspended, more: WriteOptions
    ) -> Plan[None]:
        self.releasing = self.interrupt_pending = True
        written = yield from self.write(scope, entries, release=True, snapshot=self.snapshot(entries), **more)
        self.released = written.status
        self.stopped = error

    def _cancel_wait(self, scope: Scope, before: int | None) -> None:
        scope.stopped = scope.parked = None
        self.waits_read, self.releasing = before, False
        self.interrupt_pending = self.should_yield or self.cancel is not None or self.pause is not None

    def release(self) -> Plan[None]:
        """Release the run after all calls have stopped, if it is still claimed."""
        if self.released:
            return
        root, entries = self.root, []
        if self.cancel is not None or self.should_yield:
            status = READY
        elif self.pause is not None:
            status = PAUSED
            self.take_requests(root)
            entries.append({"kind": "paused", "by": self.pause.by, **self.pause.source})
        else:
            status, entries = WAITING, self._unreached_entries()
        more: WriteOptions = {"status": status, "release": True}
        if status == WAITING:
            more["inbox_read"] = self.waits_read
        try:
            written = yield from self.write(root, entries, **more, snapshot=self.snapshot(entries))
        except (InvalidInput, MissingAwait):  # the state cannot be stored; a replay computes it again and raises
            written = yield from self.write(root, entries, **more)
        self.released = written.status
        self._note_unreached([entry for entry in entries if entry["kind"] == "unreached"])

    def snapshot(self, entries: list[EntryData]) -> Snapshot | None:
        """The state as a checkpoint; None if it is empty or this execution has made no progress."""
        if not self.state or not (entries or self.root.pending or self.position > self.began_at):
            return None
        resume = self.resume_point.metadata_at(self.position, self.version)
        return Snapshot(self.state, resume, self.position, next_node=self.next_node)


R = TypeVar("R")


class RunContext(Protocol):
    """The interface of a run for code that adds calls to it: `runtime.Run`, and the run of each branch of a gather."""

    @property
    def execution(self) -> Execution:
        """The execution that the calls of the run share."""
        ...

    @property
    def scope(self) -> Scope:
        """The scope of the next call; a loop replaces it at each turn."""
        ...

    def drive(self, plan: Plan[R], /) -> R:
        """Execute a plan of the engine and return its result."""
        ...

    def loop(self) -> Iterator[int]:
        """Begin or continue the durable loop of the run."""
        ...
