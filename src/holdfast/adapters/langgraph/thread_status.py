"""The status of a thread: completed, or waiting for the next call of its graph.

LangGraph does not report the end of a call to its saver, so it is read from what is saved: a root checkpoint is the end
if none of its channels triggers a node. Which channels trigger nodes is known by name for a `StateGraph` and for an
`@entrypoint`. For any other graph it is not known, and its threads stay `waiting`.

A status is never `completed` while a node is left to run or an interrupt is left to answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from langgraph.checkpoint.base import WRITES_IDX_MAP, Checkpoint

from holdfast.model.status import COMPLETED, WAITING
from holdfast.store.port import Select
from holdfast.verbs.core import Core

NULL_TASK: Final = "00000000-0000-0000-0000-000000000000"
"""The task of writes that LangGraph applies to a checkpoint before it decides what runs next."""
_INTERRUPT: Final = "__interrupt__"
_START: Final = "__start__"
_SENDS: Final = "__pregel_tasks"
_NAMED_SINCE: Final = 4
"""The version of checkpoints since which triggers have the names that are known here."""
_ENTRYPOINT: Final = frozenset({_START, _SENDS, "__end__", "__previous__"})
"""The channels of an `@entrypoint`."""
_INTERRUPT_KEY: Final = f"s{-WRITES_IDX_MAP[_INTERRUPT]}:"
"""How the name of the attachment for an interrupt begins; see record.py."""


def status_of(checkpoint: Checkpoint) -> str:
    """`completed` if nothing is left to run after this root checkpoint; `waiting` if something is, or may be."""
    versions, seen = checkpoint["channel_versions"], checkpoint["versions_seen"]
    return status_from(checkpoint["v"], versions, seen, checkpoint["channel_values"])


def status_from(v: int, versions: Mapping[str, Any], seen: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """`status_of` for the parts of a checkpoint. A value that is still serialised counts as one that starts a node."""
    if v < _NAMED_SINCE or (_START not in seen and not (seen and _ENTRYPOINT.issuperset(versions))):
        return WAITING
    return WAITING if any(_is_trigger(channel, value) for channel, value in values.items()) else COMPLETED


def _is_trigger(channel: str, value: Any) -> bool:
    """Whether a channel with this value starts a node."""
    if channel.startswith("join:"):
        return _is_full(channel, value)
    return channel == _START or channel.startswith("branch:to:") or (channel == _SENDS and bool(value))


def _is_full(channel: str, value: Any) -> bool:
    """Whether all nodes that `join:a+b:c` names have arrived, so that `c` runs. Names may contain a plus sign."""
    arrived = value[0] if isinstance(value, (tuple, list)) else value
    if not isinstance(arrived, (set, frozenset)):
        return True
    awaited = channel.removeprefix("join:").rpartition(":")[0]
    return sum(len(str(name)) + 1 for name in arrived) - 1 >= len(awaited)


def opens(writes: Iterable[tuple[str, Any]], task_id: str) -> bool:
    """Whether these writes leave something to run, or to answer, whatever their checkpoint says."""
    channels = {channel for channel, _ in writes}
    return _INTERRUPT in channels or (task_id == NULL_TASK and not channels <= WRITES_IDX_MAP.keys())


def stored_status(core: Core, thread_id: str) -> str:
    """The status that follows from the newest root checkpoint in the store and the writes beside it."""
    found = core.port.whole_checkpoint(thread_id, Select())
    if found is None or found[1] is None or found[1].status != COMPLETED:
        return WAITING
    return WAITING if any(keeps_open(row.key) for row in found[2]) else COMPLETED


def keeps_open(key: str) -> bool:
    """Whether the attachment of this name leaves something to run, or to answer; see `opens`."""
    return key.startswith(_INTERRUPT_KEY) or (key.startswith("w") and key.partition(":")[2] == NULL_TASK)
