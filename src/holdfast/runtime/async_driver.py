"""The async driver of an app.

It awaits the user's functions, and calls blocking ones on threads. A cancelled task finishes the commit or
effect that it began, so that a cancellation leaves no effect in doubt.
"""

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
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from holdfast.drivers import Handler, Plan
from holdfast.drivers.async_driver import AsyncDriver
from holdfast.engine.commands import Branch, BranchError, Call, TimedOut
from holdfast.engine.execution import Execution
from holdfast.errors import Interrupt, Suspended
from holdfast.fork_safety import reset_after_fork
from holdfast.model.commit import Commit, Outcome
from holdfast.runtime.async_run import AsyncRun
from holdfast.runtime.blocking_driver import unwrap_error
from holdfast.runtime.execute import ExecutionResult, Invoke, ProcessExiting, WaitInFlight, execute_run, is_exit
from holdfast.runtime.interpreter import Interpreter, RunBranches, WaitUntil
from holdfast.runtime.loop_thread import contain_exit
from holdfast.runtime.run_base import as_current
from holdfast.runtime.start import Execute

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore

P = ParamSpec("P")
R = TypeVar("R")

_SLICE_S = 0.1
_CALL_THREADS = 64


class AsyncAppDriver(AsyncDriver):
    """Executes the plans of an app and of its runs, in the calling task."""

    def __init__(self, app: AppCore) -> None:
        handlers: dict[type, Handler[Awaitable[object]]] = {
            Call: self._call,
            WaitUntil: self._wait,
            RunBranches: self._run_branches,
            Invoke: self._invoke,
            WaitInFlight: self._wait_in_flight,
            Execute: self.execute,
        }
        super().__init__(app.core.awaiting.io, handlers)
        self.app = app
        self._pool: ThreadPoolExecutor | None = None
        self._invoked: dict[Execution, asyncio.AbstractEventLoop] = {}
        """The executions whose workflow's function has begun and not ended, and the loop of each."""
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Drop the pool; its threads belong to the parent process."""
        self._pool = None
        self._invoked = {}

    def interrupt_all(self) -> None:
        """Let all workflows on the running loop make no further call; their tasks are cancelled next."""
        loop = asyncio.get_running_loop()
        for exe in [exe for exe, on in self._invoked.items() if on is loop]:
            exe.exiting = asyncio.CancelledError()

    async def run(self, plan: Plan[R], interpreter: Interpreter | None = None) -> R:
        """Execute the plan; a cancellation of the task waits for the commit or effect in progress.

        With an `interpreter` the plan continues until the outcome is recorded; then the cancellation continues.
        """
        steps = _ShieldedSteps(self, interpreter)
        try:
            value = await self.drive(plan, steps.begin)
        except (Exception, Interrupt) as error:
            if steps.cancelled is not None:
                raise _give_up(interpreter, steps.cancelled) from error
            raise
        except asyncio.CancelledError as error:
            if steps.called:  # the effect was performed, but its outcome was not recorded
                raise _give_up(interpreter, error) from None
            raise
        if steps.cancelled is not None:
            raise _give_up(interpreter, steps.cancelled)
        return value

    async def execute(self, command: Execute) -> ExecutionResult:
        """Execute a run: in this task, or on a thread if its workflow is not async."""
        workflow = self.app.known(command.claimed.row.workflow)
        if workflow is None or workflow.is_async:
            return await self.run(execute_run(self.app, command.claimed))
        return await on_own_thread(self.app.blocking.execute, command)

    async def _invoke(self, command: Invoke) -> object:
        """Call the workflow in a task of its own: so a cancellation from outside is known from one by its own code."""
        work, cancelled = asyncio.ensure_future(contain_exit(self._call_workflow(command))), None
        exe = command.interpreter.exe
        self._invoked[exe] = asyncio.get_running_loop()
        try:
            while not work.done():
                try:
                    await asyncio.wait([work])
                except asyncio.CancelledError as error:
                    cancelled = exe.exiting = error
                    work.cancel()
        except GeneratorExit:  # the loop was closed with the task in it
            work.cancel()
            raise
        finally:
            del self._invoked[exe]
        if cancelled is not None:
            if not work.cancelled():
                work.exception()
            raise ProcessExiting from cancelled
        return unwrap_error(work.result())

    async def _call_workflow(self, command: Invoke) -> object:
        run = AsyncRun(self, command.interpreter, command.interpreter.exe.root)
        exe = command.interpreter.exe
        try:
            with as_current(run):
                result = await command.workflow.fn(run, *command.args, **command.kwargs)
            exe.find_missing_await(None)  # at once: a task that was not awaited begins as soon as this one ends
            return result
        except asyncio.CancelledError as error:
            raise _from_workflow(error) from error
        except BaseException as error:
            exe.find_missing_await(error)
            if is_exit(error):
                raise ProcessExiting from error
            if isinstance(error, _GivenUp) and error.task is asyncio.current_task() and _is_cancelled():
                raise ProcessExiting from asyncio.CancelledError()
            raise

    async def _wait_in_flight(self, command: WaitInFlight) -> None:
        while command.interpreter.exe.root.in_flight:
            await asyncio.sleep(0.002)

    # --- the user's functions ----------------------------------------------------------------------------------------

    async def _call(self, command: Call) -> object:
        began = time.perf_counter_ns()
        try:
            if command.timeout_s is None:
                return await self._call_function(command)
            work = asyncio.ensure_future(contain_exit(self._call_function(command)))
            try:
                done, _pending = await asyncio.wait([work], timeout=command.timeout_s)
            except BaseException:  # this task is ending, and the call with it
                work.cancel()
                raise
            if not done:
                work.cancel()
                raise TimedOut
            return unwrap_error(work.result())
        finally:
            command.took_us = (time.perf_counter_ns() - began) // 1000

    async def _call_function(self, command: Call) -> object:
        try:
            if inspect.iscoroutinefunction(command.fn):
                return await command.fn(*command.args, **command.kwargs)
            # A call that may be abandoned when its time is up must not occupy a thread of the pool.
            on_thread = self._on_thread if command.timeout_s is None else on_own_thread
            result = await on_thread(command.fn, *command.args, **command.kwargs)
            return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError as error:
            raise _from_function(error) from error

    async def _on_thread(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function that may block on a thread of the pool."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_CALL_THREADS, thread_name_prefix="holdfast-call")
        context = contextvars.copy_context()
        call = functools.partial(context.run, functools.partial(_call_here, fn, *args, **kwargs))
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def _wait(self, command: WaitUntil) -> None:
        clock = self.app.core.clock
        await asyncio.sleep(0)
        while (left_us := command.until_us - clock.now_us()) > 0 and not command.interpreter.must_stop:
            await asyncio.sleep(min(_SLICE_S, left_us / 1e6))

    # --- branches ----------------------------------------------------------------------------------------------------

    async def _run_branches(self, command: RunBranches) -> list[object]:
        branches = command.branches
        results: list[object] = [None] * len(branches)
        todo = iter(range(len(branches)))

        async def work() -> None:
            for index in todo:
                results[index] = await self._run_branch(branches[index], command.interpreter)

        workers = [asyncio.ensure_future(work()) for _ in range(min(command.limit, len(branches)))]
        try:
            await asyncio.gather(*workers)
        except BaseException:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            raise
        return results

    async def _run_branch(self, branch: Branch, interpreter: Interpreter) -> object:
        try:
            if branch.plan is not None:
                return await self.run(interpreter.translate(branch.plan), interpreter)
            assert branch.fn is not None
            run = AsyncRun(self, interpreter, branch.scope)
            with as_current(run):
                result = branch.fn(run)
                return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return BranchError(error)

    def close(self) -> None:
        """Stop the threads of the pool without waiting for them."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)


