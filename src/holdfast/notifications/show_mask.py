"""Masks what a gate shows before it leaves: values at masked paths, and their text in the question.

The paths are those of the page (`customer.iban`, `*.token`, `messages[*].content`, `customer.**.number`). Here they are
read more widely, because a value that is sent cannot be taken back: indexes are ignored, `**` also stands for what is
before it, and a path matches where only its end is present, since `show` is often a part of the state.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from holdfast.errors import InvalidInput
from holdfast.state.json_preview import to_jsonable

MASKED: Final = "•••"
SHOW_CHARS_MAX: Final = 20_000
"""A larger `show` is not sent."""
TOO_LARGE: Final = "(too large to be sent; open the page)"
_SECRET_MIN: Final = 4
"""Shorter texts are not searched for in the question: they occur everywhere."""
_INDEX: Final = re.compile(r"\[(?:\*|[0-9]{1,9})\]")

Pattern = tuple[str, ...]
"""The parts of a path, as patterns of fnmatch."""


def read_mask(paths: Iterable[object]) -> tuple[Pattern, ...]:
    """The paths, checked."""
    if isinstance(paths, str):
        raise InvalidInput(f"mask must be a list of paths, not {paths!r}")
    return tuple(_read_path(path) for path in paths)


def _read_path(path: object) -> Pattern:
    text = path if isinstance(path, str) else ""
    parts: list[str] = []
    part, at = "", 0
    while at < len(text):
        index = _INDEX.match(text, at)
        if index is not None:
            at = index.end()
        elif text[at] == "\\" and at + 1 < len(text):
            part, at = part + _literal(text[at + 1]), at + 2
        elif text[at] == ".":
            parts, part, at = [*parts, part], "", at + 1
        else:
            part, at = part + (text[at] if text[at] == "*" else _literal(text[at])), at + 1
    parts = [one for one in [*parts, part] if one]
    while parts and parts[-1] == "**":
        parts.pop()
    if "**" in parts:
        parts = parts[len(parts) - parts[::-1].index("**") :]
    if not parts:
        raise InvalidInput(f"the mask {path!r} is not a path; write it like customer.iban or messages[*].content")
    return tuple(parts)


def _literal(char: str) -> str:
    return f"[{char}]" if char in "*?[" else char


def mask_gate(show: object, prompt: str, mask: Sequence[Pattern]) -> tuple[Any, str]:
    """What a gate shows, as JSON, and its question, both without the values at the masked paths."""
    if show is None:
        return None, prompt
    secrets: set[str] = set()
    found = to_jsonable(_mask(show, (), mask, secrets) if mask else show)
    for secret in sorted(secrets, key=len, reverse=True):
        prompt = prompt.replace(secret, MASKED)
    if len(json.dumps(found, ensure_ascii=False)) > SHOW_CHARS_MAX:
        return TOO_LARGE, prompt
    return found, prompt


def _mask(value: object, place: tuple[str, ...], mask: Sequence[Pattern], secrets: set[str]) -> object:
    if place and any(_matches(place, pattern) for pattern in mask):
        _collect(value, secrets)
        return MASKED
    if isinstance(value, dict):
        found = {key: _mask(inner, (*place, str(key)), mask, secrets) for key, inner in value.items()}
        # An effect in doubt shows its arguments as text, in which no path can be found.
        return found | ({"arguments": MASKED} if "arguments" in value and "idempotency_key" in value else {})
    if isinstance(value, list | tuple | set | frozenset):
        return [_mask(inner, place, mask, secrets) for inner in value]
    return value


def _matches(place: tuple[str, ...], pattern: Pattern) -> bool:
    pairs = zip(reversed(place), reversed(pattern), strict=False)
    return all(fnmatch.fnmatchcase(key, part) for key, part in pairs)


def _collect(value: object, secrets: set[str]) -> None:
    if isinstance(value, dict):
        for inner in value.values():
            _collect(inner, secrets)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            _collect(inner, secrets)
    elif isinstance(value, str | int | float) and len(str(value)) >= _SECRET_MIN:
        secrets.add(str(value))
