"""The run as an `async def` workflow sees it: the names of `Run`, to await."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast.engine import loops
from holdfast.engine.commands import Plan
from holdfast.engine.scope import Scope
from holdfast.engine.verdicts import Classifier
from holdfast.runtime import calls, transactions
from holdfast.runtime.run import DoubtPolicy, Errors, RunBase

if TYPE_CHECKING:
    from holdfast.runtime.awaiting import AwaitingDriver
    from holdfast.runtime.carrier import Carrier

R = TypeVar("R")


class AsyncRun(RunBase):
    """What an `async def` workflow gets as its first argument. See `Run`, where each call is described.

    Example:
        @app.workflow
        async def greet(run, name):
            return await run.step(str.upper, name)

        app.start(greet, "ana").result()
    """

    def __init__(self, driver: AwaitingDriver, carrier: Carrier, scope: Scope) -> None:
        super().__init__(carrier, scope)
        self._driver = driver

    async def _do(self, plan: Plan[R]) -> R:
        return await self._driver.run(self._carrier.carry(plan), self._carrier)

    @overload
    async def step(self, fn: Callable[..., Awaitable[R]], /, *args: Any, **options: Any) -> R: ...
    @overload
    async def step(self, fn: Callable[..., R], /, *args: Any, **options: Any) -> R: ...
    async def step(
        self, fn: Callable[..., Any], /, *args: Any, name: str | None = None, key: str | None = None,
        retry: Any = None, timeout: float | None = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Call a function and record its result; see `Run.step`. A function that is not async runs on a thread."""
        return await self._do(calls.step(self._exe, self._scope, fn, args, kwargs, name, key, retry, timeout))

    @overload
    async def effect(self, fn: Callable[..., Awaitable[R]], /, *args: Any, **options: Any) -> R: ...
    @overload
    async def effect(self, fn: Callable[..., R], /, *args: Any, **options: Any) -> R: ...
    async def effect(
        self, fn: Callable[..., Any], /, *args: Any, name: str | None = None, key: str | None = None,
        retry: Any = None, timeout: float | None = None, undo: Callable[..., Any] | str | None = None,
        in_doubt: DoubtPolicy = "ask", check: Callable[..., Any] | None = None, target: str | None = None,
        not_done: Errors = (), doubtful: Errors = (), classify: Classifier | None = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Touch the world; see `Run.effect`."""
        plan = calls.effect(
            self._exe, self._scope, fn, args, kwargs, name, key, retry, timeout, undo, in_doubt, check, target,
            not_done=not_done, doubtful=doubtful, classify=classify,
        )  # fmt: skip
        return await self._do(plan)

    async def ask(
        self, prompt: str, fields: Any = None, *, show: Any = None, who: Any = None,
        expires: float | dt.timedelta | None = None, expired: Any = "deny", key: str | None = None,
    ) -> Any:  # fmt: skip
        """Stop for an answer from a person; see `Run.ask`."""
        return await self._do(calls.ask(self._exe, self._scope, prompt, fields, show, who, expires, expired, key))

    async def map(
        self, fn: Callable[..., Any], items: Iterable[Any], *, limit: int | None = None, name: str | None = None,
        key: str | None = None, retry: Any = None, timeout: float | None = None,
    ) -> list[Any]:  # fmt: skip
        """Call a function for each item, side by side, each as a step; see `Run.map`."""
        return await self._do(calls.map_items(self._exe, self._scope, fn, items, limit, name, key, retry, timeout))

    async def gather(
        self, *branches: Callable[[AsyncRun], Any], limit: int | None = None, key: str | None = None
    ) -> list[Any]:
        """Do several lines of work side by side; see `Run.gather`."""
        return await self._do(calls.gather(self._exe, self._scope, branches, limit, key))

    async def sleep(self, seconds: float | dt.timedelta, *, key: str | None = None) -> None:
        """Go on after so many seconds; see `Run.sleep`."""
        await self._do(calls.sleep(self._exe, self._scope, seconds, key))

    async def sleep_until(self, when: dt.datetime, *, key: str | None = None) -> None:
        """Go on at a moment; see `Run.sleep_until`."""
        await self._do(calls.sleep_until(self._exe, self._scope, when, key))

    async def wait_for(
        self, event: str, *, timeout: float | dt.timedelta | None = None, default: Any = None, key: str | None = None
    ) -> Any:
        """Wait for an event; see `Run.wait_for`."""
        return await self._do(calls.wait_for(self._exe, self._scope, event, timeout, default, key))

    async def send(self, run_id: str, event: str, value: Any = None, *, key: str | None = None) -> None:
        """Send an event to another run; see `Run.send`."""
        await self._do(calls.send(self._exe, self._scope, run_id, event, value, key))

    async def child(
        self, workflow: Any, /, *args: Any, key: str | None = None, detached: bool = False, **kwargs: Any
    ) -> Any:
        """Start a child run and return its result; see `Run.child`."""
        return await self._do(calls.child(self._exe, self._scope, workflow, args, kwargs, key, detached))

    def loop(self, *, key: str | None = None) -> AsyncIterator[int]:
        """The durable loop, for `async for`; see `Run.loop`."""
        return _AsyncTurns(self, key)

    async def checkpoint(self, *, metadata: dict[str, Any] | None = None, key: str | None = None) -> None:
        """Save `run.state`; see `Run.checkpoint`."""
        await self._do(calls.checkpoint(self._exe, self._scope, metadata, key))

    async def transaction(
        self, connection: Any, fn: Callable[..., Any], /, *args: Any, name: str | None = None, key: str | None = None,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Call a function in a transaction of your database; see `Run.transaction`. Async connections, too."""
        return await self._do(
            transactions.plan(self._exe, self._scope, connection, fn, args, kwargs, name, key, awaiting=True)
        )

    async def version(self, name: str, number: int) -> int:
        """Which version of a piece of code this run takes; see `Run.version`."""
        return await self._do(calls.version(self._exe, self._scope, name, number))

    async def now(self) -> dt.datetime:
        """The time; see `Run.now`."""
        return await self._do(calls.now(self._exe, self._scope))

    async def random(self) -> random.Random:
        """A source of chance; see `Run.random`."""
        return await self._do(calls.random(self._exe, self._scope))

    async def uuid(self) -> uuid.UUID:
        """A new UUID; see `Run.uuid`."""
        return await self._do(calls.uuid(self._exe, self._scope))

    async def log(self, message: str, *, level: str = "info", **data: Any) -> None:
        """Note a line in the journal, once; see `Run.log`."""
        await self._do(calls.log(self._exe, self._scope, message, level, data))


class _AsyncTurns(AsyncIterator[int]):
    """The turns of a loop; see `holdfast.runtime.run`."""

    def __init__(self, run: AsyncRun, key: str | None) -> None:
        self._run = run
        self._key = key
        self._loop: loops.Loop | None = None

    async def __anext__(self) -> int:
        run = self._run
        if self._loop is None:
            self._loop = await run._do(loops.begin(run._exe, run._scope, self._key))
        else:
            await run._do(loops.end_turn(run._exe, self._loop))
        run._scope = self._loop.scope
        return self._loop.turn
