"""The same verbs for awaiting callers: one object, two ways to call it.

Reads go through a small pool of threads of the store's own, one hop each. Commits go straight to the committer's queue,
so commits of many tasks become durable together. A commit that was handed in is carried out even if the task that
waits for it is cancelled.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload
from weakref import WeakKeyDictionary

from holdfast.errors import ClaimLost
from holdfast.forking import watch
from holdfast.ids import check_id, check_lane
from holdfast.model.commit import Commit
from holdfast.model.views import Checkpoint, CheckpointInfo
from holdfast.store.committer import Result
from holdfast.verbs import archive, checking, holding, keeping, moving, reading, writing
from holdfast.verbs.core import Core, Place
from holdfast.verbs.plans import Plan, described
from holdfast.verbs.store import ClaimBase

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_POOL_SIZE = 8


class _Arrivals:
    """Results on their way from the committing thread to one event loop: many of them, one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._arrived: list[tuple[asyncio.Future[Any], Result]] = []

    def deliver(self, future: asyncio.Future[Any], result: Result) -> None:
        """Called on the committing thread."""
        with self._lock:
            self._arrived.append((future, result))
            if len(self._arrived) > 1:
                return
        try:
            self._loop.call_soon_threadsafe(self._hand_out)
        except RuntimeError:  # the loop has ended; nobody waits any more
            self._arrived.clear()

    def _hand_out(self) -> None:
        with self._lock:
            arrived, self._arrived = self._arrived, []
        for future, result in arrived:
            if future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)


