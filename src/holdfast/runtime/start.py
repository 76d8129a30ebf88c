"""Run creation and claims: the first commit of a run, later takes, child runs.

A run is created and claimed in one commit, so no other process executes it in between. That commit comes before any
function of a step, effect or check; if the run first waits, the wait is recorded in the same commit. The same start
again finds the same run. A take that is interrupted is released.
"""

from __future__ import annotations

import contextlib
import reprlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from holdfast.clock import US
from holdfast.drivers import Plan
from holdfast.engine.commands import Ended, EntryData, RunChild
from holdfast.engine.gates import moment_us, seconds_us
from holdfast.errors import HoldfastError, InputConflict, InvalidInput, RunNotFound, StorageError, Unstorable
from holdfast.ids import check_id
from holdfast.model.commit import Commit, Committed, NewCheckpoint, NewEntry, NewRun, Outcome, Reason, TakeClaim, Timer
from holdfast.model.rows import AT_WORK, BEGIN, CANCELLED, COMPLETED, NO_RUN, READY, RUNNING, TERMINAL, WAITING, RunRow
from holdfast.operations.claims import claim_access, dead_fence, release, take_or_revoke_dead
from holdfast.operations.context import Access, refusal
from holdfast.operations.state_commit import EMPTY_STATE
from holdfast.operations.views import RESUME, encode_body, metadata_pairs
from holdfast.runtime.replay_input import CODEC, first_entry, last_entry
from holdfast.state.values import pack, pack_sorted
from holdfast.store.checksum import verify_run
from holdfast.store.decide import is_live
from holdfast.store.search import write_metadata

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore
    from holdfast.runtime.execute import ExecutionResult
    from holdfast.runtime.interpreter import Interpreter


class Creation(NamedTuple):
    """A run that its first commit creates and claims."""

    start: Start
    commit: Commit
    stored: EntryData
    """The first entry of its journal."""


class Claimed(NamedTuple):
    """A run that this process has claimed, or will claim when it creates it."""

    row: RunRow
    access: Access
    taken_at: float
    """On the monotonic clock, before the claim was taken."""
    started: EntryData | None = None
    """The first entry of a run that was just created, so there is nothing to replay."""
    force: bool = False
    """A rollback continues although an undo fails."""
    creation: Creation | None = None
    """Set if the run does not exist yet."""
    answered: tuple[str, EntryData] | None = None
    """The gate that was answered with the claim, and its body; it does not change any more."""


class Start(msgspec.Struct):
    """The input and origin of a run to create."""

    run_id: str
    workflow: str
    version: int
    args: tuple[object, ...]
    kwargs: dict[str, object]
    metadata: dict[str, object] | None = None
    parent: dict[str, object] | None = None
    definition: Mapping[str, Any] | None = None
    """The stored definition of a declared workflow."""
    source: str | None = None
    """The run of which it is a fork from its beginning; such a fork takes outcomes from its family."""
    forked: str = ""
    """How it treats effects its family performed."""
    begin_us: int = 0
    """When it begins; 0 means at once."""

    def entry(self) -> EntryData:
        """The first entry of its journal."""
        entry: EntryData = {"kind": "started", "workflow": self.workflow, "version": self.version}
        entry |= {"args": list(self.args), "kwargs": self.kwargs}
        if self.parent is not None:
            entry["parent"] = self.parent
        if self.definition is not None:
            entry["definition"] = self.definition
        if self.begin_us:
            entry["begin_us"] = self.begin_us
        return entry


def begin_of(app: AppCore, at: object, after: object) -> int:
    """The time at which a run is to begin, in microseconds since 1970; 0 means at once."""
    if at is not None and after is not None:
        raise InvalidInput(f"at and after were both given ({at!r}, {after!r}); give one of them")
    now_us = app.core.clock.now_us()
    if after is not None:
        begin_us = now_us + seconds_us("after", after)
    else:
        begin_us = moment_us(at, "at") if at is not None else 0
    return begin_us if begin_us > now_us else 0


