"""`App`: registers workflows, starts their runs and controls them from outside."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, overload

from holdfast import fork_safety
from holdfast.engine.commands import UserFunction
from holdfast.engine.failures import Classifier, check_classifier
from holdfast.engine.gates import seconds_us
from holdfast.errors import InvalidInput, RunCancelled, RunFailed
from holdfast.model.views import RunList
from holdfast.open_store import open as open_store
from holdfast.operations.claims import lease_us_of
from holdfast.operations.store import Store
from holdfast.runtime import schedules
from holdfast.runtime.app_control import Controlling
from holdfast.runtime.app_core import LEASE_S, AppCore
from holdfast.runtime.blocking_driver import BlockingAppDriver
from holdfast.runtime.execute import start_run
from holdfast.runtime.handle import Handle
from holdfast.runtime.publication import publish_workflows
from holdfast.runtime.registry import Upgrade, Workflow, WorkflowDecorator
from holdfast.runtime.run_base import RetryLike
from holdfast.runtime.schedule_ticks import Missed, Overlap, rule_of
from holdfast.runtime.schedules import ScheduleInfo
from holdfast.runtime.start import begin_of
from holdfast.runtime.worker import Worker

if TYPE_CHECKING:
    from holdfast.runtime.async_app import AsyncApp
    from holdfast.runtime.async_run import AsyncRun
    from holdfast.runtime.run import Run

P = ParamSpec("P")
R = TypeVar("R")
Metadata = dict[str, Any]


class App(Controlling):
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
        at: dt.datetime | None = None,
        after: float | dt.timedelta | None = None,
        **kwargs: object,
    ) -> Handle[R]: ...
    @overload
    def start(
        self, workflow: Workflow[..., R], /, *args: Any, metadata: Metadata | None, enqueue: bool = False, **more: Any
    ) -> Handle[R]: ...
    @overload
    def start(self, workflow: Workflow[..., R], /, *args: object, enqueue: bool, **more: Any) -> Handle[R]: ...
    @overload
    def start(self, workflow: Workflow[..., R], /, *args: object, at: dt.datetime, **more: Any) -> Handle[R]: ...
    @overload
    def start(
        self, workflow: Workflow[..., R], /, *args: object, after: float | dt.timedelta, **more: Any
    ) -> Handle[R]: ...
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
        at: dt.datetime | None = None,
        after: float | dt.timedelta | None = None,
        **kwargs: object,
    ) -> Handle[Any]:
        """Start a run. If `run_id` already exists with the same input, return a handle of that run.

        `at`, a datetime with a time zone, or `after`, seconds or a timedelta, let a worker execute it from then on.
        What the workflow raises is raised by `result()`, never here.

        Example:
            handle = app.start(refund, "A-18", run_id="order-18", metadata={"team": "a"})
            handle.status()
            app.start(refund, "A-19", after=3600)
        """
        begin_us, only_wait = begin_of(self._core, at, after), enqueue or at is not None or after is not None
        options: Any = {"here": not only_wait, "elsewhere": enqueue, "begin_us": begin_us}
        plan = start_run(self._core, workflow, (args, kwargs), run_id, metadata, **options)
        handle_id, claimed = self._run("start", plan)
        self._advance(claimed)
        return Handle(self, handle_id, only_wait=only_wait)

    def schedule(
        self,
        name: str,
        workflow: object,
        /,
        *args: object,
        cron: str | None = None,
        every: float | dt.timedelta | None = None,
        tz: str = "UTC",
        missed: Missed = "latest",
        overlap: Overlap | None = None,
        **kwargs: object,
    ) -> Handle[Any]:
        """Start a run of a workflow at times given by a cron expression, or at intervals; workers do it.

        The schedule is a run itself, `schedule/NAME`, which can be paused, resumed and cancelled. The same call again
        finds it, and other arguments change it. `missed` says what happens to ticks for which no worker was there:
        `latest` starts one run for the last of them, `all` one for each, `skip` none. `overlap` says what happens at
        a tick while the run before has not ended: `skip` starts none, `queue` starts it afterwards, `allow` at once;
        the default is `queue` with `missed="all"`, else `skip`.

        Example:
            app.schedule("nightly", refund, "all", cron="0 3 * * *", tz="Europe/Berlin")
            app.schedule("poll", refund, "new", every=60, missed="skip")
        """
        rule = rule_of(cron, every, tz, missed, overlap)
        return Handle(self, self._run("schedule", schedules.begin(self._core, name, workflow, (args, kwargs), rule)))

    def unschedule(self, name: str) -> None:
        """End a schedule and delete its run. Runs that it started continue, except one that `queue` waits for.

        Example:
            app.schedule("poll", refund, "new", every=60)
            app.unschedule("poll")
        """
        handle = self._control("unschedule", schedules.PREFIX + name, schedules.remove(self._core, name), enqueue=False)
        with contextlib.suppress(RunFailed, RunCancelled):
            handle.result()  # another process may be at a tick
        self.store.delete(handle.run_id)

    def schedules(self) -> list[ScheduleInfo]:
        """List the schedules by name, with their next ticks and last runs.

        Example:
            [(one.name, one.next, one.last_status) for one in app.schedules()]
        """
        return self._run("schedules", schedules.listed(self._core))

    def _handle(self, run_id: str, *, only_wait: bool) -> Handle:
        return Handle(self, run_id, only_wait=only_wait)

    def handle(self, run_id: str) -> Handle:
        """A run by its id.

        Example:
            app.handle("order-17").status()
        """
        return Handle(self, run_id)

    def runs(self, **choice: Any) -> RunList:
        """List runs, newest first; see `Store.runs`.

        Example:
            app.runs(status="waiting")
        """
        return self.store.runs(**choice)

    def publish_workflows(self) -> list[str]:
        """Publish the registered workflows in the store, and return the names of those that have changed.

        Other processes list them with `store.workflows()`, show the form of their input, and start them by name with
        `enqueue=True`. Every worker publishes its workflows when it starts.

        Example:
            app.publish_workflows()
            [workflow.form.fields for workflow in app.store.workflows()]
        """
        return self._run("publish_workflows", publish_workflows(self._core))

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
