"""A run's number with a row's number as one key, and columns as rows; for the stores that speak SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    MessageRow,
    RunRow,
    TimerRow,
)
from holdfast.store.port import RunRows

R = TypeVar("R")

RUN_COLUMNS = len(RunRow.__struct_fields__)


def key_of(run: int, number: int) -> int:
    """The key of a row that has its own number within a run."""
    return run << 32 | number


def last_key(run: int) -> int:
    """The largest key a row of the run can have."""
    return run << 32 | NUMBER_MAX


def built(kind: Callable[..., R], columns: Any) -> R:
    """A row of its columns, which stand in the order of its fields."""
    return kind(*columns)


def entry_columns(run: int, e: EntryRow) -> tuple[int, str, int, bytes, bytes, int]:
    """A journal entry as columns."""
    return key_of(run, e.position), e.kind, e.created_us, e.commit_id, e.body, e.seal


def read_run_rows(
    run_id: str, fetch: Callable[..., list[Any]], build: Callable[[Any, Any], Any], no_limit: int | None
) -> RunRows | None:
    """All rows of a run. `fetch` executes a statement by its name, `build` makes a row of its columns."""
    found = fetch("run_by_id", run_id)
    if not found:
        return None
    run = built(RunRow, found[0])
    keys = key_of(run.run, 0), last_key(run.run)

    def rows(kind: Any, name: str, *bindings: Any) -> list[Any]:
        return [build(kind, columns) for columns in fetch(name, *bindings)]

    return RunRows(
        run,
        rows(CheckpointRow, "checkpoints_after", *keys, no_limit),
        rows(EntryRow, "entries_after", *keys, no_limit),
        rows(EffectRow, "effects", *keys),
        rows(AttachmentRow, "attachments", run.run),
        rows(GateRow, "gates_alone", run.run),
        rows(ItemRow, "items_all", *keys),
        rows(TimerRow, "timers", run.run),
        rows(MessageRow, "messages_of_run", *keys),
    )
