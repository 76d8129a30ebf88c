"""The carrier: turns the engine's commands, which are values, into commits and reads, which are bytes.

It stands between the engine and a driver. What is left for the driver is little: commit, read, call the user's
function, wait, do branches side by side.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.clock import US
from holdfast.engine import commands as c
from holdfast.engine.execution import Execution
from holdfast.engine.failures import place_of
from holdfast.engine.goingback import MarkChild, ReadChildren, ReadLedger, StopChild
from holdfast.engine.record import full_name
from holdfast.errors import Diverged, Halted, HoldfastError, LeaseLost, StorageError, Suspended
from holdfast.model import commit as why
from holdfast.model.commit import (
    Commit,
    Committed,
    NewCheckpoint,
    NewEffect,
    NewEntry,
    NewGate,
    NewMessage,
    Refused,
    ReturnedItem,
    Timer,
)
from holdfast.model.rows import ChunkRow, EffectRow, RunRow
from holdfast.runtime.descendants import FamilyChildren, attached_lines, mark_undone, stop_child
from holdfast.runtime.reads import RESUME, family_lines, inbox_items, state_of
from holdfast.runtime.starting import run_child
from holdfast.runtime.whole import ledger_lines
from holdfast.state.encoder import Encoded, encode
from holdfast.state.values import pack_sorted
from holdfast.store.port import Presence
from holdfast.store.tags import write_metadata
from holdfast.verbs.core import Place
from holdfast.verbs.refusals import refusal
from holdfast.verbs.values import body_value, metadata_pairs, value_body

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore

R = TypeVar("R")
Carried = Generator[Any, Any, R]

_log: Final = logging.getLogger("holdfast.run")
_MARGIN: Final = 0.25
"""An effect is not called when less than this part of the lease is left, before the claim is renewed."""


class Carrier:
    """Carries out the commands of one execution."""

    def __init__(
        self,
        app: AppCore,
        place: Place,
        row: RunRow,
        lease_s: float,
        taken_at: float,
        *,
        force: bool = False,
    ) -> None:
        assert place.holder is not None
        self.app = app
        self.place = place
        self.row = row
        self.force = force
        self.taken_by = ""
        self.core = place.core
        self.lease_s = lease_s
        self.lease_until = taken_at + lease_s
        """On the monotonic clock; surely not later than the store's."""
        self.exe: Execution = None  # type: ignore[assignment]  # made of what is read through this carrier
        self.woken: list[str] = []
        """Other runs that became ready by what its children sent."""
        self.messages: list[tuple[int, c.Send]] = []
        """What was put into the outbox and is not delivered yet."""
        self._guard = place.guard()
        self._token = self.core.ids.token
        self._do: dict[type, Callable[[Any], Any]] = {
            c.Now: lambda _: self.core.clock.now_us(),
            c.Chance: lambda command: self._token(command.size),
        }
        self._read: dict[type, Callable[[Any], Callable[[], Any]]] = {
            c.ReadInbox: lambda command: lambda: inbox_items(self.core, self.row, command.after),
            c.ReadState: lambda command: lambda: state_of(self.core, self.row, command.checkpoint_id),
            ReadLedger: lambda _: lambda: ledger_lines(self.core, self.row),
            c.ReadFamily: lambda command: lambda: family_lines(self.core, self.row, command.key),
            c.ReadFamilyChild: lambda command: lambda: self._family_children.find(command.call),
            ReadChildren: lambda command: lambda: attached_lines(self.core, self.row, command.children),
        }
        self._acts: dict[type, Callable[[Any], Carried[Any]]] = {
            c.RunChild: lambda command: run_child(self, command),
            StopChild: lambda command: stop_child(self.app, self.row, command.run_id, command.by, bar=command.bar),
            MarkChild: lambda command: mark_undone(self.app, command),
        }

    def carry(self, plan: c.Plan[R]) -> Carried[R]:
        """Carry out the plan; what the driver must do is yielded."""
        try:
            command = next(plan)
            while True:
                try:
                    result = yield from self._carried(command)
                except GeneratorExit:  # nobody carries this out any more
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
            self.exe.alarm = True  # other branches must not go on either
            raise
        finally:
            if self.exe.record.edits is not None:
                self.exe.record.edits.returned()

    def _carried(self, command: Any) -> Carried[Any]:
        kind = type(command)
        if kind is c.Write:
            if any(mark.state == "intent" for mark in command.marks):
                yield from self._surely_alive()  # else the intent would stay, in doubt, of an effect that never began
            return (yield from self._write(command))
        if kind is c.Call:
            if command.world:
                yield from self._surely_held()
            return (yield command)
        if kind in self._do:
            return self._do[kind](command)
        if kind in self._read:
            return (yield from self._safely(self._read[kind](command)))
        if kind in self._acts:
            if kind is c.RunChild:  # the fence does not guard what is written to another run
                yield from self._surely_held()
            try:
                return (yield from self._acts[kind](command))
            except StorageError as error:
                raise self._halted(error) from error
        return (yield command)

    def _safely(self, action: Any) -> Carried[Any]:
        """A read or commit. If the store fails the run stops here: user code must not take that for a result."""
        try:
            return (yield action)
        except StorageError as error:
            raise self._halted(error) from error

    def _halted(self, error: HoldfastError) -> BaseException:
        stopped = Halted(f"run {self.row.run_id!r} stopped: {error}")
        stopped.__cause__ = error
        self.exe.stopped = stopped
        return stopped

    @functools.cached_property
    def _family_children(self) -> FamilyChildren:
        return FamilyChildren(self.core, self.row)

    # --- the claim ---------------------------------------------------------------------------------------------------

    def _surely_held(self) -> Carried[None]:
        """Before the world is touched: the lease must last, else it is renewed, which is refused if it is lost."""
        yield from self._surely_alive()
        if time.monotonic() > self.lease_until - _MARGIN * self.lease_s:
            yield from self.renew()
            yield from self._surely_alive()

    def _surely_alive(self) -> Carried[None]:
        """Others have not declared this owner dead, and are not about to; where that is not sure, wait until it is."""
        assert self.place.holder is not None
        port, owner = self.core.port, self.place.holder.owner
        while True:
            if self.exe.stopped is not None:
                raise self.exe.stopped
            if port.presence(owner) is Presence.SURE:
                return
            if (yield from self._safely(lambda: port.confirm(owner))) is Presence.LOST:
                raise self.lost("")

    def renew(self) -> Carried[None]:
        """Extend the lease."""
        asked_at = time.monotonic()
        commit = Commit(self.row.run_id, self._token(8), self._guard, renew_us=int(self.lease_s * US))
        outcome = yield from self._safely(commit)
        if type(outcome) is Refused:
            raise self._refused(commit, outcome)
        self.lease_until = asked_at + self.lease_s

    def lost(self, holder: str) -> LeaseLost:
        """The claim is gone: nothing more is written, and user code is told at its next call."""
        self.taken_by = holder
        now = f"{holder!r} holds it now" if holder else "nobody holds it now"
        error = LeaseLost(f"run {self.row.run_id!r} is no longer held by this process: {now}")
        self.exe.stopped = error
        return error

    # --- commits -----------------------------------------------------------------------------------------------------

    def _write(self, write: c.Write) -> Carried[c.Written]:
        exe = self.exe
        if exe.stopped is not None:
            raise exe.stopped
        while True:
            commit, encoded = self._commit(write)
            try:
                outcome = yield commit
            except StorageError as error:
                raise self._halted(error) from error
            if type(outcome) is Committed:
                break
            if encoded is not None and outcome.why in (why.EPOCH, why.INCARNATION):
                self.core.memory.forget(self.row.run_id)
                continue
            raise self._refused(commit, outcome)
        run = outcome.run
        if encoded is not None and encoded.linked and outcome.fresh:
            self.core.memory.note(run, encoded.chunks, "", encoded)
        if write.send:
            first = run.outbox - len(write.send) + 1
            self.messages += enumerate(write.send, start=first)
        for entry in write.entries:
            if "error" in entry and "call" in entry:
                self._log_failed_call(entry)
        return c.Written(run.position, run.inbox, run.status, outcome.checkpoint_id)

    def _log_failed_call(self, entry: c.EntryData) -> None:
        """Log an attempt or a call that failed; the run may go on all the same. Arguments are not logged."""
        call, failure, where = full_name(entry.get("in", ""), entry["call"]), entry["error"], place_of(entry["error"])
        attempt = entry.get("number", entry.get("attempts", 1))
        _log.info(
            "%r of run %r failed (attempt %d): %s: %s%s",
            call, self.row.run_id, attempt, failure["type"], failure["message"], where and f" ({where})",
            extra={
                "run_id": self.row.run_id, "workflow": self.row.workflow, "call": call, "where": where,
                "error_type": failure["type"], "attempt": attempt,
            },
        )  # fmt: skip

    def _commit(self, write: c.Write) -> tuple[Commit, Encoded | None]:
        core = self.core
        entries = tuple(
            [NewEntry(entry["kind"], value_body(core, entry, "a journal entry")) for entry in write.entries]
        )
        run_id, token = self.row.run_id, self._token(8)
        if write.is_plain:
            return Commit(run_id, token, self._guard, entries=entries), None
        guard, encoded = self._guard, None
        checkpoints: tuple[NewCheckpoint, ...] = ()
        chunks: tuple[ChunkRow, ...] = ()
        if write.snapshot is not None:
            known = self.place.known(run_id)
            state = write.snapshot.state
            encoded = encode(state, known.memos.get(""), known.hashes) if known else encode(state)
            guard = self.place.guard(known) if encoded.linked else guard
            checkpoints = (self._checkpoint(write.snapshot, encoded, write.status),)
            chunks = core.chunk_rows(encoded.chunks) if encoded.chunks else ()
        return Commit(
            run_id, token, guard, status=write.status, entries=entries, checkpoints=checkpoints, chunks=chunks,
            effects=tuple([self._effect(mark) for mark in write.marks]),
            gates=tuple([NewGate(g.gate, value_body(core, g.body, "a gate"), g.expires_us) for g in write.gates]),
            close_gates=tuple(write.close_gates),
            timers=tuple([Timer(name, due_us) for name, due_us in write.timers]),
            drop_timers=tuple(write.drop_timers), take_items=tuple(write.take), inbox_read=write.inbox_read,
            return_items=tuple([ReturnedItem(i.number, i.name, i.by, value_body(core, i.value, "an event"))
                                for i in write.put_back]),
            send=tuple([NewMessage(s.target, s.kind, s.name, s.key, value_body(core, s.value, "a message"))
                        for s in write.send]),
            release=write.release,
        ), encoded  # fmt: skip

    def _checkpoint(self, snapshot: c.Snapshot, encoded: Encoded, status: str | None) -> NewCheckpoint:
        pairs = metadata_pairs(snapshot.metadata) if snapshot.metadata else ()
        return NewCheckpoint(
            "", encoded.root, next_node=snapshot.next_node, covers=snapshot.covers, status=status or "running",
            metadata=write_metadata((*pairs, (RESUME, pack_sorted(snapshot.resume)))),
        )  # fmt: skip

    def _effect(self, mark: c.Mark) -> NewEffect:
        body = value_body(self.core, mark.result, "result") if mark.state == "done" else b""
        call = value_body(self.core, mark.call, "an effect's arguments") if mark.call is not None else b""
        return NewEffect(mark.key, mark.state, mark.tool, mark.target, mark.reversible, body, call=call)

    def _refused(self, commit: Commit, refused: Refused) -> BaseException:
        if self.exe.releasing and not commit.release and refused.why == why.CLAIM_LOST:
            return Suspended(f"run {self.row.run_id!r} was given back; it will go on from here")
        if refused.why in (why.CLAIM_LOST, why.NO_RUN, why.INCARNATION):
            return self.lost(refused.run.owner if refused.run is not None else "")
        if refused.why == why.EFFECT_DONE:
            row = refused.extra
            assert isinstance(row, EffectRow)
            place = f"effect {row.key!r} of run {self.row.run_id!r}"
            return c.EffectKnown(row.state, body_value(row.body, place), body_value(row.call, place))
        return self._halted(refusal(self.place, commit, refused))
