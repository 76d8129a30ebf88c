"""Edits: changes made to a run's state from outside, applied when the run passes the place they were made at.

A fork may begin with another state, and a checkpoint saved by hand on a waiting run replaces its state. The code is
replayed up to that place and must see the edited state from there on. That is:

* when a call returns that was under way there (a gate the run waited at),
* when a loop goes on behind its last finished turn, and nothing of the next turn is recorded,
* else when the last call recorded before that place has returned, or at the beginning if there is none, so that the
  arguments of the next call are made of it; and once more when the code comes to that next call, since the code in
  between lies before the edit and must not overwrite it.

A checkpoint at the end of a later turn includes the edit, so it names the edit no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.engine.commands import EntryData
from holdfast.errors import InvalidInput

Path = tuple[str | int, ...]


class Edit(msgspec.Struct, frozen=True):
    """Where an edit was made, and where it is kept: as a checkpoint's state, or as changes in a `forked` entry."""

    at: int
    checkpoint: str = ""
    entry: int = 0


class Replacement(msgspec.Struct):
    """An edit that is to be applied: a whole state, or values by their paths."""

    at: int
    state: dict[str, Any] | None
    version: int | None
    """Of the workflow the state is for; None: of the one that runs now."""
    changes: list[tuple[Path, Any]]


class Edits:
    """The edits of one execution, oldest first."""

    def __init__(
        self, edits: list[Replacement], calls: Iterable[list[EntryData]], apply: Callable[[Replacement], None]
    ) -> None:
        self._left = sorted(edits, key=lambda edit: edit.at)
        self._firsts = sorted(entries[0]["position"] for entries in calls)
        self._seen = 0
        self._apply = apply
        self._on_return = False
        self._is_early = False
        """The next edit was applied and will be once more, when the code comes to the next call."""
        self.returned()

    def _is_due(self) -> bool:
        """Whether the code has come to all calls that were recorded before the next edit."""
        return bool(self._left) and self._seen >= sum(first <= self._left[0].at for first in self._firsts)

    def _apply_next(self) -> None:
        self._on_return = self._is_early = False
        self._apply(self._left.pop(0))

    def enter(self, entries: list[EntryData], final: Callable[[EntryData], bool]) -> None:
        """The code has come to a call, of which `entries` are recorded."""
        if not self._left:
            return
        at = self._left[0].at
        if not entries or entries[0]["position"] > at:
            while self._is_due():
                self._apply_next()
        if entries:
            self._seen += 1
            before = [entry for entry in entries if entry["position"] <= at]
            self._on_return |= bool(before) and not final(before[-1]) and self._is_due()

    def returned(self) -> None:
        """A call is over, or waits; or the code begins."""
        if not self._is_due():
            return
        if self._on_return:
            self._apply_next()
        elif not self._is_early:
            self._is_early = True
            self._apply(self._left[0])

    def turn(self) -> None:
        """A loop goes on behind its last finished turn."""
        while self._is_due():
            self._apply_next()


def changed(state: dict[str, Any], changes: Iterable[tuple[Path, Any]]) -> None:
    """Set values in a state by their paths; dicts on the way that are missing are made."""
    for path, value in changes:
        place: Any = state
        for index, part in enumerate(path[:-1]):
            place = _inside(place, part, path[: index + 1])
        if isinstance(place, dict):
            place[str(path[-1])] = value
        elif isinstance(place, list) and isinstance(path[-1], int) and -len(place) <= path[-1] < len(place):
            place[path[-1]] = value
        else:
            raise InvalidInput(f"the state has no {_shown(path)} that could be set")


def _inside(place: Any, part: str | int, path: Path) -> Any:
    if isinstance(place, dict):
        return place.setdefault(str(part), {})
    if isinstance(place, list) and isinstance(part, int) and -len(place) <= part < len(place):
        return place[part]
    raise InvalidInput(f"the state has no {_shown(path)}, so nothing in it can be set")


def path_of(text: object) -> Path:
    """A path such as `order.lines.0.amount`; a key with dots is written as in a JSON Pointer: `/a.b/0`."""
    if not isinstance(text, str) or not text:
        raise InvalidInput(f"a path in the state is text such as 'order.amount', not {text!r}")
    if text.startswith("/"):
        parts = [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]
    else:
        parts = text.split(".")
    if not all(parts):
        raise InvalidInput(f"the path {text!r} has an empty part; write 'order.amount' or '/order/amount'")
    return tuple(int(part) if part.isascii() and part.removeprefix("-").isdigit() else part for part in parts)


def _shown(path: Path) -> str:
    return repr(".".join(str(part) for part in path))
