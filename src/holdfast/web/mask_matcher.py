"""Patterns of masked paths: how they are written, and which parts of a value they match."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from holdfast.errors import InvalidInput

MASKED: Final = "•••"
States = frozenset[tuple[int, int]]
"""How far each pattern has matched: (pattern, number of its parts)."""

_INDEX: Final = re.compile(r"\[(\*|[0-9]{1,9})\]")
_MEMO_MAX: Final = 10_000
_SECRET_MIN: Final = 4
"""Shorter texts are not searched for in other texts: they occur everywhere."""
_NUMBER_MIN: Final = 6
_SECRET_MAX: Final = 4_096
_SECRETS_MAX: Final = 500

_AROUND: Final = "\0"
"""Stands for what a value is part of: `*.token` also matches `token` at the top of a state."""

Part = Callable[[str | int], bool]
"""Whether one part of a pattern matches a key or an index. None stands for `**`."""


class Matcher:
    """Follows several patterns through a value at once."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self._patterns = [parse_path(path) for path in paths]
        self._indexes = {int(digits) for path in paths for digits in re.findall("[0-9]{1,9}", path)}
        self._memo: dict[tuple[States, str | int], States] = {}
        first = self._close({(number, 0) for number in range(len(self._patterns))})
        self._start: States = frozenset()
        self._start = first | self._advance(first, _AROUND)
        self._unnamed = self._start | self._advance(self._start, None)

    def mask(self, value: object, at: Sequence[str | int] = (), found: set[str] | None = None) -> Any:
        """The masked value. The texts that were masked are added to `found`."""
        if self.depth(at) is not None:
            collect_texts(value, found)
            return MASKED
        states = self._start
        for part in at:
            states = self._into(states, part)
        try:
            return self._mask(value, states, found)
        except RecursionError:
            return MASKED

    def arguments(self, values: Iterable[Any], names: Sequence[str] = (), found: set[str] | None = None) -> list[Any]:
        """Arguments by position, masked by the names of their parameters.

        An argument without a name could have any. If that hides it as a whole, it is not added to `found`: it may well
        be a value that other texts show.
        """
        given = list(values)
        named = [self._into(self._start, name) for name in names[: len(given)]]
        shown = [self._part(value, states, found) for value, states in zip(given, named, strict=False)]
        if self._is_complete(self._unnamed):
            return shown + [MASKED] * (len(given) - len(shown))
        return shown + [self._part(value, self._unnamed, found) for value in given[len(shown) :]]

    def covers(self, value: object, at: Sequence[str | int]) -> bool:
        """Whether a value at this path is masked or contains what is, or a container there could."""
        states = self._start
        for part in at:
            states = self._into(states, part)
        is_above = any(0 < count < len(self._patterns[number]) for number, count in states)
        if self.depth(at) is not None or (is_above and isinstance(value, (dict, list))):
            return True
        return bool(self.mask(value, at) != value)

    def depth(self, path: Sequence[str | int]) -> int | None:
        """The length of the shortest masked beginning of a path; None if nothing on it is masked."""
        states = self._start
        for count, part in enumerate(path, start=1):
            states = self._into(states, part)
            if self._is_complete(states):
                return count
        return None

    # --- values ------------------------------------------------------------------------------------------------------

    def _mask(self, value: Any, states: States, found: set[str] | None) -> Any:
        if isinstance(value, dict):
            if "arguments" in value and "idempotency_key" in value:
                value = {**value, "arguments": self._arguments(value["arguments"], found)}
            shown = {key: self._part(part, self._into(states, key), found, key) for key, part in value.items()}
            if is_call(value) and shown["args"] != MASKED:
                shown["args"] = type(value["args"])(self.arguments(shown["args"], (), found))
            return shown
        if isinstance(value, (list, tuple)):
            parts = [self._part(part, self._into(states, index), found) for index, part in enumerate(value)]
            return tuple(parts) if isinstance(value, tuple) else parts
        if isinstance(value, (set, frozenset)) and self._is_complete(self._into(states, 0)):
            collect_texts(value, found)
            return MASKED
        return value

    def _part(self, value: Any, states: States, found: set[str] | None, key: object = None) -> Any:
        if self._is_complete(states):
            collect_texts(value, found)
            return MASKED
        if key == "$delta" and isinstance(value, dict):
            return self._delta(value, states, found)
        return self._mask(value, states, found)

    def _delta(self, value: dict[str, Any], states: States, found: set[str] | None) -> dict[str, Any]:
        """A delta channel of LangGraph: `from` is its value, each of `writes` its value or an item of it."""
        inner = {key: self._part(part, states, found) for key, part in value.items() if key != "writes"}
        writes = value.get("writes")
        either = states | self._into(states, 0)
        listed = writes if isinstance(writes, list) else []
        return {**inner, "writes": [self._part(part, either, found) for part in listed]}

    def _arguments(self, texts: object, found: set[str] | None) -> object:
        """Arguments of an effect in doubt, which its gate shows as Python text."""
        if not isinstance(texts, list):
            return texts
        return [self._argument(text, found) if isinstance(text, str) else text for text in texts]

    def _argument(self, text: str, found: set[str] | None) -> str:
        name, sign, rest = text.partition("=")
        is_named = bool(sign) and name.isidentifier()
        literal = rest if is_named else text
        try:
            value = ast.literal_eval(literal)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return MASKED
        shown = self.arguments([value], [name] if is_named else (), found)[0]
        if shown == value:
            return text
        return f"{name}={shown!r}" if is_named else repr(shown)

    # --- matching ----------------------------------------------------------------------------------------------------

    def _into(self, states: States, part: str | int) -> States:
        """The states one level deeper. Keys that begin with `$` only describe a type, so they also count as nothing."""
        if type(part) is int and part not in self._indexes:
            part = -1
        known = self._memo.get((states, part))
        if known is None:
            if len(self._memo) > _MEMO_MAX:
                self._memo.clear()
            known = self._advance(states, part) | self._start
            if isinstance(part, str) and part.startswith("$"):
                known |= states
            self._memo[states, part] = known
        return known

    def _advance(self, states: States, part: str | int | None) -> States:
        """The states after a key or an index; None stands for a key that is not known."""
        following = set()
        for number, at in states:
            pattern = self._patterns[number]
            if at == len(pattern):
                continue
            wanted = pattern[at]
            if wanted is None:
                following.add((number, at))
            elif part is None or wanted(part):
                following.add((number, at + 1))
        return self._close(following)

    def _close(self, states: set[tuple[int, int]]) -> States:
        """The states with those that `**` reaches by matching nothing."""
        found, todo = set(states), list(states)
        while todo:
            number, at = todo.pop()
            following = (number, at + 1)
            if at < len(self._patterns[number]) and self._patterns[number][at] is None and following not in found:
                found.add(following)
                todo.append(following)
        return frozenset(found)

    def _is_complete(self, states: States) -> bool:
        return any(at == len(self._patterns[number]) for number, at in states)


