"""The arguments of a call: how they are recorded, and which of them changed since.

The journal has a digest of a call's arguments, not their values, and if there are several one for each. By these a
replay that meets other arguments names the one that changed. The ledger has the arguments of effects themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from reprlib import Repr
from typing import Any, Final, NamedTuple

from holdfast.engine.commands import EntryData
from holdfast.engine.execution import Codec

_PARTS_MAX: Final = 16
"""Of a call with more arguments the changed one is not named."""
_PART_CHARS: Final = 8
_brief: Final = Repr()
_brief.maxstring = _brief.maxother = 60
_brief.maxlevel = 3


class Given(NamedTuple):
    """What a function, if it is known, is called with."""

    fn: Callable[..., Any] | None
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def by_name(self) -> dict[str, Any]:
        """The arguments by their position, counted from 0, or by their name."""
        return {**{str(at): value for at, value in enumerate(self.args)}, **self.kwargs}


def parts_of(codec: Codec, given: Given) -> EntryData:
    """What an entry says of the single arguments: a digest of each, by position or name, if there are several."""
    if not 1 < len(given.args) + len(given.kwargs) <= _PARTS_MAX:
        return {}
    parts = {name: _part(codec, value) for name, value in given.by_name().items()}
    return {"parts": parts} if all(parts.values()) else {}


def changed_argument(codec: Codec, place: str, given: Given, entry: EntryData, recorded: Any = None) -> str:
    """Which argument of the call at `place` is not that of its entry. `recorded`: how the ledger says it was called."""
    new = _labelled(given, given.by_name())
    if isinstance(recorded, dict) and (recorded.get("args") or recorded.get("kwargs")):
        then = Given(None, recorded.get("args") or (), recorded.get("kwargs") or {})
        old = _labelled(given, then.by_name())
        for name in {**old, **new}:
            if name not in old or name not in new or _part(codec, old[name]) != _part(codec, new[name]):
                return f"argument {name} of {place} {_change(name, old, new)}"
        return f"the arguments of {place} are given in another way"
    parts = entry.get("parts")
    parts = _labelled(given, parts) if isinstance(parts, dict) else dict.fromkeys(new) if len(new) == 1 else {}
    for name in {**parts, **new} if parts else ():
        if name not in new:
            return f"argument {name} of {place} is not given any more"
        if parts.get(name) != _part(codec, new[name]):
            return f"argument {name} of {place} changed, it is now {_brief.repr(new[name])}"
    return f"the arguments of {place} changed"


def _change(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if name not in new:
        return f"is not given any more, it was {_brief.repr(old[name])}"
    if name not in old:
        return f"was not given before, it is {_brief.repr(new[name])}"
    return f"changed from {_brief.repr(old[name])} to {_brief.repr(new[name])}"


def _part(codec: Codec, value: Any) -> str:
    return (codec.digest((value,), {}) or "")[:_PART_CHARS]


def _labelled(given: Given, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the names of the function's parameters; what it does not name, by its number."""
    try:
        parameters = [] if given.fn is None else list(inspect.signature(given.fn).parameters.values())
    except (TypeError, ValueError):  # a builtin may have no signature to look at
        parameters = []
    named = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]

    def label(name: str) -> str:
        if not name.isdigit():
            return repr(name)
        return repr(named[int(name)]) if int(name) < len(named) else f"{int(name) + 1}"

    return {label(name): value for name, value in arguments.items()}
