"""An event loop on a thread of its own: for `async def` workflows and steps of blocking callers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any

from holdfast.engine.commands import Raised, TimedOut

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore
    from holdfast.runtime.moving import Moved
    from holdfast.runtime.starting import Move


class LoopThread:
    """The loop and its thread. Both end with the process, or with `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="holdfast-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def run(self, work: Awaitable[Any], timeout_s: float | None = None) -> Any:
        """Await `work` on the loop and wait for it here."""
        future = self.submit(awaited(work))
        try:
            return told(future.result(timeout_s))
        except concurrent.futures.TimeoutError:
            if not future.done():
                future.cancel()
                raise TimedOut from None
            raise
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Begin `work` on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def move(self, app: AppCore, command: Move) -> Moved:
        """Move a run on, on the loop."""
        moved: Moved = self.run(app.awaiting.move(command))
        return moved

    def close(self) -> None:
        """Stop the loop; what is still running on it is cancelled."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop)
            self._thread.join(5)

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop.stop()


async def awaited(work: Awaitable[Any]) -> Any:
    """For a task of its own: these two would end the loop, and everybody on it would wait for ever."""
    try:
        return await work
    except (KeyboardInterrupt, SystemExit) as error:
        return Raised(error)


def told(result: Any) -> Any:
    """What became of work that was `awaited`."""
    if type(result) is Raised:
        raise result.error
    return result
