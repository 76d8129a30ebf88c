"""What the parts of the contract share: a store for each test, a way to expect errors, and commits by hand."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from holdfast.clock import US
from holdfast.errors import HoldfastError
from holdfast.model.commit import HOLDER, OUTSIDER, Commit, Committed, Guard, NewRun, Outcome, Refused, Take
from holdfast.model.rows import RunRow
from holdfast.model.views import Checkpoint
from holdfast.store.port import StorePort
from holdfast.testing.doubles import ManualClock
from holdfast.verbs.store import Store

Error = TypeVar("Error", bound=BaseException)


class Caught(Generic[Error]):
    """The error that was expected, once it was raised."""

    error: Error


@contextlib.contextmanager
def raises(kind: type[Error]) -> Iterator[Caught[Error]]:
    """Expect `kind`; everything a store raises must derive from HoldfastError and say something."""
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

    def state(self, run_id: str, **choice: Any) -> Any:
        """The state of a checkpoint that must be there."""
        return self.loaded(run_id, **choice).state

    def loaded(self, run_id: str, **choice: Any) -> Checkpoint[Any]:
        """A checkpoint that must be there."""
        found = self.store.load(run_id, **choice)
        assert found is not None, f"{run_id!r} {choice} is not there"
        return found

    def conversation(self, turns: int, changed: int | None = None) -> dict[str, Any]:
        """A state too large to be written whole: messages of about 600 bytes, of which one may be changed."""
        texts = [f"message {i} " + "lorem ipsum dolor sit amet " * 22 + str(i * 7919) for i in range(turns)]
        if changed is not None:
            texts[changed] = f"changed {changed} " + texts[changed]
        return {"messages": [{"role": "user", "content": text} for text in texts], "turns": turns}


_count = itertools.count()


class PortContractBase(ContractBase):
    """A test class for what no verb offers: it speaks to the port. Commits are an outsider's by default."""

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
        take = Take("w1", b"n" * 16, 60 * US)
        row = self.done(**{"guard": Guard(), "create": NewRun(), "take": take, **parts}).run
        return Guard(HOLDER, row.incarnation, row.fence, row.nonce, row.owner)

    def row(self, run_id: str = "run") -> RunRow:
        """A run that must be there."""
        row = self.store.port.run(run_id)
        assert row is not None, f"{run_id!r} is not there"
        return row
