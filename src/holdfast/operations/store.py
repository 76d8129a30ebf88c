"""The store and the claim of blocking callers. `aio` has the same operations for async callers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from holdfast import fork_safety
from holdfast.clock import Clock
from holdfast.drivers import forbid_in_loop
from holdfast.errors import ClaimLost
from holdfast.ids import Ids
from holdfast.model.rows import RunRow
from holdfast.operations import archive, catalog, claims, write
from holdfast.operations import fork as fork_operations
from holdfast.operations import prune as prune_operations
from holdfast.operations import verify as verify_operations
from holdfast.operations.context import Access
from holdfast.operations.store_reads import StoreReads, blocking, blocking_held
from holdfast.operations.tracked_state import Tracked, open_tracked
from holdfast.store.port import StorePort

if TYPE_CHECKING:
    from holdfast.operations.aio import AsyncStore

T = TypeVar("T")


class Store(StoreReads):
    """A store of runs. `holdfast.open(url)` returns one; `Store(port)` wraps any port.

    Its methods block; `store.aio` has the same methods to await. A store may be used by many threads and tasks at once,
    and after a fork. Use it as a context manager or call `close`.

    Example:
        with holdfast.open("sqlite:runs.db") as store:
            store.save("run-1", {"messages": []})
    """

    def __init__(self, port: StorePort, *, clock: Clock | None = None, ids: Ids | None = None) -> None:
        super().__init__(port, clock=clock, ids=ids)
        self._aio: AsyncStore | None = None

    @property
    def aio(self) -> AsyncStore:
        """The same store for async callers."""
        if self._aio is None:
            with fork_safety.loading:
                from holdfast.operations.aio import AsyncStore  # loads asyncio only if it is used

                self._aio = self._aio or AsyncStore(self.access)
        return self._aio

    save = blocking(write.save)
    append = blocking(write.append)
    mark_done = blocking(write.mark_done)
    mark_intent = blocking(write.mark_intent)
    attach = blocking(write.attach)
    attach_all = blocking(write.attach_all)
    announce = blocking(claims.announce)
    recover_expired = blocking(claims.recover_expired)
    prune = blocking(prune_operations.prune)
    delete = blocking(prune_operations.delete)
    delete_checkpoint = blocking(prune_operations.delete_checkpoint)
    fork = blocking(fork_operations.fork)
    copy = blocking(fork_operations.copy)
    export_run = blocking(archive.export_run)
    import_run = blocking(archive.import_run)
    verify = blocking(verify_operations.verify)
    stats = blocking(verify_operations.stats)
    counts = blocking(catalog.counts)
    workflows = blocking(catalog.workflows)

    @overload
    def tracked(self, run_id: str, *, as_type: type[T], lane: str = "") -> Tracked[T]: ...
    @overload
    def tracked(self, run_id: str, *, as_type: None = None, lane: str = "") -> Tracked[dict[str, Any]]: ...
    def tracked(self, run_id: str, *, as_type: object = None, lane: str = "") -> Tracked[Any]:
        """Load the run's newest state, or an empty dict, as a tracked one: a save of it costs what has changed.

        `as_type` is a TypedDict or another type that the state is converted to.

        Example:
            chat = store.tracked("run-1")
            chat.state.setdefault("messages", []).append({"role": "user", "content": "hi"})
            chat.save()
        """
        forbid_in_loop("tracked")
        return self.access.run(open_tracked(self.access, Tracked, run_id, as_type, lane))

    def claim(self, run_id: str, owner: str, lease: float = 30.0) -> Claim | None:
        """Take the exclusive right to execute a run, for `lease` seconds.

        None if it is claimed, or if it has ended. RunNotFound if there is no such run. The claim of an announced owner
        that is known to be dead is taken over before its lease expires.

        Example:
            claim = store.claim("run-1", owner="w1", lease=30)
        """
        forbid_in_loop("claim")
        return self.access.run(claims.take_claim(self.access, Claim, run_id, owner, lease))

    def claim_ready(
        self, owner: str, limit: int = 1, lease: float = 30.0, workflows: Iterable[str] = ()
    ) -> list[Claim]:
        """Take up to `limit` runs that are ready, longest ready first, in one commit, as workers do.

        Only runs of these workflows, if any are given. Claimed runs are skipped.

        Example:
            claims = store.claim_ready("w1", limit=10, workflows=["triage"])
        """
        forbid_in_loop("claim_ready")
        plan = claims.take_ready(self.access, Claim, owner, limit, lease, workflows)
        return self.access.run(plan)

    def __repr__(self) -> str:
        return f"<holdfast.Store {self.url}>"


class ClaimBase:
    """The attributes of blocking and async claims."""

    def __init__(self, access: Access, row: RunRow, lease: float) -> None:
        assert access.holder is not None
        self.access = access
        self.run_id = row.run_id
        self.owner = access.holder.owner
        self.fence = access.holder.fence
        """Grows with every claim of the run; pass it to external systems that can reject older ones."""
        self.lease = lease
        """Seconds since the claim was taken or last renewed."""
        self._ended = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.run_id!r} by {self.owner!r}, fence {self.fence}>"


class Claim(ClaimBase):
    """The exclusive, leased right to execute a run. `store.claim` returns one.

    Write through the claim; once it is lost, every write raises ClaimLost. As a context manager it is released at the
    end.

    Example:
        with store.claim("run-1", owner="w1", lease=30) as claim:
            claim.save({"messages": ["hi"]})
            claim.complete()
    """

    save = blocking_held(write.save)
    append = blocking_held(write.append)
    mark_done = blocking_held(write.mark_done)
    mark_intent = blocking_held(write.mark_intent)
    attach = blocking_held(write.attach)
    attach_all = blocking_held(write.attach_all)

    @overload
    def tracked(self, *, as_type: type[T], lane: str = "") -> Tracked[T]: ...
    @overload
    def tracked(self, *, as_type: None = None, lane: str = "") -> Tracked[dict[str, Any]]: ...
    def tracked(self, *, as_type: object = None, lane: str = "") -> Tracked[Any]:
        """The run's newest state, tracked, to be saved through the claim; see `Store.tracked`."""
        forbid_in_loop("tracked")
        return self.access.run(open_tracked(self.access, Tracked, self.run_id, as_type, lane))

    def renew(self, lease: float | None = None) -> None:
        """Extend the lease, counted from now."""
        forbid_in_loop("renew")
        wanted = self.lease if lease is None else lease
        self.access.run(claims.renew_claim(self.access, self.run_id, wanted))
        self.lease = wanted

    def complete(self) -> None:
        """End the run as completed and release the claim, in one commit."""
        forbid_in_loop("complete")
        self.access.run(claims.complete_claim(self.access, self.run_id))
        self._ended = True

    def release(self, status: str | None = None) -> None:
        """Release the claim. A running run becomes ready; `status` sets another status in the same commit."""
        forbid_in_loop("release")
        self.access.run(claims.end_claim(self.access, self.run_id, status))
        self._ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._ended:
            return
        try:
            self.release()
        except ClaimLost:
            if error is None:
                raise
