"""Bounds of tool results: long texts, containers and pages are cut, and say so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

TEXT_CHARS_MAX: Final = 2_000
KEY_CHARS_MAX: Final = 200
ITEM_CHARS_MAX: Final = 6_000
"""About how much of one item of a list is returned."""
PAGE_CHARS_MAX: Final = 40_000
"""About how much one result has."""
_NUMBER_CHARS: Final = 8


class _Budget:
    """The characters that are left for a value."""

    def __init__(self, chars: int) -> None:
        self.given = self.left = chars

    def shorten(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list):
            return self._list(value)
        self.left -= _NUMBER_CHARS
        return value

    def _text(self, text: str) -> str:
        kept = text[: max(0, min(TEXT_CHARS_MAX, self.left))]
        self.left -= len(kept) + 2
        return text if len(kept) == len(text) else f"{kept}… ({len(text) - len(kept)} more characters)"

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for count, (key, part) in enumerate(value.items()):
            if self.left <= 0:
                found["…"] = f"{len(value) - count} more"
                break
            name = key if len(key) <= KEY_CHARS_MAX else f"{key[:KEY_CHARS_MAX]}…"
            self.left -= len(name) + 4
            found[name] = self.shorten(part)
        return found

    def _list(self, value: list[Any]) -> list[Any]:
        found: list[Any] = []
        for count, part in enumerate(value):
            if self.left <= 0:
                found.append(f"… {len(value) - count} more")
                break
            found.append(self.shorten(part))
        return found


def shorten(value: object, chars: int = ITEM_CHARS_MAX) -> Any:
    """A value of about `chars` characters as JSON; what is cut says how much was."""
    try:
        return _Budget(chars).shorten(msgspec.to_builtins(value))
    except RecursionError:
        return "… (nested too deeply)"


class Items(NamedTuple):
    """The first items of a list that fit a page."""

    shown: list[Any]
    left_out: int


def shorten_items(values: Iterable[object]) -> Items:
    """As many items as one result may have, each shortened; at least one."""
    items = list(values)
    shown: list[Any] = []
    left = PAGE_CHARS_MAX
    for item in items:
        if left <= 0:
            break
        budget = _Budget(min(ITEM_CHARS_MAX, left + ITEM_CHARS_MAX // 10))
        try:
            shown.append(budget.shorten(msgspec.to_builtins(item)))
        except RecursionError:
            shown.append("… (nested too deeply)")
        left -= budget.given - budget.left
    return Items(shown, len(items) - len(shown))
