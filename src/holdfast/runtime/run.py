"""`Run`, the first argument of a `def` workflow."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, overload

from holdfast.drivers import Plan
from holdfast.engine import effects, gates, parallel, steps
from holdfast.engine import recorded_values as values
from holdfast.engine.approvals import Escalate
from holdfast.engine.commands import UserFunction
from holdfast.engine.effect_outcome import EffectSpec
from holdfast.engine.failures import Classifier, classifier_of
from holdfast.engine.gates import AskSpec
from holdfast.engine.scope import Scope
from holdfast.engine.steps import step_spec
from holdfast.runtime import transactions
from holdfast.runtime.loop_turns import Turns
from holdfast.runtime.run_base import (
    AskOptions,
    DoubtPolicy,
    Errors,
    GatherAllOptions,
    GatherOptions,
    MapAllOptions,
    MapOptions,
    RetryLike,
    RunBase,
)

if TYPE_CHECKING:
    from holdfast.runtime.blocking_driver import BlockingAppDriver
    from holdfast.runtime.interpreter import Interpreter
    from holdfast.runtime.registry import Workflow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Run(RunBase):
    """The first argument of a `def` workflow.

    A resumed run does not repeat what is recorded (steps, effects, answers …), but it does repeat the plain Python in
    between. So code that reads the outside world or must not be repeated belongs in a step or an effect.

    Example:
        @app.workflow
        def greet(run, name):
            return run.step(str.upper, name)

        app.start(greet, "ana").result()
    """

    def __init__(self, driver: BlockingAppDriver, interpreter: Interpreter, scope: Scope) -> None:
        super().__init__(interpreter, scope)
        self._driver = driver

    def drive(self, plan: Plan[R], /) -> R:
        """Execute a plan of the engine, for code that adds its own kinds of calls; see `engine.execution`.

        Example:
            from holdfast.engine.recorded_values import now
            moment = run.drive(now(run.execution, run.scope))
        """
        self._check_waiting(acts=True)
        threads, me = self._interpreter.threads, get_ident()
        threads[me] = threads.get(me, 0) + 1
        try:
            return self._driver.run(self._interpreter.translate(plan))
        finally:
            threads[me] -= 1

    @overload
    def step(self, fn: Callable[..., Awaitable[R]], /, *args: object, **options: Any) -> R: ...
    @overload
    def step(self, fn: Callable[..., R], /, *args: object, **options: Any) -> R: ...
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
    ) -> object:
        """Call a function and record its result. A resumed run returns the record and does not call the function.

        The function's name and the number of its calls so far identify the step, or `key` does. `retry` is a `Retry`
        or a number of attempts; `timeout` is in seconds. StepFailed reports what the function raised. Its return
        annotation names the type of the result: a dataclass, msgspec Struct, Pydantic model or enum is restored.

        Example:
            total = run.step(sum, [1, 2, 3], retry=3)
        """
        spec = step_spec(fn, args=args, kwargs=kwargs, name=name, key=key, retry=retry, timeout=timeout)
        return self.drive(steps.step(self.execution, self.scope, spec))

    @overload
    def effect(self, fn: Callable[..., Awaitable[R]], /, *args: object, **options: Any) -> R: ...
    @overload
    def effect(self, fn: Callable[..., R], /, *args: object, **options: Any) -> R: ...
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
    ) -> object:
        """Change the outside world: record the intent, call the function, record the outcome.

        The effect is in doubt if the process dies in between, `timeout` passes, or the function raises an error that
        leaves open whether it happened. Then `check(*args)` returns `Happened(result)` or `DidNotHappen`, or raises.
        Without its answer `in_doubt` decides: "ask" a person (one of `ask_who`, if given), "retry" (you declare it
        idempotent), or "fail" with EffectInDoubt. A parameter `idempotency_key` of the function or of `check` gets a
        key that stays the same for this effect. A rollback calls the `undo` function, see `@app.undo`, with the result
        and the arguments.
        What an exception proves is decided by `classify(error)`, which returns "not_done", "doubtful" or None, then by
        the exception types in `not_done` and `doubtful`, then by the app's `classify`, then by a built-in table:
        timeouts, broken connections, cancellation, `sys.exit()`, 5xx answers and `holdfast.InDoubt` leave it open;
        refused connections, unknown hosts and 4xx answers (except 408, 409, 499) prove that nothing happened. Any other
        exception counts as not having happened (EffectFailed), but does not prove it. `retry` repeats the call after an
        exception with proof; after others only if the function takes an `idempotency_key`, or with `in_doubt="retry"`
        (at most three attempts without `retry`). A restart after a crash does not count as an attempt.

        Example:
            receipt = run.effect(print, "paid", in_doubt="retry", not_done=(ValueError,))
        """
        spec = step_spec(fn, args=args, kwargs=kwargs, name=name, key=key, retry=retry, timeout=timeout)
        options = EffectSpec(undo=undo, in_doubt=in_doubt, ask_who=ask_who, check=check, target=target, tool=spec.name)
        options.classify = classifier_of(not_done, doubtful, classify)
        return self.drive(effects.effect(self.execution, self.scope, spec, options))

    @overload
    def ask(self, prompt: str, fields: type[T], **options: Unpack[AskOptions]) -> T: ...
    @overload
    def ask(self, prompt: str, fields: dict[str, Any], **options: Unpack[AskOptions]) -> dict[str, Any]: ...
    @overload
    def ask(self, prompt: str, fields: object = None, **options: Unpack[AskOptions]) -> Any: ...
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
    ) -> object:
        """Wait for an answer from a person. Meanwhile the run holds no resources, and the process may end.

        `fields` describes the answer: a dict of types, a dataclass, a Pydantic model, a JSON Schema or one type.
        `who` names the persons and groups (`group:finance`) that may answer, `not_by` those that may not. `escalate` is
        a list of (seconds, who): after that time these may answer as well. With `approvals=n`, n different persons must
        say yes in the first yes/no field; a "no" decides at once. The deciding answer is returned.

        After `expires` seconds the gate is denied (yes/no fields False, others default or empty; a field that allows
        neither is refused), fails (`expired="fail"`), or takes that answer.

        Example:
            answer = run.ask("Send it?", {"send": bool}, show={"to": "ana"}, expires=86400)
            answer = run.ask("Pay it?", {"pay": bool}, who="group:finance", not_by="ana", escalate=[(3600, "ben")])
        """
        spec = AskSpec(prompt=prompt, fields=fields, show=show, who=who, expires=expires, expired=expired, key=key)
        spec.set_rules(approvals, not_by, escalate)
        return self.drive(gates.ask(self.execution, self.scope, spec))

    @overload
    def map(self, fn: Callable[[T], Awaitable[R]], items: Iterable[T], **options: Unpack[MapOptions]) -> list[R]: ...
    @overload
    def map(self, fn: Callable[[T], R], items: Iterable[T], **options: Unpack[MapOptions]) -> list[R]: ...
    @overload
    def map(
        self, fn: Callable[[T], Awaitable[R]], items: Iterable[T], **options: Unpack[MapAllOptions]
    ) -> list[R | Exception]: ...
    @overload
    def map(
        self, fn: Callable[[T], R], items: Iterable[T], **options: Unpack[MapAllOptions]
    ) -> list[R | Exception]: ...
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
    ) -> object:
        """Call a function for each item, in parallel, each as a step; return the results in order.

        If some fail, the error of the first is raised when all have ended. With `return_exceptions=True` the list
        contains the error, a StepFailed, in place of each missing result.

        Example:
            sizes = run.map(len, ["a", "bb", "ccc"], limit=8)
        """
        spec = step_spec(fn, name=name, retry=retry, timeout=timeout)
        how = parallel.ParallelSpec(limit, key, return_exceptions)
        return self.drive(parallel.map_items(self.execution, self.scope, spec, items, how))

    @overload
    def gather(self, *branches: Callable[[Run], R], **options: Unpack[GatherOptions]) -> list[R]: ...
    @overload
    def gather(self, *branches: Callable[[Run], R], **options: Unpack[GatherAllOptions]) -> list[R | Exception]: ...
    def gather(
        self,
        *branches: Callable[[Run], object],
        limit: int | None = None,
        key: str | None = None,
        return_exceptions: bool = False,
    ) -> object:
        """Execute several branches in parallel, each with its own `Run`; return the results in order.

        With `return_exceptions=True` the list contains what a branch raised in place of its result. Branches that wait
        or are cancelled still stop the run.

        Example:
            both = run.gather(lambda r: r.step(len, "a"), lambda r: r.step(len, "bb"))
        """
        how = parallel.ParallelSpec(limit, key, return_exceptions)
        return self.drive(parallel.gather(self.execution, self.scope, branches, how))

    def sleep(self, seconds: float | dt.timedelta, *, key: str | None = None) -> None:
        """Continue after so many seconds. A longer sleep than a second holds no resources.

        Example:
            run.sleep(0.01)
        """
        self.drive(gates.sleep(self.execution, self.scope, gates.seconds_us("sleep", seconds), None, key))

    def sleep_until(self, when: dt.datetime, *, key: str | None = None) -> None:
        """Continue at a point in time, given with its time zone.

        Example:
            run.sleep_until(run.now())
        """
        self.drive(gates.sleep(self.execution, self.scope, None, gates.moment_us(when), key))

    def wait_for(
        self, event: str, *, timeout: float | dt.timedelta | None = None, default: object = None, key: str | None = None
    ) -> Any:
        """Wait for an event sent by `app.send` or another run's `send`; return its value, or `default` on timeout.

        Example:
            parcel = run.wait_for("shipped", timeout=86400)
        """
        return self.drive(gates.wait_for(self.execution, self.scope, event, timeout, default, key))

    def send(self, run_id: str, event: str, value: object = None, *, key: str | None = None) -> None:
        """Send an event to another run.

        Example:
            run.send("order-18", "shipped", {"parcel": 3})
        """
        self.drive(gates.send(self.execution, self.scope, run_id, event, value, key))

    @overload
    def child(
        self, workflow: Workflow | str, /, *args: Any, detached: Literal[True], key: str | None = None, **more: Any
    ) -> str: ...
    @overload
    def child(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def child(
        self, workflow: Workflow[..., R], /, *args: Any, key: str | None, detached: Literal[False] = False, **more: Any
    ) -> R: ...
    @overload
    def child(self, workflow: Workflow[..., R], /, *args: object, enqueue: bool, **more: Any) -> R: ...
    @overload
    def child(self, workflow: str, /, *args: object, **options: Any) -> Any: ...
    def child(  # type: ignore[misc]  # these options shadow parameters of the workflow
        self,
        workflow: object,
        /,
        *args: object,
        key: str | None = None,
        detached: bool = False,
        enqueue: bool = False,
        **kwargs: object,
    ) -> object:
        """Start a child run and return its result. It has its own journal, and is cancelled together with this run.

        The result has the type that the child's return annotation names. With `detached=True` its id is returned at
        once, and it is independent of this run. With `enqueue=True` a worker executes it, possibly of another program;
        without, a name that this app has not registered raises UnknownWorkflow.

        Example:
            text = run.child(greet, "ana")
        """
        return self.drive(self._plan_child(workflow, args, kwargs, key, detached=detached, enqueue=enqueue))

    def loop(self, *, key: str | None = None) -> Iterator[int]:
        """Loop durably: each turn ends with a checkpoint of `run.state`, and finished turns are never replayed.

        Values that must survive a turn belong in `run.state`. Leave the loop with `break` or `return`.

        Example:
            for turn in run.loop():
                run.state["turns"] = turn
                if turn == 3:
                    break
        """
        return Turns(self, self.drive(parallel.begin(self.execution, self.scope, key)))

    def checkpoint(self, *, metadata: dict[str, Any] | None = None, key: str | None = None) -> None:
        """Save `run.state`, for history, rollback and fork. It does not shorten a replay; `loop` does.

        Example:
            run.checkpoint()
        """
        self.drive(values.checkpoint(self.execution, self.scope, metadata, key))

    def transaction(
        self,
        connection: object,
        fn: UserFunction,
        /,
        *args: object,
        name: str | None = None,
        key: str | None = None,
        **kwargs: object,
    ) -> Any:
        """Call `fn(connection, *args)` in a transaction of your database, exactly once.

        The same transaction records the outcome in a table `holdfast_outcomes`, which is read after a crash or a broken
        connection. For connections of sqlite3, apsw and psycopg; those on one connection run one after another.

        Example:
            rows = run.transaction(sqlite3.connect("shop.db"), lambda db: db.execute("SELECT 1").fetchall())
        """
        spec = step_spec(fn, args=args, kwargs=kwargs, name=name, key=key)
        return self.drive(transactions.transaction(self.execution, self.scope, connection, spec))

    def version(self, name: str, number: int) -> int:
        """The version of a piece of code for this run: `number` for runs that reach it now, 0 for older ones.

        Example:
            if run.version("ask the boss", 1):
                ...
        """
        return self.drive(values.version(self.execution, self.scope, name, number))

    def now(self) -> dt.datetime:
        """The current time in UTC, recorded: a replay returns the same.

        Example:
            started = run.now()
        """
        return self.drive(values.now(self.execution, self.scope))

    def random(self) -> random.Random:
        """A random generator with a recorded seed: a replay returns the same numbers.

        Example:
            dice = run.random().randint(1, 6)
        """
        return self.drive(values.random(self.execution, self.scope))

    def uuid(self) -> uuid.UUID:
        """A new UUID, recorded: a replay returns the same.

        Example:
            order = str(run.uuid())
        """
        return self.drive(values.uuid(self.execution, self.scope))

    def log(self, message: str, *, level: str = "info", **data: object) -> None:
        """Write a log line to the journal, once. Code may add and remove log lines without affecting older runs.

        Example:
            run.log("priced", order="A-17")
        """
        self.drive(values.log(self.execution, self.scope, message, level, data))
