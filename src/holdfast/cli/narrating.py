"""What a run does, line by line, for those who watch it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.output import duration, one_line
from holdfast.model.names import display_name

if TYPE_CHECKING:
    from holdfast.model.views import Entry

_BRANCH: Final = re.compile(r"(^|/)(gather|map)#\d+\[")
_ENDED: Final = ("step", "outcome", "answered", "received", "child_ended")


class Narrator:
    """Lines for entries as they come: one for each call that has ended.

    What was done side by side is one line when it is over, with what failed of it below.
    """

    def __init__(self) -> None:
        self._done: dict[str, list[int]] = {}
        self._failed: list[str] = []

    def lines(self, entries: Iterable[Entry]) -> Iterator[str]:
        """What these entries say, behind those that were told before."""
        for entry in entries:
            if _BRANCH.search(entry.data.get("in", "")):
                self._count(entry)
                continue
            if "call" not in entry.data:
                yield from self.rest()
            line = _line(entry)
            if line:
                yield line

    def rest(self) -> Iterator[str]:
        """What was done side by side and is not told yet."""
        for name, (good, bad) in self._done.items():
            yield f"  ✓ {name}  {good} done" + (f", {bad} failed" if bad else "")
        yield from self._failed
        self._done.clear()
        self._failed.clear()

    def _count(self, entry: Entry) -> None:
        if entry.kind not in _ENDED:
            return
        name = _name(entry.data)
        self._done.setdefault(name, [0, 0])["error" in entry.data] += 1
        if "error" in entry.data:
            self._failed.append(f"  ✗ {name}: {_error(entry.data)}")


def _line(entry: Entry) -> str:
    """What an entry says for those who watch; empty for what only the engine needs."""
    data = entry.data
    name = _name(data)
    if entry.kind == "attempt":
        return f"  … {name}: {_error(data)}; it is tried again"
    if entry.kind == "rolled_back":
        return f"  ↩ rolled back by {data.get('by', '')}"
    if entry.kind == "undone" and "call" in data:
        return f"  ↩ undone: {display_name(data['key'])}"
    if entry.kind == "undo_failed" and "call" in data:
        return f"  ✗ not undone: {display_name(data['key'])}: {_error(data)}"
    if entry.kind not in _ENDED:
        return ""
    if "error" in data:
        return f"  ✗ {name}: {_error(data)}"
    took = f"  {duration(data['us'] / 1e6)}" if data.get("us", 0) >= 1000 else ""
    who = f"  by {data['by']}" if entry.kind == "answered" and data.get("by") else ""
    return f"  ✓ {name}{who}{took}"


def _name(data: dict[str, Any]) -> str:
    call = str(data.get("call", ""))
    return call.rpartition("#")[0] or call


def _error(data: dict[str, Any]) -> str:
    error = data.get("error") or {}
    return one_line(f"{error.get('type', '')}: {error.get('message', '')}")