class Execute(NamedTuple):
    """Command for a driver: execute the claimed run until it waits or ends."""

    claimed: Claimed


def new_run_id(app: AppCore, workflow: str) -> str:
    """Make an id for a run without one: the workflow's name and a suffix that sorts by time."""
    digits, us, text = "0123456789abcdefghjkmnpqrstvwxyz", app.core.clock.now_us(), ""
    number = (us << 20) | int.from_bytes(app.token(3), "big") >> 4
    while number:
        text, number = digits[number & 31] + text, number >> 5
    return f"{workflow}-{text}"


def new_take(app: AppCore, *, revive: bool = False, paused: bool = False) -> TakeClaim:
    """Build the take of a claim for this process; `revive`, `paused`: also of a run that has ended or is paused."""
    take = TakeClaim(app.owner, app.token(16), int(app.lease_s * US), revive=revive, paused=paused)
    app.nonces.add(take.nonce)
    return take


def take_claim(app: AppCore, commit: Commit, revocations: int | None = 1) -> Plan[Outcome]:
    """Commit a change and the take in it, if any, and revoke the claims of dead owners, as `take_or_revoke_dead` does.

    If the caller is interrupted or the store fails, the claim is released.
    """
    nonce = commit.take.nonce if commit.take is not None else b""
    try:
        outcome = yield from take_or_revoke_dead(app.access, commit, app, revocations)
    except GeneratorExit:
        raise
    except BaseException:
        if nonce:
            app.nonces.discard(nonce)
            with contextlib.suppress(HoldfastError):
                yield from _release_take(app, commit.run_id, nonce)
        raise
    if not isinstance(outcome, Committed) and (outcome.run is None or outcome.run.nonce != nonce):
        app.nonces.discard(nonce)
    return outcome


def _release_take(app: AppCore, run_id: str, nonce: bytes) -> Plan[None]:
    row: RunRow | None = yield lambda: app.core.port.run(run_id)
    if row is not None and row.nonce == nonce:
        yield release(claim_access(app.core, row), run_id)


def to_claimed(app: AppCore, row: RunRow, taken_at: float, started: EntryData | None = None) -> Claimed:
    """The claim in a row that this process has just taken."""
    return Claimed(row, claim_access(app.core, row), taken_at, started)


def create(app: AppCore, start: Start, *, take: bool) -> Plan[tuple[RunRow, Claimed | None]]:
    """Create the run, and claim it with `take`, in one commit; find it if it was created with the same input."""
    body, stored = _encode_input(app, start)
    while True:
        taken_at = time.monotonic()
        new, checkpoints = (yield lambda: _join_family(app, start)) if start.source is not None else _ALONE
        commit = _creation(app, start, body, new, checkpoints, take=take)
        outcome = yield from take_claim(app, commit)
        if isinstance(outcome, Committed):
            row, first = outcome.run, None if checkpoints else stored
            return row, to_claimed(app, row, taken_at, first) if take else None
        if outcome.reason != Reason.SOURCE:  # else the source was swept while it was read
            break
    if outcome.reason != Reason.RUN_EXISTS or outcome.run is None:
        raise refusal(app.access, commit, outcome)
    return (yield from _find_same(app, start, outcome.run, stored)), None


def create_later(app: AppCore, start: Start, *, is_new: bool) -> Plan[Claimed | RunRow]:
    """Prepare to create and claim the run with its first commit; find it if it was created with the same input.

    `is_new`: its id was just generated, so it cannot exist.
    """
    body, stored = _encode_input(app, start)
    found: RunRow | None = None if is_new else (yield lambda: app.core.port.run(start.run_id))
    if found is not None:
        return (yield from _find_same(app, start, found, stored))
    alone = NewRun(required=True, incarnation=app.token(16))
    commit = _creation(app, start, body, alone, (), take=True)
    assert commit.take is not None, "it claims the run"
    row = msgspec.structs.replace(
        NO_RUN,
        run_id=start.run_id,
        incarnation=alone.incarnation,
        workflow=start.workflow,
        status=RUNNING,
        position=1,
        fence=1,
        owner=commit.take.owner,
        nonce=commit.take.nonce,
    )
    claimed = to_claimed(app, row, time.monotonic(), stored)
    return claimed._replace(creation=Creation(start, commit, stored))


