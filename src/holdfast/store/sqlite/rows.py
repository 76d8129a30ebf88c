"""Columns to rows, and a run's number with a row's number to one key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.ids import own_checkpoint_number
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import CheckpointRow, EffectRow, ItemRow, RunRow
from holdfast.store.sql.statements import statements

R = TypeVar("R")
Execute = Callable[..., Any]

RUN_COLUMNS = len(RunRow.__struct_fields__)


def key_of(run: int, number: int) -> int:
    """The key of a row that has its own number within a run."""
    return run << 32 | number


def last_key(run: int) -> int:
    """The largest key a row of the run can have."""
    return run << 32 | NUMBER_MAX


def first(execute: Execute, sql: str, bindings: tuple[Any, ...]) -> Any:
    """The first row, or None. Reads to the end: a statement left in the middle holds a snapshot of the database."""
    found = execute(sql, bindings).fetchall()
    return found[0] if found else None


def built(kind: Callable[..., R], columns: Any) -> R:
    """A row of its columns, which stand in the order of its fields."""
    return kind(*columns)


def checkpoint_row(columns: Any) -> CheckpointRow:
    """SQLite has no truth values, and the seal is made over one."""
    number, lane, checkpoint_id, named, *rest = columns
    return CheckpointRow(number, lane, checkpoint_id, bool(named), *rest)


def find_checkpoint(execute: Execute, run: int, lane: str, checkpoint_id: str) -> CheckpointRow | None:
    """A checkpoint by its id: chosen ones by their index, a store's own by the number they start with."""
    found = first(execute, statements()["checkpoint_by_id"], (run, lane, checkpoint_id))
    if found:
        return checkpoint_row(found)
    number = own_checkpoint_number(checkpoint_id)
    found = first(execute, statements()["checkpoint_by_key"], (key_of(run, number),)) if number else None
    row = checkpoint_row(found) if found else None
    return row if row and row.lane == lane and row.checkpoint_id == checkpoint_id else None


def effect_row(columns: Any) -> EffectRow:
    number, name, state, tool, target, reversible, *rest = columns
    return EffectRow(number, name, state, tool, target, bool(reversible), *rest)


def item_row(columns: Any) -> ItemRow:
    number, kind, name, key, by, created_us, taken, body, seal = columns
    return ItemRow(number, kind, name, key, by, created_us, bool(taken), body, seal)
