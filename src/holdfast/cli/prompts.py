"""Input of values: answers to gates and inputs of workflows, typed or as arguments.

The form parses and checks what is typed, and a value that does not fit is asked for again. Nothing is sent before the
whole answer fits. Ctrl-C or Ctrl-D leaves the gate open.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

from holdfast.cli.format import command_line
from holdfast.cli.output import lines_of, one_line, plain, read_line
from holdfast.errors import InvalidAnswer, InvalidInput, UnknownWorkflow
from holdfast.forms import Field, Form, parse_text
from holdfast.ids import gate_labels
from holdfast.model.views import GateInfo

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.graphs.definition import Graph
    from holdfast.runtime.app import App


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


def ask_gate(session: Session, gate: GateInfo) -> object:
    """Show a gate and ask until an answer fits. Raises click.Abort at the end of input."""
    labels = gate_labels([one.gate for one in session.app().gates(gate.run_id)])
    again = command_line(("holdfast", "answer", gate.run_id, "--gate", labels.get(gate.gate, gate.gate)))
    session.how_to_continue = f"The question is still open: {one_line(again)}"
    show_gate(session, gate)
    return ask_form(session, gate.form)


def show_gate(session: Session, gate: GateInfo) -> None:
    """Print the question of a gate and the data shown with it."""
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
    if gate.not_by:
        out.note(out.styled(f"not for {', '.join(gate.not_by)}", dim=True))
    if gate.approvals > 1:
        names = ", ".join(approval.by for approval in gate.approved)
        counted = f"{len(gate.approved)} of {gate.approvals} approvals" + (f": {names}" if names else "")
        out.note(out.styled(counted, dim=True))
    if gate.expires_at is not None:
        out.note(out.styled(f"expires {out.time(gate.expires_at)}", dim=True))


def ask_form(session: Session, form: Form) -> dict[str, object]:
    """Ask for every field, and again for those that do not fit together with the others."""
    values: dict[str, object] = {}
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


def ask_field(session: Session, field: Field) -> object:
    """Ask for one field until the value fits."""
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


def _read(field: Field) -> object:
    label = f"{field.label}{_hint(field)}: "
    if field.kind == "list":
        return _read_list(field, label)
    text = _read_lines(label) if field.multiline or field.kind == "object" else read_line(label)
    if not text.strip():
        return _empty_value(field)
    if field.kind == "text" and text == '""':
        text = ""
    if field.choices:
        return _parse_choice(field, text)
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
        words.append(" [optional]")
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


def _empty_value(field: Field) -> object:
    """Return the value that Enter alone means: the default, an omitted field, or empty text where that fits."""
    if field.has_default:
        return field.default
    if not field.required:
        return _OMITTED
    return parse_text(field, "")


def _parse_choice(field: Field, text: str) -> object:
    """Parse a choice by its name or, if no choice has that name, by its number."""
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


def _read_list(field: Field, label: str) -> object:
    items: list[str] = []
    while True:
        line = read_line(label if not items else " " * len(label))
        if not line.strip():
            break
        items.append(line)
    if not items:
        return _empty_value(field)
    if len(items) == 1 and items[0].lstrip().startswith("["):
        return parse_text(field, items[0])
    try:  # as JSON first, so that a comma inside an item does not split it
        return parse_text(field, json.dumps(items))
    except InvalidInput:
        return parse_text(field, "\n".join(items))


def _read_lines(label: str) -> str:
    """Read lines up to one that has only a dot. An empty first line ends the input as well."""
    lines: list[str] = []
    while True:
        line = read_line(label if not lines else " " * len(label))
        if line.strip() == _END or (not lines and not line.strip()):
            return "\n".join(lines)
        lines.append(line)


def _complain(session: Session, text: str) -> None:
    session.out.note(session.out.styled(f"  {text}", fg="red"))


_SINGLE: Final = "answer"
_FILE_BYTES_MAX: Final = 64 << 20


def given_answer(gate: GateInfo, pairs: tuple[str, ...], file: str | None) -> object:
    """Combine arguments and a file into an answer; arguments override the file. InvalidAnswer lists all problems."""
    form: Form = gate.form
    whole = read_json(file) if file is not None else None
    if not pairs:
        return whole
    values: dict[str, object] = {}
    problems: list[str] = []
    if whole is not None:
        if not isinstance(whole, dict) or form.single:
            raise InvalidInput(f"{file} contains the whole answer; leave out the values on the command line")
        values |= whole
    fields = {field.name: field for field in form.fields}
    given: set[str] = set()
    unread: set[str] = set()
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if form.single and (not equals or name != _SINGLE):
            name, equals, text = _SINGLE, "=", pair
        if not equals:
            problems.append(f"{pair!r} has no value; write field=value")
        elif name not in fields:
            problems.append(f"unknown field {name!r}; the fields are {', '.join(fields) or 'none'}")
        elif name in given:
            problems.append(f"{name} is given twice")
        else:
            given.add(name)
            try:
                values[name] = parse_text(fields[name], text)
            except InvalidInput as error:
                problems.append(str(error))
                unread.add(name)
    checked = form.check(values)
    problems += [str(problem) for problem in checked.problems if top_of(problem.field) not in unread]
    if problems:
        raise InvalidAnswer(gate.run_id, gate.gate, problems)
    return values


def top_of(path: str) -> str:
    """Return the field of the form that a path begins with."""
    return path.partition(".")[0].partition("[")[0]


def read_json(file: str) -> Any:
    """Read a JSON file; `-` is standard input."""
    try:
        if file == "-":
            text = sys.stdin.read(_FILE_BYTES_MAX)
        else:
            with open(file, encoding="utf-8") as opened:
                text = opened.read(_FILE_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}") from error
    return parse_json(text, "standard input" if file == "-" else file)


def parse_json(text: str, what: str) -> Any:
    """Parse JSON; InvalidInput if it is not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} is not JSON: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


