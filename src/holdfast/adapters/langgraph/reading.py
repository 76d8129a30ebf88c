"""Reading: get_tuple and list. Every read fetches what it needs and holds nothing when it returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, SerializerProtocol

from holdfast.adapters.langgraph.recent import Parent, Recent
from holdfast.adapters.langgraph.record import checked_record, checkpoint_of, metadata_of, sorted_writes
from holdfast.adapters.langgraph.threads import WORKFLOW, Spot, config_of, lane_of, spot_of, thread_row
from holdfast.errors import DamagedData, InvalidInput
from holdfast.model.rows import AttachmentRow, CheckpointRow, RunRow
from holdfast.state.decoder import decode
from holdfast.store.port import CheckpointQuery, Select
from holdfast.store.seal import check_run, check_seal
from holdfast.verbs.core import Core
from holdfast.verbs.shown import checked_checkpoint, checkpoint_place
from holdfast.verbs.values import metadata_pairs

PAGE: Final = 100
"""Checkpoints of one thread read at once."""
PAGE_OF_ALL: Final = 500
"""Likewise of all threads, where finding each page costs a look at every checkpoint."""
_RACES_MAX: Final = 20


class Found(NamedTuple):
    """A checkpoint with what lies beside it."""

    run: RunRow
    row: CheckpointRow
    record: dict[str, Any]
    attached: dict[str, Any]


class Wanted(NamedTuple):
    """What `list` was asked for."""

    thread_id: str | None
    query: CheckpointQuery
    limit: int | None


def get_tuple(core: Core, serde: SerializerProtocol, recent: Recent, config: RunnableConfig) -> CheckpointTuple | None:
    """The checkpoint a config names, or the newest of its namespace."""
    spot = spot_of(config)
    found = find(core, spot)
    if found is None:
        return None
    recent.note(
        spot.thread_id,
        spot.lane,
        Parent(found.row.checkpoint_id, found.record["versions"], found.record["values"]),
    )
    return tuple_of(serde, found)


def find(core: Core, spot: Spot) -> Found | None:
    """The checkpoint, checked. One that is removed while it is read is not taken for a damaged one."""
    select = Select(spot.lane, spot.checkpoint_id)
    for _ in range(_RACES_MAX):
        pair = _row(core, spot.thread_id, select)
        if pair is None:
            return None
        run, row = pair
        try:
            attached = _attached(core, run, core.port.attachments(run.run, row.lane, row.checkpoint_id), {})
            return Found(run, row, _record(core, run, row, {}), attached.get((row.lane, row.checkpoint_id), {}))
        except DamagedData:
            if _row(core, spot.thread_id, select) == pair:
                raise
    raise DamagedData(f"thread {spot.thread_id!r}", f"it changed {_RACES_MAX} times while it was read")


def _row(core: Core, thread_id: str, select: Select) -> tuple[RunRow, CheckpointRow] | None:
    found = core.port.checkpoint(thread_id, select)
    if found is None:
        return None
    run, row = found
    thread_row(check_run(run))
    if row is not None:
        return run, checked_checkpoint(run, row)
    if select == Select() and run.head:
        raise DamagedData(f"thread {thread_id!r}", f"its newest checkpoint, number {run.head}, is missing")
    return None


def _record(core: Core, run: RunRow, row: CheckpointRow, cache: dict[bytes, bytes]) -> dict[str, Any]:
    place = checkpoint_place(run.run_id, row)
    state, hashes = decode(row.root, _fetch(core, run.family, cache), place)
    if hashes:
        core.memory.note(run, hashes)
    return checked_record(state, place)


def _fetch(core: Core, family: int, cache: dict[bytes, bytes]) -> Any:
    """Gives the decoder chunks, each read once for a whole page of checkpoints."""

    def fetch(hashes: list[bytes]) -> Mapping[bytes, bytes]:
        missing = [name for name in hashes if name not in cache]
        if missing:
            cache.update(core.port.chunks(family, missing))
        return cache

    return fetch


def _attached(
    core: Core, run: RunRow, rows: Iterable[AttachmentRow], cache: dict[bytes, bytes]
) -> dict[tuple[str, str], dict[str, Any]]:
    """The values of attachments, by lane and checkpoint."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        place = f"attachment {row.key!r} of checkpoint {row.checkpoint_id!r} in thread {run.run_id!r}"
        check_seal(row, run.incarnation, place)
        value, _hashes = decode(row.root, _fetch(core, run.family, cache), place)
        found.setdefault((row.lane, row.checkpoint_id), {})[row.key] = value
    return found


