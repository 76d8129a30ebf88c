"""Ask a person for an answer, field by field, in the terminal.

What is typed is read and checked by the form itself, with its own messages; what does not fit is asked again. Nothing
is sent before the whole answer fits. Ctrl-C or Ctrl-D leaves the gate open.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.answers import top_of
from holdfast.cli.output import lines_of, one_line, plain, read_line
from holdfast.cli.showing import command_line
from holdfast.engine.forms import Field, parse_text
from holdfast.errors import InvalidInput
from holdfast.model.names import gate_labels

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.engine.forms import Form
    from holdfast.model.gates import GateInfo

_END: Final = "."
_OMITTED: Final = object()
_HINTS: Final = {
    "yes_no": "y/n",
    "integer": "a whole number",
    "number": "a number",
    "date": "a date such as 2026-03-31",
    "datetime": "a time such as 2026-03-31T10:15",
    "object": "JSON",
    "any": "JSON or text",
}


def ask_gate(session: Session, gate: GateInfo) -> Any:
    """Show a gate and ask for its answer; gives one that fits. Raises click.Abort if the person goes away."""
    labels = gate_labels([one.gate for one in session.app().gates(gate.run_id)])
    again = command_line(("holdfast", "answer", gate.run_id, "--gate", labels.get(gate.gate, gate.gate)))
    session.how_to_go_on = f"The question is still open: {one_line(again)}"
    show_gate(session, gate)
    return ask_form(session, gate.form)


def show_gate(session: Session, gate: GateInfo) -> None:
    """Print the question and what is to be shown beside it."""
    out = session.out
    out.note("")
    for line in lines_of(gate.prompt):
        out.note(out.styled(line, bold=True))
    if gate.show is not None:
        shown = gate.show
        text = shown if isinstance(shown, str) else json.dumps(plain(shown), ensure_ascii=False, indent=2)
        for line in lines_of(text):
            out.note(f"  {line}")
    if gate.who:
        out.note(out.styled(f"for {', '.join(gate.who)}", dim=True))
    if gate.expires_at is not None:
        out.note(out.styled(f"expires {out.time(gate.expires_at)}", dim=True))


def ask_form(session: Session, form: Form) -> Any:
    """Ask for every field, and again for those that do not fit together with the others."""
    values: dict[str, Any] = {}
    again = list(form.fields)
    while True:
        for field in again:
            value = ask_field(session, field)
            if value is _OMITTED:
                values.pop(field.name, None)
            else:
                values[field.name] = value
        checked = form.check(values)
        if checked.ok:
            return values
        for problem in checked.problems:
            _complain(session, str(problem))
        named = {top_of(problem.field) for problem in checked.problems}
        again = [field for field in form.fields if field.name in named] or list(form.fields)


def ask_field(session: Session, field: Field) -> Any:
    """Ask for one field until what is typed fits it."""
    _introduce(session, field)
    while True:
        try:
            return _read(field)
        except InvalidInput as problem:
            _complain(session, str(problem))


def _introduce(session: Session, field: Field) -> None:
    out = session.out
    for line in lines_of(field.help):
        out.note(out.styled(f"  {line}", dim=True))
    for number, choice in enumerate(field.choices, 1):
        out.note(f"  {number}) {choice.label}")
    if field.kind in ("list", "object") or field.multiline:
        what = "one a line, an empty line" if field.kind == "list" else f"a line with only {_END!r}"
        out.note(out.styled(f"  {what} ends it", dim=True))


def _read(field: Field) -> Any:
    label = f"{field.label}{_hint(field)}: "
    if field.kind == "list":
        return _list(field, label)
    text = _several(label) if field.multiline or field.kind == "object" else read_line(label)
    if not text.strip():
        return _nothing(field)
    if field.kind == "text" and text == '""':
        text = ""
    if field.choices:
        return _chosen(field, text)
    return parse_text(field, text)


def _hint(field: Field) -> str:
    if field.kind in ("choice", "choices"):
        hint = "number or name" if field.kind == "choice" else "numbers or names, with commas"
    else:
        hint = _HINTS.get(field.kind, "")
    words = [f" ({hint})"] if hint else []
    if field.has_default:
        words.append(f" [{_default(field)}]")
    elif not field.required:
        words.append(" [leave out]")
    return "".join(words)


def _default(field: Field) -> str:
    if field.default is None:
        return "nothing"
    if field.kind == "yes_no":
        return "y" if field.default else "n"
    for choice in field.choices:
        if choice.value == field.default:
            return choice.label
    return field.default if isinstance(field.default, str) else json.dumps(field.default, ensure_ascii=False)


def _nothing(field: Field) -> Any:
    """What Enter alone means: the default, nothing at all, or empty text where that fits."""
    if field.has_default:
        return field.default
    if not field.required:
        return _OMITTED
    return parse_text(field, "")


def _chosen(field: Field, text: str) -> Any:
    """A choice by its name or, where no choice has that name, by its number."""
    try:
        return parse_text(field, text)
    except InvalidInput:
        pieces = [piece.strip() for piece in (text.split(",") if field.kind == "choices" else [text])]
        labels = [
            field.choices[int(piece) - 1].label
            if piece.isascii() and piece.isdigit() and 1 <= int(piece) <= len(field.choices)
            else piece
            for piece in pieces
        ]
        return parse_text(field, "\n".join(labels) if len(labels) > 1 else labels[0])


def _list(field: Field, label: str) -> Any:
    items: list[str] = []
    while True:
        line = read_line(label if not items else " " * len(label))
        if not line.strip():
            break
        items.append(line)
    if not items:
        return _nothing(field)
    if len(items) == 1 and items[0].lstrip().startswith("["):
        return parse_text(field, items[0])
    try:  # as text first: a comma inside an item does not make two of it
        return parse_text(field, json.dumps(items))
    except InvalidInput:
        return parse_text(field, "\n".join(items))


def _several(label: str) -> str:
    """Lines up to one that has only a dot. An empty first line means nothing was typed."""
    lines: list[str] = []
    while True:
        line = read_line(label if not lines else " " * len(label))
        if line.strip() == _END or (not lines and not line.strip()):
            return "\n".join(lines)
        lines.append(line)


def _complain(session: Session, text: str) -> None:
    session.out.note(session.out.styled(f"  {text}", fg="red"))