def is_call(value: dict[Any, Any]) -> bool:
    """Whether a value describes a call, as entries of workflows and effects do."""
    has_rest = isinstance(value.get("kwargs"), dict) or value.keys() <= {"args", "kwargs"}
    return has_rest and isinstance(value.get("args"), (list, tuple))


def parse_path(path: str) -> list[Part | None]:
    parts: list[Part | None] = []
    at, expects_key = 0, True
    while at < len(path):
        index = _INDEX.match(path, at)
        if index is not None:
            parts.append(_index_part(index[1]))
            at, expects_key = index.end(), False
        elif path[at] == "." and not expects_key:
            at, expects_key = at + 1, True
        elif expects_key:
            key, at = _read_key(path, at)
            if not key:
                break
            parts.append(_key_part(key) if key != ["**"] else None)
            expects_key = False
        else:
            break
    if not parts or expects_key or at < len(path) or all(part is None for part in parts):
        raise InvalidInput(
            f"the mask {path!r} is not a path; write it like customer.iban, *.token or messages[*].content"
        )
    return parts


def _read_key(path: str, at: int) -> tuple[list[str], int]:
    """The key at a place: literal texts, with `*` and `**` between them, and where it ends."""
    pieces: list[str] = []
    text = ""
    while at < len(path) and path[at] not in ".[":
        if path[at] == "*":
            stars = "**" if path[at : at + 2] == "**" else "*"
            pieces += [*([_ESCAPED + text] if text else []), stars]
            text, at = "", at + len(stars)
        elif path[at] == "\\" and at + 1 < len(path):
            text, at = text + path[at + 1], at + 2
        else:
            text, at = text + path[at], at + 1
    return [*pieces, *([_ESCAPED + text] if text else [])], at


_ESCAPED: Final = "="
"""Begins a piece of a key that is literal text."""


def _index_part(text: str) -> Part:
    wanted = None if text == "*" else int(text)
    return lambda part: type(part) is int and (wanted is None or part == wanted)


def _key_part(pieces: list[str]) -> Part:
    if pieces == ["*"]:
        return lambda _: True
    if len(pieces) == 1:
        literal = pieces[0].removeprefix(_ESCAPED)
        return lambda part: str(part) == literal
    text = "".join(".*" if piece in ("*", "**") else re.escape(piece.removeprefix(_ESCAPED)) for piece in pieces)
    pattern = re.compile(text, re.DOTALL)
    return lambda part: isinstance(part, str) and pattern.fullmatch(part) is not None


def collect_texts(value: object, found: set[str] | None) -> None:
    """Add the texts in a masked value."""
    if found is None:
        return
    stack = [value]
    while stack and len(found) < _SECRETS_MAX:
        part = stack.pop()
        if isinstance(part, dict):
            stack += part.values()
        elif isinstance(part, (list, tuple, set, frozenset)):
            stack += part
        elif isinstance(part, (str, int, float)) and not isinstance(part, bool):
            text = str(part)
            least = _SECRET_MIN if isinstance(part, str) else _NUMBER_MIN
            if least <= len(text) <= _SECRET_MAX and text != MASKED:
                found.add(text)
