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

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidInput
from holdfast.forms import Field, Form
from holdfast.forms.json_schema import Schema
from holdfast.model.views import Change, GateInfo
from holdfast.web.mask_matcher import MASKED, Matcher, collect_texts, is_call, parse_path

__all__ = ["MASKED", "Masker", "check_masks", "covers_masked", "is_masked", "mask"]

Path = tuple[str | int, ...]
IsHidden = Callable[[Any, Path], bool]
"""Whether a value at a path contains something that is masked."""
_DEFAULTS: Final = ("default", "examples")


def mask(value: object, paths: Iterable[str], at: Sequence[str | int] = ()) -> Any:
    """The value with `•••` in place of every part that a path matches. `at`: where the value is, as in a change.

    Example:
        mask({"customer": {"iban": "DE02"}}, ["customer.iban"])
    """
    wanted = tuple(paths)
    return matcher(wanted).mask(value, at) if wanted else value


def check_masks(paths: object) -> tuple[str, ...]:
    """The paths of a setting; InvalidInput if they are one text, or if one of them is not a path."""
    if not isinstance(paths, (tuple, list, set, frozenset)):
        raise InvalidInput(f"mask must be a tuple of paths, as ('customer.iban',), not {paths!r}")
    for path in paths:
        if type(path) is not str:
            raise InvalidInput(f"mask must contain texts such as 'customer.iban', not {path!r}")
        parse_path(path)
    return tuple(paths) if isinstance(paths, (tuple, list)) else tuple(sorted(paths))


def covers_masked(value: object, path: Sequence[str | int], paths: Iterable[str]) -> bool:
    """Whether a value at this path is masked, contains a masked value, or is a container that could."""
    wanted = tuple(paths)
    return bool(wanted) and matcher(wanted).covers(value, path)


def is_masked(path: Sequence[str | int], paths: Iterable[str]) -> bool:
    """Whether the value at this path, or a container it is in, is masked."""
    wanted = tuple(paths)
    return bool(wanted) and matcher(wanted).depth(path) is not None


@lru_cache(maxsize=64)
def matcher(paths: tuple[str, ...]) -> Matcher:
    """The matcher of these paths. Raises InvalidInput for a path that cannot be read."""
    return Matcher(paths)


class Masker:
    """Masks everything that one page shows.

    A value that it has masked is also replaced in texts: the message of an error, a question or a log line may repeat
    it. That is only a help; a text is never searched for values that no masked path has.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)
        self.parameters: tuple[str, ...] = ()
        """The parameters of the workflow of the run that is shown, if they are known."""
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
        if not at and isinstance(value, dict) and value.get("kind") == "started":
            return self.input(value)
        return self._value(value, at)

    def _value(self, value: Any, at: Sequence[str | int]) -> Any:
        count = len(self._secrets)
        masked = matcher(self._paths).mask(value, at, self._secrets)
        if len(self._secrets) != count:
            self._pattern = None
        return self._scrub(masked) if self._secrets else masked

    def arguments(self, values: Iterable[Any], names: Sequence[str] = ()) -> list[Any]:
        """Arguments that were given by position, masked by the names of their parameters as far as they are known."""
        given = list(values)
        if not self._paths:
            return given
        masked = matcher(self._paths).arguments(given, names, self._secrets)
        self._pattern = None
        return [self._scrub(value) for value in masked] if self._secrets else masked

    def input(self, value: Any) -> Any:
        """The first entry of the run of a workflow, or the input in it, masked by the names of its parameters."""
        if not self._paths:
            return value
        if not isinstance(value, dict) or not is_call(value):
            return self._value(value, ())
        args = self.arguments(value["args"], self.parameters)
        rest = self._value({key: part for key, part in value.items() if key != "args"}, ())
        return {key: self._scrub(args) if key == "args" else rest[key] for key in value}

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
            collect_texts([change.old, change.new], self._secrets)
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
        form = mask_form(gate.form, lambda value, at: bool(self.value(value, at) != value))
        prompt = gate.prompt
        if gate.purpose == "interrupt" and not isinstance(gate.show, str) and gate.show is not None:
            prompt = json.dumps(show, ensure_ascii=False, default=str)  # the question is the value that is shown
        approved = tuple(msgspec.structs.replace(one, answer=self.value(one.answer)) for one in gate.approved)
        return msgspec.structs.replace(gate, prompt=self.text(prompt), show=show, approved=approved, form=form)


def _spellings(secret: str) -> Iterable[str]:
    """A text as it is, and as Python and JSON write it."""
    return (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])


def mask_form(form: Form, is_hidden: IsHidden) -> Form:
    """The form without the defaults that are masked. The answer still gets such a default if the field is left out."""
    fields = tuple(_mask_field(field, is_hidden) for field in form.fields)
    return Form(fields, None if form.schema is None else _mask_schema(form.schema, (), is_hidden), form.single)


def _mask_field(field: Field, is_hidden: IsHidden) -> Field:
    schema = None if field.schema is None else _mask_schema(field.schema, (field.name,), is_hidden)
    if field.has_default and is_hidden(field.default, (field.name,)):
        return msgspec.structs.replace(field, schema=schema, has_default=False, default=None)
    return msgspec.structs.replace(field, schema=schema)


def _mask_schema(schema: Any, path: Path, is_hidden: IsHidden) -> Any:
    """A JSON Schema without masked defaults. Definitions can be used at any path, so they lose all of theirs."""
    if isinstance(schema, list):
        return [_mask_schema(part, path, is_hidden) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found: Schema = {}
    for key, part in schema.items():
        if key in _DEFAULTS and is_hidden(part, path):
            continue
        if key == "properties" and isinstance(part, dict):
            found[key] = {name: _mask_schema(one, (*path, name), is_hidden) for name, one in part.items()}
        elif key == "$defs" and isinstance(part, dict):
            found[key] = {name: _mask_schema(one, path, lambda _value, _path: True) for name, one in part.items()}
        else:
            found[key] = part if key in (*_DEFAULTS, "enum", "const") else _mask_schema(part, path, is_hidden)
    return found
