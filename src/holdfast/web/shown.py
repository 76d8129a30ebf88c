"""Values of the user as a person reads them: text, pairs, tables and lists, and JSON for everything else.

`_shown.html` shows what is made here. Long values are folded; very long ones are cut, and that is said.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from markupsafe import Markup

from holdfast.web.markdown import render
from holdfast.web.render import as_json

CHARS_MAX: Final = 200_000
"""What is shown of one value on a page of its own."""
FOLD_CHARS: Final = 400
"""Longer values are folded."""
_DEPTH_MAX: Final = 3
_PAIRS_MAX: Final = 100
_ROWS_MAX: Final = 200
_COLUMNS_MAX: Final = 8
_ITEMS_MAX: Final = 50


class Shown(msgspec.Struct, kw_only=True):
    """How a value is shown."""

    kind: str
    """`nothing`, `text`, `markdown`, `pairs`, `table`, `list` or `json`."""
    text: str = ""
    html: Markup = Markup()
    pairs: list[tuple[str, Shown]] = []
    columns: list[str] = []
    rows: list[list[str]] = []
    items: list[Shown] = []
    fold: str = ""
    """What a folded value is called; empty: it is not folded."""
    is_cut: bool = False
    """Whether a part of it is left out."""


def show(value: Any, *, chars_max: int = CHARS_MAX, heading: int = 4) -> Shown:
    """How a value is shown; a text is Markdown."""
    if isinstance(value, str):
        found = render(value, heading=heading, chars_max=chars_max)
        return Shown(kind="markdown", html=found.html, is_cut=found.is_cut)
    if value is None:
        return Shown(kind="nothing")
    text = as_json(value)
    if len(text) > chars_max:
        left_out = f"\n… {len(text) - chars_max:,} more characters are not shown here"
        return Shown(kind="json", text=text[:chars_max] + left_out, fold=_size(text), is_cut=True)
    return _show(value, 0)


def _show(value: Any, depth: int) -> Shown:
    if isinstance(value, str):
        is_long = len(value) > FOLD_CHARS or value.count("\n") > 8
        return Shown(kind="text", text=value, fold=_size(value) if is_long else "")
    if _is_simple(value):
        return Shown(kind="text", text=simple_text(value))
    if isinstance(value, tuple):
        value = list(value)
    if depth < _DEPTH_MAX:
        if isinstance(value, Mapping) and value and len(value) <= _PAIRS_MAX and _has_names(value):
            return Shown(kind="pairs", pairs=[(name, _show(part, depth + 1)) for name, part in value.items()])
        if isinstance(value, list) and value:
            found = _table(value) or _list(value, depth)
            if found is not None:
                return found
    text = as_json(value)
    return Shown(kind="json", text=text, fold=_size(text) if len(text) > FOLD_CHARS else "")


def _table(value: list[Any]) -> Shown | None:
    """A list of objects with few and short values."""
    if len(value) > _ROWS_MAX or not all(isinstance(row, Mapping) and row and _has_names(row) for row in value):
        return None
    columns = list(dict.fromkeys(name for row in value for name in row))
    fits = all(
        _is_simple(part) or (isinstance(part, str) and len(part) <= 200) for row in value for part in row.values()
    )
    if len(columns) > _COLUMNS_MAX or not fits:
        return None
    rows = [[simple_text(row[name]) if name in row else "" for name in columns] for row in value]
    return Shown(kind="table", columns=columns, rows=rows, fold=f"{len(rows)} rows" if len(rows) > 10 else "")


def _list(value: list[Any], depth: int) -> Shown | None:
    if len(value) > _ITEMS_MAX or not all(_is_simple(part) or isinstance(part, str) for part in value):
        return None
    items = [_show(part, depth + 1) for part in value]
    return Shown(kind="list", items=items, fold=f"{len(items)} items" if len(items) > 10 else "")


def _has_names(value: Mapping[Any, Any]) -> bool:
    return all(isinstance(name, str) and 0 < len(name) <= 100 for name in value)


def _is_simple(value: object) -> bool:
    return value is None or isinstance(
        value, (bool, int, float, decimal.Decimal, dt.date, dt.time, dt.timedelta, uuid.UUID)
    )


def simple_text(value: object) -> str:
    """A simple value in words."""
    if value is None:
        return "none"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _size(text: str) -> str:
    return f"{len(text):,} characters"
