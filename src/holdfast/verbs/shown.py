"""Rows as views."""

from __future__ import annotations

from typing import Any

from holdfast.errors import DamagedData
from holdfast.model.rows import CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.model.views import Checkpoint, CheckpointInfo, Effect, Entry, RunInfo
from holdfast.state.values import unpack
from holdfast.store.pruning import last_of
from holdfast.store.seal import check_run, check_seal
from holdfast.verbs.values import body_value, metadata_dict, moment

RUN_CURSOR = "runs."


def checkpoint_place(run_id: str, row: CheckpointRow) -> str:
    """How a checkpoint is named in errors."""
    lane = f" on lane {row.lane!r}" if row.lane else ""
    return f"checkpoint {row.checkpoint_id!r}{lane} (number {row.number}) of run {run_id!r}"


def checked_checkpoint(run: RunRow, row: CheckpointRow) -> CheckpointRow:
    """The checkpoint's row, if it fits its seal."""
    return check_seal(row, run.incarnation, checkpoint_place(run.run_id, row))


def checkpoint_info(run: RunRow, row: CheckpointRow) -> CheckpointInfo:
    return CheckpointInfo(**_checkpoint_fields(run, row))


def checkpoint_view(run: RunRow, row: CheckpointRow, state: Any) -> Checkpoint[Any]:
    return Checkpoint(**_checkpoint_fields(run, row), state=state)


def _checkpoint_fields(run: RunRow, row: CheckpointRow) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "checkpoint_id": row.checkpoint_id,
        "parent_id": row.parent_id,
        "lane": row.lane,
        "step": row.step,
        "next_node": row.next_node,
        "covers": row.covers,
        "status": row.status,
        "metadata": metadata_dict(row.metadata, checkpoint_place(run.run_id, row)) if row.metadata else {},
        "created_at": moment(row.created_us),
        "number": row.number,
    }


def run_info(row: RunRow) -> RunInfo:
    check_run(row)
    place = f"run {row.run_id!r}"
    return RunInfo(
        run_id=row.run_id,
        workflow=row.workflow,
        status=row.status,
        metadata=metadata_dict(row.metadata, place),
        created_at=moment(row.created_us),
        updated_at=moment(row.updated_us),
        position=row.position,
        checkpoint_id=row.head_id or None,
        step=row.step,
        owner=row.owner or None,
        forked_from=unpack(row.origin, place) if row.origin else None,
        cursor=f"{RUN_CURSOR}{row.run}",
    )


def entry_view(run: RunRow, row: EntryRow) -> Entry:
    place = f"entry {row.position} of run {run.run_id!r}"
    check_seal(row, run.incarnation, place)
    return Entry(
        position=row.position, kind=row.kind, data=body_value(row.body, place), created_at=moment(row.created_us)
    )


def followed(run_id: str, after: int, row: EntryRow) -> int:
    """The last position a row stands for, if it is the one that comes behind position `after`."""
    if row.position != after + 1:
        raise DamagedData(f"the journal of run {run_id!r}", f"entry {after + 1} is missing")
    return last_of(row)


def effect_view(run: RunRow, row: EffectRow) -> Effect:
    place = f"effect {row.key!r} of run {run.run_id!r}"
    check_seal(row, run.incarnation, place)
    state: Any = "in_doubt" if row.state == "intent" else row.state
    call = body_value(row.call, place)
    return Effect(
        key=row.key,
        state=state,
        tool=row.tool,
        target=row.target,
        reversible=row.reversible,
        result=body_value(row.body, place),
        created_at=moment(row.created_us),
        updated_at=moment(row.updated_us),
        idempotency_key=call.get("token") if isinstance(call, dict) else None,
    )
