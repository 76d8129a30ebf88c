"""The async driver executes plans in tasks of an event loop.

Each read runs on a thread of a small pool. Commits go straight to the queue of the group commit, so commits of many
tasks become durable together. A submitted commit is executed even if its task is cancelled.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakKeyDictionary

from holdfast.drivers import Handler, Plan
from holdfast.fork_safety import reset_after_fork
from holdfast.model.commit import Commit, Outcome

R = TypeVar("R")
Result = Outcome | BaseException
Submit = Callable[[Commit, Callable[[Result], None]], None]
"""Queues a commit; the function is called with its result on the committing thread."""

_POOL_SIZE = 8


class LoopMailbox:
    """Passes results from the committing thread to one event loop, with one wake-up for many results."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._results: list[tuple[asyncio.Future[Outcome], Result]] = []

    def deliver(self, future: asyncio.Future[Outcome], result: Result) -> None:
        """Queue a result for the loop; called on the committing thread."""
        with self._lock:
            self._results.append((future, result))
            if len(self._results) > 1:
                return
        try:
            self._loop.call_soon_threadsafe(self._set_results)
        except RuntimeError:  # the loop has ended, and its tasks with it
            self._results.clear()

    def _set_results(self) -> None:
        with self._lock:
            results, self._results = self._results, []
        for future, result in results:
            if future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)


class TaskIO:
    """Commits and reads of tasks, through a mailbox for each event loop and a pool of reading threads."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopMailbox] = WeakKeyDictionary()
        self._pool: ThreadPoolExecutor | None = None
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Drop the pool; its threads belong to the parent process."""
        self._pool = None

    def commit(self, commit: Commit) -> asyncio.Future[Outcome]:
        """Queue a commit; the future gets its outcome."""
        loop = asyncio.get_running_loop()
        mailbox = self._mailboxes.get(loop)
        if mailbox is None:
            mailbox = self._mailboxes[loop] = LoopMailbox(loop)
        future: asyncio.Future[Outcome] = loop.create_future()
        deliver = mailbox.deliver
        self._submit(commit, lambda result: deliver(future, result))
        return future

    def read(self, function: Callable[[], R]) -> asyncio.Future[R]:
        """Call a reading function on a thread of the pool."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_POOL_SIZE, thread_name_prefix="holdfast-read")
        return asyncio.get_running_loop().run_in_executor(self._pool, function)

    def close(self) -> None:
        """Stop the reading threads without waiting for them."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


class AsyncDriver:
    """Executes plans in tasks. `handlers` are as in `BlockingDriver`, but awaited."""

    def __init__(self, io: TaskIO, handlers: Mapping[type, Handler[Awaitable[object]]] | None = None) -> None:
        self.io = io
        self._handlers = handlers or {}

    def begin(self, step: object) -> Awaitable[object]:
        """Begin one step of a plan; the caller awaits its result."""
        kind = type(step)
        if kind is Commit:
            return self.io.commit(step)  # type: ignore[arg-type]
        if kind in self._handlers:
            return self._handlers[kind](step)
        return self.io.read(step)  # type: ignore[arg-type]

    async def run(self, plan: Plan[R]) -> R:
        """Execute the plan and return its result."""
        return await self.drive(plan, self.begin)

    async def drive(self, plan: Plan[R], begin: Callable[[object], Awaitable[object]]) -> R:
        """Execute the plan; `begin` begins each of its steps."""
        try:
            step = next(plan)
            while True:
                try:
                    result = await begin(step)
                except GeneratorExit:  # the loop was closed with the task in it
                    plan.close()
                    raise
                except BaseException as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(result)
                    result = None  # as in BlockingDriver.run
        except StopIteration as done:
            value: R = done.value
            return value
