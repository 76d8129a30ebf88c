"""The store and the claim, as blocking callers use them. `aio` has the same verbs for awaiting callers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from holdfast import forking
from holdfast.clock import Clock, SystemClock
from holdfast.errors import ClaimLost
from holdfast.ids import Ids, RandomIds, check_id, check_lane
from holdfast.model.rows import RunRow
from holdfast.model.views import Checkpoint, CheckpointInfo
from holdfast.store.port import StorePort
from holdfast.verbs import archive, checking, holding, keeping, moving, reading, writing
from holdfast.verbs.core import Core, Place
from holdfast.verbs.plans import blocking, blocking_held, forbid_in_loop, run_plan

if TYPE_CHECKING:
    from holdfast.verbs.aio import AsyncStore

T = TypeVar("T")


class Store:
    """A place where runs live. `holdfast.open(url)` gives one; `Store(port)` makes one of any port.

    Blocking. `store.aio` has the same verbs to await. A store may be used by many threads and tasks at once, and after
    a fork. Use it as a context manager or call `close`.

    Example:
        with holdfast.open("sqlite:runs.db") as store:
            store.save("run-1", {"messages": []})
    """

    def __init__(self, port: StorePort, *, clock: Clock | None = None, ids: Ids | None = None) -> None:
        self._place = Place(Core(port, clock or SystemClock(), ids or RandomIds()))
        self._aio: AsyncStore | None = None

    @property
    def url(self) -> str:
        """What the store was opened as."""
        return self._place.core.port.url

    @property
    def port(self) -> StorePort:
        """The store below, with the verbs of `holdfast.store.port`."""
        return self._place.core.port

    @property
    def aio(self) -> AsyncStore:
        """The same store for awaiting callers."""
        if self._aio is None:
            with forking.loading:
                from holdfast.verbs.aio import AsyncStore  # asyncio is loaded by those who use it

                self._aio = self._aio or AsyncStore(self._place)
        return self._aio

    save = blocking(writing.save)
    append = blocking(writing.append)
    mark_done = blocking(writing.mark_done)
    mark_intent = blocking(writing.mark_intent)
    attach = blocking(writing.attach)
    attach_all = blocking(writing.attach_all)
    announce = blocking(holding.announce)
    recover_expired = blocking(holding.recover_expired)
    runs = blocking(reading.runs)
    journal = blocking(reading.journal)
    effects = blocking(reading.effects)
    is_done = blocking(reading.is_done)
    attachments = blocking(reading.attachments)
    diff = blocking(reading.diff)
    prune = blocking(keeping.prune)
    delete = blocking(keeping.delete)
    delete_checkpoint = blocking(keeping.delete_checkpoint)
    fork = blocking(moving.fork)
    copy = blocking(moving.copy)
    export_run = blocking(archive.export_run)
    import_run = blocking(archive.import_run)
    verify = blocking(checking.verify)
    stats = blocking(checking.stats)

    @overload
    def load(
        self,
        run_id: str,
        *,
        step: int | None = None,
        at: int | str | None = None,
        checkpoint_id: str | None = None,
        lane: str = "",
        as_type: type[T],
        damaged: Literal["error", "previous"] = "error",
    ) -> Checkpoint[T] | None: ...
    @overload
    def load(
        self,
        run_id: str,
        *,
        step: int | None = None,
        at: int | str | None = None,
        checkpoint_id: str | None = None,
        lane: str = "",
        as_type: Any = None,
        damaged: Literal["error", "previous"] = "error",
    ) -> Checkpoint[Any] | None: ...
    def load(self, run_id: str, **choice: Any) -> Checkpoint[Any] | None:
        """Load a checkpoint with its state: the newest, or the newest of a step, at or before a position, or one by id.

        None if there is no such run or checkpoint. A damaged one raises DamagedData naming the place; with
        `damaged="previous"` the newest undamaged one before it is given instead. `as_type` gives the state as a
        dataclass, msgspec struct, TypedDict or Pydantic model.

        Example:
            store.load("run-1").state
            store.load("run-1", step=2)
            store.load("run-1", at="journal.1")
        """
        forbid_in_loop("load")
        return run_plan(self._place, reading.load(self._place, run_id, **choice))

    def history(self, run_id: str, *, lane: str | None = None) -> Iterator[CheckpointInfo]:
        """The run's checkpoints, oldest first, without their states; of one lane, or of all.

        Lazy: they are read page by page as they are asked for, and nothing is held in between.

        Example:
            [info.step for info in store.history("run-1")]
        """
        check_id("run_id", run_id)
        if lane is not None:
            check_lane(lane)
        return self._history(run_id, lane)

    def _history(self, run_id: str, lane: str | None) -> Iterator[CheckpointInfo]:
        after, incarnation = 0, None
        while True:
            forbid_in_loop("history")
            page = reading.history_page(self._place.core, run_id, lane, after, incarnation)
            yield from page.infos
            if page.last:
                return
            after, incarnation = page.after, page.incarnation

    def claim(self, run_id: str, owner: str, lease: float = 30.0) -> Claim | None:
        """Take the exclusive right to move a run on, for `lease` seconds.

        None if somebody holds it, or if it has ended. RunNotFound if there is no such run. An owner that had announced
        itself and is dead holds nothing, whatever its lease says.

        Example:
            claim = store.claim("run-1", owner="w1", lease=30)
        """
        forbid_in_loop("claim")
        return run_plan(self._place, holding.take_claim(self._place, Claim, run_id, owner, lease))

    def claim_ready(
        self, owner: str, limit: int = 1, lease: float = 30.0, workflows: Iterable[str] = ()
    ) -> list[Claim]:
        """Take up to `limit` runs that are ready, longest ready first, all in one change: what a worker does.

        Only runs of these workflows, if any are named. Runs that somebody holds are passed over.

        Example:
            claims = store.claim_ready("w1", limit=10, workflows=["triage"])
        """
        forbid_in_loop("claim_ready")
        plan = holding.take_ready(self._place, Claim, owner, limit, lease, workflows)
        return run_plan(self._place, plan)

    def close(self) -> None:
        """Give back files and threads. Closing twice is no mistake."""
        if self._aio is not None:
            self._aio.shut_down()
        self._place.core.committer.close()
        self._place.core.port.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<holdfast.Store {self.url}>"


class ClaimBase:
    """What blocking and awaiting claims have in common: the facts."""

    def __init__(self, place: Place, row: RunRow, lease: float) -> None:
        assert place.holder is not None
        self._place = place
        self.run_id = row.run_id
        self.owner = place.holder.owner
        self.fence = place.holder.fence
        """Grows with every claim of the run; pass it to outside systems that can refuse older ones."""
        self.lease = lease
        """Seconds, from when the claim was taken or last renewed."""
        self._ended = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.run_id!r} by {self.owner!r}, fence {self.fence}>"


class Claim(ClaimBase):
    """The exclusive, leased right to move a run on. `store.claim` gives one.

    Writes go through the claim; each is refused with ClaimLost once the claim is no longer the run's. As a context
    manager it is released at the end.

    Example:
        with store.claim("run-1", owner="w1", lease=30) as claim:
            claim.save({"messages": ["hi"]})
            claim.complete()
    """

    save = blocking_held(writing.save)
    append = blocking_held(writing.append)
    mark_done = blocking_held(writing.mark_done)
    mark_intent = blocking_held(writing.mark_intent)
    attach = blocking_held(writing.attach)
    attach_all = blocking_held(writing.attach_all)

    def renew(self, lease: float | None = None) -> None:
        """Extend the lease, counted from now."""
        forbid_in_loop("renew")
        wanted = self.lease if lease is None else lease
        run_plan(self._place, holding.renew_claim(self._place, self.run_id, wanted))
        self.lease = wanted

    def complete(self) -> None:
        """End the run as completed and give up the claim, in one commit."""
        forbid_in_loop("complete")
        run_plan(self._place, holding.complete_claim(self._place, self.run_id))
        self._ended = True

    def release(self, status: str | None = None) -> None:
        """Give up the claim. A running run becomes ready; `status` sets another status in the same commit."""
        forbid_in_loop("release")
        run_plan(self._place, holding.end_claim(self._place, self.run_id, status))
        self._ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        try:
            self.release()
        except ClaimLost:
            if error is None:
                raise
