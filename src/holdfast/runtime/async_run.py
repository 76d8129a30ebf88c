"""The run as an `async def` workflow sees it: the names of `Run`, to await."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, TypeVar, overload

from holdfast.engine import loops
from holdfast.engine.commands import Plan
from holdfast.engine.scope import Scope
from holdfast.engine.verdicts import Classifier
from holdfast.errors import Interrupt
from holdfast.runtime import calls, transactions
from holdfast.runtime.run import DoubtPolicy, Errors, RunBase
from holdfast.runtime.unawaited import UnawaitedCall

if TYPE_CHECKING:
    from holdfast.runtime.awaiting import AwaitingDriver
    from holdfast.runtime.carrier import Carrier
    from holdfast.runtime.registry import Workflow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


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
        exe = self._exe
        if exe.missing_await is not None:
            raise exe.missing_await
        try:
            return await self._driver.run(self._carrier.carry(plan), self._carrier)
        except Interrupt:  # the code has no chance to await what it has created so far
            exe.unawaited.clear()
            raise

    @overload
    def step(self, fn: Callable[..., Awaitable[R]], /, *args: Any, **options: Any) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(self, fn: Callable[..., R], /, *args: Any, **options: Any) -> Coroutine[Any, Any, R]: ...
    def step(
        self, fn: Callable[..., Any], /, *args: Any, name: str | None = None, key: str | None = None,
        retry: Any = None, timeout: float | None = None, **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:  # fmt: skip
        """Call a function and record its result; see `Run.step`. A function that is not async runs on a thread."""
        return UnawaitedCall(
            self, "step", fn,
            lambda: self._do(calls.step(self._exe, self._scope, fn, args, kwargs, name, key, retry, timeout)),
            (*args, *kwargs.values()),
        )  # fmt: skip

    @overload
    def effect(self, fn: Callable[..., Awaitable[R]], /, *args: Any, **options: Any) -> Coroutine[Any, Any, R]: ...
    @overload
    def effect(self, fn: Callable[..., R], /, *args: Any, **options: Any) -> Coroutine[Any, Any, R]: ...
    def effect(
        self, fn: Callable[..., Any], /, *args: Any, name: str | None = None, key: str | None = None,
        retry: Any = None, timeout: float | None = None, undo: Callable[..., Any] | str | None = None,
        in_doubt: DoubtPolicy = "ask", check: Callable[..., Any] | None = None, target: str | None = None,
        not_done: Errors = (), doubtful: Errors = (), classify: Classifier | None = None, **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:  # fmt: skip
        """Touch the world; see `Run.effect`. A cancelled task lets the function finish and records its outcome."""

        def begin() -> Coroutine[Any, Any, Any]:
            plan = calls.effect(
                self._exe, self._scope, fn, args, kwargs, name, key, retry, timeout, undo, in_doubt, check, target,
                not_done=not_done, doubtful=doubtful, classify=classify,
            )  # fmt: skip
            return self._do(plan)

        return UnawaitedCall(self, "effect", fn, begin, (*args, *kwargs.values()))

    @overload
    def ask(
        self, prompt: str, fields: type[T], *, show: Any = None, who: Any = None,
        expires: float | dt.timedelta | None = None, expired: Any = "deny", key: str | None = None,
    ) -> Coroutine[Any, Any, T]: ...  # fmt: skip
    @overload
    def ask(
        self, prompt: str, fields: dict[str, Any], *, show: Any = None, who: Any = None,
        expires: float | dt.timedelta | None = None, expired: Any = "deny", key: str | None = None,
    ) -> Coroutine[Any, Any, dict[str, Any]]: ...  # fmt: skip
    @overload
    def ask(
        self, prompt: str, fields: Any = None, *, show: Any = None, who: Any = None,
        expires: float | dt.timedelta | None = None, expired: Any = "deny", key: str | None = None,
    ) -> Coroutine[Any, Any, Any]: ...  # fmt: skip
    def ask(
        self, prompt: str, fields: Any = None, *, show: Any = None, who: Any = None,
        expires: float | dt.timedelta | None = None, expired: Any = "deny", key: str | None = None,
    ) -> Coroutine[Any, Any, Any]:  # fmt: skip
        """Stop for an answer from a person; see `Run.ask`."""
        return UnawaitedCall(
            self, "ask", prompt,
            lambda: self._do(calls.ask(self._exe, self._scope, prompt, fields, show, who, expires, expired, key)),
            (show,),
        )  # fmt: skip

    @overload
    def map(
        self, fn: Callable[[T], Awaitable[R]], items: Iterable[T], *, return_exceptions: Literal[False] = False,
        limit: int | None = None, name: str | None = None, key: str | None = None, retry: Any = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, list[R]]: ...  # fmt: skip
    @overload
    def map(
        self, fn: Callable[[T], R], items: Iterable[T], *, return_exceptions: Literal[False] = False,
        limit: int | None = None, name: str | None = None, key: str | None = None, retry: Any = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, list[R]]: ...  # fmt: skip
    @overload
    def map(
        self, fn: Callable[[T], Awaitable[R]], items: Iterable[T], *, return_exceptions: Literal[True],
        limit: int | None = None, name: str | None = None, key: str | None = None, retry: Any = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, list[R | Exception]]: ...  # fmt: skip
    @overload
    def map(
        self, fn: Callable[[T], R], items: Iterable[T], *, return_exceptions: Literal[True],
        limit: int | None = None, name: str | None = None, key: str | None = None, retry: Any = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, list[R | Exception]]: ...  # fmt: skip
    def map(
        self, fn: Callable[..., Any], items: Iterable[Any], *, limit: int | None = None, name: str | None = None,
        key: str | None = None, retry: Any = None, timeout: float | None = None, return_exceptions: bool = False,
    ) -> Coroutine[Any, Any, list[Any]]:  # fmt: skip
        """Call a function for each item, side by side, each as a step; see `Run.map`."""

        def begin() -> Coroutine[Any, Any, list[Any]]:
            plan = calls.map_items(
                self._exe, self._scope, fn, items, limit, name, key, retry, timeout, return_exceptions
            )  # fmt: skip
            return self._do(plan)

        return UnawaitedCall(self, "map", fn, begin, items if isinstance(items, list | tuple) else (items,))

    @overload
    def gather(
        self, *branches: Callable[[AsyncRun], Awaitable[R]], return_exceptions: Literal[False] = False,
        limit: int | None = None, key: str | None = None,
    ) -> Coroutine[Any, Any, list[R]]: ...  # fmt: skip
    @overload
    def gather(
        self, *branches: Callable[[AsyncRun], Awaitable[R]], return_exceptions: Literal[True], limit: int | None = None,
        key: str | None = None,
    ) -> Coroutine[Any, Any, list[R | Exception]]: ...  # fmt: skip
    def gather(
        self, *branches: Callable[[AsyncRun], Any], limit: int | None = None, key: str | None = None,
        return_exceptions: bool = False,
    ) -> Coroutine[Any, Any, list[Any]]:  # fmt: skip
        """Do several lines of work side by side; see `Run.gather`."""
        return UnawaitedCall(
            self, "gather", None,
            lambda: self._do(calls.gather(self._exe, self._scope, branches, limit, key, return_exceptions)),
        )  # fmt: skip

    def sleep(self, seconds: float | dt.timedelta, *, key: str | None = None) -> Coroutine[Any, Any, None]:
        """Go on after so many seconds; see `Run.sleep`."""
        return UnawaitedCall(
            self, "sleep", None, lambda: self._do(calls.sleep(self._exe, self._scope, seconds, key)), (seconds,)
        )

    def sleep_until(self, when: dt.datetime, *, key: str | None = None) -> Coroutine[Any, Any, None]:
        """Go on at a moment; see `Run.sleep_until`."""
        return UnawaitedCall(
            self, "sleep_until", None,
            lambda: self._do(calls.sleep_until(self._exe, self._scope, when, key)), (when,),
        )  # fmt: skip

    def wait_for(
        self, event: str, *, timeout: float | dt.timedelta | None = None, default: Any = None, key: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Wait for an event; see `Run.wait_for`."""
        return UnawaitedCall(
            self, "wait_for", event,
            lambda: self._do(calls.wait_for(self._exe, self._scope, event, timeout, default, key)), (default,),
        )  # fmt: skip

    def send(self, run_id: str, event: str, value: Any = None, *, key: str | None = None) -> Coroutine[Any, Any, None]:
        """Send an event to another run; see `Run.send`."""
        return UnawaitedCall(
            self, "send", run_id,
            lambda: self._do(calls.send(self._exe, self._scope, run_id, event, value, key)), (value,),
        )  # fmt: skip

    @overload
    def child(
        self, workflow: Workflow[..., Any] | str, /, *args: Any, detached: Literal[True], key: str | None = None,
        enqueue: bool = False, **kwargs: Any,
    ) -> Coroutine[Any, Any, str]: ...  # fmt: skip
    @overload
    def child(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...
    @overload
    def child(
        self, workflow: Workflow[..., R], /, *args: Any, key: str | None, detached: Literal[False] = False,
        enqueue: bool = False, **kwargs: Any,
    ) -> Coroutine[Any, Any, R]: ...  # fmt: skip
    @overload
    def child(self, workflow: str, /, *args: Any, **options: Any) -> Coroutine[Any, Any, Any]: ...
    def child(  # type: ignore[misc]  # options are taken before what is the workflow's
        self, workflow: Any, /, *args: Any, key: str | None = None, detached: bool = False,
        enqueue: bool = False, **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:  # fmt: skip
        """Start a child run and return its result; see `Run.child`."""
        return UnawaitedCall(
            self, "child", workflow,
            lambda: self._do(calls.child(self._carrier, self._scope, workflow, args, kwargs, key, detached, enqueue)),
            (*args, *kwargs.values()),
        )  # fmt: skip

    def loop(self, *, key: str | None = None) -> AsyncIterator[int]:
        """The durable loop, for `async for`; see `Run.loop`."""
        return _AsyncTurns(self, key)

    def checkpoint(
        self, *, metadata: dict[str, Any] | None = None, key: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """Save `run.state`; see `Run.checkpoint`."""
        return UnawaitedCall(
            self, "checkpoint", None, lambda: self._do(calls.checkpoint(self._exe, self._scope, metadata, key))
        )

    def transaction(
        self, connection: Any, fn: Callable[..., Any], /, *args: Any, name: str | None = None, key: str | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:  # fmt: skip
        """Call a function in a transaction of your database; see `Run.transaction`. Async connections, too."""

        def begin() -> Coroutine[Any, Any, Any]:
            return self._do(
                transactions.plan(self._exe, self._scope, connection, fn, args, kwargs, name, key, awaiting=True)
            )

        return UnawaitedCall(self, "transaction", fn, begin, (*args, *kwargs.values()))

    def version(self, name: str, number: int) -> Coroutine[Any, Any, int]:
        """Which version of a piece of code this run takes; see `Run.version`."""
        return UnawaitedCall(
            self, "version", name, lambda: self._do(calls.version(self._exe, self._scope, name, number))
        )

    def now(self) -> Coroutine[Any, Any, dt.datetime]:
        """The time; see `Run.now`."""
        return UnawaitedCall(self, "now", None, lambda: self._do(calls.now(self._exe, self._scope)))

    def random(self) -> Coroutine[Any, Any, random.Random]:
        """A source of chance; see `Run.random`."""
        return UnawaitedCall(self, "random", None, lambda: self._do(calls.random(self._exe, self._scope)))

    def uuid(self) -> Coroutine[Any, Any, uuid.UUID]:
        """A new UUID; see `Run.uuid`."""
        return UnawaitedCall(self, "uuid", None, lambda: self._do(calls.uuid(self._exe, self._scope)))

    def log(self, message: str, *, level: str = "info", **data: Any) -> Coroutine[Any, Any, None]:
        """Note a line in the journal, once; see `Run.log`."""

        async def begin() -> None:
            await self._do(calls.log(self._exe, self._scope, message, level, data))

        return UnawaitedCall(self, "log", message, begin, (message, *data.values()))


class _AsyncTurns(AsyncIterator[int]):
    """The turns of a loop; see `holdfast.runtime.run`."""

    def __init__(self, run: AsyncRun, key: str | None) -> None:
        self._run = run
        self._key = key
        self._loop: loops.Loop | None = None

    def __iter__(self) -> NoReturn:
        raise TypeError("run.loop() of an async workflow is for `async for turn in run.loop()`, not for `for`")

    async def __anext__(self) -> int:
        run = self._run
        if self._loop is None:
            self._loop = await run._do(loops.begin(run._exe, run._scope, self._key))
        else:
            await run._do(loops.end_turn(run._exe, self._loop))
        run._scope = self._loop.scope
        return self._loop.turn
