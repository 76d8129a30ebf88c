"""Threads of LangGraph as people see them: channel values, the nodes that come next, and open interrupts.

`holdfast.adapters.langgraph.record` describes what is stored. It is read here without LangGraph, so that the command
needs no extra to show it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from holdfast.engine.forms import Form
from holdfast.errors import CheckpointNotFound, DamagedData
from holdfast.inspect.thread_deltas import delta_values
from holdfast.inspect.thread_values import readable_value
from holdfast.limits import RUNS_PAGE_MAX
from holdfast.model.gates import GateInfo
from holdfast.model.rows import AttachmentRow, CheckpointRow, RunRow
from holdfast.model.status import STATUSES, TERMINAL
from holdfast.model.views import CheckpointInfo
from holdfast.state.decoder import decode
from holdfast.store.port import RunQuery, Select
from holdfast.store.seal import check_run, check_seal
from holdfast.verbs.core import Core
from holdfast.verbs.reading import find_checkpoint, in_peace
from holdfast.verbs.shown import checked_checkpoint, checkpoint_place
from holdfast.verbs.store import Store
from holdfast.verbs.values import moment

THREADS: Final = "langgraph"
"""The workflow of the runs that are threads."""
INTERRUPT: Final = "interrupt"
"""The purpose of a gate that is an interrupt of a thread."""
_INTERRUPT_KEY: Final = "s3:"
_TRIGGER: Final = "branch:to:"
_START: Final = "__start__"
_SENDS: Final = "__pregel_tasks"


def _is_internal(channel: str) -> bool:
    return channel in (_START, _SENDS) or channel.startswith((_TRIGGER, "join:"))


def thread_state(store: Store, run_id: str, info: CheckpointInfo) -> Any:
    """The state of a checkpoint of a thread, as plain data.

    Example:
        thread_state(store, "thread-1", store.history("thread-1")[0])
    """
    core = store._place.core

    def read() -> Any:
        found = find_checkpoint(core, run_id, Select(info.lane, info.checkpoint_id))
        if found is None:
            raise CheckpointNotFound(run_id, repr(info.checkpoint_id))
        return stored_state(core, *found)

    return in_peace(core, run_id, read)


def stored_state(core: Core, run: RunRow, row: CheckpointRow) -> Any:
    """The values of the channels, as plain data; what only triggers nodes is left out."""
    record = _decoded(core, run, row.root, checkpoint_place(run.run_id, row))
    if not isinstance(record, dict) or not isinstance(record.get("values"), dict):
        return record
    found = {channel: readable_value(value) for channel, value in record["values"].items() if not _is_internal(channel)}
    delta = [channel for channel in record.get("delta") or () if isinstance(channel, str) and channel not in found]
    if delta:
        found |= delta_values(core, run, row, delta, lambda root, place: _decoded(core, run, root, place))
    return found


def next_nodes(core: Core, run: RunRow) -> list[str]:
    """The nodes that the newest root checkpoint of a thread triggers, as far as its channels name them."""
    found = core.port.checkpoint(run.run_id, Select())
    if found is None or found[1] is None:
        return []
    row = checked_checkpoint(run, found[1])
    record = _decoded(core, run, row.root, checkpoint_place(run.run_id, row))
    values = record.get("values") if isinstance(record, dict) else None
    if not isinstance(values, dict):
        return []
    sends = readable_value(values[_SENDS]) if _SENDS in values else []
    sent = [send.get("node") for send in sends if isinstance(send, dict)] if isinstance(sends, list) else []
    nodes = [channel.removeprefix(_TRIGGER) for channel in values if channel.startswith(_TRIGGER)]
    return list(dict.fromkeys([*nodes, *(node for node in sent if isinstance(node, str))]))


def waiting_threads(store: Store) -> Iterator[RunRow]:
    """The threads that are not completed."""
    query = RunQuery(statuses=tuple(STATUSES - TERMINAL), workflow=THREADS, limit=RUNS_PAGE_MAX)
    while True:
        rows = store._place.core.port.runs(query)
        yield from rows
        if len(rows) < RUNS_PAGE_MAX:
            return
        query = query._replace(before=rows[-1].run)


def open_interrupts(core: Core, run: RunRow) -> list[GateInfo]:
    """The interrupts that a thread waits for, as gates: those written beside its newest root checkpoint."""
    return in_peace(core, run.run_id, lambda: _open_interrupts(core, run.run_id))


def readable_interrupts(core: Core, run: RunRow) -> list[GateInfo]:
    """The same; a thread that is damaged has one interrupt, which says so, and hides none of the others."""
    try:
        return open_interrupts(core, run)
    except DamagedData as error:
        return [_interrupt(run, "unreadable", f"damaged: {error}", run.updated_us)]


def _open_interrupts(core: Core, thread_id: str) -> list[GateInfo]:
    whole = core.port.whole_checkpoint(thread_id, Select())
    if whole is None or whole[1] is None or whole[0].status in TERMINAL:
        return []
    current, _, beside = whole
    done = {row.key.partition(":")[2] for row in beside if row.key.startswith("w")}
    return [
        gate
        for row in sorted(beside, key=lambda row: row.number)
        if row.key.startswith(_INTERRUPT_KEY) and row.key.partition(":")[2] not in done
        for gate in _interrupts(core, check_run(current), row)
    ]


def _interrupts(core: Core, run: RunRow, row: AttachmentRow) -> Iterator[GateInfo]:
    """The interrupts in the write of one task."""
    place = f"attachment {row.key!r} of checkpoint {row.checkpoint_id!r} in thread {run.run_id!r}"
    check_seal(row, run.incarnation, place)
    write = _decoded(core, run, row.root, place)
    value = readable_value(write.get("-3")) if isinstance(write, dict) else None
    for number, one in enumerate(value if isinstance(value, list) else [value]):
        facts = one if isinstance(one, dict) and one.get("$type") == "Interrupt" else {"value": one}
        name = str(facts.get("id") or f"{row.key.partition(':')[2]}.{number}")
        shown = facts.get("value")
        yield _interrupt(run, name, shown, row.created_us)


def _interrupt(run: RunRow, name: str, value: Any, opened_us: int) -> GateInfo:
    return GateInfo(
        run_id=run.run_id, workflow=run.workflow, gate=name, state="open", prompt=_prompt(value), form=Form(()),
        show=None if isinstance(value, str) else value, who=(), purpose=INTERRUPT, opened_at=moment(opened_us),
        expires_at=None, answered_at=None, answered_by=None,
    )  # fmt: skip


def _prompt(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _decoded(core: Core, run: RunRow, root: bytes, place: str) -> Any:
    return decode(root, lambda names: core.port.chunks(run.family, names), place)[0]
