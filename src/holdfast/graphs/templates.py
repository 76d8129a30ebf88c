"""Templates: texts in which parts of the state are named. `"{{ input.order }}"` alone is the value itself; inside other
text it is the value as text. There is nothing else: no computing, no calls, no filters.

`\\{{` is two plain braces, whether or not `}}` follows. `{{` that is not closed before the next `{{` is plain as well.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final, Protocol
from uuid import UUID

from holdfast.errors import InvalidInput
from holdfast.graphs.paths import MISSING, parts_of

_EXPRESSION: Final = re.compile(r"\\\{\{|\{\{((?:[^{}]|\{(?!\{)|\}(?!\}))*+)\}\}")
"""Two braces that are meant as such, or a path between braces. Each search ends at the next braces, so the time that it
takes to read a text grows with its length and no faster."""
_PATH: Final = re.compile(r"[^\s{}|()\[\]'\"+*/%<>=!,;\\]+\Z")


class Lookup(Protocol):
    """How a path is looked up: the value, or MISSING."""

    def __call__(self, path: str, /) -> Any: ...


class Unresolved(InvalidInput):
    """A template names a part of the state that is not there."""

    def __init__(self, path: str, template: str) -> None:
        super().__init__(f"there is nothing at {path!r} in the state, which {_short(template)} names")
        self.path = path


def expressions(text: str) -> Iterator[str]:
    """The paths a text names; InvalidInput if something between braces is none."""
    for match in _EXPRESSION.finditer(text):
        if match[1] is not None:
            yield _checked(match[1].strip(), text)


def _checked(path: str, text: str) -> str:
    if not _PATH.match(path):
        raise InvalidInput(
            f"{_short(text)}: between {{{{ and }}}} stands a path into the state and nothing else, as "
            f"{{{{ input.order }}}}; {_short(path)} is none"
        )
    parts_of(path)
    return path


def _short(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:150]!r}…"


def paths_in(value: Any) -> Iterator[str]:
    """All paths that a value, with all that is in it, names."""
    if isinstance(value, str):
        yield from expressions(value)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from paths_in(key)
            yield from paths_in(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from paths_in(part)


def is_alone(text: str) -> bool:
    """Whether a text is one path between braces and nothing else, so that it stands for the value itself."""
    whole = _EXPRESSION.fullmatch(text.strip())
    return whole is not None and whole[1] is not None


def render(value: Any, lookup: Lookup) -> Any:
    """A value with what its texts name filled in. Raises Unresolved."""
    if isinstance(value, str):
        return _rendered(value, lookup)
    if isinstance(value, dict):
        return {str(_rendered(key, lookup)): render(part, lookup) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [render(part, lookup) for part in value]
    return value


def render_text(text: str, lookup: Lookup) -> str:
    """A text with what it names filled in, as text."""
    found = _rendered(text, lookup)
    return found if isinstance(found, str) else as_text(found)


def _rendered(text: str, lookup: Lookup) -> Any:
    if "{{" not in text:
        return text
    if is_alone(text):
        return _value(text.strip()[2:-2], text, lookup)

    def filled(match: re.Match[str]) -> str:
        return "{{" if match[1] is None else as_text(_value(match[1], text, lookup))

    return _EXPRESSION.sub(filled, text)


def _value(path: str, text: str, lookup: Lookup) -> Any:
    path = _checked(path.strip(), text)
    found = lookup(path)
    if found is MISSING:
        raise Unresolved(path, text)
    return found


def as_text(value: Any) -> str:
    """A value inside other text: text as it is, everything else as JSON. It is the same in every process, since keys of
    effects are made of it; InvalidInput if there is no such text.
    """
    try:
        plain = _plain(value)
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidInput(f"a value cannot be written as text: {error}") from None


def _plain(value: Any) -> Any:
    """A value in the words of JSON. A set is a list in an order of its own: that in which it comes is another in every
    process."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, dict):
        return {key if isinstance(key, str) else as_text(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(part) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (dt.timedelta, Decimal, UUID)):
        return str(value)
    raise InvalidInput(
        f"a value of type {type(value).__name__} has no text of its own; name it alone, as the whole value, or have a "
        "function make text of it"
    )
