"""Creating runs: the first commit, which also takes the claim, and the runs of children."""

from __future__ import annotations

import contextlib
import reprlib
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from holdfast.clock import US
from holdfast.engine.commands import Ended, RunChild
from holdfast.errors import HoldfastError, InputConflict, InvalidInput, RunNotFound, StorageError, Unstorable
from holdfast.ids import check_id
from holdfast.model import commit as why
from holdfast.model.commit import Commit, Committed, Guard, NewCheckpoint, NewEntry, NewRun, Refused, Take
from holdfast.model.rows import RunRow
from holdfast.model.status import AT_WORK, CANCELLED, COMPLETED, READY, TERMINAL
from holdfast.runtime.codec import CODEC
from holdfast.runtime.reads import RESUME, first_entry, last_entry
from holdfast.state.encoder import encode
from holdfast.state.values import pack, pack_sorted
from holdfast.store.decide import is_live
from holdfast.store.seal import check_run
from holdfast.store.tags import write_metadata
from holdfast.verbs.core import Holder, Place
from holdfast.verbs.refusals import refusal
from holdfast.verbs.values import metadata_pairs, value_body

if TYPE_CHECKING:
    from holdfast.runtime.carrier import Carrier
    from holdfast.runtime.core import AppCore
    from holdfast.runtime.moving import Moved

R = TypeVar("R")
Acts = Generator[Any, Any, R]
"""A plan of the runtime: yields commits, reads (functions without arguments) and what a driver does."""


class Claimed(NamedTuple):
    """A run that this process holds."""

    row: RunRow
    place: Place
    taken_at: float
    """On the monotonic clock, before it was taken."""
    fresh: bool = False
    """It was created just now, so there is nothing to replay."""
    started: dict[str, Any] = {}  # noqa: RUF012 - read only
    force: bool = False
    """A rollback goes on although an undo fails."""


class Start(msgspec.Struct):
    """A run to be."""

    run_id: str
    workflow: str
    version: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    metadata: dict[str, Any] | None = None
    parent: dict[str, Any] | None = None
    definition: Any = None
    """What it goes by, for a declared workflow."""
    source: str | None = None
    """The run of which it is a fork from its beginning; such a fork takes outcomes from its family."""
    forked: str = ""
    """How it treats effects its family performed."""

    def entry(self) -> dict[str, Any]:
        """The first entry of its journal."""
        entry: dict[str, Any] = {
            "kind": "started", "workflow": self.workflow, "version": self.version, "args": list(self.args),
            "kwargs": self.kwargs,
        }  # fmt: skip
        if self.parent is not None:
            entry["parent"] = self.parent
        if self.definition is not None:
            entry["definition"] = self.definition
        return entry


class Move(NamedTuple):
    """For a driver: move the claimed run on, until it waits or ends."""

    claimed: Claimed


def new_run_id(app: AppCore, workflow: str) -> str:
    """An id for a run nobody named: the workflow's name and something that sorts by time."""
    digits, us, text = "0123456789abcdefghjkmnpqrstvwxyz", app.core.clock.now_us(), ""
    number = (us << 20) | int.from_bytes(app.token(3), "big") >> 4
    while number:
        text, number = digits[number & 31] + text, number >> 5
    return f"{workflow}-{text}"


def take_of(app: AppCore, *, revive: bool = False) -> Take:
    """The wish to hold a run."""
    take = Take(app.owner, app.token(16), int(app.lease_s * US), revive=revive)
    app.nonces.add(take.nonce)
    return take


def taking(app: AppCore, commit: Commit) -> Acts[Any]:
    """A commit with a take. If its caller is interrupted or the store fails, nobody is left holding the run."""
    assert commit.take is not None
    nonce = commit.take.nonce
    try:
        outcome = yield commit
    except GeneratorExit:
        raise
    except BaseException:
        app.nonces.discard(nonce)
        with contextlib.suppress(HoldfastError):
            yield from _let_go(app, commit.run_id, nonce)
        raise
    if type(outcome) is not Committed:
        app.nonces.discard(nonce)
    return outcome


