"""Forms: which fields an answer has, as plain data that any process can check an answer against.

Stored form, version 1 (`as_data`), plain JSON:

    v        1
    single   true if the answer is one bare value
    fields   list of fields; attributes that have their default are left out (see Field)
    schema   the JSON Schema the form was given as, or null

Answers are checked against `schema`, or, without one, against the schema that the fields describe.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.engine.forms.bounds import FIELDS_MAX
from holdfast.engine.forms.checker import check_value
from holdfast.engine.forms.fields import KINDS, Field
from holdfast.engine.forms.plain import plain
from holdfast.engine.forms.problems import Problem, described
from holdfast.engine.forms.schemas import DIALECT, Schema, copied
from holdfast.engine.forms.vetting import vetted
from holdfast.errors import InvalidInput

VERSION: Final = 1
ANSWER: Final = "answer"
"""The name of the only field of a single form, and of the whole answer in problems."""

_KNOWN_MAX: Final = 256
_known: dict[bytes, Form] = {}
"""The forms read last, by their data: a gate is shown and answered more than once."""

_EMPTY: Final[dict[str, Any]] = {"text": "", "integer": 0, "number": 0.0, "list": [], "choices": [], "object": {}}


class Checked(msgspec.Struct, frozen=True):
    """An answer after its check. Without problems, `value` is complete and exact: plain data, defaults filled in."""

    value: Any
    problems: list[Problem]

    @property
    def ok(self) -> bool:
        """Whether there was no problem."""
        return not self.problems


class Form(msgspec.Struct, frozen=True):
    """The fields of an answer. A `single` form has one, named "answer", and its answer is that bare value."""

    fields: tuple[Field, ...]
    schema: dict[str, Any] | None = None
    single: bool = False

    def as_data(self) -> dict[str, Any]:
        """The form as plain data that survives JSON; `from_data` reads it."""
        return {
            "v": VERSION,
            "single": self.single,
            "fields": [msgspec.to_builtins(field) for field in self.fields],
            "schema": copied(self.schema),
        }

    @classmethod
    def from_data(cls, data: Any) -> Form:
        """The form that `as_data` described; raises InvalidInput if this is not such data, or of a newer version."""
        try:
            key = msgspec.msgpack.encode(data)
        except (TypeError, ValueError, OverflowError):  # not what was stored; reading it says why
            return cls._read(data)
        found = _known.get(key)
        if found is None:
            if len(_known) >= _KNOWN_MAX:
                _known.clear()
            found = _known[key] = cls._read(data)
        return found

    @classmethod
    def _read(cls, data: Any) -> Form:
        version = data.get("v") if isinstance(data, dict) else None
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise InvalidInput("this is not the data of a form: it has no version")
        if version > VERSION:
            raise InvalidInput(
                f"this form has version {version}, written by a newer Holdfast; this one reads up to version {VERSION}"
            )
        try:
            fields = msgspec.convert(data.get("fields"), tuple[Field, ...])
            single = msgspec.convert(data.get("single", False), bool)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"this is not the data of a form: {error}") from error
        schema = data.get("schema")
        names = {field.name for field in fields}
        is_sound = len(names) == len(fields) <= FIELDS_MAX and (not single or len(fields) == 1)
        if not is_sound or any(field.kind not in KINDS for field in fields):
            raise InvalidInput("this is not the data of a form: its fields are not those of a form")
        for field in fields:
            vetted(field.json_schema(), f"the stored field {field.name!r}")
        return cls(fields, None if schema is None else vetted(schema, "the stored schema"), single)

    def json_schema(self) -> dict[str, Any]:
        """A JSON Schema of the answer, draft 2020-12; of the bare value if the form is single."""
        if self.schema is not None:
            return {"$schema": DIALECT, **copied(self.schema)}
        parts = {field.name: field.json_schema() for field in self.fields}
        if self.single:
            return {"$schema": DIALECT, **parts[self.fields[0].name]}
        defs: Schema = {}
        for part in parts.values():
            defs |= part.pop("$defs", {})
        schema: Schema = {"$schema": DIALECT, "type": "object", "properties": parts, "additionalProperties": False}
        required = [field.name for field in self.fields if field.required]
        return schema | ({"required": required} if required else {}) | ({"$defs": defs} if defs else {})

    def check(self, answer: Any) -> Checked:
        """Check an answer and list all its problems. Never raises, and never changes `answer`.

        A single form takes the bare value, or a dict whose only key is "answer"; such a dict is always unwrapped.
        """
        if self.single and type(answer) is dict and list(answer) == [ANSWER]:
            answer = answer[ANSWER]
        return self.check_bare(answer)

    def check_bare(self, answer: Any) -> Checked:
        """Like `check`, for an answer that is known not to be wrapped."""
        path = ANSWER if self.single else ""
        unfit: list[Problem] = []
        value = plain(answer, unfit, path)
        unfit = [Problem(problem.field or ANSWER, problem.reason) for problem in unfit]
        if not self.single and not isinstance(value, dict):
            names = ", ".join(field.name for field in self.fields)
            wanted = f"must be an object with the fields {names}" if names else "must be an object"
            return Checked(value, unfit or [Problem(ANSWER, f"{wanted}, not {described(value)}")])
        clean, problems = check_value(self.json_schema(), value, path)
        # What is not plain was replaced by None; that the None does not fit either is no news.
        known = {problem.field for problem in unfit}
        return Checked(clean, unfit + [problem for problem in problems if problem.field not in known])

    def denied(self) -> dict[str, Any]:
        """The answer that means "no": yes/no fields are False, others their default or else empty.

        Raises InvalidInput if no field can be answered with yes or no. The empty values need not pass `check`.
        """
        if not any(field.kind == "yes_no" for field in self.fields):
            names = ", ".join(repr(field.name) for field in self.fields) or "none"
            raise InvalidInput(
                f"there is nothing to deny here, since no field (here: {names}) is a yes/no question: declare what "
                "expiry means with expired=… or expired='fail'"
            )
        return {field.name: _denied(field) for field in self.fields}


def _denied(field: Field) -> Any:
    if field.kind == "yes_no":
        return False
    if field.has_default:
        return copied(field.default)
    return None if field.nullable else copied(_EMPTY.get(field.kind))
