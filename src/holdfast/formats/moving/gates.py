"""A question of another system as a gate of an imported run.

The run's journal begins like that of a workflow that has asked: `started` with what was imported as its argument, then
`asked`. So a workflow of the run's name, whose first call is `run.ask`, goes on from the answer.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.engine.asking import Gate
from holdfast.engine.forms import Form, form_of
from holdfast.engine.forms.schemas import DIALECT
from holdfast.errors import InvalidInput
from holdfast.formats.lossless import write_json
from holdfast.limits import SHOWN_BYTES_MAX
from holdfast.model.commit import NewEntry, NewGate
from holdfast.verbs.core import Core
from holdfast.verbs.values import value_body

CALL: Final = "ask#1"
_TYPES: Final = {
    "bool": "boolean", "boolean": "boolean", "checkbox": "boolean", "confirm": "boolean", "yes_no": "boolean",
    "int": "integer", "integer": "integer", "number": "number", "float": "number", "date": "string",
    "": "string", "text": "string", "string": "string", "str": "string", "email": "string", "url": "string",
    "textarea": "string", "multiline": "string", "long_text": "string", "markdown": "string", "select": "string",
}  # fmt: skip
_RECOVERY: Final = "recovery"
_OUTCOMES: Final = ("happened", "did not happen")
_NAMES_MAX: Final = 500
_LONG: Final = ("textarea", "multiline", "long_text", "markdown")
_SEVERAL: Final = ("multi_select", "multiselect", "multi-select", "multi_choice", "checkboxes")


def opened(core: Core, prompt: str, form: Form, show: Any, created_us: int | None) -> tuple[NewEntry, NewGate]:
    """The entry that says that it was asked, and the gate."""
    body = Gate(CALL, prompt, form, _fitting(show)).body()
    asked = {"kind": "asked", "call": CALL, "gate": CALL, "prompt": prompt}
    asked_entry = NewEntry("asked", value_body(core, asked, "a journal entry"), created_us)
    return asked_entry, NewGate(CALL, value_body(core, body, "a gate"))


def recovery_gate(core: Core, unsafe: dict[str, dict[str, Any]]) -> NewGate:
    """The gate of a run that must not go on before a person has found out what became of these effects."""
    fields = {
        name: {"enum": list(_OUTCOMES), "title": str(said.get("unsafe_pending_reason") or name)}
        for name, said in unsafe.items()
    }
    form = _form({"type": "object", "properties": fields, "required": list(fields)})
    prompt = f"What became of {', '.join(unsafe)[:_NAMES_MAX]}? The results could not be recorded."
    body = Gate(_RECOVERY, prompt, form, _fitting({"unsafe_pending": list(unsafe.values())}), purpose="in_doubt").body()
    return NewGate(_RECOVERY, value_body(core, body, "a gate"))


def _fitting(show: Any) -> Any:
    """What is shown beside a question is for people: a large state is not."""
    return show if len(write_json(show)) <= SHOWN_BYTES_MAX else None


def form_of_fields(fields: list[dict[str, Any]]) -> Form:
    """The form of fields as CAR declares them. As there, an answer may have more than was asked for."""
    return _form(schema_of_fields(fields))


def schema_of_fields(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """The JSON Schema of fields as CAR declares them."""
    return {
        "type": "object",
        "properties": {field["name"]: _property(field) for field in fields},
        "required": [field["name"] for field in fields if field.get("required")],
    }


def _property(field: dict[str, Any]) -> dict[str, Any]:
    kind = str(field.get("field_type") or "").lower()
    options = [option for option in field.get("options") or () if option is not None]
    found: dict[str, Any] = {"type": _TYPES[kind]} if kind in _TYPES else {}  # of what is not known anything is taken
    if kind in _SEVERAL:
        found = {"type": "array", "items": {"enum": options} if options else {}}
    elif options:
        found = {"enum": options}
    if field.get("label"):
        found["title"] = field["label"]
    if kind == "date" and not options:
        found["format"] = "date"
    if kind in _LONG and not options:
        found["x-multiline"] = True
    return found


def form_of_request(request: dict[str, Any]) -> Form:
    """The form of a question as SimpleAgents asks it: a choice, a text, or a form with a schema."""
    kind, options = request.get("input_type"), request.get("options")
    if kind == "choice" and isinstance(options, list) and options:
        return _form({"oneOf": [_choice(option) for option in options]})
    if kind == "form" and isinstance(request.get("form_schema"), dict):
        return _form({"type": "object", **request["form_schema"]})
    return form_of(str)


def _choice(option: Any) -> dict[str, Any]:
    value = option.get("value") if isinstance(option, dict) else option
    label = option.get("label") if isinstance(option, dict) else None
    return {"const": value, "title": str(value if label is None else label)}


def _form(schema: dict[str, Any]) -> Form:
    """The form; anything may be answered where the original's own description is no schema."""
    try:
        return form_of({"$schema": DIALECT, **schema})
    except InvalidInput:
        return form_of(None)
