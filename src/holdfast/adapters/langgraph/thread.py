"""Threads as runs: names, status and claims.

A thread is a run of the workflow "langgraph" with the id of the thread. A checkpoint namespace is a lane. The lane of a
namespace that is too long for a name is named by its beginning and its hash, and the checkpoint records the namespace.

One process at a time executes a claimed thread. LangGraph does not notify a saver when a run of the graph begins and
ends, so the caller marks it with `with saver.claim(thread_id):`. Inside, all saves of this thread carry the claim, and
other owners can neither claim the thread nor write to it. The claim is bound to the context, which LangGraph passes on
to its own threads and tasks: another thread of the program is refused like another process, and so is a forked process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Final, NamedTuple, Self

from blake3 import blake3
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, Checkpoint

from holdfast.clock import US
from holdfast.drivers import Plan
from holdfast.errors import ClaimLost, HoldfastError, InvalidInput, RunClaimed, WorkflowConflict
from holdfast.ids import check_id
from holdfast.limits import ID_BYTES_MAX
from holdfast.model.commit import Commit, NewRun, Refused, TakeClaim
from holdfast.model.rows import COMPLETED, WAITING, RunRow
from holdfast.operations.checkpoint_needs import THREADS
from holdfast.operations.claims import end_claim, lease_us_of, renewal, take_or_revoke_dead
from holdfast.operations.context import Access, Holder, StoreContext, require_committed
from holdfast.runtime.app_core import Owner
from holdfast.store.port import Select

WORKFLOW: Final = THREADS
Values = Mapping[str, object]
_HASH_CHARS: Final = 32


class ThreadRef(NamedTuple):
    """The thread, namespace and checkpoint that a config names."""

    thread_id: str
    namespace: str
    lane: str
    checkpoint_id: str | None


def thread_ref(config: RunnableConfig) -> ThreadRef:
    """Parse a config."""
    configurable = config.get("configurable") or {}
    if configurable.get("thread_id") is None:
        raise InvalidInput('the config has no thread_id; pass {"configurable": {"thread_id": "…"}}')
    thread_id = check_id("thread_id", str(configurable["thread_id"]))
    namespace = configurable.get("checkpoint_ns") or ""
    checkpoint_id = configurable.get("checkpoint_id") or None
    if checkpoint_id is not None:
        checkpoint_id = check_id("checkpoint_id", str(checkpoint_id))
    return ThreadRef(thread_id, namespace, lane_of(namespace), checkpoint_id)


def lane_of(namespace: str) -> str:
    """Return the lane of a namespace."""
    if not isinstance(namespace, str):
        raise InvalidInput(f"checkpoint_ns must be text, not {type(namespace).__name__}")
    name = namespace.encode(errors="replace")
    if len(name) <= ID_BYTES_MAX:
        return check_id("checkpoint_ns", namespace) if namespace else ""
    for start in range(0, len(namespace), ID_BYTES_MAX // 4):
        check_id("checkpoint_ns", namespace[start : start + ID_BYTES_MAX // 4])
    kept = name[: ID_BYTES_MAX - _HASH_CHARS - 1].decode(errors="ignore")
    return f"{kept}#{blake3(name).hexdigest(_HASH_CHARS // 2)}"


def config_of(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    """Return a config that names one checkpoint."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def require_thread(run: RunRow) -> RunRow:
    """Return the row of a run; WorkflowConflict if it is not a thread."""
    if run.workflow != WORKFLOW:
        raise WorkflowConflict(run.run_id, WORKFLOW, run.workflow)
    return run


NULL_TASK: Final = "00000000-0000-0000-0000-000000000000"
"""The task of writes that LangGraph applies to a checkpoint before it decides what runs next."""
_INTERRUPT: Final = "__interrupt__"
_START: Final = "__start__"
_SENDS: Final = "__pregel_tasks"
_NAMED_SINCE: Final = 4
"""The first version of checkpoints whose triggers have these names."""
_ENTRYPOINT: Final = frozenset({_START, _SENDS, "__end__", "__previous__"})
"""The channels of an `@entrypoint`."""
_INTERRUPT_KEY: Final = f"s{-WRITES_IDX_MAP[_INTERRUPT]}:"
"""The beginning of the key of an interrupt's attachment; see `record_codec`."""


def status_of(checkpoint: Checkpoint) -> str:
    """Return `completed` if nothing is left to run after this root checkpoint, else `waiting`."""
    versions, seen = checkpoint["channel_versions"], checkpoint["versions_seen"]
    return status_from(checkpoint["v"], versions, seen, checkpoint["channel_values"])


def status_from(v: int, versions: Values, seen: Values, values: Values) -> str:
    """Return the same status from the parts of a checkpoint. A value that is still serialised counts as a trigger."""
    if v < _NAMED_SINCE or (_START not in seen and not (seen and _ENTRYPOINT.issuperset(versions))):
        return WAITING
    return WAITING if any(_is_trigger(channel, value) for channel, value in values.items()) else COMPLETED


def _is_trigger(channel: str, value: object) -> bool:
    """Return whether a channel with this value starts a node."""
    if channel.startswith("join:"):
        return _is_full(channel, value)
    return channel == _START or channel.startswith("branch:to:") or (channel == _SENDS and bool(value))


def _is_full(channel: str, value: object) -> bool:
    """Return whether all nodes that `join:a+b:c` names have arrived, so that `c` runs. Names may contain a plus."""
    arrived = value[0] if isinstance(value, (tuple, list)) else value
    if not isinstance(arrived, (set, frozenset)):
        return True
    awaited = channel.removeprefix("join:").rpartition(":")[0]
    return sum(len(str(name)) + 1 for name in arrived) - 1 >= len(awaited)


