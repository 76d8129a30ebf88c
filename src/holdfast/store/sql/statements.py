"""Reads files of named statements. Only lists of columns are put in, and they come from the same file."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

_LIST: Final = re.compile(r"<(?:(\w+)\.)?(\w+)>")


@cache
def statements() -> dict[str, str]:
    """The statements of `statements.sql` by name."""
    return parsed(files("holdfast.store.sql").joinpath("statements.sql").read_text("utf-8"))


def parsed(text: str) -> dict[str, str]:
    """Statements by name; of two with one name the later counts."""
    columns: dict[str, list[str]] = {}
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith("-- columns "):
            name, _, names = line.removeprefix("-- columns ").partition(": ")
            columns[name] = names.split(", ")
        elif line.startswith("-- name: "):
            current = found[line.removeprefix("-- name: ")] = []
        elif line and not line.startswith("--"):
            current.append(line)
    return {name: _expanded(" ".join(lines), columns) for name, lines in found.items()}


def _expanded(statement: str, columns: dict[str, list[str]]) -> str:
    def listed(match: re.Match[str]) -> str:
        alias = match[1]
        return ", ".join(f"{alias}.{column}" if alias else column for column in columns[match[2]])

    return _LIST.sub(listed, statement)
