"""The awaiting driver: carries out a plan for a task. Commits and calls are awaited, reads go through a small pool."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.engine.commands import Branch, Call, Raised, TimedOut, Together, Wait
from holdfast.forking import watch
from holdfast.model.commit import Commit
from holdfast.runtime.async_run import AsyncRun
from holdfast.runtime.carrier import Carrier
from holdfast.runtime.moving import Invoke, Moved, move
from holdfast.runtime.starting import Acts, Move

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore

R = TypeVar("R")

_SLICE_S = 0.1
_CALL_THREADS = 64


class AwaitingDriver:
    """Carries out plans, in whatever task calls it."""

    def __init__(self, app: AppCore) -> None:
        self.app = app
        self._waiter = app.store.aio._waiter
        self._pool: ThreadPoolExecutor | None = None
        self._do: dict[type, Callable[[Any, Carrier | None], Awaitable[Any]]] = {
            Call: self._call,
            Wait: self._wait,
            Together: self._together,
            Invoke: self._invoke,
            Move: lambda command, _: self.move(command),
        }
        watch(self)

    def after_fork(self) -> None:
        """The threads of the pool are the parent's."""
        self._pool = None

    async def run(self, plan: Acts[R], carrier: Carrier | None = None) -> R:
        """Carry out the plan; `carrier` if it is of an execution."""
        loop = asyncio.get_running_loop()
        committed, threads = self._waiter.committed, self._waiter.threads
        try:
            step = next(plan)
            while True:
                try:
                    kind = type(step)
                    if kind is Commit:
                        result = await settled(committed(loop, step))
                    elif kind in self._do:
                        result = await self._do[kind](step, carrier)
                    else:
                        result = await loop.run_in_executor(threads(), step)
                except BaseException as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(result)
        except StopIteration as done:
            value: R = done.value
            return value

    async def move(self, command: Move) -> Moved:
        """Move a run on: in this task, or on a thread if its workflow is not async."""
        workflow = self.app.known(command.claimed.row.workflow)
        if workflow is None or workflow.is_async:
            return await self.run(move(self.app, command.claimed))
        moved: Moved = await self._on_thread(self.app.blocking.move, command)
        return moved

    async def _invoke(self, command: Invoke, _: Carrier | None) -> Any:
        run = AsyncRun(self, command.carrier, command.carrier.exe.root)
        return await command.workflow.fn(run, *command.args, **command.kwargs)

    # --- the user's functions ----------------------------------------------------------------------------------------

    async def _call(self, command: Call, _: Carrier | None) -> Any:
        began = time.perf_counter_ns()
        try:
            if command.timeout_s is None:
                return await self._called(command)
            work = asyncio.ensure_future(self._called(command))
            done, _pending = await asyncio.wait([work], timeout=command.timeout_s)
            if not done:
                work.cancel()
                raise TimedOut
            return work.result()
        finally:
            command.took_us = (time.perf_counter_ns() - began) // 1000

    async def _called(self, command: Call) -> Any:
        if inspect.iscoroutinefunction(command.fn):
            return await command.fn(*command.args, **command.kwargs)
        result = await self._on_thread(command.fn, *command.args, **command.kwargs)
        return await result if inspect.isawaitable(result) else result

    async def _on_thread(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A function that may block must not stop the loop."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_CALL_THREADS, thread_name_prefix="holdfast-call")
        call = functools.partial(contextvars.copy_context().run, fn, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def _wait(self, command: Wait, carrier: Carrier | None) -> None:
        clock = self.app.core.clock
        while (left_us := command.until_us - clock.now_us()) > 0:
            if carrier is not None and (carrier.exe.give_way or carrier.exe.stopped is not None):
                return
            await asyncio.sleep(min(_SLICE_S, left_us / 1e6))

    # --- side by side ------------------------------------------------------------------------------------------------

    async def _together(self, command: Together, carrier: Carrier | None) -> list[Any]:
        assert carrier is not None
        branches = command.branches
        results: list[Any] = [None] * len(branches)
        todo = iter(range(len(branches)))

        async def work() -> None:
            for index in todo:
                results[index] = await self._branch(branches[index], carrier)

        workers = [asyncio.ensure_future(work()) for _ in range(min(command.limit, len(branches)))]
        try:
            await asyncio.gather(*workers)
        except BaseException:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            raise
        return results

    async def _branch(self, branch: Branch, carrier: Carrier) -> Any:
        try:
            if branch.plan is not None:
                return await self.run(carrier.carry(branch.plan), carrier)
            assert branch.fn is not None
            result = branch.fn(AsyncRun(self, carrier, branch.scope))
            return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return Raised(error)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)


async def settled(future: Awaitable[R]) -> R:
    """Wait for a commit. It is carried out even if this task is cancelled, so the outcome is awaited all the same."""
    work = asyncio.ensure_future(future)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
