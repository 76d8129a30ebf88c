"""Masking: parts of values that are never shown, by their paths.

A path such as `customer.iban` is found at any depth of a state, an input, a result, an entry or a change:

    customer.iban          the key `iban` in every `customer`
    *.token                `token` in anything; `*` is any one key or index, and `api_*` any key that begins so
    messages[*].content    `content` in every item of `messages`; `[0]` only in the first
    customer.**.number     `number` at any depth in `customer`
    price\\.net             a key with a dot; a backslash also escapes `*`, `[` and itself

Keys are compared exactly, upper and lower case included. A masked container is hidden with its keys. Masking a value
twice changes nothing.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidInput
from holdfast.model.views import Change, GateInfo

MASKED: Final = "•••"
Path = tuple[str | int, ...]
States = frozenset[tuple[int, int]]
"""How far each pattern has matched: (pattern, number of its parts)."""

_INDEX: Final = re.compile(r"\[(\*|[0-9]{1,9})\]")
_MEMO_MAX: Final = 10_000
_SECRET_MIN: Final = 4
"""Shorter texts are not searched for in other texts: they occur everywhere."""
_NUMBER_MIN: Final = 6
_SECRET_MAX: Final = 4_096
_SECRETS_MAX: Final = 500


def mask(value: object, paths: Iterable[str], at: Sequence[str | int] = ()) -> Any:
    """The value with `•••` in place of every part that a path matches. `at`: where the value is, as in a change.

    Example:
        mask({"customer": {"iban": "DE02"}}, ["customer.iban"])
    """
    wanted = tuple(paths)
    return matcher(wanted).mask(value, at) if wanted else value


def is_masked(path: Sequence[str | int], paths: Iterable[str]) -> bool:
    """Whether the value at this path, or a container it is in, is masked."""
    wanted = tuple(paths)
    return bool(wanted) and matcher(wanted).depth(path) is not None


@lru_cache(maxsize=64)
def matcher(paths: tuple[str, ...]) -> Matcher:
    """The matcher of these paths. Raises InvalidInput for a path that cannot be read."""
    return Matcher(paths)


_AROUND: Final = "\0"
"""Stands for what a value is part of: `*.token` also matches `token` at the top of a state."""

Part = Callable[[str | int], bool]
"""Whether one part of a pattern matches a key or an index. None stands for `**`."""


class Matcher:
    """Follows several patterns through a value at once."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self._patterns = [_parse(path) for path in paths]
        self._indexes = {int(digits) for path in paths for digits in re.findall("[0-9]{1,9}", path)}
        self._memo: dict[tuple[States, str | int], States] = {}
        first = self._close({(number, 0) for number in range(len(self._patterns))})
        self._start: States = frozenset()
        self._start = first | self._advance(first, _AROUND)

    def mask(self, value: object, at: Sequence[str | int] = (), found: set[str] | None = None) -> Any:
        """The masked value. The texts that were masked are added to `found`."""
        if self.depth(at) is not None:
            _collect(value, found)
            return MASKED
        states = self._start
        for part in at:
            states = self._into(states, part)
        try:
            return self._mask(value, states, found)
        except RecursionError:
            return MASKED

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
            return {key: self._part(part, self._into(states, key), found, key) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            parts = [self._part(part, self._into(states, index), found) for index, part in enumerate(value)]
            return tuple(parts) if isinstance(value, tuple) else parts
        if isinstance(value, (set, frozenset)) and self._is_complete(self._into(states, 0)):
            _collect(value, found)
            return MASKED
        return value

    def _part(self, value: Any, states: States, found: set[str] | None, key: object = None) -> Any:
        if self._is_complete(states):
            _collect(value, found)
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
        at, literal = ((name,), rest) if sign and name.isidentifier() else ((), text)
        try:
            value = ast.literal_eval(literal)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return MASKED
        shown = self.mask(value, at, found)
        if shown == value:
            return text
        return f"{name}={shown!r}" if at else repr(shown)

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

    def _advance(self, states: States, part: str | int) -> States:
        following = set()
        for number, at in states:
            pattern = self._patterns[number]
            if at == len(pattern):
                continue
            wanted = pattern[at]
            if wanted is None:
                following.add((number, at))
            elif wanted(part):
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


def _parse(path: str) -> list[Part | None]:
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


# --- texts -----------------------------------------------------------------------------------------------------------


def _collect(value: object, found: set[str] | None) -> None:
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


class Masker:
    """Masks everything that one page shows.

    A value that it has masked is also replaced in texts: the message of an error, a question or a log line may repeat
    it. That is only a help; a text is never searched for values that no masked path has.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)
        self._secrets: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    @property
    def is_active(self) -> bool:
        """Whether any path is masked."""
        return bool(self._paths)

    def learn(self, value: object) -> None:
        """Note which values of a state or an input are masked, without showing it."""
        self.value(value)

    def value(self, value: Any, at: Sequence[str | int] = ()) -> Any:
        """A value of the user, masked."""
        if not self._paths:
            return value
        count = len(self._secrets)
        masked = matcher(self._paths).mask(value, at, self._secrets)
        if len(self._secrets) != count:
            self._pattern = None
        return self._scrub(masked) if self._secrets else masked

    def text(self, text: str) -> str:
        """A text, without the values that are known to be masked."""
        if not self._secrets or not text:
            return text
        if self._pattern is None:
            spellings = {spelled for secret in self._secrets for spelled in _spellings(secret)}
            self._pattern = re.compile("|".join(map(re.escape, sorted(spellings, key=len, reverse=True))))
        return self._pattern.sub(MASKED, text)

    def _scrub(self, value: Any) -> Any:
        try:
            return self._scrub_parts(value)
        except RecursionError:
            return MASKED

    def _scrub_parts(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self._scrub_parts(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self._scrub_parts(part) for part in value]
        return tuple(map(self._scrub_parts, value)) if isinstance(value, tuple) else value

    def changes(self, changes: Iterable[Change]) -> list[Change]:
        """Changes of a state. Those inside a masked container become one change of it, without its values."""
        if not self._paths:
            return list(changes)
        found: list[Change] = []
        hidden: set[Path] = set()
        for change in changes:
            depth = matcher(self._paths).depth(change.path)
            if depth is None:
                old, new = self.value(change.old, change.path), self.value(change.new, change.path)
                found.append(msgspec.structs.replace(change, old=old, new=new))
                continue
            _collect([change.old, change.new], self._secrets)
            self._pattern = None
            path = change.path[:depth]
            if path not in hidden:
                hidden.add(path)
                op = change.op if depth == len(change.path) else "replace"
                old, new = (None if op == "add" else MASKED), (None if op == "remove" else MASKED)
                found.append(Change(op=op, path=path, old=old, new=new))
        return found

    def gate(self, gate: GateInfo) -> GateInfo:
        """A gate, with its question, what it shows and the answers it has."""
        if not self._paths:
            return gate
        show = self.value(gate.show)
        prompt = gate.prompt
        if gate.purpose == "interrupt" and not isinstance(gate.show, str) and gate.show is not None:
            prompt = json.dumps(show, ensure_ascii=False, default=str)  # the question is the value that is shown
        approved = tuple(msgspec.structs.replace(one, answer=self.value(one.answer)) for one in gate.approved)
        return msgspec.structs.replace(gate, prompt=self.text(prompt), show=show, approved=approved)


def _spellings(secret: str) -> Iterable[str]:
    """A text as it is, and as Python and JSON write it."""
    return (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
