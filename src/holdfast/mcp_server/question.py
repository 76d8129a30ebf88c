"""The question of a gate as elicitation shows it: its text, and a flat model made of its form.

Prompts, shown values and labels come from runs, whose texts may come from models. Each line of them is quoted, and
characters that a terminal would obey or that readers do not see are replaced, so no text can pass for a line of this
server. A question that does not fit is not asked, because a person must see all of it.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from holdfast.forms import Field as FormField
from holdfast.forms import Form
from holdfast.model.views import GateInfo
from holdfast.state.json_preview import to_jsonable

MESSAGE_CHARS_MAX: Final = 4_000
LINES_MAX: Final = 100
LABEL_CHARS_MAX: Final = 200
FIELDS_MAX: Final = 12
CHOICES_MAX: Final = 50
_UNSEEN_KINDS: Final = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_REPLACED: Final = "\ufffd"
_TEXT_FORMATS: Final = {"date": "date", "datetime": "date-time"}


class DoesNotFit(Exception):
    """The gate cannot be asked by elicitation; the text says why."""


def visible_text(text: str) -> str:
    """A text without control characters and invisible ones; line breaks and tabs stay."""
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in _UNSEEN_KINDS else _REPLACED for char in text
    )


def visible_line(text: str) -> str:
    """A short text on one line."""
    line = " ".join(visible_text(text).split())
    return line if len(line) <= LABEL_CHARS_MAX else f"{line[: LABEL_CHARS_MAX - 1]}…"


def message_of(gate: GateInfo) -> str:
    """What the person is asked. The mark at its end binds the answer to this question."""
    lines = [f"Run {visible_line(gate.run_id)} of workflow {visible_line(gate.workflow)} asks"]
    lines[0] += f" at gate {visible_line(gate.name)}:"
    lines += _quoted(gate.prompt)
    if gate.show is not None:
        lines += ["With it, the run shows:", *_quoted(_shown(gate.show))]
    if gate.expires_at is not None:
        lines.append(f"The question expires at {gate.expires_at.isoformat(timespec='seconds')}.")
    lines.append(f"Lines that begin with > are text of the run. Question {gate.question}.")
    message = "\n".join(lines)
    if len(message) > MESSAGE_CHARS_MAX or len(lines) > LINES_MAX:
        raise DoesNotFit("its question is too long for a dialog of the client")
    return message


def _quoted(text: str) -> list[str]:
    return [f"> {line}" for line in visible_text(text.replace("\r\n", "\n")).split("\n")]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(to_jsonable(value), ensure_ascii=False, indent=2)


def model_of(form: Form) -> type[BaseModel]:
    """A model with one plain field for each field of the form. DoesNotFit if a field is not plain."""
    if not 1 <= len(form.fields) <= FIELDS_MAX:
        raise DoesNotFit(f"its answer has {len(form.fields)} fields, and a dialog of a client 1 to {FIELDS_MAX}")
    fields: dict[str, Any] = {f"field_{at}": _field_of(field) for at, field in enumerate(form.fields)}
    return create_model("Answer", __config__=ConfigDict(strict=True, extra="forbid"), **fields)


def answer_from(form: Form, reply: BaseModel) -> dict[str, Any]:
    """The answer that the person gave, for `app.answer`. Fields that were left out take their defaults there."""
    found: dict[str, Any] = {}
    for at, field in enumerate(form.fields):
        value = getattr(reply, f"field_{at}")
        if value is None:
            if field.nullable and not field.has_default:
                found[field.name] = None
            continue
        found[field.name] = _choices(field)[value] if field.kind == "choice" else value
    return found


def _field_of(field: FormField) -> tuple[Any, Any]:
    facts: dict[str, Any] = {"alias": field.name, "title": visible_line(field.label)}
    if field.help:
        facts["description"] = visible_line(field.help)
    kind = _type_of(field)
    if field.required and not field.nullable:
        return Annotated[kind, Field(**facts)], ...
    return Annotated[kind | None, Field(**facts)], _default_of(field)


def _type_of(field: FormField) -> Any:
    """The type of a field's values."""
    if field.kind == "yes_no":
        return bool
    if field.kind in ("integer", "number"):
        kind = int if field.kind == "integer" else float
        return Annotated[kind, Field(ge=field.minimum, le=field.maximum)]
    if field.kind == "text":
        return Annotated[str, Field(min_length=field.min_length, max_length=field.max_length)]
    if field.kind in _TEXT_FORMATS:
        return Annotated[str, Field(json_schema_extra={"format": _TEXT_FORMATS[field.kind]})]
    if field.kind == "choice":
        return Literal[tuple(_choices(field))]
    raise DoesNotFit(f"its field {visible_line(field.name)!r} takes more than one plain value")


def _choices(field: FormField) -> dict[str, Any]:
    """The choices by the texts that stand for them."""
    found = {visible_line(str(choice.label)): choice.value for choice in field.choices}
    if not 1 <= len(found) <= CHOICES_MAX or len(found) < len(field.choices):
        raise DoesNotFit(f"the choices of its field {visible_line(field.name)!r} cannot be told apart in a dialog")
    return found


def _default_of(field: FormField) -> Any:
    """The default that the dialog shows."""
    if not field.has_default or field.default is None:
        return None
    if field.kind == "choice":
        return next((text for text, value in _choices(field).items() if value == field.default), None)
    return visible_text(field.default) if isinstance(field.default, str) else field.default
