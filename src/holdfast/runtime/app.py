"""`App`: registers workflows, starts their runs and controls them from outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload

from holdfast import fork_safety
from holdfast.drivers import Plan, forbid_in_loop
from holdfast.engine.commands import UserFunction
from holdfast.engine.failures import Classifier, check_classifier
from holdfast.engine.gates import seconds_us
from holdfast.errors import InvalidInput
from holdfast.model.views import GateInfo, RollbackPlan, RunList
from holdfast.open_store import open as open_store
from holdfast.operations.claims import lease_us_of
from holdfast.operations.store import Store
from holdfast.runtime import control, rollback
from holdfast.runtime import fork as branching
from holdfast.runtime.app_core import LEASE_S, AppCore
from holdfast.runtime.blocking_driver import BlockingAppDriver
from holdfast.runtime.execute import run_until_idle, start_run
from holdfast.runtime.graph_workflows import Declaring
from holdfast.runtime.handle import Handle
from holdfast.runtime.registry import Upgrade, Workflow, WorkflowDecorator
from holdfast.runtime.run_base import RetryLike
from holdfast.runtime.start import Claimed
from holdfast.runtime.worker import Worker

if TYPE_CHECKING:
    from holdfast.runtime.async_app import AsyncApp
    from holdfast.runtime.async_run import AsyncRun
    from holdfast.runtime.run import Run

P = ParamSpec("P")
R = TypeVar("R")
Effects = Literal["reuse", "perform", "ask"]
Metadata = dict[str, Any]


class App(Declaring):
    """Workflows on a store. `App("sqlite:runs.db")`, or an open store.

    Its methods block; `app.aio` has the same methods to await. `start` and `answer` execute the run in the calling
    process until it next waits or ends; with `enqueue=True` they only commit, and a worker executes the run.
    `classify` decides what exceptions prove about the effects that raised them; see `Run.effect`.

    Example:
        app = holdfast.App("memory:")

        @app.workflow
        def refund(run, order):
            answer = run.ask("Refund?", {"approve": bool})
            return f"{order}: {answer['approve']}"

        app.start(refund, "A-17", run_id="order-17")
        app.answer("order-17", {"approve": True}, by="ana").result()
    """

    def __init__(
        self,
        store: str | Store,
        *,
        lease_s: float = LEASE_S,
        cleanup_s: float = 30.0,
        branches: int = 8,
        classify: Classifier | None = None,
    ) -> None:
        lease_us_of(lease_s)
        seconds_us("cleanup_s", cleanup_s)
        if type(branches) is not int or branches < 1:
            raise InvalidInput(f"branches must be 1 or more, not {branches!r}")
        check_classifier(classify)
        self._owns_store = isinstance(store, str)
        self.store: Store = open_store(store) if isinstance(store, str) else store
        if not isinstance(self.store, Store):
            raise InvalidInput(f"App takes a store's URL or an open store, not {store!r}")
        self._core = AppCore(self.store, lease_s=lease_s, cleanup_s=cleanup_s, branches=branches, classify=classify)
        self._driver = self._core.blocking = BlockingAppDriver(self._core)
        self._aio: AsyncApp | None = None

    @property
    def aio(self) -> AsyncApp:
        """The same app for awaiting callers."""
        if self._aio is None:
            with fork_safety.loading:
                from holdfast.runtime.async_app import AsyncApp  # loads asyncio

                self._aio = self._aio or AsyncApp(self)
        return self._aio

    @overload
    def workflow(self, fn: Callable[Concatenate[AsyncRun, P], Awaitable[R]]) -> Workflow[P, R]: ...
    @overload
    def workflow(self, fn: Callable[Concatenate[Run, P], R]) -> Workflow[P, R]: ...
    @overload  # see WorkflowDecorator
    def workflow(  # type: ignore[overload-cannot-match]
        self, fn: Callable[Concatenate[AsyncRun, ...], Awaitable[R]]
    ) -> Workflow[..., R]: ...
    @overload
    def workflow(  # type: ignore[overload-cannot-match]
        self, fn: Callable[Concatenate[Run, ...], R]
    ) -> Workflow[..., R]: ...
    @overload
    def workflow(self, *, name: str | None = None, version: int = 1, retry: RetryLike = None) -> WorkflowDecorator: ...
    def workflow(
        self, fn: UserFunction | None = None, *, name: str | None = None, version: int = 1, retry: RetryLike = None
    ) -> object:
        """Register a workflow, under its function's name or `name`.

        `version` is the version of its state; `retry` applies to its steps that have no `retry` of their own.

        Example:
            @app.workflow(name="triage", version=2, retry=3)
            def triage_ticket(run, ticket):
                return run.step(len, ticket)
        """
        add = self._core.registry.add_workflow
        return (lambda fn: add(fn, name, version, retry)) if fn is None else add(fn, name, version, retry)

    def upgrade(self, workflow: object, version: int) -> Callable[[Upgrade], Upgrade]:
        """Register a function that upgrades a workflow's state from `version` to the next version.

        Example:
            @app.upgrade("triage", 1)
            def with_tags(state):
                return {**state, "tags": []}
        """

        def register(fn: Upgrade) -> Upgrade:
            self._core.registry.find(workflow).upgrades[version] = fn
            return fn

        return register

    def knows(self, workflow: str) -> bool:
        """Whether a workflow of that name is registered, so that its runs can be executed here.

        Example:
            app.knows("triage")
        """
        return self._core.known(workflow) is not None

    def _run(self, name: str, plan: Plan[R]) -> R:
        forbid_in_loop(name)
        return self._driver.run(plan)

    def _advance(self, claimed: Claimed | None, *, once: bool = False) -> None:
        """Execute the run until it waits or ends, then the runs it woke."""
        if claimed is not None:
            self._driver.run(run_until_idle(self._core, claimed, once=once))

    def _control(self, name: str, run_id: str, plan: Plan[tuple[object, Claimed | None]], *, enqueue: bool) -> Handle:
        """Execute a plan that changes a run, then the run itself if the plan claimed it."""
        _, claimed = self._run(name, plan)
        self._advance(claimed, once=enqueue)
        return Handle(self, run_id, only_wait=enqueue)

    @overload
    def start(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...
    @overload
    def start(
        self,
        workflow: Workflow[..., R],
        /,
        *args: object,
        run_id: str | None,
        metadata: Metadata | None = None,
        enqueue: bool = False,
        **kwargs: object,
    ) -> Handle[R]: ...
    @overload
    def start(
        self, workflow: Workflow[..., R], /, *args: Any, metadata: Metadata | None, enqueue: bool = False, **more: Any
    ) -> Handle[R]: ...
    @overload
    def start(self, workflow: Workflow[..., R], /, *args: object, enqueue: bool, **more: Any) -> Handle[R]: ...
    @overload
    def start(self, workflow: str, /, *args: object, **options: Any) -> Handle[Any]: ...
    def start(  # type: ignore[misc]  # these options shadow parameters of the workflow
        self,
        workflow: object,
        /,
        *args: object,
        run_id: str | None = None,
        metadata: Metadata | None = None,
        enqueue: bool = False,
        **kwargs: object,
    ) -> Handle[Any]:
        """Start a run. If `run_id` already exists with the same input, return a handle of that run.

        What the workflow raises is raised by `result()`, never here.

        Example:
            handle = app.start(refund, "A-18", run_id="order-18", metadata={"team": "a"})
            handle.status()
        """
        plan = start_run(self._core, workflow, (args, kwargs), run_id, metadata, here=not enqueue)
        handle_id, claimed = self._run("start", plan)
        self._advance(claimed)
        return Handle(self, handle_id, only_wait=enqueue)

    def handle(self, run_id: str) -> Handle:
        """A run by its id.

        Example:
            app.handle("order-17").status()
        """
        return Handle(self, run_id)

    def answer(
        self, run_id: str, answer: object, *, by: str | None = None, gate: str | None = None, enqueue: bool = False
    ) -> Handle:
        """Answer a gate, from any process. The first answer counts; a second one raises AlreadyAnswered.

        An answer that does not fit raises InvalidAnswer, which lists all problems, and the gate stays open.

        Example:
            app.start(refund, "A-19", run_id="order-19")
            app.answer("order-19", {"approve": False}, by="ana")
        """
        plan = control.answer(self._core, run_id, answer, by, gate, here=not enqueue)
        return self._control("answer", run_id, plan, enqueue=enqueue)

    def send(
        self,
        run_id: str,
        event: str,
        value: object = None,
        *,
        by: str | None = None,
        key: str | None = None,
        enqueue: bool = False,
    ) -> Handle:
        """Send an event to a run, which receives it with `run.wait_for`. A repeated `key` has no effect.

        Example:
            app.send("order-17", "shipped", {"parcel": 3})
        """
        plan = control.send(self._core, run_id, event, value, by, key, here=not enqueue)
        return self._control("send", run_id, plan, enqueue=enqueue)

    def pause(self, run_id: str, *, by: str | None = None, enqueue: bool = False) -> Handle:
        """Ask a run to pause. It stops before its next call; `resume` continues it.

        Example:
            app.pause("order-17")
        """
        plan = control.request(self._core, run_id, "pause", by, here=not enqueue)
        return self._control("pause", run_id, plan, enqueue=enqueue)

    def cancel(self, run_id: str, *, by: str | None = None, enqueue: bool = False) -> Handle:
        """Cancel a run. Its next call raises Cancelled, and its `finally` blocks get `cleanup_s` seconds to end.

        Only a rollback to an earlier position can continue a cancelled run.

        Example:
            app.cancel("order-17")
        """
        plan = control.request(self._core, run_id, "cancel", by, here=not enqueue)
        return self._control("cancel", run_id, plan, enqueue=enqueue)

    def resume(self, run_id: str, *, enqueue: bool = False) -> Handle:
        """Continue a paused run, or one whose process died.

        Example:
            app.resume("order-17")
        """
        plan = control.resume(self._core, run_id, here=not enqueue)
        return self._control("resume", run_id, plan, enqueue=enqueue)

    def retry(self, run_id: str, *, by: str | None = None, enqueue: bool = False) -> Handle:
        """Continue a failed run from the call that failed, after its cause was fixed. All finished work is kept.

        The call that failed is executed again, an effect with the idempotency key it had; an effect in doubt is
        treated as declared; a failed child is retried itself. Raises Conflict if the run has not failed.

        Example:
            @app.workflow
            def convert(run):
                return 6 / rates["eur"]

            rates, handle = {}, app.start(convert, run_id="c-1")
            rates["eur"] = 2
            app.retry("c-1").result()
        """
        claimed = self._run("retry", rollback.retry(self._core, run_id, by, here=not enqueue))
        self._advance(claimed, once=enqueue)
        return Handle(self, run_id, only_wait=enqueue)

    def rollback_plan(self, run_id: str, to: int | str) -> RollbackPlan:
        """What a rollback would do: the effects it undoes, those it cannot undo, and what it takes back.

        Example:
            app.rollback_plan("order-17", to=1).undo
        """
        return self._run("rollback_plan", rollback.plan_rollback(self._core, run_id, to))

    def rollback(
        self,
        run_id: str,
        to: int | str | None = None,
        *,
        by: str | None = None,
        force: bool = False,
        enqueue: bool = False,
    ) -> Handle:
        """Roll a run back to a journal position, a checkpoint's id, or just before the stage or step of that name.

        The `undo` functions of effects performed since are called in reverse order and recorded, so that a crash loses
        nothing. An effect that cannot be undone raises RollbackRefused before anything is done; `force=True` leaves it
        as it is. Then the run continues, with new idempotency keys. Without `to` an interrupted rollback is continued.
        With `enqueue=True` a worker executes the run, and the rollback too if this process does not know the workflow.

        Example:
            app.rollback("order-17", to=1)
        """
        plan = rollback.roll_back(self._core, run_id, to, by, force=force, here=not enqueue)
        return self._control("rollback", run_id, plan, enqueue=enqueue)

    def fork(
        self,
        run_id: str,
        new_run_id: str | None = None,
        *,
        at: int | str | None = None,
        step: int | None = None,
        checkpoint_id: str | None = None,
        effects: Effects = "reuse",
        state: dict[str, Any] | None = None,
        update: Mapping[str, object] | None = None,
        enqueue: bool = False,
    ) -> Handle:
        """Start a new run from a point of another: a position, just before a call, a checkpoint, or its end.

        The fork does not repeat or undo finished work. If its family has performed an effect since, it uses the outcome
        ("reuse"), asks a person ("ask"), or performs it again ("perform"). `state` replaces `run.state`; `update` sets
        values in it, by paths as `"order.amount"` or `"/order/amount"`. Results recorded before stay as they are.

        Example:
            app.fork("order-17", "order-17b", at=1)
            app.fork("order-17", "order-17c", at=1, update={"order.amount": 30})
        """
        spec = branching.ForkSpec(at, step, checkpoint_id, effects, state, update)
        name = self._run("fork", branching.fork(self._core, run_id, new_run_id, spec, here=not enqueue))
        return Handle(self, name, only_wait=enqueue)

    def gates(self, run_id: str | None = None, *, state: str | None = "open", limit: int = 1000) -> list[GateInfo]:
        """Gates that wait for an answer, oldest first: the inbox of all runs, or of one.

        Example:
            [gate.prompt for gate in app.gates()]
        """
        return self._run("gates", control.gates(self._core, run_id, state, limit))

    def runs(self, **choice: Any) -> RunList:
        """List runs, newest first; see `Store.runs`.

        Example:
            app.runs(status="waiting")
        """
        return self.store.runs(**choice)

    def worker(
        self,
        *,
        concurrency: int = 8,
        limits: Mapping[str, int] | None = None,
        workflows: Iterable[str] | None = None,
        drain_s: float = 10.0,
    ) -> Worker:
        """A worker that executes ready runs: at most `concurrency` at a time, and of each workflow at most its limit.

        On SIGTERM it waits at most `drain_s` seconds for the executing runs to reach their next call.

        Example:
            app.worker(concurrency=8).run(until_idle=True)
        """
        return Worker(self._core, concurrency=concurrency, limits=limits, workflows=workflows, drain_s=drain_s)

    def close(self) -> None:
        """Stop the app's threads, and close the store if the app opened it."""
        self._core.close()
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_core"):  # a traceback may show an app whose store could not be opened
            return "<holdfast.App without a store>"
        return f"<holdfast.App {self.store.url} with {len(self._core.registry.workflows)} workflows>"
