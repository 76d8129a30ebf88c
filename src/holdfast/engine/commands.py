"""Commands that the engine yields for a driver to execute.

The driver sends back the result, which each command documents, or throws the error. The engine itself has no clock,
store or threads. It works with values; a driver encodes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.drivers import Plan
from holdfast.model.rows import WAITING

if TYPE_CHECKING:
    from holdfast.engine.scope import Scope

EntryData = dict[str, Any]
"""A journal entry as data: always with "kind"; "call" and "in" name the call and its scope."""
StateData = dict[str, Any]
"""The state of a run, as the user's code reads and changes it."""
UserFunction = Callable[..., Any]
WriteOptions = dict[str, Any]
"""Fields of `Write` other than its entries."""


class Command(msgspec.Struct):
    """Base of all commands."""


class LedgerMark(Command):
    """A line of the ledger: an effect's intent or outcome. `call` describes the call, for its undo."""

    key: str
    state: Literal["intent", "done", "failed", "undone"]
    tool: str = ""
    target: str | None = None
    reversible: bool = False
    result: object = None
    call: EntryData | None = None


class OpenGate(Command):
    """A gate to open."""

    gate: str
    body: EntryData
    expires_us: int | None = None


class Send(Command):
    """An item for the inbox of another run."""

    target: str
    kind: Literal["event", "pause", "cancel"]
    name: str
    key: str
    value: object = None


class Snapshot(Command):
    """The run's state as a checkpoint. `resume` is what `ResumePoint.to_metadata` returns."""

    state: StateData
    resume: EntryData
    covers: int | None = None
    """The position it covers; None: the end of the journal after this commit."""
    metadata: dict[str, object] | None = None
    next_node: str | None = None


class Write(Command):
    """One commit of the run. Returns `Written`."""

    entries: list[EntryData]
    marks: tuple[LedgerMark, ...] = ()
    gates: tuple[OpenGate, ...] = ()
    close_gates: Sequence[str] = ()
    timers: tuple[tuple[str, int], ...] = ()
    drop_timers: Sequence[str] = ()
    take: Sequence[int] = ()
    put_back: tuple[Item, ...] = ()
    """Items that were taken and can be read again."""
    send: tuple[Send, ...] = ()
    snapshot: Snapshot | None = None
    status: str | None = None
    inbox_read: int | None = None
    release: bool = False
    result: bytes = b""
    """The encoding of the result in the last entry and in the marks, if known."""

    @property
    def is_wait(self) -> bool:
        """Whether it only records that the run waits, and releases it."""
        is_more = self.marks or self.send or self.take or self.put_back or self.close_gates or self.drop_timers
        return self.release and self.status == WAITING and not is_more

    @property
    def is_plain(self) -> bool:
        """Whether it only appends entries."""
        return not (
            self.marks
            or self.gates
            or self.close_gates
            or self.timers
            or self.drop_timers
            or self.take
            or self.send
            or self.put_back
            or self.snapshot is not None
            or self.status is not None
            or self.release
        )


class Written(Command):
    """The result of a `Write`."""

    position: int
    """The end of the journal after it."""
    inbox: int
    """The newest item in the inbox."""
    status: str
    checkpoint_id: str = ""


class Call(Command):
    """Call the user's function and return its result, or throw its exception. The driver sets `took_us`."""

    fn: UserFunction
    args: tuple[object, ...]
    kwargs: dict[str, object]
    timeout_s: float | None = None
    external: bool = False
    """It has effects outside: the driver first makes sure that the claim is still held."""
    took_us: int = 0


class TimedOut(Exception):
    """Thrown by a driver when a call takes longer than its timeout."""


class EffectKnown(Exception):
    """Thrown by a driver when the ledger already has a line that contradicts the mark."""

    def __init__(self, state: str, result: object, call: EntryData | None) -> None:
        super().__init__(state)
        self.state = state
        self.result = result
        self.call = call


class Wait(Command):
    """Wait in this process until that time; only for short waits. With 0, other tasks run once."""

    until_us: int


class Now(Command):
    """The time, in microseconds since 1970."""


class RandomBytes(Command):
    """`size` random bytes."""

    size: int


class ReadInbox(Command):
    """The items after number `after` that were not taken, as a list of `Item`."""

    after: int


class Item(Command):
    """An item of the run's inbox."""

    number: int
    kind: str
    name: str
    by: str
    at_us: int
    value: object
    via: str = ""
    """Where it came from, as `web` or `cli`; empty for code."""

    @property
    def source(self) -> EntryData:
        """What a journal entry records of where the item came from; empty for code."""
        return {"via": self.via} if self.via else {}


class ReadState(Command):
    """The state in a checkpoint of this run, and the workflow version it was saved under."""

    checkpoint_id: str


class ReadGate(Command):
    """The stored body of a gate of this run; empty if it has none of that name."""

    gate: str


class ReadFamily(Command):
    """The lines of an effect in the ledgers of the run's family: a list of `Performed`, newest first."""

    key: str


class ReadFamilyChild(Command):
    """The id of the child that another run of the family started by the call with this full name, or None."""

    call: str


class Performed(Command):
    """A line of a ledger in the run's family."""

    run_id: str
    state: str
    result: object
    call: EntryData | None


class RunChild(Command):
    """Make sure the child run exists, and execute it here if possible. Returns `Ended` or None."""

    run_id: str
    workflow: Any
    args: tuple[object, ...]
    kwargs: dict[str, object]
    call: str
    """The full name of the call with which the parent waits for it."""
    detached: bool
    definition: Any = None
    """The definition of the child, if its workflow has none."""
    source: str | None = None
    """The run that the child forks, from its beginning."""
    forked: str = ""
    """How such a fork treats effects its family performed."""
    enqueue: bool = False
    """Leave it to a worker."""


class Ended(Command):
    """How a run ended."""

    status: str
    result: object = None
    failure: EntryData | None = None


class Branch(Command):
    """One branch: a plan of the engine, or a function of the user's that gets its own sub-run."""

    scope: Scope
    plan: Plan[object] | None = None
    fn: UserFunction | None = None


class RunParallel(Command):
    """Run the branches concurrently, at most `limit` at a time. Returns, for each, its result or a `BranchError`."""

    branches: list[Branch]
    limit: int


class BranchError(Command):
    """The exception that a branch raised."""

    error: BaseException
