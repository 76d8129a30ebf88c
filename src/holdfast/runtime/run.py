"""The run as a workflow sees it. `Run` for `def` workflows, `AsyncRun` for `async def`: the same names, to await."""

from __future__ import annotations

import datetime as dt
import random
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from holdfast.engine import loops
from holdfast.engine.commands import Plan
from holdfast.engine.scope import Scope
from holdfast.engine.verdicts import Classifier
from holdfast.runtime import calls, transactions

if TYPE_CHECKING:
    from holdfast.runtime.blocking import BlockingDriver
    from holdfast.runtime.carrier import Carrier
    from holdfast.runtime.registry import Workflow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
DoubtPolicy = Literal["ask", "retry", "fail"]
Errors = type[BaseException] | tuple[type[BaseException], ...]


class RunBase:
    """The facts of a run, and its state."""

    def __init__(self, carrier: Carrier, scope: Scope) -> None:
        self._carrier = carrier
        self._exe = carrier.exe
        self._scope = scope

    def _check_waiting(self, *, acts: bool) -> None:
        """Stop a call that is made because the run waits: in a `finally` block, or by code that swallowed Suspended.

        `acts`: it touches other runs or the world. Others may be made beside a call with a key that waits.
        """
        self._exe.check_unwinding(sys.exc_info()[1])
        if acts and self._scope.parked is not None:
            raise self._scope.parked

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._exe.run_id

    @property
    def attempt(self) -> int:
        """How many times the run was taken up, from 1: it grows with every resume."""
        return self._exe.attempt

    @property
    def state(self) -> dict[str, Any]:
        """The run's own dict. It is saved by `checkpoint`, at the end of a loop's turn, and when the run waits."""
        return self._exe.state


