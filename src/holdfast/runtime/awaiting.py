"""The awaiting driver: carries out a plan for a task. Commits and calls are awaited, reads go through a small pool."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.engine.commands import Branch, Call, Raised, TimedOut, Together, Wait
from holdfast.errors import Interrupt, Suspended
from holdfast.forking import watch
from holdfast.model.commit import Commit
from holdfast.runtime.async_run import AsyncRun
from holdfast.runtime.carrier import Carrier
from holdfast.runtime.current_run import as_current
from holdfast.runtime.loops import awaited, told
from holdfast.runtime.moving import Invoke, Moved, Passing, Settle, is_passing, move
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
            Settle: self._settle,
            Move: lambda command, _: self.move(command),
        }
        watch(self)

    def after_fork(self) -> None:
        """The threads of the pool are the parent's."""
        self._pool = None

    async def run(self, plan: Acts[R], carrier: Carrier | None = None) -> R:
        """Carry out the plan; `carrier` if it is of an execution.

        A cancellation of the task waits for a commit or an effect under way. In an execution the plan goes on until
        the outcome is recorded, so that a cancelled task leaves no effect in doubt; then the cancellation goes on.
        """
        loop = asyncio.get_running_loop()
        committed, threads = self._waiter.committed, self._waiter.threads
        cancelled: asyncio.CancelledError | None = None
        called = False
        try:
            step = next(plan)
            while True:
                try:
                    kind = type(step)
                    if kind is Commit:
                        work = asyncio.ensure_future(committed(loop, step))
                        cancelled = await finish(work) or cancelled
                        if cancelled is not None and (carrier is None or step.take is not None):
                            work.exception()
                            raise cancelled
                        result = work.result()
                    elif kind is Call and step.world and not (cancelled and called):
                        called = True
                        work = asyncio.ensure_future(awaited(self._call(step, carrier)))
                        cancelled = await finish(work) or cancelled
                        result = self._performed(work, cancelled)
                    elif cancelled is not None:
                        raise cancelled
                    elif kind in self._do:
                        result = await self._do[kind](step, carrier)
                    else:
                        result = await loop.run_in_executor(threads(), step)
                except GeneratorExit:  # the loop was closed with the task in it
                    plan.close()
                    raise
                except BaseException as error:
                    cancelled = None if error is cancelled else cancelled
                    step = plan.throw(error)
                else:
                    step = plan.send(result)
                    result = None  # as in Carrier.carry
        except StopIteration as done:
            if cancelled is not None:
                raise _given_up(carrier, cancelled) from None
            value: R = done.value
            return value
        except (Exception, Interrupt) as error:
            if cancelled is not None:
                raise _given_up(carrier, cancelled) from error
            raise
        except asyncio.CancelledError as error:
            if called:  # an effect was performed in vain, and is to be tried again
                raise _given_up(carrier, error) from None
            raise

    async def move(self, command: Move) -> Moved:
        """Move a run on: in this task, or on a thread if its workflow is not async."""
        workflow = self.app.known(command.claimed.row.workflow)
        if workflow is None or workflow.is_async:
            return await self.run(move(self.app, command.claimed))
        moved: Moved = await on_own_thread(self.app.blocking.move, command)
        return moved

    async def _invoke(self, command: Invoke, _: Carrier | None) -> Any:
        run = AsyncRun(self, command.carrier, command.carrier.exe.root)
        try:
            with as_current(run):
                return await command.workflow.fn(run, *command.args, **command.kwargs)
        except asyncio.CancelledError as error:
            raise _meant(error) from error
        except BaseException as error:
            if is_passing(error):
                raise Passing from error
            if isinstance(error, _GivenUp) and error.task is asyncio.current_task() and _is_cancelled():
                raise Passing from asyncio.CancelledError()
            raise

    async def _settle(self, command: Settle, _: Carrier | None) -> None:
        while command.carrier.exe.root.flying:
            await asyncio.sleep(0.002)

    # --- the user's functions ----------------------------------------------------------------------------------------

    async def _call(self, command: Call, _: Carrier | None) -> Any:
        began = time.perf_counter_ns()
        try:
            if command.timeout_s is None:
                return await self._called(command)
            work = asyncio.ensure_future(awaited(self._called(command)))
            try:
                done, _pending = await asyncio.wait([work], timeout=command.timeout_s)
            except BaseException:  # this task is being ended, and what it waited for with it
                work.cancel()
                raise
            if not done:
                work.cancel()
                raise TimedOut
            return told(work.result())
        finally:
            command.took_us = (time.perf_counter_ns() - began) // 1000

    def _performed(self, work: asyncio.Future[Any], cancelled: asyncio.CancelledError | None) -> Any:
        """What came of an effect. Only the end of its loop cancels the function itself."""
        try:
            return told(work.result())
        except asyncio.CancelledError as error:
            raise cancelled or _inner(error) from error
        except TimedOut:
            raise cancelled or TimedOut from None  # in doubt: decided when the run goes on

    async def _called(self, command: Call) -> Any:
        try:
            if inspect.iscoroutinefunction(command.fn):
                return await command.fn(*command.args, **command.kwargs)
            # One that may be left behind when its time is up must not keep a thread of the pool.
            on_thread = self._on_thread if command.timeout_s is None else on_own_thread
            result = await on_thread(command.fn, *command.args, **command.kwargs)
            return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError as error:
            raise _inner(error) from error

    async def _on_thread(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A function that may block must not stop the loop."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_CALL_THREADS, thread_name_prefix="holdfast-call")
        call = functools.partial(contextvars.copy_context().run, _called_here, fn, args, kwargs)
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
            run = AsyncRun(self, carrier, branch.scope)
            with as_current(run):
                result = branch.fn(run)
                return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return Raised(error)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)


