"""Puts what was measured into a document, at places that are marked for it:

    <!-- bench NAME -->
    what was measured last
    <!-- end -->

The names are those of workloads, `targets SECTION`, `facts`, and those of pictures. The rest of the document and the
places of workloads that were not run stay as they are. In a table of targets only the rows of what was run change.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from bench.table import TARGET_HEADER, table
from bench.targets import Judged

_PLACE: Final = re.compile(r"(<!-- bench (?P<name>[^>]+) -->\n)(?P<text>.*?)(<!-- end -->)", re.DOTALL)
_PACKAGES: Final = (
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "langchain-core",
    "dbos",
)


class Document:
    """A document with marked places, which are filled as soon as something was measured."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, texts: Mapping[str, str]) -> None:
        """Replace the texts of these places."""
        text = self.path.read_text("utf-8")
        self.path.write_text(filled(text, {name: narrow(new) for name, new in texts.items()}), "utf-8")

    def put_targets(self, judged: Mapping[str, Iterable[Judged]]) -> None:
        """Replace the rows that were measured, by section; the others stay as long as their bound is the same."""
        old = {found["name"]: found["text"] for found in _PLACE.finditer(self.path.read_text("utf-8"))}
        texts = {}
        for section, rows in judged.items():
            name = f"targets {section}"
            texts[name] = table(TARGET_HEADER, merged(old.get(name, ""), rows))
        self.put(texts)

    def places(self) -> list[str]:
        """The names of all places."""
        return [found["name"] for found in _PLACE.finditer(self.path.read_text("utf-8"))]


def filled(text: str, texts: Mapping[str, str]) -> str:
    """The document with these texts at their places."""

    def place(found: re.Match[str]) -> str:
        new = texts.get(found["name"])
        return found[0] if new is None else f"{found[1]}{new}\n{found[4]}"

    return _PLACE.sub(place, text)


def merged(old: str, rows: Iterable[Judged]) -> list[tuple[str, ...]]:
    """The rows of a table of targets; what was not run now is what the old table has."""
    cells = [tuple(cell.strip() for cell in line.strip("| ").split(" | ")) for line in old.splitlines()]
    kept = {row[:2]: row for row in cells if len(row) == len(TARGET_HEADER)}
    return [row.cells if row.run else kept.get(row.cells[:2], row.cells) for row in rows]


def narrow(text: str) -> str:
    """Tables without the spaces that only fixed-width letters need."""
    lines = (re.sub(r" {2,}", " ", line) if line.startswith("|") else line for line in text.splitlines())
    return "\n".join(re.sub(r"-{4,}", "---", line) if line.startswith("|-") else line for line in lines)


def facts_line(machine: Mapping[str, Any]) -> str:
    """When, on what and with which versions the last run measured."""
    versions = ", ".join(f"{name} {machine['packages'].get(name, '?')}" for name in _PACKAGES)
    return textwrap.fill(
        f"Measured {machine['date']} at {machine['revision']}: {machine['cpus']} processors ({machine['cpu']}), "
        f"{machine['filesystem']}, Python {machine['python']}, SQLite {machine['sqlite_apsw']} (Holdfast's) and "
        f"{machine['sqlite_stdlib']} (that of Python), PostgreSQL {machine['postgres']}, {versions}.",
        width=120,
    )
