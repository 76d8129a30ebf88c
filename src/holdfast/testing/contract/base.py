"""A store for each test, a way to expect errors, and commits by hand."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from holdfast.clock import US
from holdfast.errors import HoldfastError
from holdfast.model.commit import HOLDER, OUTSIDER, Commit, Committed, Guard, NewRun, Outcome, Refused, TakeClaim
from holdfast.model.rows import RunRow
from holdfast.model.views import Checkpoint
from holdfast.operations.store import Claim, Store
from holdfast.store.port import StorePort
from holdfast.testing.fakes import ManualClock

Error = TypeVar("Error", bound=BaseException)
Arguments = dict[str, Any]
"""Keyword arguments, among them wrong ones."""
Values = list[Any]
"""Values of all types."""


def each(**values: Values) -> Iterator[Arguments]:
    """Every one of these values, alone, as a keyword argument."""
    return ({name: value} for name, found in values.items() for value in found)


class Caught(Generic[Error]):
    """The error that was expected, once it was raised."""

    error: Error


@contextlib.contextmanager
def raises(kind: type[Error]) -> Iterator[Caught[Error]]:
    """Expect `kind`; every error of a store must derive from HoldfastError and have a message."""
    caught: Caught[Error] = Caught()
    try:
        yield caught
    except kind as error:
        caught.error = error
    else:
        raise AssertionError(f"{kind.__name__} was not raised")
    assert isinstance(caught.error, HoldfastError), f"{caught.error!r} is not a HoldfastError"
    assert str(caught.error), f"{caught.error!r} says nothing"


class ContractBase:
    """A test class; every test has a store of its own in `self.store` and its clock in `self.clock`."""

    clock: ManualClock
    store: Store

    def open_port(self, clock: ManualClock) -> StorePort:
        """An empty store that takes its time from `clock`."""
        raise NotImplementedError("a test of a store says how to open it")

    def setup_method(self) -> None:
        self.clock = ManualClock()
        self.store = Store(self.open_port(self.clock), clock=self.clock)

    def teardown_method(self) -> None:
        self.store.close()

    def before_next(self, method: str, act: Callable[[], object], of: object = None) -> None:
        """Do `act` just before the next call of a method of the port, or the next with `of` as its first argument."""
        port = self.store.port
        original = getattr(port, method)

        def late(*arguments: object, **keys: object) -> object:
            if of is None or arguments[0] is of:
                setattr(port, method, original)
                act()
            return original(*arguments, **keys)

        setattr(port, method, late)

    def state(self, run_id: str, **choice: Any) -> Any:
        """The state of a checkpoint that must be there."""
        return self.loaded(run_id, **choice).state

    def loaded(self, run_id: str, **choice: Any) -> Checkpoint[Any]:
        """A checkpoint that must be there."""
        found = self.store.load(run_id, **choice)
        assert found is not None, f"{run_id!r} {choice} is not there"
        return found

    def row(self, run_id: str = "run") -> RunRow:
        """A run that must be there."""
        row = self.store.port.run(run_id)
        assert row is not None, f"{run_id!r} is not there"
        return row

    def claimed(self, run_id: str = "run", owner: str = "w1", lease: float = 30) -> Claim:
        """A claim that must be granted."""
        claim = self.store.claim(run_id, owner=owner, lease=lease)
        assert claim is not None, f"{run_id!r} cannot be claimed"
        return claim

    def conversation(self, turns: int, changed: int | None = None) -> Arguments:
        """A state too large to be written whole: messages of about 600 bytes, of which one may be changed."""
        texts = [f"message {i} " + "lorem ipsum dolor sit amet " * 22 + str(i * 7919) for i in range(turns)]
        if changed is not None:
            texts[changed] = f"changed {changed} " + texts[changed]
        return {"messages": [{"role": "user", "content": text} for text in texts], "turns": turns}


_count = itertools.count()


class PortContractBase(ContractBase):
    """A test class that uses the port directly. Commits are an outsider's by default."""

    def put(self, **parts: Any) -> Outcome:
        """Commit something to the run called "run"."""
        parts = {"run_id": "run", "commit_id": next(_count).to_bytes(8, "big"), "guard": Guard(OUTSIDER), **parts}
        (outcome,) = self.store.port.commit([Commit(**parts)])
        return outcome

    def done(self, **parts: Any) -> Committed:
        outcome = self.put(**parts)
        assert isinstance(outcome, Committed), outcome
        return outcome

    def refused(self, **parts: Any) -> Refused:
        outcome = self.put(**parts)
        assert isinstance(outcome, Refused), outcome
        return outcome

    def held(self, **parts: Any) -> Guard:
        """Create the run and claim it for a minute; the guard of its holder."""
        take = TakeClaim("w1", b"n" * 16, 60 * US)
        row = self.done(**{"guard": Guard(), "create": NewRun(), "take": take, **parts}).run
        return Guard(HOLDER, row.incarnation, row.fence, row.nonce, row.owner)
