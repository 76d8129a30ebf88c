"""A run's number with a row's number as one key, and columns as rows; for the stores that speak SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import EntryRow, RunRow

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
