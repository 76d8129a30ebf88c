"""What a run does, line by line, for those who watch it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.output import duration, one_line

if TYPE_CHECKING:
    from holdfast.model.views import Entry

_BRANCH: Final = re.compile(r"(^|/)(gather|map)#\d+\[")
_ENDED: Final = ("step", "outcome", "answered", "received", "child_ended")


def narrated(entries: Iterable[Entry]) -> Iterator[str]:
    """A line for each call that has ended. What was done side by side is one line, with what failed of it below."""
    done: dict[str, list[int]] = {}
    failed: list[str] = []
    for entry in entries:
        data = entry.data
        if _BRANCH.search(data.get("in", "")):
            _count(done, failed, entry)
            continue
        if done and "call" not in data:
            yield from _together(done, failed)
        line = _line(entry)
        if line:
            yield line
    yield from _together(done, failed)


def _count(done: dict[str, list[int]], failed: list[str], entry: Entry) -> None:
    """Take note of what a branch did."""
    if entry.kind not in _ENDED:
        return
    name = _name(entry.data)
    counts = done.setdefault(name, [0, 0])
    counts["error" in entry.data] += 1
    if "error" in entry.data:
        failed.append(f"  ✗ {name}: {_error(entry.data)}")


def _together(done: dict[str, list[int]], failed: list[str]) -> Iterator[str]:
    for name, (good, bad) in done.items():
        yield f"  ✓ {name}  {good} done" + (f", {bad} failed" if bad else "")
    yield from failed
    done.clear()
    failed.clear()


def _line(entry: Entry) -> str:
    """What an entry says for those who watch; empty for what only the engine needs."""
    data = entry.data
    name = _name(data)
    if entry.kind == "attempt":
        return f"  … {name}: {_error(data)}; it is tried again"
    if entry.kind == "rolled_back":
        return f"  ↩ rolled back by {data.get('by', '')}"
    if entry.kind == "undone" and "call" in data:
        return f"  ↩ undone: {data['key']}"
    if entry.kind == "undo_failed" and "call" in data:
        return f"  ✗ not undone: {data['key']}: {_error(data)}"
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