def _called_here(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function on this thread. A StopIteration cannot be passed on to a task, which would wait for ever."""
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration") from error


async def finish(work: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until `work` is done, even if this task is cancelled; then that cancellation is returned."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as error:
            cancelled = cancelled if work.cancelled() else error
        except BaseException:  # what `work` raised is for the caller to take from it
            if not work.done():
                raise
    return cancelled


class _GivenUp(Suspended):
    """The task was cancelled: by code of the workflow, or, if it is the workflow's own, perhaps from outside."""

    def __init__(self, message: str, task: asyncio.Task[Any] | None) -> None:
        super().__init__(message)
        self.task = task


def _given_up(carrier: Carrier | None, cancelled: asyncio.CancelledError) -> BaseException:
    """What a cancelled task gets for a call whose outcome was recorded all the same.

    A replay has no cancellation and would return the outcome, so the code must not go on as if there were none: the
    run is suspended and goes on from the record.
    """
    if carrier is None:
        return cancelled
    carrier.exe.stop()
    suspended = carrier.exe.suspended(carrier.exe.root)
    return _GivenUp(str(suspended), asyncio.current_task())


def _is_cancelled() -> bool:
    """Whether somebody has cancelled the task; a CancelledError may also be raised by what it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _meant(error: asyncio.CancelledError) -> BaseException:
    """What a CancelledError out of a workflow means: the task is being ended, or something inside it was."""
    return Passing() if _is_cancelled() else RuntimeError(f"something the workflow awaited was cancelled: {error!r}")


def _inner(error: asyncio.CancelledError) -> BaseException:
    """What a CancelledError out of a user's function means."""
    return error if _is_cancelled() else RuntimeError(f"something the function awaited was cancelled: {error!r}")


async def on_own_thread(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function on a thread of its own. Runs must not wait for each other's threads, as in a pool they would."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def told(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):  # a future cannot carry it
            future.set_exception(RuntimeError(f"the function raised {error!r}"))
        else:
            future.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = context.run(fn, *args, **kwargs)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended, nobody waits any more
            loop.call_soon_threadsafe(told, result, error)

    threading.Thread(target=work, name="holdfast-call", daemon=True).start()
    return await future
