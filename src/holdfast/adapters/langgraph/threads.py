"""Threads as runs: which run, lane and checkpoint a LangGraph config means.

A thread is a run of the workflow "langgraph", with the thread's id. A checkpoint namespace is a lane; the few that are
longer than a lane's name may be are named by their hash, and the checkpoint says which namespace it is of.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from blake3 import blake3
from langchain_core.runnables import RunnableConfig

from holdfast.errors import InvalidInput, WorkflowConflict
from holdfast.ids import check_id
from holdfast.limits import ID_BYTES_MAX
from holdfast.model.rows import RunRow
from holdfast.verbs.lineage import THREADS

WORKFLOW: Final = THREADS
_HASH_CHARS: Final = 32


class Spot(NamedTuple):
    """What a config points at."""

    thread_id: str
    namespace: str
    lane: str
    checkpoint_id: str | None


def spot_of(config: RunnableConfig) -> Spot:
    """The thread, namespace and, if it names one, checkpoint of a config."""
    configurable = config.get("configurable") or {}
    if configurable.get("thread_id") is None:
        raise InvalidInput('the config has no thread_id; pass {"configurable": {"thread_id": "…"}}')
    thread_id = check_id("thread_id", str(configurable["thread_id"]))
    namespace = configurable.get("checkpoint_ns") or ""
    checkpoint_id = configurable.get("checkpoint_id") or None
    if checkpoint_id is not None:
        checkpoint_id = check_id("checkpoint_id", str(checkpoint_id))
    return Spot(thread_id, namespace, lane_of(namespace), checkpoint_id)


def lane_of(namespace: str) -> str:
    """The lane a namespace lives on."""
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
    """A config that names one checkpoint."""
    named: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
    return {"configurable": named}


def thread_row(run: RunRow) -> RunRow:
    """The run's row, if it is a thread's."""
    if run.workflow != WORKFLOW:
        raise WorkflowConflict(run.run_id, WORKFLOW, run.workflow)
    return run
