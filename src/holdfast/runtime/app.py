"""The app: workflows, and everything one does to their runs from outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload

from holdfast import forking
from holdfast.engine.verdicts import Classifier, check_classifier
from holdfast.engine.waiting import seconds_us
from holdfast.errors import InvalidInput
from holdfast.model.gates import GateInfo
from holdfast.model.plans import RollbackPlan
from holdfast.model.views import RunList
from holdfast.opening import open as open_store
from holdfast.runtime import branching, outside, retry, rollback
from holdfast.runtime.advancing import advanced, claim_known, started
from holdfast.runtime.blocking import BlockingDriver
from holdfast.runtime.core import LEASE_S, AppCore
from holdfast.runtime.declaring import Declaring
from holdfast.runtime.handle import Handle
from holdfast.runtime.registry import Upgrade, Workflow, WorkflowDecorator
from holdfast.runtime.starting import Acts, Claimed
from holdfast.runtime.worker import Worker
from holdfast.verbs.holding import lease_us_of
from holdfast.verbs.plans import forbid_in_loop
from holdfast.verbs.store import Store

if TYPE_CHECKING:
    from holdfast.runtime.aio import AsyncApp
    from holdfast.runtime.async_run import AsyncRun
    from holdfast.runtime.run import Run

P = ParamSpec("P")
R = TypeVar("R")
Effects = Literal["reuse", "perform", "ask"]


class App(Declaring):
    """Workflows on a store. `App("sqlite:runs.db")`, or an open store.

    Blocking; `app.aio` has the same verbs to await. `start` and `answer` move the run on in the calling process until
    it next waits or ends, so nothing else is needed; with `enqueue=True` they only commit, and a worker goes on.
    `classify` says what exceptions prove about the effects that raised them; see `Run.effect`.

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
        self, store: str | Store, *, lease_s: float = LEASE_S, cleanup_s: float = 30.0, branches: int = 8,
        classify: Classifier | None = None,
    ) -> None:  # fmt: skip
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
        self._driver = self._core.blocking = BlockingDriver(self._core)
        self._aio: AsyncApp | None = None

    @property
    def aio(self) -> AsyncApp:
        """The same app for awaiting callers."""
        if self._aio is None:
            with forking.loading:
                from holdfast.runtime.aio import AsyncApp  # asyncio is loaded by those who use it

                self._aio = self._aio or AsyncApp(self)
        return self._aio

    # --- what is known by name ---------------------------------------------------------------------------------------

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
    def workflow(self, *, name: str | None = None, version: int = 1, retry: Any = None) -> WorkflowDecorator: ...
    def workflow(
        self, fn: Callable[..., Any] | None = None, *, name: str | None = None, version: int = 1, retry: Any = None
    ) -> Any:
        """Register a workflow, under its function's name or `name`.

        `version` is the version of its state; `retry` is how its steps are tried again if they do not say themselves.

        Example:
            @app.workflow(name="triage", version=2, retry=3)
            def triage_ticket(run, ticket):
                return run.step(len, ticket)
        """
        if fn is not None:
            return self._core.registry.add_workflow(fn, name, version, retry)
        return lambda fn: self._core.registry.add_workflow(fn, name, version, retry)

    def upgrade(self, workflow: Any, version: int) -> Callable[[Upgrade], Upgrade]:
        """Register how a workflow's state of `version` becomes one of the next version.

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
        """Whether a workflow of that name is registered, so that its runs can be moved on here.

        Example:
            app.knows("triage")
        """
        return self._core.known(workflow) is not None

    # --- starting and moving on --------------------------------------------------------------------------------------

    def _run(self, name: str, plan: Acts[R]) -> R:
        forbid_in_loop(name)
        return self._driver.run(plan)

    def _advance(self, claimed: Claimed | None, *, once: bool = False) -> None:
        """Move the run on until it waits or ends, then those it woke."""
        if claimed is not None:
            self._driver.run(advanced(self._core, claimed, once=once))

    @overload
    def start(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...
    @overload
    def start(
        self, workflow: Workflow[..., R], /, *args: Any, run_id: str | None,
        metadata: dict[str, Any] | None = None, enqueue: bool = False, **kwargs: Any,
    ) -> Handle[R]: ...  # fmt: skip
    @overload
    def start(
        self, workflow: Workflow[..., R], /, *args: Any, metadata: dict[str, Any] | None,
        run_id: str | None = None, enqueue: bool = False, **kwargs: Any,
    ) -> Handle[R]: ...  # fmt: skip
    @overload
    def start(
        self, workflow: Workflow[..., R], /, *args: Any, enqueue: bool,
        run_id: str | None = None, metadata: dict[str, Any] | None = None, **kwargs: Any,
    ) -> Handle[R]: ...  # fmt: skip
    @overload
    def start(self, workflow: str, /, *args: Any, **options: Any) -> Handle[Any]: ...
    def start(  # type: ignore[misc]  # options are taken before what is the workflow's
        self,
        workflow: Any,
        /,
        *args: Any,
        run_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        enqueue: bool = False,
        **kwargs: Any,
    ) -> Handle[Any]:
        """Start a run. With a `run_id` that is there already, with the same input, it is that run.

        Never raises what the workflow raised; `result()` does.

        Example:
            handle = app.start(refund, "A-18", run_id="order-18", metadata={"team": "a"})
            handle.status()
        """
        plan = started(self._core, workflow, args, kwargs, run_id, metadata, here=not enqueue)
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
        self, run_id: str, answer: Any, *, by: str | None = None, gate: str | None = None, enqueue: bool = False
    ) -> Handle:
        """Answer a gate, from any process. The first answer counts; the second gets AlreadyAnswered.

        An answer that does not fit raises InvalidAnswer, which lists all problems, and the gate stays open.

        Example:
            app.start(refund, "A-19", run_id="order-19")
            app.answer("order-19", {"approve": False}, by="ana")
        """
        _, claimed = self._run("answer", outside.answer(self._core, run_id, answer, by, gate, here=not enqueue))
        self._advance(claimed)
        return Handle(self, run_id, only_wait=enqueue)

    def send(
        self, run_id: str, event: str, value: Any = None, *, by: str | None = None, key: str | None = None,
        enqueue: bool = False,
    ) -> Handle:  # fmt: skip
        """Send an event to a run, which gets it by `run.wait_for`. With a `key`, sending it again is no second event.

        Example:
            app.send("order-17", "shipped", {"parcel": 3})
        """
        _, claimed = self._run("send", outside.send(self._core, run_id, event, value, by, key, here=not enqueue))
        self._advance(claimed)
        return Handle(self, run_id, only_wait=enqueue)

    def pause(self, run_id: str, *, by: str | None = None, enqueue: bool = False) -> Handle:
        """Ask a run to pause. It stops before its next call; `resume` lets it go on.

        Example:
            app.pause("order-17")
        """
        _, claimed = self._run("pause", outside.request(self._core, run_id, "pause", by, here=not enqueue))
        self._advance(claimed)
        return Handle(self, run_id, only_wait=enqueue)

    def cancel(self, run_id: str, *, by: str | None = None, enqueue: bool = False) -> Handle:
        """Cancel a run for good. Its code gets Cancelled at its next call, and some time for its `finally` blocks.

        Nothing but a rollback to before it lets a cancelled run go on.

        Example:
            app.cancel("order-17")
        """
        _, claimed = self._run("cancel", outside.request(self._core, run_id, "cancel", by, here=not enqueue))
        self._advance(claimed)
        return Handle(self, run_id, only_wait=enqueue)

    def resume(self, run_id: str, *, enqueue: bool = False) -> Handle:
        """Let a paused run go on, or take up one whose process died.

        Example:
            app.resume("order-17")
        """
        _, claimed = self._run("resume", outside.resume(self._core, run_id, here=not enqueue))
        self._advance(claimed)
        return Handle(self, run_id, only_wait=enqueue)

    def retry(self, run_id: str, *, by: str | None = None, enqueue: bool = False) -> Handle:
        """Let a failed run go on from what failed, after its cause was fixed. All finished work is kept.

        The call that failed is executed again, an effect under the idempotency key it had; an effect in doubt is
        treated as it was declared; a failed child is retried itself. Conflict if the run has not failed.

        Example:
            @app.workflow
            def convert(run):
                return 6 / rates["eur"]

            rates, handle = {}, app.start(convert, run_id="c-1")
            rates["eur"] = 2
            app.retry("c-1").result()
        """
        claimed = self._run("retry", retry.retry(self._core, run_id, by, here=not enqueue))
        self._advance(claimed, once=enqueue)
        return Handle(self, run_id, only_wait=enqueue)

    def rollback_plan(self, run_id: str, to: int | str) -> RollbackPlan:
        """What a rollback would do: which effects are undone, which cannot be, what is taken back.

        Example:
            app.rollback_plan("order-17", to=1).undo
        """
        return self._run("rollback_plan", rollback.planned(self._core, run_id, to))

    def rollback(
        self, run_id: str, to: int | str | None = None, *, by: str | None = None, force: bool = False,
        enqueue: bool = False,
    ) -> Handle:  # fmt: skip
        """Take a run back: to a journal position, a checkpoint's id, or just before the stage or step of that name.

        Effects done since are undone in reverse by their `undo` functions, each recorded, so a crash in the middle is
        taken up where it was. What cannot be undone stops it with RollbackRefused before anything is done, unless
        `force=True` leaves it as it is. Then the run goes on from there; what it does anew has new idempotency keys.
        Without `to` a rollback that was begun and stopped is taken up again. With `enqueue=True` the run does not go on
        here afterwards; in a process that does not know the workflow the rollback is only begun, for a worker.

        Example:
            app.rollback("order-17", to=1)
        """
        plan = rollback.rolled_back(self._core, run_id, to, by, force=force, here=not enqueue)
        _, claimed = self._run("rollback", plan)
        self._advance(claimed, once=enqueue)
        return Handle(self, run_id, only_wait=enqueue)

    def fork(
        self, run_id: str, new_run_id: str | None = None, *, at: int | str | None = None, step: int | None = None,
        checkpoint_id: str | None = None, effects: Effects = "reuse", state: dict[str, Any] | None = None,
        update: Mapping[str, Any] | None = None, enqueue: bool = False,
    ) -> Handle:  # fmt: skip
        """Start a new run from where another stood: at a position or just before a call, at a checkpoint, at its end.

        The fork neither repeats nor undoes. If it comes to an effect its family has performed since, it takes that
        outcome ("reuse"), asks a person ("ask"), or performs it anew ("perform").
        `state` replaces `run.state` from there on; `update` sets values in it by their paths, as `"order.amount"` or
        `"/order/amount"`. Recorded results are not changed by it: what was computed from the old state stays.

        Example:
            app.fork("order-17", "order-17b", at=1)
            app.fork("order-17", "order-17c", at=1, update={"order.amount": 30})
        """
        plan = branching.forked(self._core, run_id, new_run_id, at, step, checkpoint_id, effects, state, update)
        name = self._run("fork", plan)
        if not enqueue:
            self._advance(self._driver.run(claim_known(self._core, name)))
        return Handle(self, name, only_wait=enqueue)

    # --- looking -----------------------------------------------------------------------------------------------------

    def gates(self, run_id: str | None = None, *, state: str | None = "open", limit: int = 1000) -> list[GateInfo]:
        """Gates that wait for an answer, longest first: the inbox of all runs, or of one.

        Example:
            [gate.prompt for gate in app.gates()]
        """
        return self._run("gates", outside.gates(self._core, run_id, state, limit))

    def runs(self, **choice: Any) -> RunList:
        """List runs, newest first; see `Store.runs`.

        Example:
            app.runs(status="waiting")
        """
        return self.store.runs(**choice)

    def worker(
        self, *, concurrency: int = 8, limits: Mapping[str, int] | None = None,
        workflows: Iterable[str] | None = None, drain_s: float = 10.0,
    ) -> Worker:  # fmt: skip
        """A worker: takes ready runs and moves them on, `concurrency` at a time, of a workflow at most its limit.

        On SIGTERM it lets what is under way come to its next call, for `drain_s` seconds at most.

        Example:
            app.worker(concurrency=8).run(until_idle=True)
        """
        return Worker(self._core, concurrency=concurrency, limits=limits, workflows=workflows, drain_s=drain_s)

    # --- life --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the app's threads, and close the store if the app opened it."""
        self._core.close()
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_core"):  # a traceback shows it, and its store could not be opened
            return "<holdfast.App without a store>"
        return f"<holdfast.App {self.store.url} with {len(self._core.registry.workflows)} workflows>"
