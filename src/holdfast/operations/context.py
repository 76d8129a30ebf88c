"""The context of operations: port, committer, cache of saves, and translated refusals."""

from __future__ import annotations

import datetime as dt
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from holdfast import errors, fork_safety
from holdfast.clock import Clock
from holdfast.drivers import BlockingDriver, Plan
from holdfast.errors import HoldfastError
from holdfast.fork_safety import reset_after_fork
from holdfast.ids import Ids
from holdfast.limits import MEMO_BYTES_MAX
from holdfast.model.commit import HOLDER, Commit, Committed, Guard, NewRun, Outcome, Reason, Refused
from holdfast.model.rows import ChunkRow, GateRow, RunRow
from holdfast.store.capabilities import Liveness, liveness_of
from holdfast.store.group_commit import Committer, Committers
from holdfast.store.port import StorePort

if TYPE_CHECKING:
    from holdfast.drivers.async_driver import AsyncDriver
    from holdfast.state.compression import Compressor
    from holdfast.state.encoder import Encoded, Memo
    from holdfast.state.rope import Fetch

R = TypeVar("R")

_HASH_BYTES = 128
_HASHES_MAX = MEMO_BYTES_MAX // 4 // _HASH_BYTES
"""How many chunks of one run are cached. Above that all are forgotten, and some are sent again."""


class RunCache:
    """What is known of a run from its last save or load. It may be stale: commits are guarded by its epoch."""

    __slots__ = ("bytes", "epoch", "hashes", "incarnation", "memos", "sizes")

    def __init__(self, row: RunRow) -> None:
        self.incarnation = row.incarnation
        self.epoch = row.gc_epoch
        self.hashes: set[bytes] = set()
        self.memos: dict[str, Memo | None] = {}
        self.sizes: dict[str, int] = {}
        self.bytes = 0
        """An estimate of its size."""

    def evict(self) -> None:
        """Forget the lanes saved longest ago if all are too large together; the last one stays."""
        while len(self.memos) > 1 and sum(self.sizes.values()) > MEMO_BYTES_MAX // 2:
            oldest = next(iter(self.memos))
            del self.memos[oldest], self.sizes[oldest]


class SaveCache:
    """The runs saved or loaded last, up to MEMO_BYTES_MAX."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, RunCache] = OrderedDict()
        self._size = 0

    def get(self, run_id: str) -> RunCache | None:
        return self._runs.get(run_id)

    def forget(self, run_id: str) -> None:
        with self._lock:
            known = self._runs.pop(run_id, None)
            self._size -= known.bytes if known else 0

    def note(self, row: RunRow, hashes: Iterable[bytes], lane: str = "", encoded: Encoded | None = None) -> RunCache:
        """Cache that these chunks are stored and, for a save, how the state was encoded."""
        with self._lock:
            known = self._runs.pop(row.run_id, None)
            self._size -= known.bytes if known else 0
            if known is None or known.incarnation != row.incarnation or known.epoch != row.gc_epoch:
                known = RunCache(row)
            self._runs[row.run_id] = known
            known.hashes.update(hashes)
            if encoded is not None:
                known.memos.pop(lane, None)
                known.memos[lane], known.sizes[lane] = encoded.memo, encoded.size
                known.evict()
            if len(known.hashes) > _HASHES_MAX:
                known.hashes.clear()
            known.bytes = sum(known.sizes.values()) + _HASH_BYTES * len(known.hashes)
            self._size += known.bytes
            while self._size > MEMO_BYTES_MAX and len(self._runs) > 1:
                self._size -= self._runs.popitem(last=False)[1].bytes
            return known


class StoreContext:
    """A store's port and what the operations need besides it."""

    def __init__(self, port: StorePort, clock: Clock, ids: Ids) -> None:
        self.port = port
        self.liveness: Liveness = liveness_of(port)
        """What the store knows about owners, if it can know anything."""
        self.clock = clock
        self.ids = ids
        self.committer = Committer(port.commit) if port.writers == 1 else Committers(port.commit, port.writers)
        self.blocking = BlockingDriver(self.committer.commit)
        self._awaiting: AsyncDriver | None = None
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Start with new locks and empty caches."""
        self.memory = SaveCache()
        self._compressor: Compressor | None = None

    @property
    def awaiting(self) -> AsyncDriver:
        """The driver for tasks."""
        if self._awaiting is None:
            with fork_safety.loading:
                from holdfast.drivers.async_driver import AsyncDriver, TaskIO  # loads asyncio only if it is used

                self._awaiting = self._awaiting or AsyncDriver(TaskIO(self.committer.submit))
        return self._awaiting

    def close(self) -> None:
        """Stop the threads and close the port."""
        if self._awaiting is not None:
            self._awaiting.io.close()
        self.committer.close()
        self.port.close()

    def chunk_rows(self, chunks: Mapping[bytes, bytes], *, short: bool = False) -> tuple[ChunkRow, ...]:
        """Chunks as rows; `short` if they are messages, which are worth compressing well."""
        compressor = self._compressor or self._new_compressor()
        body = compressor.short_body if short else compressor.body
        return tuple([ChunkRow(name, body(plain)) for name, plain in chunks.items()])

    def body(self, plain: bytes) -> bytes:
        """The stored body of a value."""
        return (self._compressor or self._new_compressor()).body(plain)

    def _new_compressor(self) -> Compressor:
        with fork_safety.loading:
            from holdfast.state.compression import Compressor  # commands that only read do not load zstd
        self._compressor = Compressor()
        return self._compressor

    def gates_of(self, run: int, state: str | None = "open") -> list[GateRow]:
        """The gates of one run in this state, or in any, the longest open first."""
        return [gate for gate in self.port.rows(GateRow, run) if state in (None, gate.state)]

    def fetch(self, family: int) -> Fetch:
        """The function by which the decoder reads chunks of a family."""
        with fork_safety.loading:
            from holdfast.operations.packs import ChunkReader  # commands that read no state do not load zstd
        return ChunkReader(self.port, family)


class Holder(NamedTuple):
    """The claim through which an operation writes."""

    owner: str
    incarnation: bytes
    fence: int
    nonce: bytes


class Access(NamedTuple):
    """What an operation uses: a store, or a claim on one of its runs."""

    core: StoreContext
    holder: Holder | None = None

    def run(self, plan: Plan[R]) -> R:
        """Execute a plan on this thread."""
        return self.core.blocking.run(plan)

    def guard(self) -> Guard:
        """The guard of this writer's commits."""
        holder = self.holder
        if holder is None:
            return _PLAIN
        return Guard(HOLDER, holder.incarnation, holder.fence, holder.nonce, holder.owner)

    def creation(self) -> NewRun | None:
        """Plain writes create a missing run. A claim's run exists, or the claim is lost."""
        return None if self.holder else _CREATE