def _call_here(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function on this thread. A future cannot carry a StopIteration; its task would wait forever."""
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration") from error


class _ShieldedSteps:
    """The steps of one plan; a cancelled task lets the current step finish."""

    def __init__(self, driver: AsyncAppDriver, interpreter: Interpreter | None) -> None:
        self._driver = driver
        self._run_id = interpreter.row.run_id if interpreter is not None else None
        """The run whose plan continues after a cancellation, until the outcome is recorded."""
        self.cancelled: asyncio.CancelledError | None = None
        """The cancellation that is deferred."""
        self.called = False
        """Whether an effect was called."""

    async def begin(self, step: object) -> object:
        """Execute one step."""
        if type(step) is Commit:
            return await self._commit(step)
        if type(step) is Call and step.external and not (self.cancelled and self.called):
            return await self._perform(step)
        if self.cancelled is not None:
            raise self._take()
        return await self._driver.begin(step)

    async def _commit(self, commit: Commit) -> Outcome:
        work = self._driver.io.commit(commit)
        self.cancelled = await wait_done(work) or self.cancelled
        continues = commit.run_id == self._run_id or (self._run_id is not None and commit.take is None)
        if self.cancelled is not None and not continues:
            work.exception()
            raise self._take()
        return work.result()

    async def _perform(self, call: Call) -> object:
        """Call an effect. Only the end of its loop cancels the function itself."""
        self.called = True
        work = asyncio.ensure_future(contain_exit(self._driver.begin(call)))
        self.cancelled = await wait_done(work) or self.cancelled
        try:
            return unwrap_error(work.result())
        except asyncio.CancelledError as error:
            raise (_from_function(error) if self.cancelled is None else self._take()) from error
        except TimedOut:
            if self.cancelled is None:
                raise
            raise self._take() from None  # in doubt: decided when the run is resumed

    def _take(self) -> asyncio.CancelledError:
        assert self.cancelled is not None
        cancelled, self.cancelled = self.cancelled, None
        return cancelled


async def wait_done(work: asyncio.Future[R]) -> asyncio.CancelledError | None:
    """Wait until `work` is done, even if this task is cancelled; return that cancellation."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as error:
            cancelled = cancelled if work.cancelled() else error
        except BaseException:  # the caller takes the error from `work`
            if not work.done():
                raise
    return cancelled


class _GivenUp(Suspended):
    """The task was cancelled: by code of the workflow or, if it is the workflow's own, perhaps by its caller."""

    def __init__(self, message: str, task: asyncio.Task[object] | None) -> None:
        super().__init__(message)
        self.task = task


def _give_up(interpreter: Interpreter | None, cancelled: asyncio.CancelledError) -> BaseException:
    """The error to raise in a cancelled task for a call whose outcome was recorded.

    A replay returns that outcome, so the code must not continue here without it. The run is suspended and continues
    from the record.
    """
    if interpreter is None:
        return cancelled
    interpreter.exe.stop()
    suspended = interpreter.exe.suspended(interpreter.exe.root)
    return _GivenUp(str(suspended), asyncio.current_task())


def _is_cancelled() -> bool:
    """Whether the task itself was cancelled; a CancelledError may also be raised by what it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _from_workflow(error: asyncio.CancelledError) -> BaseException:
    """Convert a CancelledError from a workflow: its task is ending, or something that it awaited was cancelled."""
    if _is_cancelled():
        return ProcessExiting()
    return RuntimeError(f"something the workflow awaited was cancelled: {error!r}")


def _from_function(error: asyncio.CancelledError) -> BaseException:
    """Convert a CancelledError from a user's function, as `_from_workflow`."""
    return error if _is_cancelled() else RuntimeError(f"something the function awaited was cancelled: {error!r}")


async def on_own_thread(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function on a thread of its own. In a pool, runs would wait for each other's threads."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()
    context = contextvars.copy_context()

    def set_result(result: R | BranchError) -> None:
        if future.done():
            return
        if not isinstance(result, BranchError):
            future.set_result(result)
        else:
            future.set_exception(result.error)

    def work() -> None:
        result: R | BranchError
        try:
            result = context.run(functools.partial(_call_here, fn, *args, **kwargs))
        except BaseException as error:
            result = BranchError(error)
        with contextlib.suppress(RuntimeError):  # the loop has ended, and its tasks with it
            loop.call_soon_threadsafe(set_result, result)

    threading.Thread(target=work, name="holdfast-call", daemon=True).start()
    return await future
