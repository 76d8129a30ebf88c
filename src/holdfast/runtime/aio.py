"""The app for awaiting callers: the same names, to await."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, overload

from holdfast.model.gates import GateInfo
from holdfast.model.plans import RollbackPlan
from holdfast.model.views import RunInfo, RunList
from holdfast.runtime import branching, outside, retry, rollback
from holdfast.runtime.advancing import advanced, claim_known, started
from holdfast.runtime.app import Effects
from holdfast.runtime.awaiting import on_own_thread
from holdfast.runtime.handle import Memo, look, next_look_s, not_finished, until_of
from holdfast.runtime.registry import R, Workflow
from holdfast.runtime.starting import Claimed
from holdfast.verbs.shown import run_info

if TYPE_CHECKING:
    from holdfast.graphs.definition import Graph
    from holdfast.runtime.app import App

P = ParamSpec("P")


class AsyncHandle(Generic[R]):
    """One run, for awaiting callers; see `Handle`."""

    def __init__(self, app: AsyncApp, run_id: str, *, only_wait: bool = False) -> None:
        self._app = app
        self._only_wait = only_wait
        self.run_id = run_id

    async def info(self) -> RunInfo:
        """The run's facts."""
        return run_info(await self._app._driver.run(outside.known_run(self._app._core, self.run_id)))

    async def status(self) -> str:
        """Where the run stands."""
        return (await self.info()).status

    async def gates(self) -> list[GateInfo]:
        """Its open gates."""
        return await self._app.gates(self.run_id)

    async def result(self, timeout: float | None = None) -> R:
        """Wait until the run has ended and return its result; see `Handle.result`."""
        until = until_of(timeout)
        looks, memo = 0, Memo()
        while True:
            found = await self._app._driver.run(look(self._app._core, self.run_id, memo, only_wait=self._only_wait))
            if found.ended:
                result: R = found.result
                return result
            if found.claimed is not None:
                await self._app._advance(found.claimed)
                looks = 0
                continue
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                late = not_finished(
                    self._app._core, self.run_id, found.status, timeout, only_wait=self._only_wait
                )  # fmt: skip
                raise await self._app._driver.run(late)
            wait = next_look_s(looks)
            await asyncio.sleep(wait if left is None else min(wait, left))
            looks += 1

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
        """Move the run on until it waits or ends, then those it woke."""
        if claimed is not None:
            await self._driver.run(advanced(self._core, claimed, once=once))

    @overload
    async def start(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[R]: ...
    @overload
    async def start(
        self, workflow: Workflow[..., R], /, *args: Any, run_id: str | None,
        metadata: dict[str, Any] | None = None, enqueue: bool = False, **kwargs: Any,
    ) -> AsyncHandle[R]: ...  # fmt: skip
    @overload
    async def start(
        self, workflow: Workflow[..., R], /, *args: Any, metadata: dict[str, Any] | None,
        run_id: str | None = None, enqueue: bool = False, **kwargs: Any,
    ) -> AsyncHandle[R]: ...  # fmt: skip
    @overload
    async def start(
        self, workflow: Workflow[..., R], /, *args: Any, enqueue: bool,
        run_id: str | None = None, metadata: dict[str, Any] | None = None, **kwargs: Any,
    ) -> AsyncHandle[R]: ...  # fmt: skip
    @overload
    async def start(self, workflow: str, /, *args: Any, **options: Any) -> AsyncHandle[Any]: ...
    async def start(  # type: ignore[misc]  # options are taken before what is the workflow's
        self,
        workflow: Any,
        /,
        *args: Any,
        run_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        enqueue: bool = False,
        **kwargs: Any,
    ) -> AsyncHandle[Any]:
        """Start a run; see `App.start`."""
        plan = started(self._core, workflow, args, kwargs, run_id, metadata, here=not enqueue)
        handle_id, claimed = await self._driver.run(plan)
        await self._advance(claimed)
        return AsyncHandle(self, handle_id, only_wait=enqueue)

    def handle(self, run_id: str) -> AsyncHandle:
        """A run by its id."""
        return AsyncHandle(self, run_id)

    async def answer(
        self, run_id: str, answer: Any, *, by: str | None = None, gate: str | None = None, enqueue: bool = False
    ) -> AsyncHandle:
        """Answer a gate; see `App.answer`."""
        _, claimed = await self._driver.run(outside.answer(self._core, run_id, answer, by, gate, here=not enqueue))
        await self._advance(claimed)
        return AsyncHandle(self, run_id, only_wait=enqueue)

    async def send(
        self, run_id: str, event: str, value: Any = None, *, by: str | None = None, key: str | None = None,
        enqueue: bool = False,
    ) -> AsyncHandle:  # fmt: skip
        """Send an event to a run; see `App.send`."""
        _, claimed = await self._driver.run(outside.send(self._core, run_id, event, value, by, key, here=not enqueue))
        await self._advance(claimed)
        return AsyncHandle(self, run_id, only_wait=enqueue)

    async def pause(self, run_id: str, *, by: str | None = None, enqueue: bool = False) -> AsyncHandle:
        """Ask a run to pause; see `App.pause`."""
        _, claimed = await self._driver.run(outside.request(self._core, run_id, "pause", by, here=not enqueue))
        await self._advance(claimed)
        return AsyncHandle(self, run_id, only_wait=enqueue)

    async def cancel(self, run_id: str, *, by: str | None = None, enqueue: bool = False) -> AsyncHandle:
        """Cancel a run; see `App.cancel`."""
        _, claimed = await self._driver.run(outside.request(self._core, run_id, "cancel", by, here=not enqueue))
        await self._advance(claimed)
        return AsyncHandle(self, run_id, only_wait=enqueue)

    async def resume(self, run_id: str, *, enqueue: bool = False) -> AsyncHandle:
        """Let a run go on; see `App.resume`."""
        _, claimed = await self._driver.run(outside.resume(self._core, run_id, here=not enqueue))
        await self._advance(claimed)
        return AsyncHandle(self, run_id, only_wait=enqueue)

    async def retry(self, run_id: str, *, by: str | None = None, enqueue: bool = False) -> AsyncHandle:
        """Let a failed run go on from what failed; see `App.retry`."""
        claimed = await self._driver.run(retry.retry(self._core, run_id, by, here=not enqueue))
        await self._advance(claimed, once=enqueue)
        return AsyncHandle(self, run_id, only_wait=enqueue)

    async def rollback_plan(self, run_id: str, to: int | str) -> RollbackPlan:
        """What a rollback would do; see `App.rollback_plan`."""
        return await self._driver.run(rollback.planned(self._core, run_id, to))

    async def rollback(
        self, run_id: str, to: int | str | None = None, *, by: str | None = None, force: bool = False,
        enqueue: bool = False,
    ) -> AsyncHandle:  # fmt: skip
        """Take a run back; see `App.rollback`."""
        _, claimed = await self._driver.run(
            rollback.rolled_back(self._core, run_id, to, by, force=force, here=not enqueue)
        )
        await self._advance(claimed, once=enqueue)
        return AsyncHandle(self, run_id, only_wait=enqueue)

    async def fork(
        self, run_id: str, new_run_id: str | None = None, *, at: int | str | None = None, step: int | None = None,
        checkpoint_id: str | None = None, effects: Effects = "reuse", state: dict[str, Any] | None = None,
        update: Mapping[str, Any] | None = None, enqueue: bool = False,
    ) -> AsyncHandle:  # fmt: skip
        """Start a new run from where another stood; see `App.fork`."""
        name = await self._driver.run(
            branching.forked(self._core, run_id, new_run_id, at, step, checkpoint_id, effects, state, update)
        )
        if not enqueue:
            await self._advance(await self._driver.run(claim_known(self._core, name)))
        return AsyncHandle(self, name, only_wait=enqueue)

    async def graph_of(self, run_id: str) -> Graph:
        """The definition a run goes by; see `App.graph_of`."""
        from holdfast.runtime import migrating

        return await self._driver.run(migrating.definition_of_run(self._core, run_id))

    async def adopt(self, run_id: str) -> bool:
        """Know a declared workflow by what a run carries; see `App.adopt`."""
        from holdfast.runtime import migrating

        return await self._driver.run(migrating.adopted(self._core, run_id))

    async def migrate(
        self, run_id: str, graph: Any = None, *, by: str | None = None, enqueue: bool = False
    ) -> list[str]:
        """Let a run go on by another definition; see `App.migrate`."""
        from holdfast.runtime import migrating
        from holdfast.runtime.declaring import made_graph

        new = None if graph is None else made_graph(graph)
        found, claimed = await self._driver.run(migrating.migrated(self._core, run_id, new, by, here=not enqueue))
        await self._advance(claimed)
        return found

    async def gates(
        self, run_id: str | None = None, *, state: str | None = "open", limit: int = 1000
    ) -> list[GateInfo]:
        """Gates that wait for an answer; see `App.gates`."""
        return await self._driver.run(outside.gates(self._core, run_id, state, limit))

    async def runs(self, **choice: Any) -> RunList:
        """List runs; see `Store.runs`."""
        return await self._store.aio.runs(**choice)

    async def close(self) -> None:
        """Stop the app's threads, and close the store if the app opened it; see `App.close`."""
        await on_own_thread(self._app.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
