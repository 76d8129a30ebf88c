"""The rows of a declared workflow's run as its author knows it: stages, without the loop that goes through them."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.inspect.shapes import Row
from holdfast.inspect.timeline import folded

STAGES_MAX: Final = 60
"""Of more finished stages than this the older ones become one row."""
_LOOP: Final = "loop#1"


def is_declared(rows: tuple[Row, ...]) -> bool:
    """Whether these are the rows of a declared workflow's run."""
    first = rows[0] if rows else None
    return (
        first is not None
        and first.kind == "started"
        and isinstance(first.result, dict)
        and "definition" in first.result
    )


def staged(rows: tuple[Row, ...], most: int | None = STAGES_MAX) -> tuple[Row, ...]:
    """The rows without the loop and its turns; what lies in them stands two levels higher.

    Example:
        staged(timeline(store, "order-17").rows)
    """
    turns = [row.call for row in rows if row.kind == "turn" and row.scope == ""]
    old = set(turns[:-most]) if most is not None and len(turns) > most else set()
    found: list[Row] = []
    for row in _without_old(rows, old):
        if row.kind == "loop" and row.call == _LOOP:
            continue
        if row.kind == "turn" and row.scope == "" and row.call.startswith(f"{_LOOP}["):
            continue
        inside = row.scope.startswith(f"{_LOOP}[") or row.kind == "gap"
        found.append(msgspec.structs.replace(row, depth=max(0, row.depth - 2)) if inside else row)
    return tuple(found)


def _without_old(rows: tuple[Row, ...], old: set[str]) -> tuple[Row, ...]:
    """The rows with these turns folded into one."""
    if not old:
        return rows
    last = max(number for number, row in enumerate(rows) if row.call in old or row.scope in old)
    before = [
        msgspec.structs.replace(row, name=row.name.replace("turn", "stage"), depth=0)
        if row.kind in ("turn", "turns")
        else row
        for row in folded(rows[: last + 1])
    ]
    return (*before, *rows[last + 1 :])
