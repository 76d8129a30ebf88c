"""Changes between two states as a page shows them: paths, values, and differences inside long texts."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.model.views import Change
from holdfast.web.tree import preview

WORDS: Final = {"add": "added", "remove": "removed", "replace": "changed"}
_SIGNS: Final = {"add": "+", "remove": "-", "replace": "~"}
_LONG: Final = 80
_CONTEXT_CHARS: Final = 40
_LINES_MAX: Final = 400
"""Longer texts are compared only at their ends, since the time for comparing grows with the square of the lines."""
_SHOWN_LINES_MAX: Final = 200
_LINE_CHARS: Final = 1_000
_CHARS: Final = 3_000


class TextLine(NamedTuple):
    """A line of a difference: `+` was added, `-` was removed, a space is in both."""

    sign: str
    text: str


class ChangeView(NamedTuple):
    """A change as the page shows it."""

    op: str
    word: str
    sign: str
    path: str
    old: str
    new: str
    lines: list[TextLine]
    """The difference of two long texts; if there is one, `old` and `new` are empty."""
    is_cut: bool


def change_view(change: Change) -> ChangeView:
    """A change, which is already masked."""
    path = path_text(change.path)
    old, new = change.old, change.new
    if change.op == "replace" and isinstance(old, str) and isinstance(new, str) and max(len(old), len(new)) > _LONG:
        lines, is_cut = text_difference(old, new)
        return ChangeView(change.op, WORDS[change.op], _SIGNS[change.op], path, "", "", lines, is_cut)
    before, cut_before = ("", False) if change.op == "add" else preview(old, chars=_CHARS)
    after, cut_after = ("", False) if change.op == "remove" else preview(new, chars=_CHARS)
    is_cut = cut_before or cut_after
    return ChangeView(change.op, WORDS[change.op], _SIGNS[change.op], path, before, after, [], is_cut)


def path_text(path: Iterable[str | int]) -> str:
    """A path as people read it: `messages[3].content`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the whole state"


def text_difference(old: str, new: str) -> tuple[list[TextLine], bool]:
    """The lines that differ, with some around them; and whether something was left out."""
    before, after = old.split("\n"), new.split("\n")
    if len(before) == 1 and len(after) == 1:
        return _line_difference(old, new)
    start, end = _common(before, after)
    head = before[max(0, start - 2) : start]
    tail = before[len(before) - end : len(before) - end + 2]
    one, two = before[start : len(before) - end], after[start : len(after) - end]
    found = [TextLine(" ", line) for line in head]
    if max(len(one), len(two)) <= _LINES_MAX:
        found += [TextLine(line[0], line[2:]) for line in difflib.ndiff(one, two) if line[0] in "+- "]
    else:
        found += [TextLine("-", line) for line in one] + [TextLine("+", line) for line in two]
    found += [TextLine(" ", line) for line in tail]
    is_cut = len(found) > _SHOWN_LINES_MAX or any(len(line.text) > _LINE_CHARS for line in found)
    return [line._replace(text=line.text[:_LINE_CHARS]) for line in found[:_SHOWN_LINES_MAX]], is_cut


def _line_difference(old: str, new: str) -> tuple[list[TextLine], bool]:
    """The part of one line that differs, with some signs around it."""
    start, end = _common(old, new)
    head = ("…" if start > _CONTEXT_CHARS else "") + old[max(0, start - _CONTEXT_CHARS) : start]
    tail = old[len(old) - end : len(old) - end + _CONTEXT_CHARS] + ("…" if end > _CONTEXT_CHARS else "")
    parts = [old[start : len(old) - end], new[start : len(new) - end]]
    is_cut = any(len(part) > _CHARS for part in parts)
    lines = [f"{head}{part[:_CHARS]}{tail}" for part in parts]
    return [TextLine("-", lines[0]), TextLine("+", lines[1])], is_cut


def _common(old: str | list[str], new: str | list[str]) -> tuple[int, int]:
    """How many items both have in common at the beginning and at the end."""
    shorter = min(len(old), len(new))
    start = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    end = next((at for at in range(shorter - start) if old[-1 - at] != new[-1 - at]), shorter - start)
    return start, end
