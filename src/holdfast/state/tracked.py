"""The dict and the list of tracked states: real ones, so encoders in C read them as they are."""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeVar, cast

from holdfast.limits import DEPTH_MAX
from holdfast.state.change_stamps import IMMUTABLE, Tracking, adopt, change, clock
from holdfast.state.values import add_container

if TYPE_CHECKING:
    from typing import Self

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class TrackedDict(Tracking, dict[K, V]):
    """A dict that records its changes."""

    __slots__ = ("__weakref__", "_up", "foreign", "log", "memo", "place", "stamp")

    def __new__(cls, *_: object, **__: object) -> Self:
        made = super().__new__(cls)
        made.stamp, made.foreign, made.log, made.memo, made.place, made._up = 0, False, None, None, 0, None
        return made

    def __init__(self, /, *given: Any, **more: V) -> None:
        self.update(*given, **more)

    def _set(self, key: Any, value: Any) -> None:
        is_new = key not in self
        dict.__setitem__(self, key, value)
        self._changed(key, removed=is_new)
        if type(key) is not str:
            self.mark_foreign()
        adopt(self, value, key)

    def _changed(self, key: object, *, removed: bool) -> None:
        if self.log is not None:
            self.log.add_key(clock.now, key, removed=removed)
        self.touch(clock.now)

    @change
    def __setitem__(self, key: K, value: V) -> None:
        self._set(key, value)

    @change
    def __delitem__(self, key: K) -> None:
        dict.__delitem__(self, key)
        self._changed(key, removed=True)

    @change
    def pop(self, key: K, *default: Any) -> Any:
        """Remove a key and return its value."""
        if key in self:
            self._changed(key, removed=True)
        return dict.pop(self, key, *default)

    @change
    def popitem(self) -> tuple[K, V]:
        """Remove the last key and return it with its value."""
        found = dict.popitem(self)
        self._changed(found[0], removed=True)
        return found

    @change
    def clear(self) -> None:
        """Remove everything."""
        dict.clear(self)
        if self.log is not None:
            self.log.forget(clock.now)
        self.touch(clock.now)

    def setdefault(self, key: K, default: Any = None) -> Any:
        """The value of a key, which is set to `default` if it is missing."""
        with clock.lock:
            if key not in self:
                self[key] = default
            del default  # so that a new list is replaced by a tracked one before the caller gets it
            return self[key]

    def update(self, /, *given: Any, **more: Any) -> None:
        """Set keys from a mapping, from pairs, or by name."""
        self._set_all(dict(*given, **more))  # a generator runs without the lock

    @change
    def _set_all(self, new: dict[Any, Any]) -> None:
        for key, value in new.items():
            self._set(key, value)

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]
        self.update(other)
        return self

    def __copy__(self) -> dict[K, V]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[K, V]:
        made: dict[K, V] = {}
        memo[id(self)] = made
        for key, value in self.items():
            made[copy.deepcopy(key, memo)] = copy.deepcopy(value, memo)
        return made


class TrackedList(Tracking, list[T]):
    """A list that records its changes."""

    __slots__ = ("__weakref__", "_up", "foreign", "log", "memo", "place", "stamp")

    def __new__(cls, *_: object) -> Self:
        made = super().__new__(cls)
        made.stamp, made.foreign, made.log, made.memo, made.place, made._up = 0, False, None, None, 0, None
        return made

    def __init__(self, items: Iterable[T] = ()) -> None:
        self[:] = items

    def _changed(self, at: int, removed: int, inserted: int) -> None:
        if self.log is not None:
            self.log.add_splice(clock.now, at, removed, inserted)
        self.touch(clock.now)
        for place in range(at, at + inserted):
            adopt(self, list.__getitem__(self, place), place)

    def __setitem__(self, at: Any, value: Any) -> None:
        self._set(at, list(value) if isinstance(at, slice) else value)  # a generator runs without the lock

    @change
    def _set(self, at: Any, value: Any) -> None:
        if not isinstance(at, slice):
            list.__setitem__(self, at, value)
            place = operator.index(at)
            self._changed(place if place >= 0 else place + len(self), 1, 1)
            return
        before = len(self)
        start, stop, step = at.indices(before)
        list.__setitem__(self, at, value)
        if step == 1:
            self._changed(start, max(0, stop - start), len(value))
        else:
            self._changed(0, before, before)

    @change
    def __delitem__(self, at: Any) -> None:
        before = len(self)
        list.__delitem__(self, at)
        if isinstance(at, slice):
            start, stop, step = at.indices(before)
            if step != 1:
                start, stop = 0, before
            self._changed(start, max(0, stop - start), len(self) - before + max(0, stop - start))
        else:
            place = operator.index(at)
            self._changed(place if place >= 0 else place + before, 1, 0)

    @change
    def append(self, item: T) -> None:
        """Add an item at the end."""
        list.append(self, item)
        self._changed(len(self) - 1, 0, 1)

    def extend(self, items: Iterable[T]) -> None:
        """Add items at the end."""
        self._add(list(items))  # a generator runs without the lock

    @change
    def _add(self, new: list[T]) -> None:
        before = len(self)
        list.extend(self, new)
        self._changed(before, 0, len(new))

    @change
    def insert(self, at: SupportsIndex, item: T) -> None:
        """Insert an item before a place."""
        before = len(self)
        list.insert(self, at, item)
        place = operator.index(at)
        place = max(0, place + before) if place < 0 else min(place, before)
        self._changed(place, 0, 1)

    @change
    def remove(self, item: T) -> None:
        """Remove the first item that is equal to this one."""
        del self[self.index(item)]

    @change
    def pop(self, at: SupportsIndex = -1) -> T:
        """Remove an item and return it."""
        before = len(self)
        found = list.pop(self, at)
        place = operator.index(at)
        self._changed(place if place >= 0 else place + before, 1, 0)
        return found

    @change
    def clear(self) -> None:
        """Remove all items."""
        del self[:]

    @change
    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        """Sort the items in place."""
        self[:] = sorted(self, key=key, reverse=reverse)

    @change
    def reverse(self) -> None:
        """Reverse the items in place."""
        self[:] = self[::-1]

    def __iadd__(self, items: Iterable[T]) -> Self:  # type: ignore[override,misc]
        self.extend(items)
        return self

    @change
    def __imul__(self, times: SupportsIndex) -> Self:
        self[:] = list(self) * operator.index(times)
        return self

    def __copy__(self) -> list[T]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[T]:
        made: list[T] = []
        memo[id(self)] = made
        made.extend([copy.deepcopy(item, memo) for item in self])
        return made