def tuple_of(serde: SerializerProtocol, found: Found) -> CheckpointTuple:
    """As LangGraph wants it."""
    run, row, record, attached = found
    namespace = record.get("ns", row.lane)
    return CheckpointTuple(
        config_of(run.run_id, namespace, row.checkpoint_id),
        checkpoint_of(serde, row.checkpoint_id, record),
        metadata_of(serde, row.metadata, checkpoint_place(run.run_id, row)),
        config_of(run.run_id, namespace, row.parent_id) if row.parent_id else None,
        [write.pending(serde) for write in sorted_writes(attached)],
    )


def wanted(
    config: RunnableConfig | None, filter: dict[str, Any] | None, before: RunnableConfig | None, limit: int | None
) -> tuple[Wanted, Spot | None]:
    """What `list` was asked for, checked, and the checkpoint before which it is to begin."""
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidInput(f"limit must be a whole number from 0 on, not {limit!r}")
    tags = metadata_pairs(filter) if filter else ()
    configurable = (config or {}).get("configurable") or {}
    thread_id = None if configurable.get("thread_id") is None else str(configurable["thread_id"])
    lane = None if configurable.get("checkpoint_ns") is None else lane_of(configurable["checkpoint_ns"])
    query = CheckpointQuery(thread_id, WORKFLOW, lane, configurable.get("checkpoint_id"), tags)
    start = (before or {}).get("configurable") or {}
    if start.get("checkpoint_id") is None:
        return Wanted(thread_id, query, limit), None
    named = start if start.get("thread_id") is not None else {**start, "thread_id": thread_id}
    if named["thread_id"] is None:
        return Wanted(thread_id, query._replace(before_id=str(start["checkpoint_id"])), limit), None
    return Wanted(thread_id, query, limit), spot_of({"configurable": named})


def begin(core: Core, asked: Wanted, before: Spot | None) -> CheckpointQuery:
    """The query, beginning behind `before`. If that checkpoint is gone, ids say what is older."""
    if before is None:
        return asked.query
    found = core.port.checkpoint(before.thread_id, Select(before.lane, before.checkpoint_id))
    if found is None or found[1] is None:
        return asked.query._replace(before_id=before.checkpoint_id)
    run, row = found
    if asked.thread_id is not None and asked.thread_id != run.run_id:
        return asked.query._replace(before_id=before.checkpoint_id)
    return asked.query._replace(before=cursor(asked, run, row))


def cursor(asked: Wanted, run: RunRow, row: CheckpointRow) -> tuple[int, int]:
    """Where the list stands at this checkpoint."""
    return (0, row.number) if asked.thread_id is not None else (row.created_us, run.run << 32 | row.number)


def page(core: Core, serde: SerializerProtocol, query: CheckpointQuery) -> list[tuple[RunRow, CheckpointRow, Any]]:
    """The next checkpoints, newest first, each with its tuple; None in place of one that was removed meanwhile."""
    rows = core.port.find_checkpoints(query)
    caches: dict[int, dict[bytes, bytes]] = {}
    beside: dict[int, dict[tuple[str, str], dict[str, Any]]] = {}
    found: list[tuple[RunRow, CheckpointRow, Any]] = []
    for run, row in rows:
        thread_row(check_run(run))
        cache = caches.setdefault(run.family, {})
        try:
            checked_checkpoint(run, row)
            if run.run not in beside:
                places = [(other.lane, other.checkpoint_id) for owner, other in rows if owner.run == run.run]
                beside[run.run] = _attached(core, run, core.port.attachments_of(run.run, places), cache)
            attached = beside[run.run].get((row.lane, row.checkpoint_id), {})
            made = tuple_of(serde, Found(run, row, _record(core, run, row, cache), attached))
        except DamagedData:
            now = find(core, Spot(run.run_id, row.lane, row.lane, row.checkpoint_id))
            made = None if now is None else tuple_of(serde, now)
        found.append((run, row, made))
    return found
