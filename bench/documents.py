"""Puts what was measured into a document, at places that are marked for it:

    <!-- bench NAME -->
    whatever was found last
    <!-- end -->

All else in the document is left as it is, and so are places whose workload was not run.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.store.postgres.server import newest

from bench import saver_plans
from bench.plot import draw_saver
from bench.results import Result
from bench.table import target_table, workload_body

_PLACE: Final = re.compile(r"(<!-- bench (?P<name>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PICTURE: Final = "images/saver.png"
_ALT: Final = "Time per turn and space on disk over 400 turns, LangGraph's savers and Holdfast's"


def write(document: Path, results: Mapping[str, Result], machine: Mapping[str, Any]) -> None:
    """Fill the marked places of the LangGraph saver, and draw its picture beside the document."""
    ours = {name: result for name, result in results.items() if name in saver_plans.PLANS and result.rounds}
    texts = {name: _narrow(workload_body(result)) for name, result in ours.items()}
    if len(ours) == len(saver_plans.PLANS):
        texts["saver facts"] = _facts(machine)
        texts["saver targets"] = _narrow(target_table(ours))
    if draw_saver(ours, document.parent / _PICTURE):
        texts["saver picture"] = f"![{_ALT}]({_PICTURE})"
    document.write_text(filled(document.read_text("utf-8"), texts), "utf-8")


def filled(text: str, texts: Mapping[str, str]) -> str:
    """The document with these texts at their places."""

    def place(found: re.Match[str]) -> str:
        new = texts.get(found["name"])
        return found[0] if new is None else f"{found[1]}{new}\n{found[3]}"

    return _PLACE.sub(place, text)


def _narrow(text: str) -> str:
    """Tables without the spaces that only fixed-width letters need."""
    lines = (re.sub(r" {2,}", " ", line) if line.startswith("|") else line for line in text.splitlines())
    return "\n".join(re.sub(r"-{4,}", "---", line) if line.startswith("|-") else line for line in lines)


def _facts(machine: Mapping[str, Any]) -> str:
    names = ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "langchain-core")
    versions = ", ".join(f"{name} {machine['packages'].get(name, '?')}" for name in names)
    return textwrap.fill(
        f"Measured {datetime.now(UTC):%Y-%m-%d} at {machine['revision']}: {machine['cpus']} processors "
        f"({machine['cpu']}), {machine['filesystem']}, Python {machine['python']}, SQLite {machine['sqlite_apsw']} "
        f"(Holdfast's) and {machine['sqlite_stdlib']} (LangGraph's), PostgreSQL {newest()}, {versions}.",
        width=120,
    )
