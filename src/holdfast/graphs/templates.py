"""Templates: texts in which parts of the state are named. `"{{ input.order }}"` alone is the value itself; inside other
text it is the value as text. There is nothing else: no computing, no calls, no filters. `\\{{` is two plain braces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, Protocol

from holdfast.errors import InvalidInput
from holdfast.graphs.paths import MISSING, parts_of

_EXPRESSION: Final = re.compile(r"(\\?)\{\{(.*?)\}\}", re.DOTALL)
_PATH: Final = re.compile(r"[^\s{}|()\[\]'\"+*/%<>=!,;\\]+\Z")


class Lookup(Protocol):
    """How a path is looked up: the value, or MISSING."""

    def __call__(self, path: str, /) -> Any: ...


class Unresolved(InvalidInput):
    """A template names a part of the state that is not there."""

    def __init__(self, path: str, template: str) -> None:
        super().__init__(f"there is nothing at {path!r} in the state, which {template!r} names")
        self.path = path


def expressions(text: str) -> Iterator[str]:
    """The paths a text names; InvalidInput if something between braces is none."""
    for match in _EXPRESSION.finditer(text):
        if not match[1]:
            yield _checked(match[2].strip(), text)


def _checked(path: str, text: str) -> str:
    if not _PATH.match(path):
        raise InvalidInput(
            f"{text!r}: between {{{{ and }}}} stands a path into the state and nothing else, as {{{{ input.order }}}}; "
            f"{path!r} is none"
        )
    parts_of(path)
    return path


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
    whole = _EXPRESSION.fullmatch(text.strip())
    if whole is not None and not whole[1] and whole[2].count("{{") == 0:
        return _value(whole[2], text, lookup)

    def filled(match: re.Match[str]) -> str:
        return match[0][1:] if match[1] else as_text(_value(match[2], text, lookup))

    return _EXPRESSION.sub(filled, text)


def _value(path: str, text: str, lookup: Lookup) -> Any:
    path = _checked(path.strip(), text)
    found = lookup(path)
    if found is MISSING:
        raise Unresolved(path, text)
    return found


def as_text(value: Any) -> str:
    """A value inside other text: text as it is, everything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
