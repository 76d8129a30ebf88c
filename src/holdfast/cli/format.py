"""Values, durations and trees of changes, formatted as lines of text.

Values are shortened here and nowhere else.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from holdfast.cli.output import chunks, columns, one_line
from holdfast.model.views import Change

SHORT: Final = 200
"""Longer values are shortened in text output, never in JSON."""
_SPANS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def value_text(value: object, longest: int = SHORT) -> str:
    """Format a value as one line of JSON, shortened to `longest` characters."""
    text = escaped(_json(value))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def long_duration(us: int) -> str:
    """Format a duration in its two largest units."""
    seconds = us / 1_000_000
    for size, unit, below, lesser in _SPANS:
        if seconds >= size:
            rest = int(seconds % size // below)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {lesser}" if rest else "")
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{us / 1000:.0f} ms" if us >= 1000 else f"{us / 1000:.1f} ms"


def command_line(arguments: Sequence[str]) -> str:
    """Quote a command for a shell."""
    return shlex.join(arguments)


def command_lines(line: str, width: int) -> list[str]:
    """Break a command into lines that a shell accepts: each but the last ends in a backslash.

    A word that is longer than a line is continued at the beginning of the next one.
    """
    if columns(line) <= width:
        return [line]
    lines: list[str] = []
    at = ""
    for word in shlex.split(line):
        quoted = shlex.quote(word) if at or lines or not word.endswith(":") else word
        joined = f"{at} {quoted}" if at else quoted
        if columns(joined) <= width - 2:
            at = joined
            continue
        lines += [f"{at} \\"] if at else []
        if columns(quoted) <= width - 4:
            at = f"  {quoted}"
            continue
        *whole, at = [shlex.quote(part) for part in chunks(word, max(1, width - 12))]
        lines += [f"{part}\\" for part in whole]
    return [*lines, at]


def state_lines(value: object) -> list[str]:
    """Format a state as lines of indented JSON."""
    return [escaped(line) for line in _json(value, 2).split("\n")]


def escaped(text: str) -> str:
    """Escape unprintable characters of JSON text, so that it cannot move the cursor or change colours."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def _json(value: object, indent: int | None = None) -> str:
    from holdfast.state.json_preview import to_jsonable  # loaded when there is a value to show

    return json.dumps(to_jsonable(value), ensure_ascii=False, indent=indent)


_SIGNS: Final = {"add": "+", "remove": "-", "replace": "~"}


class _Branch:
    """A path in the state, with the changes at and below it."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.below: dict[str | int, _Branch] = {}


def change_lines(changes: Iterable[Change], longest: int = SHORT) -> list[str]:
    """Format changes as a tree of paths in the state."""
    root = _Branch()
    for change in changes:
        branch = root
        for part in change.path:
            branch = branch.below.setdefault(part, _Branch())
        branch.changes.append(change)
    lines = ["state", *(f"  {_change_text(change, longest)}" for change in root.changes)]
    return lines + list(_branch_lines(root, "", longest))


def _branch_lines(branch: _Branch, lead: str, longest: int) -> Iterator[str]:
    last = len(branch.below) - 1
    for at, (part, below) in enumerate(branch.below.items()):
        bend, further = ("└─ ", "   ") if at == last else ("├─ ", "│  ")
        name = one_line(str(part)) if isinstance(part, str) else f"[{part}]"
        texts = [_change_text(change, longest) for change in below.changes]
        yield f"{lead}{bend}{name}" + (f": {texts[0]}" if texts else "")
        yield from (f"{lead}{further}{text}" for text in texts[1:])
        yield from _branch_lines(below, lead + further, longest)


def _change_text(change: Change, longest: int) -> str:
    sign = _SIGNS[change.op]
    if change.op == "replace":
        return f"{sign} {value_text(change.old, longest)} → {value_text(change.new, longest)}"
    return f"{sign} {value_text(change.new if change.op == 'add' else change.old, longest)}"


_UNITS: Final = {"s": 1, "min": 60, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_AGE: Final = re.compile(r"([0-9]{1,6}(?:[.][0-9]{1,6})?)\s*(s|min|m|h|d|w)")


def age(text: str) -> dt.timedelta:
    """Parse a duration such as 30d; BadParameter if it is not one."""
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        from click import BadParameter

        raise BadParameter(f"{text!r} is not a duration; write 30d, 12h, 90min or 45s")
    return dt.timedelta(seconds=float(found[1]) * _UNITS[found[2]])