class Waiter:
    """Carries out plans for awaiting callers."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._arrivals: WeakKeyDictionary[asyncio.AbstractEventLoop, _Arrivals] = WeakKeyDictionary()
        self._pool: ThreadPoolExecutor | None = None
        watch(self)

    def after_fork(self) -> None:
        """The threads of the pool are the parent's."""
        self._pool = None

    async def run(self, plan: Plan[R]) -> R:
        loop = asyncio.get_running_loop()
        try:
            step = next(plan)
            while True:
                try:
                    if type(step) is Commit:
                        result = await self.committed(loop, step)
                    else:
                        result = await loop.run_in_executor(self.threads(), step)  # type: ignore[arg-type]
                except Exception as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(result)
        except StopIteration as done:
            value: R = done.value
            return value

    def committed(self, loop: asyncio.AbstractEventLoop, commit: Commit) -> Awaitable[Any]:
        arrivals = self._arrivals.get(loop)
        if arrivals is None:
            arrivals = self._arrivals[loop] = _Arrivals(loop)
        future: asyncio.Future[Any] = loop.create_future()
        deliver = arrivals.deliver
        self._core.committer.submit(commit, lambda result: deliver(future, result))
        return future

    def threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_POOL_SIZE, thread_name_prefix="holdfast-read")
        return self._pool

    def shut_down(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


def awaiting(plan: Callable[Concatenate[Place, P], Plan[R]]) -> Callable[Concatenate[Any, P], Awaitable[R]]:
    """The method that carries out `plan` for a task."""

    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        waiter: Waiter = self._waiter
        return await waiter.run(plan(self._place, *args, **kwargs))

    return described(call, plan)


def awaiting_held(plan: Callable[Concatenate[Place, str, P], Plan[R]]) -> Callable[Concatenate[Any, P], Awaitable[R]]:
    """Like `awaiting`, for a claim: the run is the claim's."""

    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        waiter: Waiter = self._waiter
        return await waiter.run(plan(self._place, self.run_id, *args, **kwargs))

    return described(call, plan)


class AsyncHistory:
    """A run's checkpoints, oldest first: `async for` reads them page by page, `await` gives them as a list."""

    def __init__(self, place: Place, waiter: Waiter, run_id: str, lane: str | None) -> None:
        self._place = place
        self._waiter = waiter
        self._run_id = run_id
        self._lane = lane

    async def __aiter__(self) -> AsyncIterator[CheckpointInfo]:
        after, incarnation = 0, None
        while True:
            page = await self._waiter.run(self._page(after, incarnation))
            for info in page.infos:
                yield info
            if page.last:
                return
            after, incarnation = page.after, page.incarnation

    def _page(self, after: int, incarnation: bytes | None) -> Plan[Any]:
        core = self._place.core
        return (yield lambda: reading.history_page(core, self._run_id, self._lane, after, incarnation))

    def __await__(self) -> Generator[Any, None, list[CheckpointInfo]]:
        async def gathered() -> list[CheckpointInfo]:
            return [info async for info in self]

        return gathered().__await__()


class AsyncStore:
    """`store.aio`: every verb of the store, to await.

    Example:
        await store.aio.save("run-1", {"messages": []})
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._waiter = Waiter(place.core)

    save = awaiting(writing.save)
    append = awaiting(writing.append)
    mark_done = awaiting(writing.mark_done)
    mark_intent = awaiting(writing.mark_intent)
    attach = awaiting(writing.attach)
    attach_all = awaiting(writing.attach_all)
    announce = awaiting(holding.announce)
    recover_expired = awaiting(holding.recover_expired)
    runs = awaiting(reading.runs)
    journal = awaiting(reading.journal)
    effects = awaiting(reading.effects)
    is_done = awaiting(reading.is_done)
    attachments = awaiting(reading.attachments)
    diff = awaiting(reading.diff)
    prune = awaiting(keeping.prune)
    delete = awaiting(keeping.delete)
    delete_checkpoint = awaiting(keeping.delete_checkpoint)
    fork = awaiting(moving.fork)
    copy = awaiting(moving.copy)
    export_run = awaiting(archive.export_run)
    import_run = awaiting(archive.import_run)
    verify = awaiting(checking.verify)
    stats = awaiting(checking.stats)

    @overload
    async def load(
        self,
        run_id: str,
        *,
        step: int | None = None,
        at: int | str | None = None,
        checkpoint_id: str | None = None,
        lane: str = "",
        as_type: type[T],
        damaged: Literal["error", "previous"] = "error",
    ) -> Checkpoint[T] | None: ...
    @overload
    async def load(
        self,
        run_id: str,
        *,
        step: int | None = None,
        at: int | str | None = None,
        checkpoint_id: str | None = None,
        lane: str = "",
        as_type: Any = None,
        damaged: Literal["error", "previous"] = "error",
    ) -> Checkpoint[Any] | None: ...
    async def load(self, run_id: str, **choice: Any) -> Checkpoint[Any] | None:
        """Load a checkpoint with its state; see `Store.load`."""
        return await self._waiter.run(reading.load(self._place, run_id, **choice))

    def history(self, run_id: str, *, lane: str | None = None) -> AsyncHistory:
        """The run's checkpoints, oldest first, without their states: `async for` them, or `await` the list."""
        check_id("run_id", run_id)
        if lane is not None:
            check_lane(lane)
        return AsyncHistory(self._place, self._waiter, run_id, lane)

    async def claim(self, run_id: str, owner: str, lease: float = 30.0) -> AsyncClaim | None:
        """Take the exclusive right to move a run on, for `lease` seconds; None if somebody holds it or it has ended.

        If the task is cancelled meanwhile, the claim may have been taken, and stays until its lease ends.
        """
        plan = holding.take_claim(self._place, self._claim, run_id, owner, lease)
        return await self._waiter.run(plan)

    async def claim_ready(
        self, owner: str, limit: int = 1, lease: float = 30.0, workflows: Iterable[str] = ()
    ) -> list[AsyncClaim]:
        """Take up to `limit` runs that are ready, longest ready first; see `Store.claim_ready`."""
        plan = holding.take_ready(self._place, self._claim, owner, limit, lease, workflows)
        return await self._waiter.run(plan)

    def _claim(self, place: Place, row: Any, lease: float) -> AsyncClaim:
        return AsyncClaim(place, row, lease, self._waiter)

    async def close(self) -> None:
        """Give back files and threads; the blocking store is closed with it."""
        self.shut_down()
        self._place.core.committer.close()
        await asyncio.get_running_loop().run_in_executor(None, self._place.core.port.close)

    def shut_down(self) -> None:
        """Let the reading threads end."""
        self._waiter.shut_down()


class AsyncClaim(ClaimBase):
    """A claim whose verbs are awaited. `async with` releases it at the end."""

    def __init__(self, place: Place, row: Any, lease: float, waiter: Waiter) -> None:
        super().__init__(place, row, lease)
        self._waiter = waiter

    save = awaiting_held(writing.save)
    append = awaiting_held(writing.append)
    mark_done = awaiting_held(writing.mark_done)
    mark_intent = awaiting_held(writing.mark_intent)
    attach = awaiting_held(writing.attach)
    attach_all = awaiting_held(writing.attach_all)

    async def renew(self, lease: float | None = None) -> None:
        """Extend the lease, counted from now."""
        wanted = self.lease if lease is None else lease
        await self._waiter.run(holding.renew_claim(self._place, self.run_id, wanted))
        self.lease = wanted

    async def complete(self) -> None:
        """End the run as completed and give up the claim, in one commit."""
        await self._waiter.run(holding.complete_claim(self._place, self.run_id))
        self._ended = True

    async def release(self, status: str | None = None) -> None:
        """Give up the claim. A running run becomes ready; `status` sets another status in the same commit."""
        await self._waiter.run(holding.end_claim(self._place, self.run_id, status))
        self._ended = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        try:
            await self.release()
        except ClaimLost:
            if error is None:
                raise
