"""The store and the claim of async callers: every method of `operations.store`, to await."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from msgspec import structs

from holdfast.drivers import Plan
from holdfast.errors import ClaimLost
from holdfast.ids import check_id, check_lane
from holdfast.model.views import Checkpoint, CheckpointInfo
from holdfast.operations import archive, catalog, claims, read, write
from holdfast.operations import fork as fork_operations
from holdfast.operations import prune as prune_operations
from holdfast.operations import verify as verify_operations
from holdfast.operations.context import Access, HasAccess, HasClaim
from holdfast.operations.state_view import AsyncView, open_view
from holdfast.operations.store import ClaimBase
from holdfast.operations.store_reads import describe_as
from holdfast.operations.tracked_state import AsyncTracked, open_tracked

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def awaiting(plan: Callable[Concatenate[Access, P], Plan[R]]) -> Callable[Concatenate[HasAccess, P], Awaitable[R]]:
    """The method that executes `plan` for a task."""

    async def call(self: HasAccess, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.access.core.awaiting.run(plan(self.access, *args, **kwargs))

    return describe_as(plan, call)


def awaiting_held(
    plan: Callable[Concatenate[Access, str, P], Plan[R]],
) -> Callable[Concatenate[HasClaim, P], Awaitable[R]]:
    """Like `awaiting`, for the run of a claim."""

    async def call(self: HasClaim, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.access.core.awaiting.run(plan(self.access, self.run_id, *args, **kwargs))

    return describe_as(plan, call)


class AsyncHistory:
    """A run's checkpoints, oldest first: `async for` reads them page by page, `await` returns them as a list."""

    def __init__(self, access: Access, run_id: str, lane: str | None) -> None:
        self.access = access
        self._run_id = run_id
        self._lane = lane

    async def __aiter__(self) -> AsyncIterator[CheckpointInfo]:
        after, incarnation = 0, None
        while True:
            page = await self.access.core.awaiting.run(self._page(after, incarnation))
            for info in page.infos:
                yield info
            if page.last:
                return
            after, incarnation = page.after, page.incarnation

    def _page(self, after: int, incarnation: bytes | None) -> Plan[read.HistoryPage]:
        core = self.access.core
        page: read.HistoryPage = yield lambda: read.history_page(core, self._run_id, self._lane, after, incarnation)
        return page

    def __await__(self) -> Generator[Any, None, list[CheckpointInfo]]:
        async def collect() -> list[CheckpointInfo]:
            return [info async for info in self]

        return collect().__await__()


