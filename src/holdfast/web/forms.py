"""HTML forms for `holdfast.Form`: what is shown for its fields, and what is submitted.

    view = FormView(form)                                # a new answer, with its defaults
    answer, problems = parse(form, c.form)               # what was submitted
    view = FormView(form, c.form, problems)              # as it was typed, with the problems at the fields

`{% from "_field.html" import form_fields %}` and `{{ form_fields(view) }}` in a template show a view; the page needs
`forms.css`. A button "Add another" or "Remove" submits the form, too: if `edit_rows` returns values, show these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from holdfast.forms import Field, Form, Problem
from holdfast.forms.json_schema import read_date, read_datetime
from holdfast.web.form_nodes import ROWS_MAX, Node, Values, nodes_of, row_count, rows_of
from holdfast.web.form_values import INITIAL, LEAVE_OUT, encode, is_inside, parse, to_values, token

__all__ = ["FormView", "Option", "Values", "Widget", "edit_rows", "parse", "to_values"]

RADIOS_MAX: Final = 7
"""More choices are a menu."""

_LOCAL: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,3})?)?")
_OUTSIDE_ID: Final = re.compile(r"[^A-Za-z0-9]")
_SIMPLE: Final = {"is missing": "needs an answer"}


class Option(NamedTuple):
    """A choice: a radio button, a checkbox or an entry of a menu."""

    id: str
    token: str
    label: str
    checked: bool


class Widget(msgspec.Struct, kw_only=True):
    """What is shown for a field."""

    id: str
    name: str
    path: str
    label: str
    control: str
    """`input`, `textarea`, `datetime`, `radios`, `select`, `checkboxes`, `object` or `rows`."""
    notes: list[str] = []
    """Help, limits and how to write it."""
    problems: list[str] = []
    type: str = "text"
    mode: str = ""
    """The keyboard of a phone: `numeric` or `decimal`."""
    value: str = ""
    zone: str = ""
    options: list[Option] = []
    parts: list[Widget] = []
    hidden: list[tuple[str, str]] = []
    given: bool | None = None
    """Whether an optional object or list is given; None: it is not optional."""
    is_optional: bool = False
    schema: str = ""
    """The JSON Schema of a value that is written as JSON."""
    can_add: bool = False
    focus: bool = False

    @property
    def described_by(self) -> str:
        """The ids of its help and its problems."""
        found = [f"{self.id}-help"] if self.notes else []
        return " ".join(found + ([f"{self.id}-wrong"] if self.problems else []))

    @property
    def help(self) -> str:
        """The notes as sentences."""
        ended = [note if note.endswith((".", "!", "?", ":")) else f"{note}." for note in self.notes[:-1]]
        return " ".join([*ended, *self.notes[-1:]])

    def all(self) -> Iterator[Widget]:
        """This and all its parts."""
        yield self
        for part in self.parts:
            yield from part.all()


class FormView:
    """What is shown for a form: with the values as they were typed, or for an answer, or for a new one.

    `ids` begins the ids of all elements; it must be unique on the page. `focus` is the name of the field that is
    focused.
    """

    def __init__(
        self,
        form: Form,
        values: Mapping[str, list[str]] | None = None,
        problems: Iterable[Problem] = (),
        prefix: str = "f",
        *,
        answer: object = INITIAL,
        ids: str = "",
        focus: str = "",
    ) -> None:
        self.form = form
        self._values = to_values(form, answer, prefix) if values is None else values
        self._ids = ids or prefix
        self._focus = focus
        self.fields = [self._widget(node) for node in nodes_of(form, prefix)]
        others = self._values.get(f"{prefix}~x")
        if others or (not form.fields and form.schema is not None):
            self.fields.append(self._others(f"{prefix}~x", others[-1] if others else ""))
        self.problems: list[tuple[str, str]] = []
        """The id of the field, or nothing, and the sentence; for the list above the fields."""
        for problem in problems:
            self._place(problem)
        order = [_first_id(widget) for field in self.fields for widget in field.all()]
        self.problems.sort(key=lambda one: order.index(one[0]) if one[0] else -1)

    @property
    def has_rows(self) -> bool:
        """Whether it has buttons of its own, so that the first button must be the one that submits."""
        return any(widget.control == "rows" for field in self.fields for widget in field.all())

    @property
    def typed(self) -> list[tuple[str, str]]:
        """What was typed or chosen, with the label of each field, as text to copy."""
        found = []
        for one in (widget for field in self.fields for widget in field.all()):
            chosen = ", ".join(option.label for option in one.options if option.checked and option.token)
            text = chosen or " ".join(filter(None, (one.value, one.zone)))
            found += [(one.label, text)] if text else []
        return found

    def _place(self, problem: Problem) -> None:
        """Show a problem at its field, or at the innermost one around it."""
        around = [one for field in self.fields for one in field.all() if is_inside(problem.field, one.path)]
        text = sentence(problem.reason)
        if not around:
            self.problems.append(("", text if problem.field == "answer" else f"{problem.field}: {text}"))
            return
        widget = around[-1]
        inside = problem.field[len(widget.path) :].lstrip(".")
        widget.problems = [*widget.problems, f"{inside}: {text}" if inside else text]
        self.problems.append((_first_id(widget), f"{widget.label}: {widget.problems[-1]}"))

    # --- fields ------------------------------------------------------------------------------------------------------

    def _widget(self, node: Node, label: str = "") -> Widget:
        field = node.field
        widget = Widget(
            id=self._id(node.name),
            name=node.name,
            path=node.path,
            label=label or field.label,
            control="input",
            notes=[*([field.help] if field.help else []), *_limits(field)],
            is_optional=node.is_optional or field.has_default,
            focus=bool(self._focus) and node.name == self._focus,
        )
        stored = self._values.get(f"{node.name}~o")
        widget.hidden = [(f"{node.name}~o", stored[-1])] if stored else []
        text = self._values.get(node.name, [""])[-1].replace("\0", "\ufffd")
        match node.shape:
            case "object" | "rows" if node.name not in self._values:
                self._container(node, widget)
            case "yes_no" | "choice" | "choices":
                self._choices(node, widget)
            case "json" | "object" | "rows":
                widget.control, widget.value = "textarea", text
                example = '{"name": "value"}' if field.kind == "object" else '["one", "two"]'
                widget.notes = [*widget.notes, f"Write JSON, such as {example}."]
                widget.schema = json.dumps(field.json_schema(), ensure_ascii=False, indent=2)
            case "any":
                widget.control, widget.value = "textarea", text
                widget.notes = [*widget.notes, 'Text, or JSON such as {"name": "value"}, [1, 2] or true.']
                widget.schema = json.dumps(field.schema, ensure_ascii=False, indent=2) if field.schema else ""
            case "datetime":
                self._datetime(node, widget, text)
            case _:
                self._text(node, widget, text)
        return widget

    def _others(self, name: str, text: str) -> Widget:
        notes = ['Write a JSON object, such as {"name": "value"}.']
        own_id = f"{self._ids}-others"
        label = "Other fields" if self.form.fields else "Answer"
        return Widget(id=own_id, name=name, path="answer", label=label, control="textarea", notes=notes, value=text)

    def _id(self, name: str) -> str:
        return self._ids + "-" + _OUTSIDE_ID.sub(lambda sign: f"_{ord(sign[0]):x}_", name.partition("/")[2])

    def _container(self, node: Node, widget: Widget) -> None:
        if f"{node.name}~n" not in self._values:  # a new one
            self._values = {**encode(node, INITIAL), **self._values}
        widget.control = node.shape
        widget.given = f"{node.name}~g" in self._values if node.is_optional else None
        if node.shape == "object":
            widget.hidden = [*widget.hidden, (f"{node.name}~n", "1")]
            widget.parts = [self._widget(child) for child in node.children]
            return
        rows = list(rows_of(node, self._values))
        widget.hidden = [*widget.hidden, (f"{node.name}~n", str(len(rows)))]
        widget.can_add = len(rows) < min(ROWS_MAX, node.field.max_length or ROWS_MAX)
        for number, item in enumerate(rows, 1):
            row = self._widget(item, f"{widget.label} {number}")
            row.is_optional = False
            if f"{item.name}~k" in self._values:
                row.hidden = [*row.hidden, (f"{item.name}~k", "1")]
            widget.parts = [*widget.parts, row]

    def _choices(self, node: Node, widget: Widget) -> None:
        field = node.field
        chosen = self._values.get(node.name, [])
        found = [(token(choice.value), choice.label) for choice in field.choices]
        if node.shape == "yes_no":
            found = [("true", "Yes"), ("false", "No")]
        if node.shape == "choices":
            widget.control = "checkboxes"
            widget.hidden = [*widget.hidden, (f"{node.name}~n", "1")]
            widget.given = f"{node.name}~g" in self._values if node.is_optional else None
        else:
            widget.control = "radios" if len(found) <= RADIOS_MAX else "select"
            found += [("null", "No answer")] if field.nullable else []
            found += [(LEAVE_OUT, "Leave out")] if node.may_be_left_out else []
            if widget.control == "select" and not (set(chosen) & {text for text, _ in found}):
                found = [("", "Choose…"), *found]
        widget.options = [
            Option(f"{widget.id}-{number}", text, label, text in chosen) for number, (text, label) in enumerate(found)
        ]

    def _datetime(self, node: Node, widget: Widget, text: str) -> None:
        widget.control, widget.value = "datetime", text
        widget.zone = self._values.get(f"{node.name}~z", [""])[-1]
        is_local = not text or (_LOCAL.fullmatch(text) and read_datetime(text) is not None)
        widget.type = "datetime-local" if is_local else "text"
        widget.notes = [*widget.notes, "The time is in UTC, unless you give its offset from UTC, such as +02:00."]

    def _text(self, node: Node, widget: Widget, text: str) -> None:
        widget.value = text
        widget.mode = {"integer": "numeric", "number": "decimal"}.get(node.shape, "")
        if widget.mode == "numeric" and (node.field.minimum is None or node.field.minimum < 0):
            widget.mode = ""  # the numeric keyboard of some phones has no minus
        if node.shape == "text" and (node.field.multiline or "\n" in text or "\r" in text):
            widget.control = "textarea"
        elif node.shape == "date" and (not text or read_date(text) is not None):
            widget.type = "date"
        elif node.shape == "text" and _is_address(node) and text == text.strip():
            widget.type = "url"


def _is_address(node: Node) -> bool:
    """Whether a text refers to a file or another resource."""
    return node.bare.get("format") in ("uri", "uri-reference", "iri") or "contentMediaType" in node.bare


def _first_id(widget: Widget) -> str:
    """The id of the element to which the link of a problem leads."""
    return widget.options[0].id if widget.control in ("radios", "checkboxes") and widget.options else widget.id


def sentence(reason: str) -> str:
    """The reason of a problem as it stands alone."""
    text = _SIMPLE.get(reason, reason)
    return text[:1].upper() + text[1:]


def _limits(field: Field) -> list[str]:
    """The limits of a field in a sentence."""
    unit = {"text": " characters", "list": " items", "choices": " choices"}.get(field.kind, "")
    low, high = (field.min_length, field.max_length) if unit else (field.minimum, field.maximum)
    low = None if unit and low in (0, 1) and field.kind == "text" else low
    if low is not None and high is not None:
        return [f"Exactly {low}{unit}." if low == high else f"From {low} to {high}{unit}."]
    if low is None and high is None:
        return []
    return [f"At least {low}{unit}." if high is None else f"At most {high}{unit}."]


# --- rows of lists ---------------------------------------------------------------------------------------------------


def edit_rows(form: Form, values: Mapping[str, list[str]], prefix: str = "f") -> tuple[Values, str] | None:
    """The values after a button "Add another" or "Remove", and the field to focus; None if another one submitted."""
    button = next((name for name in values if name.endswith(("~add", "~del"))), None)
    if button is None:
        return None
    rest = {name: texts for name, texts in values.items() if not name.endswith(("~add", "~del"))}
    base = button[:-4]
    node = _find(nodes_of(form, prefix), base, rest)
    if node is None or node.shape != "rows":
        return rest, ""
    count, which = row_count(rest.get(f"{base}~n")), values[button][-1]
    if button.endswith("~add"):
        if count >= ROWS_MAX:
            return rest, ""
        added = {f"{base}~g": ["1"]} if node.is_optional else {}
        return {**rest, **encode(node.item(count), INITIAL), **added, f"{base}~n": [str(count + 1)]}, f"{base}/{count}"
    if not which.isascii() or not which.isdigit() or len(which) > 5 or int(which) >= count:
        return rest, ""
    return {**_without_row(rest, base, int(which)), f"{base}~n": [str(count - 1)]}, ""


def _without_row(values: Values, base: str, removed: int) -> Values:
    found: Values = {}
    inside = re.compile(re.escape(base) + r"/([0-9]{1,5})(?=[/~]|\Z)")
    for name, texts in values.items():
        row = inside.match(name)
        index = int(row[1]) if row else -1
        if row is None or index < removed:
            found[name] = texts
        elif index > removed:
            found[f"{base}/{index - 1}{name[row.end() :]}"] = texts
    return found


def _find(nodes: Iterable[Node], name: str, values: Values) -> Node | None:
    for node in nodes:
        if node.name == name:
            return node
        if name.startswith(f"{node.name}/"):
            parts = node.children if node.shape == "object" else rows_of(node, values) if node.shape == "rows" else ()
            return _find(parts, name, values)
    return None
