"""What `run` and `graph` share: a workflow as it is named on the command line, and input for it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from holdfast.cli.answers import read_json
from holdfast.cli.asking import ask_form
from holdfast.engine.forms import parse_text
from holdfast.errors import InvalidInput, UnknownWorkflow
from holdfast.graphs.fields import form_of_fields

if TYPE_CHECKING:
    from holdfast.cli.session import Session
    from holdfast.engine.forms import Form
    from holdfast.graphs.definition import Graph
    from holdfast.runtime.app import App

ENDINGS = (".yaml", ".yml", ".json")


def is_file(target: str) -> bool:
    """Whether a workflow is named by the file of its definition."""
    return target.lower().endswith(ENDINGS)


def graph_named(app: App, target: str) -> Graph | None:
    """The declared workflow that is meant, registered in the app; None for a workflow of code."""
    if is_file(target):
        return app.graph(target).graph  # type: ignore[attr-defined,no-any-return]
    if not app.knows(target):
        if os.path.exists(target):
            raise InvalidInput(f"{target} is no definition: that is a {', '.join(ENDINGS)} file")
        raise UnknownWorkflow(target, list(app.registry.workflows))
    return getattr(app.registry.workflows[target], "graph", None)


def input_of(session: Session, graph: Graph | None, pairs: tuple[str, ...], file: str | None) -> dict[str, Any]:
    """The input: from a file, then from `name=value`; what is still missing is asked for, if somebody is there."""
    found = read_json(file) if file is not None else {}
    if not isinstance(found, dict):
        raise InvalidInput(f"{file} has no JSON object, and the input is one")
    form = form_of_fields(graph.input) if graph is not None and graph.input is not None else None
    found |= pairs_of(pairs, form)
    if form is not None and session.out.can_ask:
        missing = [field for field in form.fields if field.required and field.name not in found]
        if missing:
            from holdfast.engine.forms import Form

            session.out.note(session.out.styled("input", bold=True))
            found |= ask_form(session, Form(tuple(missing)))
    return found


def pairs_of(pairs: tuple[str, ...], form: Form | None = None) -> dict[str, Any]:
    """`name=value` arguments; a value is read by its field, or as JSON where it is some, or is text."""
    found: dict[str, Any] = {}
    fields = {field.name: field for field in form.fields} if form is not None else {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InvalidInput(f"{pair!r} has no value; write name=value")
        found[name] = parse_text(fields[name], text) if name in fields else _plain(text)
    return found


def _plain(text: str) -> Any:
    """A value nobody has declared: a number, true, false, null, a list or an object as JSON; else it is text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