class _NewDict(TrackedDict[K, V]):
    """A tracked dict with plain dicts or lists in it, which are replaced when they are read, if that goes unnoticed."""

    __slots__ = ()

    def __getitem__(self, key: K) -> V:
        with clock.lock:
            return cast("V", read_settled(dict.__getitem__, self, key))

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        with clock.lock:
            return read_settled(dict.__getitem__, self, key) if key in self else default


class _NewList(TrackedList[T]):
    """The same for a list."""

    __slots__ = ()

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return list.__getitem__(self, at)
        at = operator.index(at)
        with clock.lock:
            return read_settled(list.__getitem__, self, at)


TrackedDict.with_plain, TrackedDict.without_plain = _NewDict, TrackedDict
TrackedList.with_plain, TrackedList.without_plain = _NewList, TrackedList
for _kind in (TrackedDict, TrackedList, _NewDict, _NewList):
    add_container(_kind, dict if issubclass(_kind, dict) else list)
_NewDict.__name__ = _NewDict.__qualname__ = "TrackedDict"
_NewList.__name__ = _NewList.__qualname__ = "TrackedList"


def read_settled(get: Callable[[Any, Any], Any], holder: Any, place: Any) -> Any:
    """The value at a place, made tracked if it is a plain dict or list that only `holder` refers to."""
    kind = type(get(holder, place))
    if kind is not dict and kind is not list:
        return get(holder, place)
    recorded, clock.unrecorded = clock.unrecorded, (holder, clock.unrecorded)  # stays there if this is interrupted
    value = _convert(get, holder, place, 0)
    if value.__class__ is not kind:
        value.attach(holder, place + len(holder) if type(place) is int and place < 0 else place)
    clock.unrecorded = recorded
    return value


def _convert(get: Callable[[Any, Any], Any], holder: Any, place: Any, depth: int) -> Any:
    """The value at a place; a plain dict or list that only `holder` refers to is replaced by a tracked one first."""
    kind = type(get(holder, place))
    if (kind is not dict and kind is not list) or depth > DEPTH_MAX or _references(get, holder, place) != _SOLE:
        return get(holder, place)
    old = [get(holder, place)]
    made, store = copy_tracked(old[0]), dict.__setitem__ if isinstance(holder, dict) else list.__setitem__
    recorded, clock.unrecorded = clock.unrecorded, (made, clock.unrecorded)
    store(holder, place, made)
    if _references(list.__getitem__, old, 0) != _SOLE:  # another thread has read it in the meantime
        store(holder, place, old[0])
        clock.unrecorded = recorded
        return old[0]
    if not _has_same_parts(made, old[0]):  # another thread has changed it in the meantime
        _fill(made, old[0])
    old[0].clear()
    get = dict.__getitem__ if kind is dict else list.__getitem__
    for inner in list(made) if kind is dict else range(len(made)):
        if type(get(made, inner)) not in IMMUTABLE:
            adopt(made, _convert(get, made, inner, depth + 1), inner)
    clock.unrecorded = recorded
    return made


def _has_same_parts(made: Any, value: Any) -> bool:
    if len(made) != len(value) or not all(map(operator.is_, made, value)):
        return False
    return type(value) is list or all(map(operator.is_, dict.values(made), value.values()))


def _references(get: Callable[[Any, Any], Any], holder: Any, place: Any) -> int:
    return sys.getrefcount(get(holder, place))


def _count_sole() -> int:
    """What `_references` returns for a value that only its container refers to; -1 if that cannot be known.

    Interpreters count references of local variables and of the evaluation stack in different ways, some only after a
    function was called often. So the count is measured often, and must tell every other reference.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return -1
    shared: list[object] = []
    soles, others = set(), set()
    for _ in range(_CALLS):
        soles |= {_references(list.__getitem__, [[]], 0), _references(dict.__getitem__, {0: []}, 0)}
        others |= {
            _references(list.__getitem__, [shared], 0),
            _count_argument([]),
            *[_count_argument(x) for x in [object()]],
        }
    return soles.pop() if len(soles) == 1 and min(others) > max(soles) else -1


def _count_argument(value: object) -> int:
    return _references(dict.__getitem__, {0: value}, 0)


_CALLS: Final = 64
_SOLE: Final = _count_sole()


def copy_tracked(value: Any) -> Any:
    """A tracked dict or list with the same parts, which are not adopted yet."""
    kind: Any = TrackedDict if type(value) is dict else TrackedList
    made = kind.__new__(kind)
    _fill(made, value)
    return made


def _fill(made: Any, value: Any) -> None:
    if type(value) is list:
        list.__setitem__(made, slice(None), value)
        return
    dict.clear(made)
    dict.update(made, value)
    made.foreign = any(type(key) is not str for key in value)
