"""Declared workflows: each turn of their one loop is a stage, and is shown as that.

A checkpoint of such a run says which stage comes next, so it names the turn that follows; the first one, and one after
a rollback, is named by the first call in it, which is named after its stage.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.inspect.calls import Met
from holdfast.inspect.shapes import Row


def is_declared(entries: Sequence[Met]) -> bool:
    """Whether a journal begins with the definition of its workflow."""
    return bool(entries) and entries[0].kind == "started" and isinstance(entries[0].data.get("definition"), dict)


def with_stages(rows: Sequence[Row]) -> list[Row]:
    """The rows, with turns as stages."""
    found: list[Row] = []
    coming: str | None = None
    for at, row in enumerate(rows):
        if row.kind != "turn":
            coming = row.next_node if row.kind in ("rollback", "forked") else coming
            found.append(row)
            continue
        name = coming or _first_call(rows, at) or row.name
        found.append(msgspec.structs.replace(row, kind="stage", name=name))
        coming = row.next_node
    return found


def _first_call(rows: Sequence[Row], at: int) -> str:
    """The name of the first call in a turn; its rows stand behind it."""
    scope = rows[at].call
    inside = next((row for row in rows[at + 1 : at + 2] if row.scope == scope), None)
    return inside.call.rpartition("/")[2].rpartition("#")[0] if inside is not None else ""
