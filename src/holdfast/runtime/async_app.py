"""`AsyncApp` and `AsyncHandle`: the methods of `App` and `Handle`, to await."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, overload

from holdfast.drivers import Plan
from holdfast.errors import RunCancelled, RunFailed
from holdfast.model.rollback_plan import RollbackPlan
from holdfast.model.views import GateInfo, RunInfo, RunList
from holdfast.operations.views import run_info
from holdfast.runtime import answers, control, rollback, schedules
from holdfast.runtime import fork as branching
from holdfast.runtime.answers import Actor
from holdfast.runtime.app import Metadata
from holdfast.runtime.app_control import Effects
from holdfast.runtime.async_driver import on_own_thread
from holdfast.runtime.execute import run_until_idle, start_run
from holdfast.runtime.handle import Memo, deadline, next_poll_s, not_finished, read_state
from holdfast.runtime.publication import publish_workflows
from holdfast.runtime.registry import R, Workflow
from holdfast.runtime.schedule_ticks import Missed, Overlap, rule_of
from holdfast.runtime.schedules import ScheduleInfo
from holdfast.runtime.start import Claimed, begin_of

if TYPE_CHECKING:
    from holdfast.graphs.definition import Graph
    from holdfast.runtime.app import App

P = ParamSpec("P")


class AsyncHandle(Generic[R]):
    """A run by its id, for async callers; see `Handle`."""

    def __init__(self, app: AsyncApp, run_id: str, *, only_wait: bool = False) -> None:
        self._app = app
        self._only_wait = only_wait
        self.run_id = run_id

    async def info(self) -> RunInfo:
        """The run's facts."""
        return run_info(await self._app._driver.run(control.require_run(self._app._core, self.run_id)))

    async def status(self) -> str:
        """The run's status."""
        return (await self.info()).status

    async def gates(self) -> list[GateInfo]:
        """Its open gates."""
        return await self._app.gates(self.run_id)

    async def result(self, timeout: float | None = None) -> R:
        """Wait until the run has ended and return its result; see `Handle.result`."""
        core, only_wait, until = self._app._core, self._only_wait, deadline(timeout)
        polls, memo = 0, Memo()
        while True:
            found = await self._app._driver.run(read_state(core, self.run_id, memo, only_wait=only_wait))
            if found.ended:
                result: R = found.result
                return result
            if found.claimed is not None:
                await self._app._advance(found.claimed)
                polls = 0
                continue
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise await self._app._driver.run(
                    not_finished(core, self.run_id, found.status, timeout, only_wait=only_wait)
                )
            wait = next_poll_s(polls)
            await asyncio.sleep(wait if left is None else min(wait, left))
            polls += 1

    def __repr__(self) -> str:
        return f"<run {self.run_id!r}>"


