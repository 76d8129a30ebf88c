"""Values, lengths of time and trees, as lines for people. Values are shortened here and nowhere else."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from holdfast.cli.output import chunks, columns, one_line
from holdfast.model.views import Change
from holdfast.state.readable import shown

SHORT: Final = 200
"""Longer values are shortened in text, never in JSON."""
_SPANS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def value_text(value: Any, longest: int = SHORT) -> str:
    """A value in one line, as JSON, shortened if it is long."""
    text = escaped(json.dumps(shown(value), ensure_ascii=False))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def lasting(us: int) -> str:
    """A length of time in its two largest units."""
    seconds = us / 1_000_000
    for size, unit, below, lesser in _SPANS:
        if seconds >= size:
            rest = int(seconds % size // below)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {lesser}" if rest else "")
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{us / 1000:.0f} ms" if us >= 1000 else f"{us / 1000:.1f} ms"


def command_line(arguments: Sequence[str]) -> str:
    """A command as it is typed."""
    return shlex.join(arguments)


def command_lines(line: str, room: int) -> list[str]:
    """A command in lines of so many columns that can be typed as they stand: each but the last ends in a backslash.

    A word that is longer than a line is continued at the beginning of the next one.
    """
    if columns(line) <= room:
        return [line]
    lines: list[str] = []
    at = ""
    for word in shlex.split(line):
        quoted = shlex.quote(word) if at or lines or not word.endswith(":") else word
        joined = f"{at} {quoted}" if at else quoted
        if columns(joined) <= room - 2:
            at = joined
            continue
        lines += [f"{at} \\"] if at else []
        if columns(quoted) <= room - 4:
            at = f"  {quoted}"
            continue
        *whole, at = [shlex.quote(part) for part in chunks(word, max(1, room - 12))]
        lines += [f"{part}\\" for part in whole]
    return [*lines, at]


def state_lines(value: Any) -> list[str]:
    """A state as indented JSON, every line of it."""
    return [escaped(line) for line in json.dumps(shown(value), ensure_ascii=False, indent=2).split("\n")]


def escaped(text: str) -> str:
    """JSON in which nothing moves the cursor or changes colours: what cannot be printed is written as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


# --- changes as a tree -----------------------------------------------------------------------------------------------

_SIGNS: Final = {"add": "+", "remove": "-", "replace": "~"}


class _Branch:
    """A place in the state, and what changed at or below it."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.below: dict[str | int, _Branch] = {}


def change_lines(changes: Iterable[Change], longest: int = SHORT) -> list[str]:
    """Changes as a tree, each at its place in the state."""
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