def _let_go(app: AppCore, run_id: str, nonce: bytes) -> Acts[None]:
    row: RunRow | None = yield lambda: app.core.port.run(run_id)
    if row is not None and row.nonce == nonce:
        guard = Place(app.core, Holder(row.owner, row.incarnation, row.fence, nonce)).guard()
        yield Commit(run_id, app.token(8), guard, status=READY, release=True)


def claimed_of(app: AppCore, row: RunRow, taken_at: float, **more: Any) -> Claimed:
    """A run that was just taken."""
    holder = Holder(row.owner, row.incarnation, row.fence, row.nonce)
    return Claimed(row, Place(app.core, holder), taken_at, **more)


def create(app: AppCore, start: Start, *, take: bool) -> Acts[tuple[RunRow, Claimed | None]]:
    """Create the run, and hold it if wanted, in one commit. The same again finds the same run."""
    check_id("run_id", start.run_id)
    entry = start.entry()
    try:
        body = value_body(app.core, entry, "the input of a run")
        settled = CODEC.settled(entry)
    except Unstorable as error:
        path = error.path.replace("state['args']", "args", 1).replace("state['kwargs']", "kwargs", 1)
        text = str(error).replace(error.path, path, 1)
        raise Unstorable(f"the input of workflow {start.workflow!r} cannot be stored: {text}", path) from None
    pairs = metadata_pairs(start.metadata) if start.metadata else ()
    while True:
        taken_at = time.monotonic()
        new, checkpoints = (yield lambda: _joined(app, start)) if start.source is not None else _ALONE
        commit = Commit(
            start.run_id, app.token(8), create=new, workflow=start.workflow, metadata=pairs,
            entries=(NewEntry("started", body),), checkpoints=checkpoints, take=take_of(app) if take else None,
        )  # fmt: skip
        outcome = yield from taking(app, commit) if take else _plain(commit)
        if type(outcome) is Committed or outcome.why != why.SOURCE:  # else the source was swept while it was read
            break
    if type(outcome) is Committed:
        row, fresh = outcome.run, not checkpoints
        return row, claimed_of(app, row, taken_at, fresh=fresh, started=settled) if take else None
    if outcome.why != why.RUN_EXISTS:
        raise refusal(app.place, commit, outcome)
    row = check_run(outcome.run)
    found = yield lambda: first_entry(app.core, row)
    if found.get("workflow", row.workflow) != start.workflow:
        raise InputConflict(start.run_id, f"workflow ({row.workflow!r})")
    _check_same_input(app, start, found, settled)
    return row, None


def _check_same_input(app: AppCore, start: Start, found: dict[str, Any], settled: dict[str, Any]) -> None:
    """Refuse other input than the run was started with. By position, by keyword or by default is the same."""
    if not found or found.get("parent") != settled.get("parent"):
        raise InputConflict(start.run_id, "input")
    if all(found.get(name) == settled.get(name) for name in ("args", "kwargs")):
        return
    known = app.known(start.workflow)
    differing = known.differing_input(found, settled) if known is not None else None
    if differing:
        name, stored, given = differing[0]
        raise InputConflict(
            start.run_id, f"input (argument {name!r}: {reprlib.repr(stored)}, now {reprlib.repr(given)})"
        )
    if differing is None:
        raise InputConflict(start.run_id, "input")


_ALONE: Final[tuple[NewRun, tuple[NewCheckpoint, ...]]] = NewRun(required=True), ()


def _joined(app: AppCore, start: Start) -> tuple[NewRun, tuple[NewCheckpoint, ...]]:
    """How a fork of `start.source` is created, with the checkpoint that says so; on its own if that is gone."""
    source = app.core.port.run(start.source or "")
    if source is None:
        return _ALONE
    resume = {
        "spans": [[1, 1]], "loops": [], "needs": [], "epoch": 0, "version": start.version, "forked": start.forked,
    }  # fmt: skip
    origin = pack(f"{source.run_id}@journal.1")
    first = NewCheckpoint("", encode({}).root, metadata=write_metadata(((RESUME, pack_sorted(resume)),)))
    return NewRun(True, source.run_id, source.incarnation, source.gc_epoch, origin), (first,)


def _plain(commit: Commit) -> Acts[Any]:
    return (yield commit)


