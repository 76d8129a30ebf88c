"""Answers from the command line: `field=value` arguments and JSON files, typed by the gate's form."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from holdfast.engine.forms import Form, parse_text
from holdfast.errors import InvalidAnswer, InvalidInput
from holdfast.model.gates import GateInfo

_SINGLE: Final = "answer"
_FILE_BYTES_MAX: Final = 64 << 20


def given_answer(gate: GateInfo, pairs: tuple[str, ...], file: str | None) -> Any:
    """The answer that arguments and a file give together, arguments first. InvalidAnswer lists all that is wrong."""
    form: Form = gate.form
    whole = read_json(file) if file is not None else None
    if not pairs:
        return whole
    values: dict[str, Any] = {}
    problems: list[str] = []
    if whole is not None:
        if not isinstance(whole, dict) or form.single:
            raise InvalidInput(f"{file} has the whole answer already; leave out the values beside it")
        values |= whole
    fields = {field.name: field for field in form.fields}
    unread: set[str] = set()
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if form.single and (not equals or name != _SINGLE):
            name, equals, text = _SINGLE, "=", pair
        if not equals:
            problems.append(f"{pair!r} has no value; write field=value")
        elif name not in fields:
            problems.append(f"there is no field {name!r}; it has {', '.join(fields) or 'none'}")
        else:
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
    """The field of the form that a path leads into."""
    return path.partition(".")[0].partition("[")[0]


def read_json(file: str) -> Any:
    """What a JSON file holds; `-` is standard input."""
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
    """JSON as data; a value that is not JSON is wrong usage."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} is not JSON: {error}") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")
