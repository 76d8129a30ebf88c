"""Declared workflows: each turn of their one loop is a stage, and is shown as that.

A checkpoint of such a run says which stage comes next, so it names the turn that follows; the first one, and one after
a rollback, is named by the first call in it, which is named after its stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.inspect.calls import Met
from holdfast.inspect.shapes import Row

UNSATISFIED: Final = "unsatisfied"
_LOOP: Final = "loop#1["


def is_declared(entries: Sequence[Met]) -> bool:
    """Whether a journal begins with the definition of its workflow."""
    return bool(entries) and entries[0].kind == "started" and isinstance(entries[0].data.get("definition"), dict)


def with_stages(rows: Sequence[Row], last: Met | None = None) -> list[Row]:
    """The rows, with turns as stages. `last`: the last entry; it ends the last stage, which has no turn of its own."""
    rows = _with_last_stage(rows, last)
    found: list[Row] = []
    coming: str | None = None
    for at, row in enumerate(rows):
        if row.kind != "turn":
            coming = row.next_node if row.kind in ("rollback", "forked") else coming
            found.append(row)
            continue
        name = coming or _first_call(rows, at) or row.name
        if row.state == UNSATISFIED:
            row = msgspec.structs.replace(row, text="it ended without its `until` being met")  # noqa: PLW2901
        found.append(msgspec.structs.replace(row, kind="stage", name=name))
        coming = row.next_node
    return found


def _with_last_stage(rows: Sequence[Row], last: Met | None) -> Sequence[Row]:
    """The rows, with a turn for the last stage if that ended without its condition being met."""
    if last is None or last.kind != "completed" or not last.data.get("unsatisfied"):
        return rows
    scopes = [row.scope.partition("/")[0] for row in rows if row.state != "taken_back" and row.scope.startswith(_LOOP)]
    if not scopes:
        return rows
    at = next(at for at, row in enumerate(rows) if row.state != "taken_back" and row.scope.startswith(scopes[-1]))
    first, number = rows[at], scopes[-1].removeprefix(_LOOP).rstrip("]")
    facts = {"started_at": first.started_at, "ended_at": rows[-1].ended_at, "first": first.first, "last": last.position}
    turn = Row(kind="turn", name=f"turn {number}", call=scopes[-1], state=UNSATISFIED, **facts)  # type: ignore[arg-type]
    return [*rows[:at], turn, *rows[at:]]


def _first_call(rows: Sequence[Row], at: int) -> str:
    """The name of the first call in a turn; its rows stand behind it."""
    scope = rows[at].call
    inside = next((row for row in rows[at + 1 : at + 2] if row.scope == scope), None)
    return inside.call.rpartition("/")[2].rpartition("#")[0] if inside is not None else ""