DEFINITION_SUFFIXES = (".yaml", ".yml", ".json")


def is_file(target: str) -> bool:
    """Return whether a workflow is named by the file of its definition."""
    return target.lower().endswith(DEFINITION_SUFFIXES)


def graph_named(app: App, target: str) -> Graph | None:
    """Return the named declared workflow, registered in the app; None for a workflow of code."""
    if is_file(target):
        return app.graph(target).graph  # type: ignore[attr-defined,no-any-return]
    if not app.knows(target):
        if os.path.exists(target):
            raise InvalidInput(f"{target} is not a definition, which is a {', '.join(DEFINITION_SUFFIXES)} file")
        raise UnknownWorkflow(target, list(app.registry.workflows))
    return getattr(app.registry.workflows[target], "graph", None)


def input_of(session: Session, graph: Graph | None, pairs: tuple[str, ...], file: str | None) -> dict[str, Any]:
    """Combine a file with `name=value` arguments; in a terminal, ask for required fields that are missing."""
    found = read_json(file) if file is not None else {}
    if not isinstance(found, dict):
        raise InvalidInput(f"{file} is not a JSON object, which the input of a workflow must be")
    from holdfast.graphs.fields import form_of_fields  # not needed to answer a gate

    form = form_of_fields(graph.input) if graph is not None and graph.input is not None else None
    found |= pairs_of(pairs, form)
    if form is not None and session.out.can_ask:
        missing = [field for field in form.fields if field.required and field.name not in found]
        if missing:
            session.out.note(session.out.styled("input", bold=True))
            found |= ask_form(session, Form(tuple(missing)))
    return found


def pairs_of(pairs: tuple[str, ...], form: Form | None = None) -> dict[str, Any]:
    """Parse `name=value` arguments: a value by its field, if there is one, else as JSON or as text."""
    found: dict[str, Any] = {}
    fields = {field.name: field for field in form.fields} if form is not None else {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InvalidInput(f"{pair!r} has no value; write name=value")
        if name in found:
            raise InvalidInput(f"{name} is given twice")
        found[name] = parse_text(fields[name], text) if name in fields else json_or_text(text)
    return found


def json_or_text(text: str) -> Any:
    """Parse a value without a declared field: JSON if it is valid JSON, else text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