def find_created(app: AppCore, creation: Creation) -> Plan[Claimed | None]:
    """Claim the run that another process has created first, as a start that finds it does."""
    run_id = creation.start.run_id
    found: RunRow | None = yield lambda: app.core.port.run(run_id)
    if found is None:
        raise RunNotFound(run_id)
    row = yield from _find_same(app, creation.start, found, creation.stored)
    return (yield from claim_unfinished(app, row))


def claim_unfinished(app: AppCore, row: RunRow) -> Plan[Claimed | None]:
    """Claim a run that exists, if it can continue: it is ready, or its process may be dead."""
    return (yield from claim(app, row.run_id)) if row.status in (READY, *AT_WORK) else None


def _encode_input(app: AppCore, start: Start) -> tuple[bytes, EntryData]:
    """The first entry of the journal, encoded, and as a replay reads it."""
    check_id("run_id", start.run_id)
    entry = start.entry()
    try:
        return encode_body(app.core, entry, "the input of a run"), CODEC.round_trip(entry)
    except Unstorable as error:
        path = error.path.replace("state['args']", "args", 1).replace("state['kwargs']", "kwargs", 1)
        text = str(error).replace(error.path, path, 1)
        raise Unstorable(f"the input of workflow {start.workflow!r} cannot be stored: {text}", path) from None


def _creation(
    app: AppCore, start: Start, body: bytes, new: NewRun, checkpoints: tuple[NewCheckpoint, ...], *, take: bool
) -> Commit:
    """Build the commit that creates the run, and claims it with `take`."""
    return Commit(
        start.run_id,
        app.token(8),
        create=new,
        workflow=start.workflow,
        status=WAITING if start.begin_us else None,
        timers=(Timer(BEGIN, start.begin_us),) if start.begin_us else (),
        metadata=metadata_pairs(start.metadata) if start.metadata else (),
        entries=(NewEntry("started", body),),
        checkpoints=checkpoints,
        take=new_take(app) if take else None,
    )


def _find_same(app: AppCore, start: Start, found: RunRow, stored: EntryData) -> Plan[RunRow]:
    """The run that exists; InputConflict if it was started with another workflow or other input."""
    row = verify_run(found)
    first: EntryData = yield lambda: first_entry(app.core, row)
    if first.get("workflow", row.workflow) != start.workflow:
        raise InputConflict(start.run_id, f"workflow ({row.workflow!r})")
    _check_same_input(app, start, first, stored)
    return row


def _check_same_input(app: AppCore, start: Start, found: EntryData, given: EntryData) -> None:
    """Refuse other input than the run was started with. By position, by keyword or by default is the same.

    Inputs are compared as they are stored: `True` and `1.0` are not the input `1`.
    """
    if not found or found.get("parent") != given.get("parent"):
        raise InputConflict(start.run_id, "input")
    if _digest_input(found) == _digest_input(given):
        return
    known = app.known(start.workflow)
    differing = known.differing_input(found, given) if known is not None else None
    if differing:
        name, old, new = differing[0]
        text = f"input (argument {name!r}: {reprlib.repr(old)}, now {reprlib.repr(new)})"
        raise InputConflict(start.run_id, text)
    if differing is None:
        raise InputConflict(start.run_id, "input")


def _digest_input(entry: EntryData) -> str | None:
    return CODEC.digest(tuple(entry.get("args", ())), entry.get("kwargs", {}))


_ALONE: Final[tuple[NewRun, tuple[NewCheckpoint, ...]]] = NewRun(required=True), ()