class Run(RunBase):
    """What a `def` workflow gets as its first argument.

    What is recorded (steps, effects, answers …) is not done again when the run is resumed; the plain Python in between
    is. So whatever reads the outside world or must not be repeated belongs into a step or an effect.

    Example:
        @app.workflow
        def greet(run, name):
            return run.step(str.upper, name)

        app.start(greet, "ana").result()
    """

    def __init__(self, driver: BlockingDriver, carrier: Carrier, scope: Scope) -> None:
        super().__init__(carrier, scope)
        self._driver = driver

    def _do(self, plan: Plan[R]) -> R:
        self._check_waiting(acts=True)
        return self._driver.run(self._carrier.carry(plan), self._carrier)

    @overload
    def step(self, fn: Callable[..., Awaitable[R]], /, *args: Any, **options: Any) -> R: ...
    @overload
    def step(self, fn: Callable[..., R], /, *args: Any, **options: Any) -> R: ...
    def step(
        self, fn: Callable[..., Any], /, *args: Any, name: str | None = None, key: str | None = None,
        retry: Any = None, timeout: float | None = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Call a function and record its result; on resume the record is returned and the function not called.

        It is named by the function's name and how often that was called, or by `key`. `retry` is a `Retry` or a number
        of attempts, `timeout` seconds. What it raises comes as StepFailed. The return annotation says which type the
        result has: a dataclass, msgspec Struct, Pydantic model or enum comes back as such.

        Example:
            total = run.step(sum, [1, 2, 3], retry=3)
        """
        return self._do(calls.step(self._exe, self._scope, fn, args, kwargs, name, key, retry, timeout))

    @overload
    def effect(self, fn: Callable[..., Awaitable[R]], /, *args: Any, **options: Any) -> R: ...
    @overload
    def effect(self, fn: Callable[..., R], /, *args: Any, **options: Any) -> R: ...
    def effect(
        self, fn: Callable[..., Any], /, *args: Any, name: str | None = None, key: str | None = None,
        retry: Any = None, timeout: float | None = None, undo: Callable[..., Any] | str | None = None,
        in_doubt: DoubtPolicy = "ask", check: Callable[..., Any] | None = None, target: str | None = None,
        not_done: Errors = (), doubtful: Errors = (), classify: Classifier | None = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Touch the world: record the intent, call the function, record the outcome.

        The effect is in doubt if the process dies in between, if `timeout` passes, or if the function raises something
        that leaves open whether it happened. Then `check(*args)` is asked: it returns `Happened(result)` or
        `DidNotHappen`, or raises. Without an answer `in_doubt` decides: "ask" a person, "retry" (you declare it
        idempotent), or "fail" with EffectInDoubt. A function with a parameter `idempotency_key` gets one that stays
        the same for this effect, and so does `check`. `undo` names a function registered with `@app.undo`;
        a rollback calls it with the result and the arguments.

        What an exception proves is decided by `classify(error)`, which returns "not_done", "doubtful" or None, then by
        the exception types in `not_done` and `doubtful`, then by the app's `classify`, then by a built-in table:
        timeouts, broken connections, cancellation, `sys.exit()`, 5xx answers and `holdfast.InDoubt` leave it open;
        refused connections, unknown hosts and 4xx answers (except 408, 409, 499) prove that nothing happened. An
        exception that is none of these counts as not having happened (EffectFailed), but does not prove it.

        `retry` tries again after an exception that proves that nothing happened. After any other it needs a function
        that takes an `idempotency_key`, or `in_doubt="retry"`; without `retry` the latter makes three tries at most. A
        restart after a crash does not count as a try.

        Example:
            receipt = run.effect(print, "paid", in_doubt="retry", not_done=(ValueError,))
        """
        plan = calls.effect(
            self._exe, self._scope, fn, args, kwargs, name, key, retry, timeout, undo, in_doubt, check, target,
            not_done=not_done, doubtful=doubtful, classify=classify,
        )  # fmt: skip
        return self._do(plan)

    @overload
    def ask(
        self, prompt: str, fields: type[T], *, show: Any = None, who: Any = None,
        expires: float | dt.timedelta | None = None, expired: Any = "deny", key: str | None = None,
    ) -> T: ...  # fmt: skip
    @overload
    def ask(
        self, prompt: str, fields: dict[str, Any], *, show: Any = None, who: Any = None,
        expires: float | dt.timedelta | None = None, expired: Any = "deny", key: str | None = None,
    ) -> dict[str, Any]: ...  # fmt: skip
    @overload
    def ask(
        self, prompt: str, fields: Any = None, *, show: Any = None, who: Any = None,
        expires: float | dt.timedelta | None = None, expired: Any = "deny", key: str | None = None,
    ) -> Any: ...  # fmt: skip
    def ask(
        self, prompt: str, fields: Any = None, *, show: Any = None, who: Any = None,
        expires: float | dt.timedelta | None = None, expired: Any = "deny", key: str | None = None,
    ) -> Any:  # fmt: skip
        """Stop for an answer from a person. The run waits, nothing is held, and the process may end.

        `fields` says what an answer has: a dict of types, a dataclass, a Pydantic model, a JSON Schema or one type.
        After `expires` seconds the gate counts as denied (every yes/no field False, the others their default or
        empty; a field for which neither fits is refused), as `expired="fail"`, or as the answer given there.
        `who` names those who may answer.

        Example:
            answer = run.ask("Send it?", {"send": bool}, show={"to": "ana"}, expires=86400)
        """
        return self._do(calls.ask(self._exe, self._scope, prompt, fields, show, who, expires, expired, key))

    @overload
    def map(
        self, fn: Callable[[T], Awaitable[R]], items: Iterable[T], *, return_exceptions: Literal[False] = False,
        limit: int | None = None, name: str | None = None, key: str | None = None, retry: Any = None,
        timeout: float | None = None,
    ) -> list[R]: ...  # fmt: skip
    @overload
    def map(
        self, fn: Callable[[T], R], items: Iterable[T], *, return_exceptions: Literal[False] = False,
        limit: int | None = None, name: str | None = None, key: str | None = None, retry: Any = None,
        timeout: float | None = None,
    ) -> list[R]: ...  # fmt: skip
    @overload
    def map(
        self, fn: Callable[[T], Awaitable[R]], items: Iterable[T], *, return_exceptions: Literal[True],
        limit: int | None = None, name: str | None = None, key: str | None = None, retry: Any = None,
        timeout: float | None = None,
    ) -> list[R | Exception]: ...  # fmt: skip
    @overload
    def map(
        self, fn: Callable[[T], R], items: Iterable[T], *, return_exceptions: Literal[True],
        limit: int | None = None, name: str | None = None, key: str | None = None, retry: Any = None,
        timeout: float | None = None,
    ) -> list[R | Exception]: ...  # fmt: skip
    def map(
        self, fn: Callable[..., Any], items: Iterable[Any], *, limit: int | None = None, name: str | None = None,
        key: str | None = None, retry: Any = None, timeout: float | None = None, return_exceptions: bool = False,
    ) -> list[Any]:  # fmt: skip
        """Call a function for each item, side by side, each as a step; the results in order.

        If some fail, the error of the first is raised when all have ended. With `return_exceptions=True` the list has
        the error, a StepFailed, in the place of each result that is missing.

        Example:
            sizes = run.map(len, ["a", "bb", "ccc"], limit=8)
        """
        plan = calls.map_items(
            self._exe, self._scope, fn, items, limit, name, key, retry, timeout, return_exceptions
        )  # fmt: skip
        return self._do(plan)

    @overload
    def gather(
        self, *branches: Callable[[Run], R], return_exceptions: Literal[False] = False, limit: int | None = None,
        key: str | None = None,
    ) -> list[R]: ...  # fmt: skip
    @overload
    def gather(
        self, *branches: Callable[[Run], R], return_exceptions: Literal[True], limit: int | None = None,
        key: str | None = None,
    ) -> list[R | Exception]: ...  # fmt: skip
    def gather(
        self, *branches: Callable[[Run], Any], limit: int | None = None, key: str | None = None,
        return_exceptions: bool = False,
    ) -> list[Any]:  # fmt: skip
        """Do several lines of work side by side; each gets a run of its own. The results in order.

        With `return_exceptions=True` the list has what a branch raised in the place of its result. Branches that wait
        or are cancelled still stop the run.

        Example:
            both = run.gather(lambda r: r.step(len, "a"), lambda r: r.step(len, "bb"))
        """
        return self._do(calls.gather(self._exe, self._scope, branches, limit, key, return_exceptions))

    def sleep(self, seconds: float | dt.timedelta, *, key: str | None = None) -> None:
        """Go on after so many seconds. For more than a second nothing is held meanwhile.

        Example:
            run.sleep(0.01)
        """
        self._do(calls.sleep(self._exe, self._scope, seconds, key))

    def sleep_until(self, when: dt.datetime, *, key: str | None = None) -> None:
        """Go on at a moment, given with its time zone.

        Example:
            run.sleep_until(run.now())
        """
        self._do(calls.sleep_until(self._exe, self._scope, when, key))

    def wait_for(
        self, event: str, *, timeout: float | dt.timedelta | None = None, default: Any = None, key: str | None = None
    ) -> Any:
        """Wait for an event sent by `app.send` or another run's `send`; its value, or `default` if it is late.

        Example:
            parcel = run.wait_for("shipped", timeout=86400)
        """
        return self._do(calls.wait_for(self._exe, self._scope, event, timeout, default, key))

    def send(self, run_id: str, event: str, value: Any = None, *, key: str | None = None) -> None:
        """Send an event to another run.

        Example:
            run.send("order-18", "shipped", {"parcel": 3})
        """
        self._do(calls.send(self._exe, self._scope, run_id, event, value, key))

    @overload
    def child(
        self, workflow: Workflow[..., Any] | str, /, *args: Any, detached: Literal[True], key: str | None = None,
        enqueue: bool = False, **kwargs: Any,
    ) -> str: ...  # fmt: skip
    @overload
    def child(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def child(
        self, workflow: Workflow[..., R], /, *args: Any, key: str | None, detached: Literal[False] = False,
        enqueue: bool = False, **kwargs: Any,
    ) -> R: ...  # fmt: skip
    @overload
    def child(self, workflow: str, /, *args: Any, **options: Any) -> Any: ...
    def child(  # type: ignore[misc]  # options are taken before what is the workflow's
        self, workflow: Any, /, *args: Any, key: str | None = None, detached: bool = False,
        enqueue: bool = False, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Start a child run and return its result. It has its own journal; if this run is cancelled, so is it.

        The result has the type that the child's return annotation names. With `detached=True` its id is returned at
        once and it is on its own. With `enqueue=True` a worker executes it, perhaps of another program; without, a name
        that this app has not registered is an UnknownWorkflow.

        Example:
            text = run.child(greet, "ana")
        """
        return self._do(calls.child(self._carrier, self._scope, workflow, args, kwargs, key, detached, enqueue))

    def loop(self, *, key: str | None = None) -> Iterator[int]:
        """The durable loop: each turn ends with a checkpoint of `run.state`, and finished turns are never replayed.

        What must survive a turn belongs into `run.state`. Leave it with `break` or `return`.

        Example:
            for turn in run.loop():
                run.state["turns"] = turn
                if turn == 3:
                    break
        """
        loop = self._do(loops.begin(self._exe, self._scope, key))
        return _Turns(self, loop)

    def checkpoint(self, *, metadata: dict[str, Any] | None = None, key: str | None = None) -> None:
        """Save `run.state`, for history, rollback and fork. It does not shorten a replay; `loop` does.

        Example:
            run.checkpoint()
        """
        self._do(calls.checkpoint(self._exe, self._scope, metadata, key))

    def transaction(
        self, connection: Any, fn: Callable[..., Any], /, *args: Any, name: str | None = None, key: str | None = None,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Call `fn(connection, *args)` in a transaction of your database, exactly once.

        The outcome is recorded in that very transaction, in a table `holdfast_outcomes`, so after a crash that table
        tells whether it happened. If the connection breaks while it commits, the table is read on a fresh one. For
        connections of sqlite3, apsw and psycopg; on one connection they are done one after another.

        Example:
            rows = run.transaction(sqlite3.connect("shop.db"), lambda db: db.execute("SELECT 1").fetchall())
        """
        return self._do(transactions.plan(self._exe, self._scope, connection, fn, args, kwargs, name, key))

    def version(self, name: str, number: int) -> int:
        """Which version of a piece of code this run takes: `number` for runs that come here first, 0 for older ones.

        Example:
            if run.version("ask the boss", 1):
                ...
        """
        return self._do(calls.version(self._exe, self._scope, name, number))

    def now(self) -> dt.datetime:
        """The time, in UTC; a replay gives the same.

        Example:
            started = run.now()
        """
        return self._do(calls.now(self._exe, self._scope))

    def random(self) -> random.Random:
        """A source of chance; a replay gives the same.

        Example:
            dice = run.random().randint(1, 6)
        """
        return self._do(calls.random(self._exe, self._scope))

    def uuid(self) -> uuid.UUID:
        """A new UUID; a replay gives the same.

        Example:
            order = str(run.uuid())
        """
        return self._do(calls.uuid(self._exe, self._scope))

    def log(self, message: str, *, level: str = "info", **data: Any) -> None:
        """Note a line in the journal, once. Log lines may be added and removed without harm to older runs.

        Example:
            run.log("priced", order="A-17")
        """
        self._do(calls.log(self._exe, self._scope, message, level, data))


class _Turns(Iterator[int]):
    """The turns of a loop. While one runs, the run's calls belong to it; after `break` they stay with the last one."""

    def __init__(self, run: Run, loop: loops.Loop) -> None:
        self._run = run
        self._loop = loop
        self._begun = False

    def __next__(self) -> int:
        run = self._run
        if self._begun:
            run._do(loops.end_turn(run._exe, self._loop))
        self._begun = True
        run._scope = self._loop.scope
        return self._loop.turn
