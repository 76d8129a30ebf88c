"""Columns to rows, and a run's number with a row's number to one key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import EffectRow, ItemRow, RunRow

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


def effect_row(columns: Any) -> EffectRow:
    """SQLite has no truth values, and the seal is made over one."""
    number, name, state, tool, target, reversible, *rest = columns
    return EffectRow(number, name, state, tool, target, bool(reversible), *rest)


def item_row(columns: Any) -> ItemRow:
    number, kind, name, key, by, created_us, taken, body, seal = columns
    return ItemRow(number, kind, name, key, by, created_us, bool(taken), body, seal)