class AsyncApp:
    """`app.aio`: what `App` does to runs, to await."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._core = app._core
        self._store = app.store
        self._driver = app._core.awaiting

    async def _advance(self, claimed: Claimed | None, *, once: bool = False) -> None:
        """Execute the run until it waits or ends, then the runs it woke."""
        if claimed is not None:
            await self._driver.run(run_until_idle(self._core, claimed, once=once))

    async def _control(self, run_id: str, plan: Plan[tuple[object, Claimed | None]], *, enqueue: bool) -> AsyncHandle:
        """Execute a plan that changes a run, then the run itself if the plan claimed it."""
        _, claimed = await self._driver.run(plan)
        await self._advance(claimed, once=enqueue)
        return AsyncHandle(self, run_id, only_wait=enqueue)

    @overload
    async def start(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[R]: ...
    @overload
    async def start(
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
    ) -> AsyncHandle[R]: ...
    @overload
    async def start(
        self, workflow: Workflow[..., R], /, *args: Any, metadata: Metadata | None, enqueue: bool = False, **more: Any
    ) -> AsyncHandle[R]: ...
    @overload
    async def start(
        self, workflow: Workflow[..., R], /, *args: object, enqueue: bool, **more: Any
    ) -> AsyncHandle[R]: ...
    @overload
    async def start(
        self, workflow: Workflow[..., R], /, *args: object, at: dt.datetime, **more: Any
    ) -> AsyncHandle[R]: ...
    @overload
    async def start(
        self, workflow: Workflow[..., R], /, *args: object, after: float | dt.timedelta, **more: Any
    ) -> AsyncHandle[R]: ...
    @overload
    async def start(self, workflow: str, /, *args: object, **options: Any) -> AsyncHandle[Any]: ...
    async def start(  # type: ignore[misc]  # these options shadow parameters of the workflow
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
    ) -> AsyncHandle[Any]:
        """Start a run; see `App.start`."""
        begin_us, only_wait = begin_of(self._core, at, after), enqueue or at is not None or after is not None
        options: Any = {"here": not only_wait, "elsewhere": enqueue, "begin_us": begin_us}
        plan = start_run(self._core, workflow, (args, kwargs), run_id, metadata, **options)
        handle_id, claimed = await self._driver.run(plan)
        await self._advance(claimed)
        return AsyncHandle(self, handle_id, only_wait=only_wait)

    async def schedule(
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
    ) -> AsyncHandle[Any]:
        """Start runs at times or intervals; see `App.schedule`."""
        rule = rule_of(cron, every, tz, missed, overlap)
        plan = schedules.begin(self._core, name, workflow, (args, kwargs), rule)
        return AsyncHandle(self, await self._driver.run(plan))

    async def unschedule(self, name: str) -> None:
        """End a schedule; see `App.unschedule`."""
        handle = await self._control(schedules.PREFIX + name, schedules.remove(self._core, name), enqueue=False)
        with contextlib.suppress(RunFailed, RunCancelled):
            await handle.result()
        await self._store.aio.delete(handle.run_id)

    async def schedules(self) -> list[ScheduleInfo]:
        """List the schedules; see `App.schedules`."""
        return await self._driver.run(schedules.listed(self._core))

    def handle(self, run_id: str) -> AsyncHandle:
        """A run by its id."""
        return AsyncHandle(self, run_id)

    async def answer(
        self,
        run_id: str,
        answer: object,
        *,
        by: str | None = None,
        groups: Collection[str] = (),
        gate: str | None = None,
        question: str | None = None,
        enqueue: bool = False,
        via: str = "",
    ) -> AsyncHandle:
        """Answer a gate; see `App.answer`."""
        plan = answers.answer(self._core, run_id, answer, Actor(by, groups, via), gate, question, here=not enqueue)
        return await self._control(run_id, plan, enqueue=enqueue)

    async def reassign(
        self,
        run_id: str,
        who: str | Iterable[str],
        *,
        gate: str | None = None,
        by: str | None = None,
        groups: Collection[str] | None = None,
        reason: str = "",
        via: str = "",
    ) -> GateInfo:
        """Change the people that may answer an open gate; see `App.reassign`."""
        actor, must_answer = Actor(by, groups or (), via), groups is not None
        plan = answers.reassign_gate(self._core, run_id, who, actor, gate, reason, must_answer=must_answer)
        return await self._driver.run(plan)

    async def send(
        self,
        run_id: str,
        event: str,
        value: object = None,
        *,
        by: str | None = None,
        key: str | None = None,
        enqueue: bool = False,
        via: str = "",
    ) -> AsyncHandle:
        """Send an event to a run; see `App.send`."""
        plan = control.send(self._core, run_id, event, value, by, key, here=not enqueue, via=via)
        return await self._control(run_id, plan, enqueue=enqueue)

    async def pause(self, run_id: str, *, by: str | None = None, enqueue: bool = False, via: str = "") -> AsyncHandle:
        """Ask a run to pause; see `App.pause`."""
        plan = control.request(self._core, run_id, "pause", by, here=not enqueue, via=via)
        return await self._control(run_id, plan, enqueue=enqueue)

    async def cancel(self, run_id: str, *, by: str | None = None, enqueue: bool = False, via: str = "") -> AsyncHandle:
        """Cancel a run; see `App.cancel`."""
        plan = control.request(self._core, run_id, "cancel", by, here=not enqueue, via=via)
        return await self._control(run_id, plan, enqueue=enqueue)

    async def resume(self, run_id: str, *, by: str | None = None, enqueue: bool = False, via: str = "") -> AsyncHandle:
        """Continue a run; see `App.resume`."""
        plan = control.resume(self._core, run_id, here=not enqueue, by=by, via=via)
        return await self._control(run_id, plan, enqueue=enqueue)

    async def retry(self, run_id: str, *, by: str | None = None, enqueue: bool = False, via: str = "") -> AsyncHandle:
        """Continue a failed run from the call that failed; see `App.retry`."""
        claimed = await self._driver.run(rollback.retry(self._core, run_id, by, here=not enqueue, via=via))
        await self._advance(claimed, once=enqueue)
        return AsyncHandle(self, run_id, only_wait=enqueue)

    async def rollback_plan(self, run_id: str, to: int | str | None = None) -> RollbackPlan:
        """What a rollback would do; see `App.rollback_plan`."""
        return await self._driver.run(rollback.plan_rollback(self._core, run_id, to))

    async def rollback(
        self,
        run_id: str,
        to: int | str | None = None,
        *,
        by: str | None = None,
        force: bool = False,
        basis: str | None = None,
        enqueue: bool = False,
        via: str = "",
    ) -> AsyncHandle:
        """Roll a run back; see `App.rollback`."""
        plan = rollback.roll_back(self._core, run_id, to, by, force=force, basis=basis, here=not enqueue, via=via)
        return await self._control(run_id, plan, enqueue=enqueue)

    async def fork(
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
        basis: str | None = None,
        by: str | None = None,
        enqueue: bool = False,
        via: str = "",
    ) -> AsyncHandle:
        """Start a new run from a point of another; see `App.fork`."""
        spec = branching.ForkSpec(at, step, checkpoint_id, effects, state, update, by, via, basis)
        name = await self._driver.run(branching.fork(self._core, run_id, new_run_id, spec, here=not enqueue))
        return AsyncHandle(self, name, only_wait=enqueue)

    async def graph_of(self, run_id: str) -> Graph:
        """The definition that a run uses; see `App.graph_of`."""
        from holdfast.runtime import graph_migration

        return await self._driver.run(graph_migration.definition_of_run(self._core, run_id))

    async def adopt(self, run_id: str) -> bool:
        """Register a declared workflow from the definition in a run; see `App.adopt`."""
        from holdfast.runtime import graph_migration

        return await self._driver.run(graph_migration.adopt_workflow(self._core, run_id))

    async def migrate(
        self, run_id: str, graph: object = None, *, by: str | None = None, enqueue: bool = False
    ) -> list[str]:
        """Continue a run with another definition; see `App.migrate`."""
        from holdfast.runtime import graph_migration
        from holdfast.runtime.graph_workflows import to_graph

        new = None if graph is None else to_graph(graph)
        found, claimed = await self._driver.run(
            graph_migration.migrate_run(self._core, run_id, new, by, here=not enqueue)
        )
        await self._advance(claimed)
        return found

    async def gates(
        self, run_id: str | None = None, *, state: str | None = "open", limit: int = 1000, after: str | None = None
    ) -> list[GateInfo]:
        """Gates that wait for an answer; see `App.gates`."""
        return await self._driver.run(answers.gates(self._core, run_id, state, limit, after))

    async def publish_workflows(self) -> list[str]:
        """Publish the registered workflows in the store; see `App.publish_workflows`."""
        return await self._driver.run(publish_workflows(self._core))

    async def runs(self, **choice: Any) -> RunList:
        """List runs; see `Store.runs`."""
        return await self._store.aio.runs(**choice)

    async def close(self) -> None:
        """Stop the app's threads, and close the store if the app opened it; see `App.close`."""
        await on_own_thread(self._app.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
