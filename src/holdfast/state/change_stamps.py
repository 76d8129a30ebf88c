"""Dicts and lists that record when they were changed, so that a save encodes only what changed.

Each container has the number of the last save before its last change, or that of a container inside it: its *stamp*. A
save takes the number of the clock and advances it; whatever has a later stamp afterwards has changed since. Nothing is
cleared by a save, so a save that failed, or a save of another tree that shares a part, loses no change.

A dict or list of the caller stays the same object as long as the caller has a reference to it, as in a plain dict: such
a *foreign* value, like a set, a dataclass or a model, is encoded by every save and compared by bytes. When only the
state refers to it, it is replaced by a tracked one.

Every change and every encoding holds the same lock.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import functools
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Final, ParamSpec, SupportsIndex, TypeVar, cast

from holdfast.fork_safety import reset_after_fork
from holdfast.state.edit_log import EditLog

H = TypeVar("H")
R = TypeVar("R")
P = ParamSpec("P")
IMMUTABLE: Final = frozenset(
    {type(None), bool, int, float, str, bytes, dt.datetime, dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID}
)
"""Types whose values never change."""
_NOWHERE: Final = -1
"""The place of a container that lies at several places, or that was not placed yet."""


class _Clock:
    """The number of the next save, and the lock of all tracked containers."""

    def __init__(self) -> None:
        self.now = 1
        self.unrecorded: tuple[Any, Any] | None = None
        """A container whose change was interrupted before it was recorded, and the others like it."""
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """A child process has no thread that could release the lock."""
        self.lock = threading.RLock()


clock: Final = _Clock()


class Tracking:
    """What tracked dicts and lists have in common."""

    if not TYPE_CHECKING:
        __slots__ = ()
    stamp: int
    foreign: bool
    log: EditLog | None
    with_plain: ClassVar[type]
    """The class of such a container that contains plain dicts or lists."""
    without_plain: ClassVar[type]
    memo: Any
    """Of the root of a state: how it was saved last."""
    place: object
    _up: weakref.ref[Any] | list[weakref.ref[Any]] | None

    def __init_subclass__(cls) -> None:
        if not cls.__module__.startswith("holdfast."):
            raise TypeError("a tracked dict or list cannot be subclassed; write functions that take one")

    def touch(self, now: int) -> None:
        """Record a change, here and in everything that contains this; the caller holds the lock."""
        if self.stamp >= now:
            return
        self.stamp = now
        for parent in self._parents():
            if parent.log is not None:
                parent.log.add_child(now, self)
            parent.touch(now)

    def mark_foreign(self) -> None:
        """Record that this contains a value whose changes are not tracked; the caller holds the lock."""
        if not self.foreign:
            self.foreign = True
            for parent in self._parents():
                parent.mark_foreign()

    def record_anything(self, now: int) -> None:
        """Record that everything directly in this container may have changed; the caller holds the lock.

        Nothing is inferred from what was recorded before: that may have been interrupted.
        """
        if self.log is not None:
            self.log.forget(now)
        for place, value in parts_of(self):
            adopt(self, value, place)
        changed: list[Any] = [self]
        known = {id(self)}
        for each in changed:
            each.stamp, each.foreign = max(each.stamp, now), each.foreign or self.foreign
            for parent in each._parents():
                if parent.log is not None:
                    parent.log.add_child(now, each)
                if id(parent) not in known:
                    known.add(id(parent))
                    changed.append(parent)

    def attach(self, parent: Any, place: object) -> None:
        """Record that `parent` contains this at `place`; the caller holds the lock."""
        mine, up = weakref.ref(parent), self._up
        if up is None or (type(up) is weakref.ref and up() is None):
            self._up, self.place = mine, place
            return
        known = up if isinstance(up, list) else [up]
        if any(each is mine for each in known):
            self.place = _NOWHERE
            return
        self._up = [*[each for each in known if each() is not None], mine]
        if self.place != _NOWHERE:
            self.place = place

    def is_attached_to(self, parent: object) -> bool:
        """Whether it is recorded that `parent` contains this."""
        return any(each is parent for each in self._parents())

    @property
    def is_contained_once(self) -> bool:
        """Whether only one container contains this."""
        return type(self._up) is weakref.ref

    def _parents(self) -> list[Any]:
        up = self._up
        if up is None:
            return []
        found = [each() for each in up] if isinstance(up, list) else [up()]
        return [parent for parent in found if parent is not None]

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        base = dict if isinstance(self, dict) else list
        return base, (base(cast("Any", self)),)


def adopt(parent: Any, value: object, place: object) -> None:
    """Record that `parent` contains `value` at `place`."""
    kind = type(value)
    if kind in IMMUTABLE:
        return
    if isinstance(value, Tracking):
        value.attach(parent, place)
        if value.foreign:
            parent.mark_foreign()
    elif not is_immutable(value):
        parent.mark_foreign()
        if kind is dict or kind is list:
            parent.__class__ = parent.with_plain


def is_immutable(value: Any) -> bool:
    """Whether the value, everything in the tuple, or the value of the enum member never changes."""
    kind = type(value)
    if isinstance(value, enum.Enum):
        return type(value.value) in IMMUTABLE and (not isinstance(value, (str, int)) or value == value.value)
    return kind in IMMUTABLE or (kind is tuple and all(map(is_immutable, value)))


def change(method: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
    """A method that changes its container and records the change, both or neither, under the lock."""

    def call(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with clock.lock:
            try:
                return method(self, *args, **kwargs)
            except (LookupError, TypeError, ValueError):  # refused: nothing has changed
                raise
            except BaseException:  # interrupted, perhaps after the change and before its record
                clock.unrecorded = (self, clock.unrecorded)
                raise

    return functools.wraps(method)(call)


def record_interrupted() -> None:
    """Record the changes that were interrupted; the caller holds the lock."""
    while clock.unrecorded is not None:
        holder, others = clock.unrecorded
        holder.record_anything(clock.now)
        clock.unrecorded = others


def parts_of(holder: Any) -> Iterable[tuple[Any, Any]]:
    return list(holder.items()) if isinstance(holder, dict) else enumerate(list(holder))