def _join_family(app: AppCore, start: Start) -> tuple[NewRun, tuple[NewCheckpoint, ...]]:
    """How to create a fork of `start.source`, and the checkpoint that records it; alone if the source was deleted."""
    source = app.core.port.run(start.source or "")
    if source is None:
        return _ALONE
    resume: dict[str, object] = {"spans": [[1, 1]], "loops": [], "needs": [], "epoch": 0}
    resume |= {"version": start.version, "forked": start.forked}
    origin = pack(f"{source.run_id}@journal.1")
    first = NewCheckpoint("", EMPTY_STATE, metadata=write_metadata(((RESUME, pack_sorted(resume)),)))
    return NewRun(True, source.run_id, source.incarnation, source.gc_epoch, origin), (first,)


def claim(app: AppCore, run_id: str, *, paused: bool = False, entry: EntryData | None = None) -> Plan[Claimed | None]:
    """Claim a run. None if a living owner holds it, it has ended, or it is paused and `paused` is False.

    `entry` is added to its journal in the same commit.
    """
    taken_at = time.monotonic()
    more = (NewEntry(entry["kind"], encode_body(app.core, entry, "a journal entry")),) if entry is not None else ()
    commit = Commit(run_id, app.token(8), take=new_take(app, paused=paused), entries=more)
    outcome = yield from take_claim(app, commit)
    if isinstance(outcome, Committed):
        return to_claimed(app, outcome.run, taken_at)
    if outcome.reason == Reason.NO_RUN:
        raise RunNotFound(run_id)
    if outcome.reason in (Reason.ENDED, Reason.CLAIMED, Reason.PAUSED):
        return None
    raise refusal(app.access, commit, outcome)


def is_held(app: AppCore, row: RunRow) -> Plan[bool]:
    """Whether a living owner holds the run, as far as is known without an attempt to take it."""
    if not row.owner or not is_live(row, app.core.clock.lease_time):
        return False
    return (yield from dead_fence(app.access, row, app)) is None


def run_child(interpreter: Interpreter, command: RunChild) -> Plan[Ended | None]:
    """Create the child if needed and execute it here if it is free; return how it ended, or None."""
    app = interpreter.app
    name = command.workflow if isinstance(command.workflow, str) else app.registry.find(command.workflow).name
    known = app.known(name)
    if name == "" or (known is None and not isinstance(command.workflow, str)):
        raise InvalidInput(f"{command.workflow!r} is not a workflow of this app")
    version = known.version if known is not None else 1
    start = Start(command.run_id, name, version, command.args, command.kwargs)
    start.parent = {"run": interpreter.row.run_id, "call": command.call, "detached": command.detached}
    start.definition, start.source, start.forked = command.definition, command.source, command.forked
    here = known is not None and not command.detached and not command.enqueue
    existing = (yield lambda: app.core.port.run(command.run_id)) if known is not None and known.is_declared else None
    if existing is None:
        row, claimed = yield from create(app, start if known is None else known.prepare(start), take=here)
    else:  # it follows the definition in its journal, whatever is registered by now
        row, claimed = verify_run(existing), None
    if claimed is None and here:
        claimed = yield from claim_unfinished(app, row)
    while claimed is not None:
        result: ExecutionResult = yield Execute(claimed)
        interpreter.woken += result.woken
        if isinstance(result.error, StorageError) or not isinstance(result.error, Exception | None):
            raise result.error  # the store failed or the process is exiting, which stops the parent too
        again = result.status == READY and not interpreter.exe.should_yield  # a stopping worker leaves it to others
        claimed = (yield from claim(app, command.run_id)) if again else None
    ended: Ended | None = yield lambda: _read_end(app, command.run_id)
    return ended


def _read_end(app: AppCore, run_id: str) -> Ended | None:
    """How a run ended, from its status and its last entry; None if it has not."""
    row = app.core.port.run(run_id)
    if row is None or verify_run(row).status not in TERMINAL:
        return None
    last = last_entry(app.core, row)
    if row.status == COMPLETED:
        return Ended(COMPLETED, last.get("result"))
    if row.status == CANCELLED:
        return Ended(CANCELLED, None, {"type": "RunCancelled", "message": f"run {row.run_id!r} was cancelled"})
    return Ended(row.status, None, last.get("error") or {"type": "Unknown", "message": "the run has failed"})
