"""What the engine asks for. A driver carries it out and sends back the result, or throws what went wrong.

The engine decides and never acts: it has no clock, no store, no threads. It works with values; a driver makes bytes of
them. Each command says what it gives back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

if TYPE_CHECKING:
    from holdfast.engine.scope import Scope

R = TypeVar("R")

EntryData = dict[str, Any]
"""A journal entry as data: always with "kind"; "call" and "in" say which call of which scope it is about."""


class Command(msgspec.Struct, gc=False):
    """Base of all commands."""


class Mark(Command):
    """A line of the ledger: an effect's intent or outcome. `call` is how it was called, for its undo."""

    key: str
    state: Literal["intent", "done", "failed", "undone"]
    tool: str = ""
    target: str | None = None
    reversible: bool = False
    result: Any = None
    call: Any = None


class Open(Command):
    """A gate to open."""

    gate: str
    body: dict[str, Any]
    expires_us: int | None = None


class Send(Command):
    """Something for another run's inbox."""

    target: str
    kind: Literal["event", "pause", "cancel"]
    name: str
    key: str
    value: Any = None


class Snapshot(Command):
    """The run's state as a checkpoint. `resume` says what of the journal is needed to go on from it."""

    state: dict[str, Any]
    resume: dict[str, Any]
    covers: int | None = None
    """The position it covers; None: the end of the journal with this very commit."""
    metadata: dict[str, Any] | None = None
    next_node: str | None = None


class Write(Command):
    """One commit of the run. Gives back `Written`."""

    entries: list[EntryData]
    marks: tuple[Mark, ...] = ()
    gates: tuple[Open, ...] = ()
    close_gates: Sequence[str] = ()
    timers: tuple[tuple[str, int], ...] = ()
    drop_timers: Sequence[str] = ()
    take: Sequence[int] = ()
    put_back: tuple[Item, ...] = ()
    """Items that were taken and are to be read again."""
    send: tuple[Send, ...] = ()
    snapshot: Snapshot | None = None
    status: str | None = None
    inbox_read: int | None = None
    release: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it only appends entries."""
        return not (
            self.marks or self.gates or self.close_gates or self.timers or self.drop_timers or self.take or self.send
            or self.put_back or self.snapshot is not None or self.status is not None or self.release
        )  # fmt: skip


class Written(Command):
    """What a `Write` did."""

    position: int
    """The journal's end after it."""
    inbox: int
    """The newest item in the inbox."""
    status: str
    checkpoint_id: str = ""


class Call(Command):
    """Call the user's function and give back its result; what it raises is thrown. `took_us` is filled in."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    timeout_s: float | None = None
    world: bool = False
    """It touches the world: the claim must surely still be ours."""
    took_us: int = 0


class TimedOut(Exception):
    """Thrown by a driver when a call takes longer than its time."""


class EffectKnown(Exception):
    """Thrown by a driver when the ledger already has a line that stands against the mark."""

    def __init__(self, state: str, result: Any, call: Any) -> None:
        super().__init__(state)
        self.state = state
        self.result = result
        self.call = call


class Wait(Command):
    """Wait in this process until that moment; for short whiles."""

    until_us: int


class Now(Command):
    """The time, in microseconds since 1970."""


class Chance(Command):
    """So many random bytes."""

    size: int


class ReadInbox(Command):
    """The items behind number `after` that were not taken, as a list of `Item`."""

    after: int


class Item(Command):
    """Something somebody sent to the run."""

    number: int
    kind: str
    name: str
    by: str
    at_us: int
    value: Any


class ReadState(Command):
    """The state in a checkpoint of this run, and the workflow version it was saved under."""

    checkpoint_id: str


class ReadFamily(Command):
    """What the ledgers of the run's family, and its own, say of an effect: a list of `Performed`, newest first."""

    key: str


class ReadFamilyChild(Command):
    """The id of the child that another run of the family started by the call of this full name, or None."""

    call: str


class Performed(Command):
    """A line of another run's ledger."""

    run_id: str
    state: str
    result: Any
    call: Any


class RunChild(Command):
    """Make sure the child run is there, and move it on here if possible. Gives back `Ended` or None."""

    run_id: str
    workflow: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    call: str
    """Under which the parent waits for it."""
    detached: bool
    definition: Any = None
    """What the child goes by, if that is not for its workflow to say."""
    source: str | None = None
    """The run of which the child is a fork, from its beginning."""
    forked: str = ""
    """How such a fork treats effects its family performed."""
    enqueue: bool = False
    """Leave it to a worker."""


class Ended(Command):
    """How a run ended."""

    status: str
    result: Any = None
    failure: dict[str, Any] | None = None


class Branch(Command):
    """One of several lines of work: a plan of the engine, or a function of the user's that gets its own sub-run."""

    scope: Scope
    plan: Plan[Any] | None = None
    fn: Callable[[Any], Any] | None = None


class Together(Command):
    """Do the branches side by side, at most `limit` at a time. Gives back, for each, its result or what it raised."""

    branches: list[Branch]
    limit: int


class Raised(Command):
    """What a branch raised."""

    error: BaseException


Plan = Generator[Any, Any, R]
"""A decision in progress: yields commands, is sent their results, and returns what was decided."""
