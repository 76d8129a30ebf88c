"""Columns of SQLite to rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.ids import own_checkpoint_number
from holdfast.model.rows import CheckpointRow, EffectRow, ItemRow
from holdfast.store.sql.rows import built, key_of
from holdfast.store.sql.statements import statements

Execute = Callable[..., Any]


def first(execute: Execute, sql: str, bindings: tuple[Any, ...]) -> Any:
    """The first row, or None. Reads to the end: a statement left in the middle holds a snapshot of the database."""
    found = execute(sql, bindings).fetchall()
    return found[0] if found else None


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


def any_row(kind: Any, columns: Any) -> Any:
    """A row of any kind."""
    make: dict[Any, Callable[[Any], Any]] = {
        CheckpointRow: checkpoint_row, EffectRow: effect_row, ItemRow: item_row,
    }  # fmt: skip
    return make[kind](columns) if kind in make else built(kind, columns)
