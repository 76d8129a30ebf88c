"""Delta channels of LangGraph threads: the last stored value above a checkpoint, and what was written since.

How the writes change the value is known to the graph only, so both are shown. Where an ancestor is missing, what is
known up to there is shown with the id of the missing one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.inspect.thread_values import readable_value
from holdfast.model.rows import AttachmentRow, CheckpointRow, RunRow
from holdfast.store.port import Select
from holdfast.verbs.core import Core

ANCESTORS_MAX: Final = 2_000
_FOLD: Final = "delta"
Read = Callable[[bytes, str], Any]
"""Decodes what is behind a root, of the place that is named."""


def delta_values(core: Core, run: RunRow, row: CheckpointRow, channels: list[str], read: Read) -> dict[str, Any]:
    """The channels, each as `{"$delta": {"from": value, "writes": [value, …]}}`, oldest write first."""
    found: dict[str, dict[str, Any]] = {channel: {"from": None, "writes": []} for channel in channels}
    left, at, missing = set(channels), row, ""
    for _ in range(ANCESTORS_MAX):
        fold = _fold(core, run, at, read)
        if fold is not None:
            for channel in left:
                _prepend(found[channel], fold.get(channel))
            left = set()
        if not left or not at.parent_id:
            break
        parent = core.port.checkpoint(run.run_id, Select(at.lane, at.parent_id))
        if parent is None or parent[1] is None:
            missing = at.parent_id
            break
        at = parent[1]
        _add_writes(core, run, at, found, left, read)
        values = _values(read(at.root, f"checkpoint {at.checkpoint_id!r} of thread {run.run_id!r}"))
        for channel in left & values.keys():
            found[channel]["from"] = readable_value(values[channel])
        left -= values.keys()
    for channel in left if missing else ():
        found[channel]["missing"] = missing
    return {channel: {"$delta": facts} for channel, facts in found.items()}


def _add_writes(
    core: Core, run: RunRow, row: CheckpointRow, found: dict[str, dict[str, Any]], left: set[str], read: Read
) -> None:
    """Put what tasks wrote beside a checkpoint before what was written later."""
    writes: dict[str, list[tuple[str, str, int, Any]]] = {channel: [] for channel in left}
    for beside in core.port.attachments_of(run.run, [(row.lane, row.checkpoint_id)]):
        value = read(beside.root, _place(run, beside)) if beside.key.startswith("w") else None
        told = value.get("w") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(told, list):
            continue
        for one in told[1:]:
            idx, channel = one if isinstance(one, list) and len(one) == 2 else (None, None)
            if type(idx) is int and isinstance(channel, str) and channel in writes:
                writes[channel].append((str(told[0]), beside.key, idx, value.get(str(idx))))
    for channel, written in writes.items():
        written.sort(key=lambda write: write[:3])
        found[channel]["writes"][:0] = [readable_value(write[3]) for write in written]


def _fold(core: Core, run: RunRow, row: CheckpointRow, read: Read) -> Mapping[str, Any] | None:
    """What stands beside a checkpoint for its ancestors that were removed."""
    for beside in core.port.attachments_of(run.run, [(row.lane, row.checkpoint_id)]):
        if beside.key == _FOLD:
            value = read(beside.root, _place(run, beside))
            return value if isinstance(value, dict) else {}
    return None


def _prepend(facts: dict[str, Any], folded: Any) -> None:
    if isinstance(folded, dict):
        writes = folded.get("writes")
        pairs = [one for one in writes if isinstance(one, list) and len(one) == 2] if isinstance(writes, list) else []
        facts["writes"][:0] = [readable_value(value) for _, value in pairs]
        facts["from"] = readable_value(folded.get("seed"))


def _values(record: Any) -> dict[str, Any]:
    found = record.get("values") if isinstance(record, dict) else None
    return found if isinstance(found, dict) else {}


def _place(run: RunRow, beside: AttachmentRow) -> str:
    return f"attachment {beside.key!r} of checkpoint {beside.checkpoint_id!r} in thread {run.run_id!r}"
