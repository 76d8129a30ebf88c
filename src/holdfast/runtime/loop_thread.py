"""The event loop thread of an app, for async code of blocking callers.

A closed loop refuses work and cancels what it has, so no caller waits for a task that a stopped loop never finishes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, TypeVar

from holdfast.engine.commands import BranchError, TimedOut
from holdfast.errors import StoreClosed
from holdfast.runtime.app_core import closed_error
from holdfast.runtime.blocking_driver import unwrap_error
from holdfast.runtime.execute import ExecutionResult
from holdfast.runtime.start import Execute

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore

R = TypeVar("R")

_JOIN_S = 5.0


class LoopThread:
    """An event loop on a thread of its own; both end with the process or with `close`.

    It executes `async def` workflows and steps of blocking callers.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held to submit work and to close, so that all work is submitted before the tasks are cancelled."""
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="holdfast-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._run_until_stopped():
                pass
        finally:
            self._loop.close()

    def _run_until_stopped(self) -> bool:
        """Run the loop; False if a task that other code created raised an exit. The task keeps it for its awaiter."""
        try:
            self._loop.run_forever()
        except (KeyboardInterrupt, SystemExit):
            return False
        return True

    def run(self, work: Awaitable[R], timeout_s: float | None = None) -> R:
        """Await `work` on the loop, and block until it is done. Raises StoreClosed if the loop is closed meanwhile."""
        try:
            future = self.submit(contain_exit(work))
            return self._result(future, timeout_s)
        except StoreClosed:
            discard(work)
            raise

    def _result(self, future: concurrent.futures.Future[R | BranchError], timeout_s: float | None) -> R:
        try:
            return unwrap_error(future.result(timeout_s))
        except BaseException as error:
            is_late = isinstance(error, concurrent.futures.TimeoutError) and not future.done()
            future.cancel()
            if is_late:
                raise TimedOut from None
            if self._is_closed and isinstance(error, concurrent.futures.CancelledError):
                raise closed_error() from error
            raise

    def submit(self, work: Coroutine[object, None, R]) -> concurrent.futures.Future[R]:
        """Begin `work` on the loop. Raises StoreClosed if the loop is closed."""
        with self._lock:
            if not self._is_closed:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise closed_error()

    def execute(self, app: AppCore, command: Execute) -> ExecutionResult:
        """Execute a run on the loop. Ctrl-C first waits until the call in progress is recorded and the run released."""
        try:
            result = self.run(app.awaiting.execute(command))
        except KeyboardInterrupt:
            wait_released(app, command.claimed.row.run_id)
            raise
        if self._is_closed and isinstance(result.error, asyncio.CancelledError):
            return result._replace(error=closed_error())
        return result

    def close(self, before_cancel: Callable[[], None] = lambda: None) -> None:
        """Stop the loop and cancel the tasks on it; wait for them, but not forever.

        `before_cancel` is called on the loop, just before.
        """
        if threading.current_thread() is self._thread:
            return
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                asyncio.run_coroutine_threadsafe(self._cancel_all(before_cancel), self._loop)
        self._thread.join(_JOIN_S)

    async def _cancel_all(self, before_cancel: Callable[[], None]) -> None:
        before_cancel()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop.call_soon(self._loop.stop)  # after the callbacks that deliver the results of ended tasks


def discard(work: Awaitable[object]) -> None:
    """Close a coroutine that may not have begun; otherwise Python warns that it was never awaited."""
    if asyncio.iscoroutine(work):
        work.close()


def wait_released(app: AppCore, run_id: str) -> None:
    """Wait until this process no longer executes the run."""
    while any(exe.run_id == run_id for exe in list(app.executions)):
        time.sleep(0.01)


async def contain_exit(work: Awaitable[R]) -> R | BranchError:
    """Return an exit as a value. Raised, it would end the loop, and every other task on it would wait forever."""
    try:
        return await work
    except (KeyboardInterrupt, SystemExit) as error:
        return BranchError(error)
