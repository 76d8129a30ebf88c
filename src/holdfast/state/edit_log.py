"""The changes of one long list or dict since its last saves, as far as they are remembered.

The log answers which items of an earlier encoding are unchanged. It may answer that it does not know; then all items
are encoded again. It never omits a change.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from holdfast.state.chunker import Hunk, Pages

_EDITS_MAX: Final = 1024
_NEAR: Final = 64
"""How far from its last known place an item is searched before all items are compared."""


class Splice(NamedTuple):
    """At this save, `removed` items from `at` on were replaced by `inserted` others."""

    stamp: int
    at: int
    removed: int
    inserted: int


class KeyChange(NamedTuple):
    """At this save, the value of this key was set; or the key was removed, and may have been added again at the end."""

    stamp: int
    key: object
    removed: bool


class EditLog:
    """The changes of a list or dict, oldest first."""

    __slots__ = ("children", "edits", "floor")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        """Changes up to this save are not in the log."""
        self.edits: list[Any] = []
        self.children: list[tuple[int, Any]] = []
        """References to tracked items that have changed inside."""

    def add_splice(self, stamp: int, at: int, removed: int, inserted: int) -> None:
        """Record that `removed` items from `at` on were replaced by `inserted` others."""
        last = self.edits[-1] if self.edits else None
        if last is not None and last.stamp == stamp and last.at <= at and at + removed <= last.at + last.inserted:
            self.edits[-1] = last._replace(inserted=last.inserted + inserted - removed)
            return
        self._append(self.edits, Splice(stamp, at, removed, inserted))

    def add_key(self, stamp: int, key: object, *, removed: bool) -> None:
        """Record that the value of a key was set, or that the key was removed."""
        self._append(self.edits, KeyChange(stamp, key, removed))

    def add_child(self, stamp: int, child: object) -> None:
        """Record that something in a tracked item has changed."""
        self._append(self.children, (stamp, weakref.ref(child)))

    def forget(self, stamp: int) -> None:
        """Record that anything may have changed."""
        self.floor = stamp
        self.edits, self.children = [], []

    def _append(self, log: list[Any], entry: Any) -> None:
        log.append(entry)
        if len(log) > _EDITS_MAX:
            self.floor = max(self.floor, log[_EDITS_MAX // 2][0])
            self.edits = [each for each in self.edits if each[0] > self.floor]
            self.children = [each for each in self.children if each[0] > self.floor]

    def list_changes(self, since: int, items: list[Any], old: Pages, count: int) -> list[Hunk] | None:
        """What changed in a list that had `count` items at save `since`; None: the log does not know."""
        if self.floor > since:
            return None
        hunks = _foreign_hunks(old)
        for edit in _after(self.edits, since):
            hunks = splice(hunks, edit.at, edit.removed, edit.inserted)
        shift = hunks[-1].new_end - hunks[-1].old_end if hunks else 0
        if len(items) != count + shift:
            return None
        for child in self._children_after(since):
            for at in _places(items, child):
                hunks = splice(hunks, at, 1, 1)
        return hunks

    def _children_after(self, since: int) -> list[Any]:
        children = [ref() for _, ref in _after(self.children, since)]
        return list({id(child): child for child in children if child is not None}.values())

    def dict_changes(
        self, since: int, holder: dict[str, Any], old: Pages, keys: Sequence[str], new_keys: Sequence[str]
    ) -> list[Hunk] | None:
        """What changed in a dict that had these keys at save `since`; None: the log does not know."""
        if self.floor > since:
            return None
        removed: dict[object, bool] = {}
        for edit in _after(self.edits, since):
            removed[edit.key] = removed.get(edit.key, False) or edit.removed
        for child in self._children_after(since):
            for key in _keys_of(holder, child):
                removed.setdefault(key, False)
        if len(removed) > _EDITS_MAX // 2:
            return None
        hunks = _foreign_hunks(old)
        changed = [at for at, key in enumerate(keys) if key in removed] if removed else []
        for at in reversed(changed):
            hunks = splice(hunks, at, 1, 0 if removed[keys[at]] else 1)
        kept = len(keys) - sum([removed[keys[at]] for at in changed])
        if len(new_keys) < kept:
            return None
        if len(new_keys) > kept:
            hunks = splice(hunks, kept, 0, len(new_keys) - kept)
        return hunks


def _after(log: list[Any], since: int) -> list[Any]:
    start = len(log)
    while start and log[start - 1][0] > since:
        start -= 1
    return log[start:]


def splice(hunks: list[Hunk], at: int, removed: int, inserted: int) -> list[Hunk]:
    """The changes after one more: `removed` items from `at` on are replaced by `inserted` others."""
    first, end = 0, at + removed
    while first < len(hunks) and hunks[first].new_end < at:
        first += 1
    last = first
    while last < len(hunks) and hunks[last].new <= end:
        last += 1
    shift = hunks[first - 1].new_end - hunks[first - 1].old_end if first else 0
    start, old_start = at, at - shift
    if last > first:
        if hunks[first].new < at:
            start, old_start = hunks[first].new, hunks[first].old
        shift = hunks[last - 1].new_end - hunks[last - 1].old_end
    old_end = end - shift
    if last > first and hunks[last - 1].new_end > end:
        end, old_end = hunks[last - 1].new_end, hunks[last - 1].old_end
    more = inserted - removed
    moved = [Hunk(each.old, each.old_end, each.new + more, each.new_end + more) for each in hunks[last:]]
    return [*hunks[:first], Hunk(old_start, old_end, start, end + more), *moved]


def _foreign_hunks(old: Pages) -> list[Hunk]:
    """The pages with items whose changes are not tracked."""
    hunks: list[Hunk] = []
    stack = [(0, leaf) for leaf in reversed(old.leaves)] + old.tops()[::-1]
    at = 0
    while stack:
        level, node = stack.pop()
        if node.foreign and level:
            stack += [(level - 1, child) for child in reversed(node.children)]
            continue
        if node.foreign:
            start, end = at, at + node.items
            if hunks and hunks[-1].old_end == start:
                start = hunks.pop().old
            hunks.append(Hunk(start, end, start, end))
        at += node.items
    return hunks


def _places(items: list[Any], child: Any) -> list[int]:
    """Where the child lies in the list; several places if it was put there more than once."""
    hint = child.place
    if type(hint) is int and hint >= 0:
        start = max(0, hint - _NEAR)
        for at, item in enumerate(items[start : hint + _NEAR], start):
            if item is child:
                child.place = at
                return [at]
    found = [at for at, item in enumerate(items) if item is child]
    if len(found) == 1 and child.is_contained_once:
        child.place = found[0]
    return found


def _keys_of(holder: dict[str, Any], child: Any) -> list[str]:
    hint = child.place
    if type(hint) is str and holder.get(hint) is child:
        return [hint]
    return [key for key, value in holder.items() if value is child]