class HasAccess(Protocol):
    """A store, blocking or async."""

    @property
    def access(self) -> Access: ...


class HasClaim(HasAccess, Protocol):
    """A claim, blocking or async."""

    run_id: str


_PLAIN: Final = Guard()
_CREATE: Final = NewRun()


def require_committed(access: Access, commit: Commit, outcome: Outcome) -> Committed:
    """Return the outcome of a commit that was applied; raise the reason of one that was refused."""
    if type(outcome) is Committed:
        return outcome
    assert isinstance(outcome, Refused)
    raise refusal(access, commit, outcome)


def refusal(access: Access, commit: Commit, refused: Refused) -> HoldfastError:
    """The error for a commit that was refused."""
    run_id, row, detail = commit.run_id, refused.run, refused.detail
    if refused.error is not None:
        return refused.error
    match refused.reason:
        case Reason.NO_RUN:
            return errors.RunNotFound(run_id)
        case Reason.RUN_EXISTS:
            return errors.RunExists(run_id)
        case Reason.COVERS:
            covers, position = detail.split()
            return errors.InvalidCursor(
                f"a checkpoint of run {run_id!r} cannot cover position {covers}: its journal ends at {position}"
            )
        case Reason.LIMIT:
            return errors.LimitExceeded(f"run {run_id!r}: {detail}")
        case Reason.CHECKPOINT_TAKEN:
            taken = next(new.checkpoint_id for new in commit.checkpoints if new.checkpoint_id)
            return errors.CheckpointConflict(run_id, taken, detail)
        case Reason.ATTACHMENT_TAKEN:
            return errors.AttachmentConflict(run_id, commit.attachments[0].checkpoint_id, detail)
        case Reason.NO_PARENT:
            return errors.ParentRemoved(run_id, detail)
        case Reason.GATE_CLOSED:
            return errors.GateClosed(run_id, str(refused.extra), detail)
        case Reason.CLAIM_LOST:
            holder = row.owner if row is not None and row.owner else None
            return errors.ClaimLost(run_id, commit.guard.owner, holder)
    assert row is not None, refused.reason
    match refused.reason:
        case Reason.CLAIMED:
            left_us = max(0, row.lease_us - access.core.clock.lease_time().us)
            return errors.RunClaimed(run_id, row.owner, left_us / 1e6)
        case Reason.ENDED:
            return errors.RunEnded(run_id, row.status)
        case Reason.WORKFLOW:
            return errors.WorkflowConflict(run_id, commit.workflow or "", row.workflow)
        case Reason.POSITION:
            return errors.PositionConflict(run_id, commit.guard.position or 0, row.position)
        case Reason.ANSWERED:
            assert isinstance(refused.extra, GateRow)
            at = dt.datetime.fromtimestamp((refused.extra.answered_us or 0) / 1e6, dt.UTC)
            return errors.AlreadyAnswered(run_id, detail, refused.extra.answered_by or "", at.isoformat())
    return errors.Conflict(f"run {run_id!r}: the change was refused ({refused.reason}); read the run and try again")
