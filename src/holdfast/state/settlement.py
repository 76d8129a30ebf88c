"""Makes plain dicts and lists inside a state tracked, where that goes unnoticed."""

from __future__ import annotations

from typing import Any

from holdfast.limits import DEPTH_MAX
from holdfast.state.change_stamps import IMMUTABLE, Tracking, adopt, clock, is_immutable, parts_of
from holdfast.state.tracked import copy_tracked, read_settled


def to_tracked(value: object, depth: int = 0) -> Any:
    """A tracked copy of a dict or list that no other code refers to; any other value is returned as it is."""
    if (type(value) is not dict and type(value) is not list) or depth > DEPTH_MAX:
        return value
    made = copy_tracked(value)
    store = dict.__setitem__ if type(value) is dict else list.__setitem__
    for place, part in parts_of(made):
        if type(part) in IMMUTABLE:
            continue
        new = to_tracked(part, depth + 1)
        if new is not part:
            store(made, place, new)
        adopt(made, new, place)
    return made


def settle(holder: Any, seen: set[int] | None = None) -> None:
    """Replace the plain dicts and lists in a foreign container that only it refers to, also deeper inside."""
    seen = seen or set()
    seen.add(id(holder))
    foreign = plain = False
    for place in list(holder) if isinstance(holder, dict) else range(len(holder)):
        value = settle_part(holder, place)
        if isinstance(value, Tracking):
            if value.foreign and id(value) not in seen:
                settle(value, seen)
            foreign = foreign or value.foreign
        elif type(value) not in IMMUTABLE:
            foreign = foreign or not is_immutable(value)
            plain = plain or type(value) is dict or type(value) is list
        if type(place) is not str and type(place) is not int:
            foreign = True
    end_settling(holder, foreign=foreign, plain=plain)


def end_settling(holder: Any, *, foreign: bool, plain: bool) -> None:
    """Record what a container still contains after a save has settled its parts.

    From now on its changes are tracked. Earlier ones were not, so for an earlier save of another tree it has changed.
    """
    if holder.foreign and not foreign:
        holder.touch(clock.now - 1)
    holder.foreign = foreign
    if not plain:
        holder.__class__ = holder.without_plain


def settle_part(holder: Any, place: Any) -> Any:
    """The value at a place, made tracked if it is a plain dict or list that only `holder` refers to."""
    return read_settled(dict.__getitem__ if isinstance(holder, dict) else list.__getitem__, holder, place)
