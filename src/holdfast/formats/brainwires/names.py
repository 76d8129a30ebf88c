"""File names made of task ids: what the original keeps of an id, and what it replaces.

The Rust program keeps what `char::is_alphanumeric` says, and "-" and "_"; its twin for Deno keeps ASCII letters,
digits, "-" and "_". Different ids become the same name; the id inside a file says whose it is.

Which characters are alphanumeric depends on the version of Unicode. A program with an older one replaces some that
today's Rust keeps, and so did earlier releases of Holdfast, which asked Python. `is_older_name` finds such files.
"""

from __future__ import annotations

from unicodedata import ucd_3_2_0

from holdfast.formats.brainwires.alphanumeric import is_alphanumeric


def rust_name(task_id: str) -> str:
    """The name the Rust program gives to a task's file, without its ending."""
    return "".join(char if char in "-_" or is_alphanumeric(char) else "_" for char in task_id)


def deno_name(task_id: str) -> str:
    """The name its twin for Deno gives to it. That one goes by UTF-16, where rarer characters count twice."""
    kept = (char if char.isascii() and (char.isalnum() or char in "-_") else "_" * _units(char) for char in task_id)
    return "".join(kept)


def has_older_names(task_id: str) -> bool:
    """Whether a program with an older version of Unicode may name the task's file otherwise."""
    return any(_is_disputed(char) for char in task_id)


def is_older_name(name: str, task_id: str) -> bool:
    """Whether only a program with an older version of Unicode names the task's file so."""
    today = rust_name(task_id)
    if name in (today, deno_name(task_id)) or len(name) != len(today):
        return False
    return all(old == new or (old == "_" and _is_disputed(new)) for old, new in zip(name, today, strict=True))


def _units(char: str) -> int:
    return 2 if ord(char) > 0xFFFF else 1


def _is_disputed(char: str) -> bool:
    """Whether it is alphanumeric today, and neither a letter nor a number in Unicode 3.2, on which all agree."""
    return not char.isascii() and is_alphanumeric(char) and ucd_3_2_0.category(char)[0] not in "LN"
