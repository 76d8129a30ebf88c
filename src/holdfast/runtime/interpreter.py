"""The interpreter translates the engine's commands into commits and reads of the store.

It encodes values on their way down. The driver below it only commits, reads, calls the user's functions, waits, and
runs branches in parallel. Nothing is written, and no effect begins, unless the claim is still held.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from holdfast.clock import US
from holdfast.drivers import Handler, Plan
from holdfast.engine import commands as c
from holdfast.engine.execution import Execution
from holdfast.engine.failures import place_of
from holdfast.engine.rollback import MarkChild, ReadChildren, ReadLedger, StopChild
from holdfast.errors import Diverged, Halted, HoldfastError, LeaseLost, StorageError, Suspended
from holdfast.ids import full_name
from holdfast.model.commit import (
    Commit,
    Committed,
    Guard,
    NewCheckpoint,
    NewEffect,
    NewEntry,
    NewGate,
    NewMessage,
    Outcome,
    Reason,
    Refused,
    ReturnedItem,
    Timer,
)
from holdfast.model.rows import EffectRow, GateRow
from holdfast.operations.claims import renewal
from holdfast.operations.context import refusal
from holdfast.operations.gates import gate_body
from holdfast.operations.state_commit import commit_values
from holdfast.operations.views import RESUME, decode_body, encode_body, encode_entry, metadata_pairs
from holdfast.runtime.children import FamilyChildren, attached_lines, mark_undone, stop_child
from holdfast.runtime.replay_input import family_lines, inbox_items, tracked_state_of
from holdfast.runtime.run_history import ledger_lines
from holdfast.runtime.start import run_child, take_claim
from holdfast.state.values import pack_sorted
from holdfast.store.capabilities import Presence
from holdfast.store.search import write_metadata

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore
    from holdfast.runtime.start import Claimed

R = TypeVar("R")

_log: Final = logging.getLogger("holdfast.run")
_MARGIN: Final = 0.25
"""If less than this part of the lease is left, the claim is renewed before an effect is called."""


class WaitUntil(NamedTuple):
    """Command for a driver: wait until that moment, or until the execution has to stop."""

    interpreter: Interpreter
    until_us: int


class RunBranches(NamedTuple):
    """Command for a driver: execute the branches in parallel, as `RunParallel`."""

    interpreter: Interpreter
    branches: list[c.Branch]
    limit: int


class Interpreter:
    """Executes the commands of one execution."""

    def __init__(self, app: AppCore, claimed: Claimed) -> None:
        self.app = app
        self.access = access = claimed.access
        assert access.holder is not None
        self.row = claimed.row
        self.force = claimed.force
        self._answered = claimed.answered
        self.creation = claimed.creation.commit if claimed.creation is not None else None
        """The commit that creates and claims the run; None if it exists. It is sent before anything is called."""
        self.new_owner = ""
        """The owner that has the claim now, if this process lost it to another."""
        self.core = access.core
        self.lease_s = app.lease_s
        self.lease_until = claimed.taken_at + self.lease_s
        """On the monotonic clock; not later than the end of the lease in the store."""
        self.exe: Execution = None  # type: ignore[assignment]  # set by `execute_run` after the journal was read
        self.threads: dict[int, int] = {}
        """How many calls of a blocking workflow each thread is in."""
        self.woken: list[str] = []
        """Other runs that its children made ready."""
        self.messages: list[tuple[int, c.Send]] = []
        """Messages in the outbox that are not delivered yet, by number."""
        self._guard = access.guard()
        self._token = self.core.ids.token
        self._do: dict[type, Handler[object]] = {
            c.Now: lambda _: self.core.clock.now_us(),
            c.RandomBytes: lambda command: self._token(command.size),
        }
        self._for_driver: dict[type, Handler[object]] = {
            c.Wait: lambda command: WaitUntil(self, command.until_us),
            c.RunParallel: lambda command: RunBranches(self, command.branches, command.limit),
        }
        self._read: dict[type, Handler[Callable[[], object]]] = {
            c.ReadInbox: lambda command: lambda: inbox_items(self.core, self.row, command.after),
            c.ReadState: lambda command: lambda: tracked_state_of(self.core, self.row, command.checkpoint_id),
            c.ReadGate: lambda command: lambda: self._gate_body(command.gate),
            ReadLedger: lambda command: lambda: ledger_lines(self.core, self.row, command.keys),
            c.ReadFamily: lambda command: lambda: family_lines(self.core, self.row, command.key),
            c.ReadFamilyChild: lambda command: lambda: self._family_children.find(command.call),
            ReadChildren: lambda command: lambda: attached_lines(self.core, self.row, command.children),
        }
        self._acts: dict[type, Handler[Plan[object]]] = {
            c.RunChild: lambda command: run_child(self, command),
            StopChild: lambda command: stop_child(self.app, self.row, command.run_id, command.by, bar=command.bar),
            MarkChild: lambda command: mark_undone(self.app, command),
        }

    def translate(self, plan: Plan[R]) -> Plan[R]:
        """Execute the plan; yield the steps that are left for the driver."""
        try:
            command = next(plan)
            while True:
                try:
                    result = yield from self._execute(command)
                except GeneratorExit:  # the driver gave the plan up
                    plan.close()
                    raise
                except BaseException as error:
                    command = plan.throw(error)
                else:
                    command = plan.send(result)
                    result = None  # a large result is not held here while it is committed
        except StopIteration as done:
            value: R = done.value
            return value
        except Diverged:
            self.exe.interrupt_pending = True  # other branches must stop too
            raise
        finally:
            plan.close()  # it is still suspended if Ctrl-C came between two of its commands
            if self.exe.record.edits is not None:
                self.exe.record.edits.after_call()

    def _execute(self, command: object) -> Plan[object]:
        kind = type(command)
        is_free = kind in self._do or (isinstance(command, c.Write) and command.is_wait)
        creation = self.creation  # another thread may create the run at any moment
        if creation is not None and not is_free:
            yield from self._create(creation)
        if isinstance(command, c.Write):
            if any(mark.state == "intent" for mark in command.marks):
                yield from self._ensure_alive()  # else an effect that never began would stay in doubt
            return (yield from self._write(command))
        if isinstance(command, c.Call):
            if command.external:
                yield from self._ensure_lease()
            return (yield command)
        if kind in self._do:
            return self._do[kind](command)
        if kind in self._read:
            return (yield from self._stop_on_failure(self._read[kind](command)))
        if kind in self._acts:
            if kind is c.RunChild:  # the fence does not guard what is written to another run
                yield from self._ensure_lease()
            try:
                return (yield from self._acts[kind](command))
            except StorageError as error:
                raise self._stop(error) from error
        return (yield self._for_driver[kind](command))

    def _stop_on_failure(self, step: object) -> Plan[object]:
        """Read or commit. If the store fails, the run stops here: user code must not handle that as a result."""
        try:
            return (yield step)
        except StorageError as error:
            raise self._stop(error) from error

    def _stop(self, error: HoldfastError) -> BaseException:
        stopped = Halted(f"run {self.row.run_id!r} stopped: {error}")
        stopped.__cause__ = error
        self.exe.stopped = stopped
        return stopped

    @property
    def must_stop(self) -> bool:
        """Whether the execution has to end: its worker is stopping, or it was stopped itself."""
        return self.exe.should_yield or self.exe.stopped is not None

    @functools.cached_property
    def _family_children(self) -> FamilyChildren:
        return FamilyChildren(self.core, self.row)

    def _gate_body(self, name: str) -> c.EntryData:
        if self._answered is not None and self._answered[0] == name:
            return self._answered[1]
        rows = self.core.port.rows(GateRow, self.row.run, keys=[name])
        return gate_body(self.row, rows[0]) if rows else {}

    # --- the creation ------------------------------------------------------------------------------------------------

    def _create(self, creation: Commit) -> Plan[None]:
        """Create and claim the run."""
        asked_at = time.monotonic()
        try:
            outcome = yield from take_claim(self.app, creation)
        except StorageError as error:
            raise self._stop(error) from error
        self.lease_until = asked_at + self.lease_s
        if not self.note_created(outcome) and isinstance(outcome, Refused):
            raise self._refused(creation, outcome)

    def create_first(self) -> Plan[None]:
        """Create the run, if it does not exist, before its code starts another one, which may send to it."""
        creation = self.creation
        if creation is not None:
            outcome: Outcome = yield creation
            if not self.note_created(outcome) and isinstance(outcome, Refused):
                raise self._refused(creation, outcome)

    def note_created(self, outcome: Outcome) -> bool:
        """Whether the run exists now and is this one; several threads or tasks of it may create it at once."""
        row = outcome.run
        if row is None or row.incarnation != self.row.incarnation:
            return False
        if isinstance(outcome, Refused) and outcome.reason != Reason.RUN_EXISTS:  # the row was not stored
            return False
        self.row, self.creation = row, None
        return True

    # --- the claim ---------------------------------------------------------------------------------------------------

    def _ensure_lease(self) -> Plan[None]:
        """Before an effect outside: renew the lease if it ends soon, which is refused if the claim is lost."""
        yield from self._ensure_alive()
        if time.monotonic() > self.lease_until - _MARGIN * self.lease_s:
            yield from self.renew()
            yield from self._ensure_alive()

    def _ensure_alive(self) -> Plan[None]:
        """Return when no other process has declared this owner dead or is about to; LeaseLost if one has."""
        assert self.access.holder is not None
        liveness, owner = self.core.liveness, self.access.holder.owner
        while True:
            if self.exe.stopped is not None:
                raise self.exe.stopped
            if liveness.presence(owner) is Presence.SURE:
                return
            if (yield from self._stop_on_failure(lambda: liveness.confirm(owner))) is Presence.LOST:
                raise self.lost("")

    def renew(self) -> Plan[None]:
        """Extend the lease."""
        asked_at = time.monotonic()
        commit = renewal(self.access, self.row.run_id, int(self.lease_s * US))
        outcome = yield from self._stop_on_failure(commit)
        if isinstance(outcome, Refused):
            raise self._refused(commit, outcome)
        self.lease_until = asked_at + self.lease_s

    def lost(self, holder: str) -> LeaseLost:
        """Record that the claim is lost: nothing more is written, and the next call of user code raises."""
        self.new_owner = holder
        now = f"{holder!r} holds it now" if holder else "it is not claimed now"
        error = LeaseLost(f"run {self.row.run_id!r} is no longer held by this process: {now}")
        self.exe.stopped = error
        return error

    # --- commits -----------------------------------------------------------------------------------------------------

    def _write(self, write: c.Write) -> Plan[c.Written]:
        if self.exe.stopped is not None:
            raise self.exe.stopped
        commit = self._commit(write)
        outcome: Outcome | None = None
        creation = self.creation
        if creation is not None:
            both = _with_creation(creation, commit)
            outcome = yield from self._send(both, write)
            if not self.note_created(outcome) and isinstance(outcome, Refused):
                raise self._refused(both, outcome)
        if not isinstance(outcome, Committed):
            outcome = yield from self._send(commit, write)
        if isinstance(outcome, Refused):
            raise self._refused(commit, outcome)
        run = outcome.run
        if write.send:
            first = run.outbox - len(write.send) + 1
            self.messages += enumerate(write.send, start=first)
        for entry in write.entries:
            if "error" in entry and "call" in entry:
                self._log_failed_call(entry)
        return c.Written(run.position, run.inbox, run.status, outcome.checkpoint_id)

    def _send(self, commit: Commit, write: c.Write) -> Plan[Outcome]:
        """Commit, with the state of the write's checkpoint."""
        outcome: Outcome
        try:
            if write.snapshot is None:
                outcome = yield commit
            else:
                outcome, _ = yield from commit_values(self.access, commit, (write.snapshot.state,))
        except StorageError as error:
            raise self._stop(error) from error
        return outcome

    def _log_failed_call(self, entry: c.EntryData) -> None:
        """Log an attempt or a call that failed; the run may continue all the same. Arguments are not logged."""
        call, failure, where = full_name(entry.get("in", ""), entry["call"]), entry["error"], place_of(entry["error"])
        attempt = entry.get("number", entry.get("attempts", 1))
        kind, message, place = failure["type"], failure["message"], where and f" ({where})"
        extra: dict[str, object] = {"run_id": self.row.run_id, "workflow": self.row.workflow, "call": call}
        extra |= {"where": where, "error_type": kind, "attempt": attempt}
        text = "%r of run %r failed (attempt %d): %s: %s%s"
        _log.info(text, call, self.row.run_id, attempt, kind, message, place, extra=extra)

    def _commit(self, write: c.Write) -> Commit:
        """Build the commit of a command, without the root of its checkpoint."""
        core, run_id, token = self.core, self.row.run_id, self._token(8)
        plain = write.entries[:-1] if write.result else write.entries
        entries = tuple([NewEntry(entry["kind"], encode_body(core, entry, "a journal entry")) for entry in plain])
        if write.result:
            last = write.entries[-1]
            entries = (*entries, NewEntry(last["kind"], encode_entry(core, last, write.result)))
        if write.is_plain:
            return Commit(run_id, token, self._guard, entries=entries)
        snapshot = write.snapshot
        return Commit(
            run_id,
            token,
            self._guard,
            status=write.status,
            entries=entries,
            checkpoints=(_checkpoint(snapshot, write.status),) if snapshot is not None else (),
            effects=tuple([self._effect(mark, write.result) for mark in write.marks]),
            gates=tuple([NewGate(g.gate, encode_body(core, g.body, "a gate"), g.expires_us) for g in write.gates]),
            close_gates=tuple(write.close_gates),
            timers=tuple([Timer(name, due_us) for name, due_us in write.timers]),
            drop_timers=tuple(write.drop_timers),
            take_items=tuple(write.take),
            return_items=tuple(
                [ReturnedItem(i.number, i.name, i.by, encode_body(core, i.value, "an event")) for i in write.put_back]
            ),
            inbox_read=write.inbox_read,
            send=tuple([self._message(message) for message in write.send]),
            release=write.release,
        )

    def _message(self, send: c.Send) -> NewMessage:
        return NewMessage(send.target, send.kind, send.name, send.key, encode_body(self.core, send.value, "a message"))

    def _effect(self, mark: c.LedgerMark, result: bytes) -> NewEffect:
        body = b""
        if mark.state == "done":
            body = self.core.body(result) if result else encode_body(self.core, mark.result, "result")
        call = encode_body(self.core, mark.call, "an effect's arguments") if mark.call is not None else b""
        return NewEffect(mark.key, mark.state, mark.tool, mark.target, mark.reversible, body, call=call)

    def _refused(self, commit: Commit, refused: Refused) -> BaseException:
        if self.exe.releasing and not commit.release and refused.reason == Reason.CLAIM_LOST:
            return Suspended(f"run {self.row.run_id!r} was released; it will continue from here")
        if refused.reason in (Reason.CLAIM_LOST, Reason.NO_RUN, Reason.INCARNATION):
            return self.lost(refused.run.owner if refused.run is not None else "")
        if refused.reason == Reason.EFFECT_DONE:
            row = refused.extra
            assert isinstance(row, EffectRow)
            place = f"effect {row.key!r} of run {self.row.run_id!r}"
            return c.EffectKnown(row.state, decode_body(row.body, place), decode_body(row.call, place))
        return self._stop(refusal(self.access, commit, refused))


def _with_creation(creation: Commit, wait: Commit) -> Commit:
    """Build the commit that creates a run that waits. Its claim is only counted."""
    return msgspec.structs.replace(
        wait,
        guard=Guard(),
        create=creation.create,
        workflow=creation.workflow,
        metadata=creation.metadata,
        entries=creation.entries + wait.entries,
        take=creation.take,
    )


def _checkpoint(snapshot: c.Snapshot, status: str | None) -> NewCheckpoint:
    pairs = metadata_pairs(snapshot.metadata) if snapshot.metadata else ()
    metadata = write_metadata((*pairs, (RESUME, pack_sorted(snapshot.resume))))
    node, covers = snapshot.next_node, snapshot.covers
    return NewCheckpoint("", b"", next_node=node, covers=covers, status=status or "running", metadata=metadata)
