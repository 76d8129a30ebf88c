"""Threads as runs: names, status and claims.

A thread is a run of the workflow "langgraph" with the id of the thread. A checkpoint namespace is a lane. The lane of a
namespace that is too long for a name is named by its beginning and its hash, and the checkpoint records the namespace.

One process at a time executes a claimed thread; see `adapters.shared.run_claim`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from blake3 import blake3
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, Checkpoint

from holdfast.adapters.shared.run_claim import RunClaim
from holdfast.errors import InvalidInput, WorkflowConflict
from holdfast.ids import check_id
from holdfast.limits import ID_BYTES_MAX
from holdfast.model.rows import COMPLETED, WAITING, RunRow
from holdfast.operations.checkpoint_needs import THREADS
from holdfast.operations.context import StoreContext
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


class ThreadClaim(RunClaim):
    """The exclusive right to execute a thread within `with` or `async with`, from `saver.claim`.

    Example:
        with saver.claim("thread-1"):
            graph.invoke(Command(resume=True), config)
    """

    def __init__(self, core: StoreContext, owner: Owner, thread_id: str, lease: float) -> None:
        self.thread_id = check_id("thread_id", str(thread_id))
        super().__init__(core, owner, self.thread_id, lease, WORKFLOW, stored_status)