def leaves_work(writes: Iterable[tuple[str, object]], task_id: str) -> bool:
    """Return whether these writes leave something to run or to answer, regardless of their checkpoint."""
    channels = {channel for channel, _ in writes}
    return _INTERRUPT in channels or (task_id == NULL_TASK and not channels <= WRITES_IDX_MAP.keys())


def stored_status(core: StoreContext, thread_id: str) -> str:
    """Return the status that follows from the newest stored root checkpoint and its writes."""
    found = core.port.checkpoint(thread_id, Select(), attachments=True)
    if found is None or found[1] is None or found[1].status != COMPLETED:
        return WAITING
    return WAITING if any(attachment_leaves_work(row.key) for row in found[2]) else COMPLETED


def attachment_leaves_work(key: str) -> bool:
    """Return whether the attachment leaves something to run or to answer; see `leaves_work`."""
    return key.startswith(_INTERRUPT_KEY) or (key.startswith("w") and key.partition(":")[2] == NULL_TASK)


# --- claims ----------------------------------------------------------------------------------------------------------

_RENEWALS_PER_LEASE: Final = 3
_held: ContextVar[Mapping[tuple[int, int, str], Holder]] = ContextVar("holdfast_langgraph_claims")
"""The claims of this context, by process, store and thread."""


def access_for(core: StoreContext, thread_id: str) -> Access:
    """Return the caller's access to a thread, through its claim if it has one."""
    return Access(core, _held.get({}).get((os.getpid(), id(core), thread_id)))


class ThreadClaim:
    """The exclusive right to execute a thread within `with` or `async with`, from `saver.claim`.

    The lease is renewed in the background. If the process dies, the claim ends when the lease expires; on SQLite and in
    a directory immediately, because the lock of the process is released.

    Example:
        with saver.claim("thread-1"):
            graph.invoke(Command(resume=True), config)
    """

    def __init__(self, core: StoreContext, owner: Owner, thread_id: str, lease: float) -> None:
        self.thread_id = check_id("thread_id", str(thread_id))
        self._lease_us = lease_us_of(lease)
        self._core = core
        self._owner = owner
        self._holder: Holder | None = None
        self._ended = threading.Event()
        self._undoing: asyncio.Task[None] | None = None

    @property
    def fence(self) -> int:
        """An integer that grows with every claim. Pass it to systems that can refuse older ones."""
        if self._holder is None:
            raise InvalidInput(f"the claim of thread {self.thread_id!r} is only held inside `with`")
        return self._holder.fence

    def _take(self) -> Plan[None]:
        """Take the claim, and create the thread if it does not exist, in one commit."""
        if self._holder is not None:
            raise InvalidInput(f"the claim of thread {self.thread_id!r} is already held; call saver.claim again")
        token, place = self._core.ids.token, Access(self._core)
        take = TakeClaim((yield lambda: self._owner.name), token(16), self._lease_us, revive=True)
        commit = Commit(self.thread_id, token(8), create=NewRun(), workflow=WORKFLOW, take=take)
        row = require_committed(place, commit, (yield from take_or_revoke_dead(place, commit))).run
        self._holder = Holder(take.owner, row.incarnation, row.fence, take.nonce)

    def _hold(self) -> None:
        """Bind the claim to this context, and start to renew the lease."""
        assert self._holder is not None
        _held.set({**_held.get({}), self._key: self._holder})
        self._ended = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(self._ended,), name="holdfast-claim", daemon=True)
        renewing.start()

    @property
    def _key(self) -> tuple[int, int, str]:
        return os.getpid(), id(self._core), self.thread_id

    def _renew(self, ended: threading.Event) -> None:
        access = Access(self._core, self._holder)
        while not ended.wait(self._lease_us / US / _RENEWALS_PER_LEASE):
            commit = renewal(access, self.thread_id, self._lease_us)
            try:
                if isinstance(self._core.committer.commit(commit), Refused):
                    return  # another owner has the thread; every write through this claim is refused
            except HoldfastError:
                continue  # the store failed; the next renewal tries again

    def _end(self) -> Plan[None]:
        self._ended.set()
        holder, self._holder = self._holder, None
        assert holder is not None
        # Claims may end in any order, and in another context than they began in, as generators do. So this claim is
        # removed from the current mapping; the previous mapping is not restored.
        held = _held.get({})
        if held.get(self._key) == holder:
            _held.set({key: other for key, other in held.items() if key != self._key})
        return self._release(Access(self._core, holder))

    def _release(self, access: Access) -> Plan[None]:
        """Release the claim, and set the status of the thread in the same commit."""
        status = yield lambda: stored_status(self._core, self.thread_id)
        yield from end_claim(access, self.thread_id, status)

    def __enter__(self) -> Self:
        Access(self._core).run(self._take())
        self._hold()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            Access(self._core).run(self._end())
        except (ClaimLost, RunClaimed):
            if error is None:
                raise

    async def __aenter__(self) -> Self:
        taking = asyncio.ensure_future(self._core.awaiting.run(self._take()))
        try:
            await asyncio.shield(taking)
        except asyncio.CancelledError:  # the claim may still be taken; release it then
            self._undoing = asyncio.create_task(self._undo(taking))
            raise
        self._hold()
        return self

    async def _undo(self, taking: asyncio.Future[None]) -> None:
        with contextlib.suppress(HoldfastError):
            await taking
            await self._core.awaiting.run(self._end())

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        try:
            await self._core.awaiting.run(self._end())
        except (ClaimLost, RunClaimed):
            if error is None:
                raise
