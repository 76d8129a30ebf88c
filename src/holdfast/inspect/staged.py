"""The rows of a declared workflow's run as its author knows it: stages, without the loop that goes through them."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.inspect.shapes import Row
from holdfast.inspect.stages import UNSATISFIED

STAGES_MAX: Final = 60
"""Of more finished stages than this the older ones become one row."""
_LOOP: Final = "loop#1"


def has_stages(rows: tuple[Row, ...]) -> bool:
    """Whether these are the rows of a declared workflow's run."""
    first = rows[0] if rows else None
    return (
        first is not None
        and first.kind == "started"
        and isinstance(first.result, dict)
        and "definition" in first.result
    )


def staged(rows: tuple[Row, ...], most: int | None = STAGES_MAX) -> tuple[Row, ...]:
    """The rows without the loop, what lies in it as high as it stands; a stage of one call is shown as that call.

    Example:
        staged(timeline(store, "order-17").rows)
    """
    calls = [row.call for row in rows if row.kind == "stage"]
    old = calls[:-most] if most is not None and len(calls) > most else []
    rowed = _of_their_own(rows)
    found: list[Row] = []
    for row in rows:
        if row.kind == "loop" and row.call == _LOOP:
            continue
        if row.call in old or row.scope.partition("/")[0] in old:
            if row.kind == "stage":
                found = _joined(found, row, old)
        elif row.kind != "stage":
            found.append(msgspec.structs.replace(row, depth=_depth(row, rowed)))
        elif row.call in rowed:
            found.append(msgspec.structs.replace(row, depth=0))
    return tuple(found)


def _of_their_own(rows: tuple[Row, ...]) -> set[str]:
    """The stages that have a row of their own: those in which not exactly one thing was done, or that ended in vain."""
    counts: dict[str, int] = {}
    for row in rows:
        if row.kind not in ("stage", "gap") and row.scope.startswith(f"{_LOOP}["):
            counts[row.scope] = counts.get(row.scope, 0) + 1
    return {row.call for row in rows if row.kind == "stage" and (counts.get(row.call) != 1 or row.state == UNSATISFIED)}


def _depth(row: Row, rowed: set[str]) -> int:
    """Two levels higher; below the row of its stage, if that has one, only one."""
    turn = row.scope.partition("/")[0]
    if not turn.startswith(f"{_LOOP}[") and row.kind != "gap":
        return row.depth
    return max(0, row.depth - (1 if turn in rowed else 2))


def _joined(found: list[Row], row: Row, old: list[str]) -> list[Row]:
    """The older stages as one row."""
    if found and found[-1].kind == "stages":
        first = found[-1]
        took = None
        if first.started_at is not None and row.ended_at is not None:
            took = int((row.ended_at - first.started_at).total_seconds() * 1_000_000)
        last = {"last": row.last, "ended_at": row.ended_at, "duration_us": took, "next_node": row.next_node}
        last |= {"state": row.state} if row.state == UNSATISFIED else {}
        return [*found[:-1], msgspec.structs.replace(first, **last)]
    return [*found, msgspec.structs.replace(row, kind="stages", name=f"stages 1 to {len(old)}", depth=0)]
