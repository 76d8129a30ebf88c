"""The reading methods of a store, for blocking callers. `store` adds those that write.

A command that only reads uses this class, so that it does not load what writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from holdfast.clock import Clock, SystemClock
from holdfast.drivers import Plan, forbid_in_loop
from holdfast.ids import Ids, RandomIds, check_id, check_lane
from holdfast.operations import read
from holdfast.operations.context import Access, HasAccess, HasClaim, StoreContext

if TYPE_CHECKING:
    from holdfast.model.views import Checkpoint, CheckpointInfo
    from holdfast.store.port import StorePort

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def blocking(plan: Callable[Concatenate[Access, P], Plan[R]]) -> Callable[Concatenate[HasAccess, P], R]:
    """The method that executes `plan` on the calling thread."""
    name = plan.__name__

    def call(self: HasAccess, /, *args: P.args, **kwargs: P.kwargs) -> R:
        forbid_in_loop(name)
        access = self.access
        return access.core.blocking.run(plan(access, *args, **kwargs))

    return describe_as(plan, call)


def blocking_held(plan: Callable[Concatenate[Access, str, P], Plan[R]]) -> Callable[Concatenate[HasClaim, P], R]:
    """Like `blocking`, for the run of a claim."""
    name = plan.__name__

    def call(self: HasClaim, /, *args: P.args, **kwargs: P.kwargs) -> R:
        forbid_in_loop(name)
        access = self.access
        return access.core.blocking.run(plan(access, self.run_id, *args, **kwargs))

    return describe_as(plan, call)


def describe_as(plan: Callable[..., object], call: Callable[P, R]) -> Callable[P, R]:
    """Give `call` the name, signature and docstring of `plan`."""
    call.__name__ = plan.__name__
    call.__qualname__ = plan.__name__
    call.__doc__ = plan.__doc__
    call.__dict__["__wrapped__"] = plan
    return call


class StoreReads:
    """The methods of `Store` that read."""

    def __init__(self, port: StorePort, *, clock: Clock | None = None, ids: Ids | None = None) -> None:
        self.access = Access(StoreContext(port, clock or SystemClock(), ids or RandomIds()))

    @property
    def url(self) -> str:
        """The URL that the store was opened with."""
        return self.access.core.port.url

    @property
    def port(self) -> StorePort:
        """The port of the store; see `holdfast.store.port`."""
        return self.access.core.port

    runs = blocking(read.runs)
    journal = blocking(read.journal)
    effects = blocking(read.effects)
    is_done = blocking(read.is_done)
    attachments = blocking(read.attachments)
    diff = blocking(read.diff)

    @overload
    def load(
        self, run_id: str, *, as_type: type[T], **choice: Unpack[read.CheckpointChoice]
    ) -> Checkpoint[T] | None: ...
    @overload
    def load(
        self, run_id: str, *, as_type: object = None, **choice: Unpack[read.CheckpointChoice]
    ) -> Checkpoint[Any] | None: ...
    def load(self, run_id: str, **choice: Any) -> Checkpoint[Any] | None:
        """Load a checkpoint with its state: the newest, or the newest of a step, at or before a position, or one by id.

        None if there is no such run or checkpoint. A damaged one raises DamagedData with its place; with
        `damaged="previous"` the newest undamaged one before it is returned instead. `as_type` converts the state to a
        dataclass, msgspec struct, TypedDict or Pydantic model.

        Example:
            store.load("run-1").state
            store.load("run-1", step=2)
            store.load("run-1", at="journal.1")
        """
        forbid_in_loop("load")
        return self.access.run(read.load(self.access, run_id, **choice))

    def view(self, run_id: str, **choice: Unpack[read.Selectors]) -> Checkpoint[Any] | None:
        """Like `load`, but the state is decoded only as far as it is read.

        Its dicts are read-only mappings and its lists read-only sequences, equal to those that `load` returns. They
        stay those of this checkpoint. `value()` returns real dicts and lists, which encoders need. A read after the
        checkpoint was removed raises CheckpointNotFound.

        Example:
            store.view("run-1").state["messages"][-1]
            store.view("run-1", step=2).state.value()
        """
        from holdfast.operations.state_view import open_view  # most programs do not use it

        forbid_in_loop("view")
        return self.access.run(open_view(self.access, run_id, **choice))

    def history(self, run_id: str, *, lane: str | None = None) -> Iterator[CheckpointInfo]:
        """The run's checkpoints, oldest first, without their states; of one lane, or of all.

        They are read page by page during the iteration; nothing is held in between.

        Example:
            [info.step for info in store.history("run-1")]
        """
        check_id("run_id", run_id)
        if lane is not None:
            check_lane(lane)
        return self._history(run_id, lane)

    def _history(self, run_id: str, lane: str | None) -> Iterator[CheckpointInfo]:
        after, incarnation = 0, None
        while True:
            forbid_in_loop("history")
            page = read.history_page(self.access.core, run_id, lane, after, incarnation)
            yield from page.infos
            if page.last:
                return
            after, incarnation = page.after, page.incarnation

    def close(self) -> None:
        """Release files, connections and threads. A second call does nothing."""
        self.access.core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