class AsyncStore:
    """`store.aio`: every method of the store, to await.

    Example:
        await store.aio.save("run-1", {"messages": []})
    """

    def __init__(self, access: Access) -> None:
        self.access = access

    save = awaiting(write.save)
    append = awaiting(write.append)
    mark_done = awaiting(write.mark_done)
    mark_intent = awaiting(write.mark_intent)
    attach = awaiting(write.attach)
    attach_all = awaiting(write.attach_all)
    announce = awaiting(claims.announce)
    recover_expired = awaiting(claims.recover_expired)
    runs = awaiting(read.runs)
    journal = awaiting(read.journal)
    effects = awaiting(read.effects)
    is_done = awaiting(read.is_done)
    attachments = awaiting(read.attachments)
    diff = awaiting(read.diff)
    prune = awaiting(prune_operations.prune)
    delete = awaiting(prune_operations.delete)
    delete_checkpoint = awaiting(prune_operations.delete_checkpoint)
    fork = awaiting(fork_operations.fork)
    copy = awaiting(fork_operations.copy)
    export_run = awaiting(archive.export_run)
    import_run = awaiting(archive.import_run)
    verify = awaiting(verify_operations.verify)
    stats = awaiting(verify_operations.stats)
    counts = awaiting(catalog.counts)
    workflows = awaiting(catalog.workflows)

    @overload
    async def load(
        self, run_id: str, *, as_type: type[T], **choice: Unpack[read.CheckpointChoice]
    ) -> Checkpoint[T] | None: ...
    @overload
    async def load(
        self, run_id: str, *, as_type: object = None, **choice: Unpack[read.CheckpointChoice]
    ) -> Checkpoint[Any] | None: ...
    async def load(self, run_id: str, **choice: Any) -> Checkpoint[Any] | None:
        """Load a checkpoint with its state; see `Store.load`."""
        return await self.access.core.awaiting.run(read.load(self.access, run_id, **choice))

    async def view(self, run_id: str, **choice: Unpack[read.Selectors]) -> Checkpoint[AsyncView] | None:
        """Load a checkpoint whose state is read by functions, outside the event loop, as far as they need it."""
        found = await self.access.core.awaiting.run(open_view(self.access, run_id, **choice))
        return None if found is None else structs.replace(found, state=AsyncView(self.access.core, found.state))

    @overload
    async def tracked(self, run_id: str, *, as_type: type[T], lane: str = "") -> AsyncTracked[T]: ...
    @overload
    async def tracked(self, run_id: str, *, as_type: None = None, lane: str = "") -> AsyncTracked[dict[str, Any]]: ...
    async def tracked(self, run_id: str, *, as_type: object = None, lane: str = "") -> AsyncTracked[Any]:
        """Load the run's newest state as a tracked one; see `Store.tracked`."""
        return await self.access.core.awaiting.run(open_tracked(self.access, AsyncTracked, run_id, as_type, lane))

    def history(self, run_id: str, *, lane: str | None = None) -> AsyncHistory:
        """The run's checkpoints, oldest first, without their states: `async for` them, or `await` the list."""
        check_id("run_id", run_id)
        if lane is not None:
            check_lane(lane)
        return AsyncHistory(self.access, run_id, lane)

    async def claim(self, run_id: str, owner: str, lease: float = 30.0) -> AsyncClaim | None:
        """Take the exclusive right to execute a run, for `lease` seconds; None if it is claimed or has ended.

        If the task is cancelled in the meantime, the claim may have been taken; then it ends with its lease.
        """
        plan = claims.take_claim(self.access, AsyncClaim, run_id, owner, lease)
        return await self.access.core.awaiting.run(plan)

    async def claim_ready(
        self, owner: str, limit: int = 1, lease: float = 30.0, workflows: Iterable[str] = ()
    ) -> list[AsyncClaim]:
        """Take up to `limit` runs that are ready, longest ready first; see `Store.claim_ready`."""
        plan = claims.take_ready(self.access, AsyncClaim, owner, limit, lease, workflows)
        return await self.access.core.awaiting.run(plan)

    async def close(self) -> None:
        """Release files, connections and threads; this closes the blocking store, too."""
        await asyncio.to_thread(self.access.core.close)


class AsyncClaim(ClaimBase):
    """A claim whose methods are awaited. `async with` releases it at the end."""

    save = awaiting_held(write.save)
    append = awaiting_held(write.append)
    mark_done = awaiting_held(write.mark_done)
    mark_intent = awaiting_held(write.mark_intent)
    attach = awaiting_held(write.attach)
    attach_all = awaiting_held(write.attach_all)

    @overload
    async def tracked(self, *, as_type: type[T], lane: str = "") -> AsyncTracked[T]: ...
    @overload
    async def tracked(self, *, as_type: None = None, lane: str = "") -> AsyncTracked[dict[str, Any]]: ...
    async def tracked(self, *, as_type: object = None, lane: str = "") -> AsyncTracked[Any]:
        """The run's newest state, tracked, to be saved through the claim; see `Store.tracked`."""
        return await self.access.core.awaiting.run(open_tracked(self.access, AsyncTracked, self.run_id, as_type, lane))

    async def renew(self, lease: float | None = None) -> None:
        """Extend the lease, counted from now."""
        wanted = self.lease if lease is None else lease
        await self.access.core.awaiting.run(claims.renew_claim(self.access, self.run_id, wanted))
        self.lease = wanted

    async def complete(self) -> None:
        """End the run as completed and release the claim, in one commit."""
        await self.access.core.awaiting.run(claims.complete_claim(self.access, self.run_id))
        self._ended = True

    async def release(self, status: str | None = None) -> None:
        """Release the claim. A running run becomes ready; `status` sets another status in the same commit."""
        await self.access.core.awaiting.run(claims.end_claim(self.access, self.run_id, status))
        self._ended = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if self._ended:
            return
        try:
            await self.release()
        except ClaimLost:
            if error is None:
                raise
