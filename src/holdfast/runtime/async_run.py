"""`AsyncRun`, the first argument of an `async def` workflow: the methods of `Run`, to await."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, overload

from holdfast.drivers import Plan
from holdfast.engine import effects, gates, parallel, steps
from holdfast.engine import recorded_values as values
from holdfast.engine.approvals import Escalate
from holdfast.engine.commands import UserFunction
from holdfast.engine.effect_outcome import EffectSpec
from holdfast.engine.execution import Execution
from holdfast.engine.failures import Classifier, classifier_of
from holdfast.engine.gates import AskSpec
from holdfast.engine.scope import Scope
from holdfast.engine.steps import step_spec
from holdfast.errors import Interrupt
from holdfast.runtime import transactions
from holdfast.runtime.loop_turns import AsyncTurns
from holdfast.runtime.run_base import (
    AskOptions,
    Call,
    DoubtPolicy,
    Errors,
    GatherAllOptions,
    GatherOptions,
    MapAllOptions,
    MapOptions,
    RetryLike,
    RunBase,
    UnawaitedCall,
)

if TYPE_CHECKING:
    from holdfast.runtime.async_driver import AsyncAppDriver
    from holdfast.runtime.interpreter import Interpreter
    from holdfast.runtime.registry import Workflow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class AsyncRun(RunBase):
    """The first argument of an `async def` workflow. `Run` describes each method.

    Example:
        @app.workflow
        async def greet(run, name):
            return await run.step(str.upper, name)

        app.start(greet, "ana").result()
    """

    def __init__(self, driver: AsyncAppDriver, interpreter: Interpreter, scope: Scope) -> None:
        super().__init__(interpreter, scope)
        self._driver = driver

    async def drive(self, plan: Plan[R], /) -> R:
        """Execute a plan of the engine; see `engine.execution`."""
        exe = self.execution
        if exe.missing_await is not None:
            raise exe.missing_await
        try:
            return await self._driver.run(self._interpreter.translate(plan), self._interpreter)
        except Interrupt:  # the code can no longer await the calls it has created
            exe.unawaited.clear()
            raise

    @overload
    def step(self, fn: Callable[..., Awaitable[R]], /, *args: object, **options: Any) -> Call[R]: ...
    @overload
    def step(self, fn: Callable[..., R], /, *args: object, **options: Any) -> Call[R]: ...
    def step(
        self,
        fn: UserFunction,
        /,
        *args: object,
        name: str | None = None,
        key: str | None = None,
        retry: RetryLike = None,
        timeout: float | None = None,
        **kwargs: object,
    ) -> Call[object]:
        """Call a function and record its result; see `Run.step`. A function that is not async runs on a thread."""

        def plan(exe: Execution, scope: Scope) -> Plan[object]:
            spec = step_spec(fn, args=args, kwargs=kwargs, name=name, key=key, retry=retry, timeout=timeout)
            return steps.step(exe, scope, spec)

        return UnawaitedCall(self, "step", fn, plan, (*args, *kwargs.values()), keyed=key is not None)

    @overload
    def effect(self, fn: Callable[..., Awaitable[R]], /, *args: object, **options: Any) -> Call[R]: ...
    @overload
    def effect(self, fn: Callable[..., R], /, *args: object, **options: Any) -> Call[R]: ...
    def effect(
        self,
        fn: UserFunction,
        /,
        *args: object,
        name: str | None = None,
        key: str | None = None,
        retry: RetryLike = None,
        timeout: float | None = None,
        undo: UserFunction | str | None = None,
        in_doubt: DoubtPolicy = "ask",
        ask_who: str | Iterable[str] | None = None,
        check: UserFunction | None = None,
        target: str | None = None,
        not_done: Errors = (),
        doubtful: Errors = (),
        classify: Classifier | None = None,
        **kwargs: object,
    ) -> Call[object]:
        """Change the outside world; see `Run.effect`. A cancelled task still records the outcome."""

        def plan(exe: Execution, scope: Scope) -> Plan[object]:
            spec = step_spec(fn, args=args, kwargs=kwargs, name=name, key=key, retry=retry, timeout=timeout)
            options = EffectSpec(
                undo=undo, in_doubt=in_doubt, ask_who=ask_who, check=check, target=target, tool=spec.name
            )
            options.classify = classifier_of(not_done, doubtful, classify)
            return effects.effect(exe, scope, spec, options)

        return UnawaitedCall(self, "effect", fn, plan, (*args, *kwargs.values()), keyed=key is not None)

    @overload
    def ask(self, prompt: str, fields: type[T], **options: Unpack[AskOptions]) -> Call[T]: ...
    @overload
    def ask(self, prompt: str, fields: dict[str, Any], **options: Unpack[AskOptions]) -> Call[dict[str, Any]]: ...
    @overload
    def ask(self, prompt: str, fields: object = None, **options: Unpack[AskOptions]) -> Call[Any]: ...
    def ask(
        self,
        prompt: str,
        fields: object = None,
        *,
        show: object = None,
        who: str | Iterable[str] | None = None,
        expires: float | dt.timedelta | None = None,
        expired: object = "deny",
        approvals: int = 1,
        not_by: str | Iterable[str] | None = None,
        escalate: Escalate | None = None,
        key: str | None = None,
    ) -> Call[object]:
        """Wait for an answer from a person; see `Run.ask`."""

        def plan(exe: Execution, scope: Scope) -> Plan[object]:
            spec = AskSpec(prompt=prompt, fields=fields, show=show, who=who, expires=expires, expired=expired, key=key)
            spec.set_rules(approvals, not_by, escalate)
            return gates.ask(exe, scope, spec)

        return UnawaitedCall(self, "ask", prompt, plan, (show,))

    @overload
    def map(
        self, fn: Callable[[T], Awaitable[R]], items: Iterable[T], **options: Unpack[MapOptions]
    ) -> Call[list[R]]: ...
    @overload
    def map(self, fn: Callable[[T], R], items: Iterable[T], **options: Unpack[MapOptions]) -> Call[list[R]]: ...
    @overload
    def map(
        self, fn: Callable[[T], Awaitable[R]], items: Iterable[T], **options: Unpack[MapAllOptions]
    ) -> Call[list[R | Exception]]: ...
    @overload
    def map(
        self, fn: Callable[[T], R], items: Iterable[T], **options: Unpack[MapAllOptions]
    ) -> Call[list[R | Exception]]: ...
    def map(
        self,
        fn: UserFunction,
        items: Iterable[object],
        *,
        limit: int | None = None,
        name: str | None = None,
        key: str | None = None,
        retry: RetryLike = None,
        timeout: float | None = None,
        return_exceptions: bool = False,
    ) -> Call[object]:
        """Call a function for each item, in parallel, each as a step; see `Run.map`."""

        def plan(exe: Execution, scope: Scope) -> Plan[object]:
            spec = step_spec(fn, name=name, retry=retry, timeout=timeout)
            how = parallel.ParallelSpec(limit, key, return_exceptions)
            return parallel.map_items(exe, scope, spec, items, how)

        return UnawaitedCall(self, "map", fn, plan, items if isinstance(items, list | tuple) else (items,))

    @overload
    def gather(
        self, *branches: Callable[[AsyncRun], Awaitable[R]], **options: Unpack[GatherOptions]
    ) -> Call[list[R]]: ...
    @overload
    def gather(
        self, *branches: Callable[[AsyncRun], Awaitable[R]], **options: Unpack[GatherAllOptions]
    ) -> Call[list[R | Exception]]: ...
    def gather(
        self,
        *branches: Callable[[AsyncRun], object],
        limit: int | None = None,
        key: str | None = None,
        return_exceptions: bool = False,
    ) -> Call[object]:
        """Execute several branches in parallel; see `Run.gather`."""

        def plan(exe: Execution, scope: Scope) -> Plan[object]:
            return parallel.gather(exe, scope, branches, parallel.ParallelSpec(limit, key, return_exceptions))

        return UnawaitedCall(self, "gather", None, plan)

    def sleep(self, seconds: float | dt.timedelta, *, key: str | None = None) -> Call[None]:
        """Continue after so many seconds; see `Run.sleep`."""

        def plan(exe: Execution, scope: Scope) -> Plan[None]:
            return gates.sleep(exe, scope, gates.seconds_us("sleep", seconds), None, key)

        return UnawaitedCall(self, "sleep", None, plan, (seconds,))

    def sleep_until(self, when: dt.datetime, *, key: str | None = None) -> Call[None]:
        """Continue at a point in time; see `Run.sleep_until`."""

        def plan(exe: Execution, scope: Scope) -> Plan[None]:
            return gates.sleep(exe, scope, None, gates.moment_us(when), key)

        return UnawaitedCall(self, "sleep_until", None, plan, (when,))

    def wait_for(
        self, event: str, *, timeout: float | dt.timedelta | None = None, default: object = None, key: str | None = None
    ) -> Call[Any]:
        """Wait for an event; see `Run.wait_for`."""
        plan = partial(gates.wait_for, event=event, timeout=timeout, default=default, key=key)
        return UnawaitedCall(self, "wait_for", event, plan, (default,))

    def send(self, run_id: str, event: str, value: object = None, *, key: str | None = None) -> Call[None]:
        """Send an event to another run; see `Run.send`."""
        plan = partial(gates.send, target=run_id, event=event, value=value, key=key)
        return UnawaitedCall(self, "send", run_id, plan, (value,))

    @overload
    def child(
        self, workflow: Workflow | str, /, *args: Any, detached: Literal[True], key: str | None = None, **more: Any
    ) -> Call[str]: ...
    @overload
    def child(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...
    @overload
    def child(
        self, workflow: Workflow[..., R], /, *args: Any, key: str | None, detached: Literal[False] = False, **more: Any
    ) -> Call[R]: ...
    @overload
    def child(self, workflow: Workflow[..., R], /, *args: object, enqueue: bool, **more: Any) -> Call[R]: ...
    @overload
    def child(self, workflow: str, /, *args: object, **options: Any) -> Call[Any]: ...
    def child(  # type: ignore[misc]  # these options shadow parameters of the workflow
        self,
        workflow: object,
        /,
        *args: object,
        key: str | None = None,
        detached: bool = False,
        enqueue: bool = False,
        **kwargs: object,
    ) -> Call[object]:
        """Start a child run and return its result; see `Run.child`."""

        def plan(_: Execution, __: Scope) -> Plan[object]:
            return self._plan_child(workflow, args, kwargs, key, detached=detached, enqueue=enqueue)

        return UnawaitedCall(self, "child", workflow, plan, (*args, *kwargs.values()))

    def loop(self, *, key: str | None = None) -> AsyncIterator[int]:
        """The durable loop, for `async for`; see `Run.loop`."""
        return AsyncTurns(self, key)

    def checkpoint(self, *, metadata: dict[str, Any] | None = None, key: str | None = None) -> Call[None]:
        """Save `run.state`; see `Run.checkpoint`."""
        return UnawaitedCall(self, "checkpoint", None, lambda exe, scope: values.checkpoint(exe, scope, metadata, key))

    def transaction(
        self,
        connection: object,
        fn: UserFunction,
        /,
        *args: object,
        name: str | None = None,
        key: str | None = None,
        **kwargs: object,
    ) -> Call[Any]:
        """Call a function in a transaction of your database; see `Run.transaction`. The connection may be async."""

        def plan(exe: Execution, scope: Scope) -> Plan[Any]:
            spec = step_spec(fn, args=args, kwargs=kwargs, name=name, key=key)
            return transactions.transaction(exe, scope, connection, spec, awaiting=True)

        return UnawaitedCall(self, "transaction", fn, plan, (*args, *kwargs.values()))

    def version(self, name: str, number: int) -> Call[int]:
        """The version of a piece of code for this run; see `Run.version`."""
        return UnawaitedCall(self, "version", name, lambda exe, scope: values.version(exe, scope, name, number))

    def now(self) -> Call[dt.datetime]:
        """The current time; see `Run.now`."""
        return UnawaitedCall(self, "now", None, values.now)

    def random(self) -> Call[random.Random]:
        """A random generator; see `Run.random`."""
        return UnawaitedCall(self, "random", None, values.random)

    def uuid(self) -> Call[uuid.UUID]:
        """A new UUID; see `Run.uuid`."""
        return UnawaitedCall(self, "uuid", None, values.uuid)

    def log(self, message: str, *, level: str = "info", **data: object) -> Call[None]:
        """Write a log line to the journal, once; see `Run.log`."""

        def plan(exe: Execution, scope: Scope) -> Plan[None]:
            yield from values.log(exe, scope, message, level, data)

        return UnawaitedCall(self, "log", message, plan, (message, *data.values()))
