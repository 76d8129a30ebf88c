"""What the parts of the contract share: a store for each test, and a way to expect errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from holdfast.errors import HoldfastError
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