def claim(app: AppCore, run_id: str, *, revive: bool = False) -> Acts[Claimed | None]:
    """Hold a run. None if somebody else does, or if it has ended; the owner of a dead process does not count."""
    taken_at = time.monotonic()
    guard = Guard()
    for _ in range(2):
        commit = Commit(run_id, app.token(8), guard, take=take_of(app, revive=revive))
        outcome = yield from taking(app, commit)
        if type(outcome) is Committed:
            return claimed_of(app, outcome.run, taken_at)
        if outcome.why == why.NO_RUN:
            raise RunNotFound(run_id)
        if outcome.why == why.ENDED:
            return None
        if outcome.why != why.CLAIMED:
            raise refusal(app.place, commit, outcome)
        gone = yield from fence_of_dead(app, outcome)
        if gone is None:
            return None
        guard = Guard(incarnation=outcome.run.incarnation, gone=gone)
    return None


def fence_of_dead(app: AppCore, refused: Refused) -> Acts[int | None]:
    """The fence of the claim that stands in the way, if its owner is known to be dead."""
    row = refused.run
    if row is None or not row.owner:
        return None
    owner = row.owner
    if owner == app.owner:  # ours, but nobody here holds it any more: the store failed when it was to be given back
        return None if row.nonce in app.nonces else row.fence
    gone: bool = yield lambda: app.core.port.is_gone(owner)
    return row.fence if gone else None


def is_held(app: AppCore, row: RunRow) -> Acts[bool]:
    """Whether a living owner holds the run, as far as can be found out without trying to take it."""
    if not row.owner or (row.owner == app.owner and row.nonce not in app.nonces):
        return False
    if not is_live(row, app.core.clock.lease_time):
        return False
    gone: bool = yield lambda: app.core.port.is_gone(row.owner)
    return not gone


def ended_of(row: RunRow, last: dict[str, Any]) -> Ended:
    """How a run has ended, told by its last entry."""
    if row.status == COMPLETED:
        return Ended(COMPLETED, last.get("result"))
    if row.status == CANCELLED:
        return Ended(CANCELLED, None, {"type": "RunCancelled", "message": f"run {row.run_id!r} was cancelled"})
    return Ended(row.status, None, last.get("error") or {"type": "Unknown", "message": "the run has failed"})


def run_child(carrier: Carrier, command: RunChild) -> Acts[Ended | None]:
    """Make sure the child is there, and move it on here if nobody else does. How it ended, or None."""
    app = carrier.app
    name = command.workflow if isinstance(command.workflow, str) else app.registry.find(command.workflow).name
    known = app.known(name)
    if name == "" or (known is None and not isinstance(command.workflow, str)):
        raise InvalidInput(f"{command.workflow!r} is not a workflow of this app")
    parent = {"run": carrier.row.run_id, "call": command.call, "detached": command.detached}
    version = known.version if known is not None else 1
    start = Start(
        command.run_id, name, version, command.args, command.kwargs, parent=parent, definition=command.definition,
        source=command.source, forked=command.forked,
    )  # fmt: skip
    here = known is not None and not command.detached and not command.enqueue
    there = (yield lambda: app.core.port.run(command.run_id)) if known is not None and known.is_declared else None
    if there is None:
        row, claimed = yield from create(app, start if known is None else known.prepared(start), take=here)
    else:  # it goes by what it carries, whatever is registered by now
        row, claimed = check_run(there), None
    if claimed is None and here and row.status in (READY, *AT_WORK):  # at work: perhaps of a dead process
        claimed = yield from claim(app, command.run_id)
    while claimed is not None:
        moved: Moved = yield Move(claimed)
        carrier.woken += moved.woken
        if isinstance(moved.error, StorageError) or not isinstance(moved.error, Exception | None):
            raise moved.error  # the store failed, or the process is being ended: so it is for the parent
        again = moved.status == READY and not carrier.exe.give_way  # a worker that ends leaves it to others
        claimed = (yield from claim(app, command.run_id)) if again else None
    ended: Ended | None = yield lambda: _how_it_ended(app, command.run_id)
    return ended


def _how_it_ended(app: AppCore, run_id: str) -> Ended | None:
    row = app.core.port.run(run_id)
    if row is None or check_run(row).status not in TERMINAL:
        return None
    return ended_of(row, last_entry(app.core, row))
