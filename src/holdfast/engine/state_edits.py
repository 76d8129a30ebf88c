"""Edits: changes of a run's state from outside, applied during the replay.

A fork may begin with another state, and a checkpoint saved by hand on a waiting run replaces its state. The replay runs
up to the position of the edit, and the code must see the edited state from there on. The edit is applied:

* when a call returns that was in flight at that position (a gate at which the run waited),
* when a loop continues after its last finished turn, and nothing of the next turn is recorded,
* else when the last call recorded before that position has returned, or at the beginning if there is none, so that the
  arguments of the next call use it; and again when the code reaches that next call, because the code in between
  precedes the edit and must not overwrite it.

A checkpoint at the end of a later turn includes the edit and no longer names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.engine.commands import EntryData, StateData
from holdfast.errors import InvalidInput

Path = tuple[str | int, ...]


class Edit(msgspec.Struct, frozen=True):
    """The position of an edit, and its storage: the state of a checkpoint, or changes in a `forked` entry."""

    at: int
    checkpoint: str = ""
    entry: int = 0


class Replacement(msgspec.Struct):
    """An edit to apply: a whole state, or values by their paths."""

    at: int
    state: StateData | None
    version: int | None
    """The workflow version of the state; None: the current version."""
    changes: list[tuple[Path, object]]


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
        """The next edit was applied, and will be applied again when the code reaches the next call."""
        self.after_call()

    def _is_due(self) -> bool:
        """Whether the code has reached all calls that were recorded before the next edit."""
        return bool(self._left) and self._seen >= sum(first <= self._left[0].at for first in self._firsts)

    def _apply_next(self) -> None:
        self._on_return = self._is_early = False
        self._apply(self._left.pop(0))

    def enter(self, entries: list[EntryData], final: Callable[[EntryData], bool]) -> None:
        """Note that the code has reached a call with these recorded entries."""
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

    def after_call(self) -> None:
        """Apply edits that are due after a call has ended or waits, or when the code begins."""
        if not self._is_due():
            return
        if self._on_return:
            self._apply_next()
        elif not self._is_early:
            self._is_early = True
            self._apply(self._left[0])

    def after_turn(self) -> None:
        """Apply edits that are due when a loop continues after its last finished turn."""
        while self._is_due():
            self._apply_next()


def apply_changes(state: StateData, changes: Iterable[tuple[Path, object]]) -> None:
    """Set values in a state by their paths; missing dicts on the way are created."""
    for path, value in changes:
        place: object = state
        for index, part in enumerate(path[:-1]):
            place = _inside(place, part, path[: index + 1])
        if isinstance(place, dict):
            place[str(path[-1])] = value
        elif isinstance(place, list) and isinstance(path[-1], int) and -len(place) <= path[-1] < len(place):
            place[path[-1]] = value
        else:
            raise InvalidInput(f"the state has no {_path_text(path)} that could be set")


def _inside(place: object, part: str | int, path: Path) -> Any:
    if isinstance(place, dict):
        return place.setdefault(str(part), {})
    if isinstance(place, list) and isinstance(part, int) and -len(place) <= part < len(place):
        return place[part]
    raise InvalidInput(f"the state has no {_path_text(path)}, so nothing in it can be set")


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


def _path_text(path: Path) -> str:
    return repr(".".join(str(part) for part in path))
