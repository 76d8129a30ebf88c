"""Descriptions of an app's workflows, made of their signatures, and their publication in the store."""

from __future__ import annotations

import inspect
import logging
import typing
from typing import TYPE_CHECKING, Any, Final

from holdfast.drivers import Plan
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.forms import Field, Form, field, form_of
from holdfast.limits import FIELDS_MAX
from holdfast.operations.catalog import Description, publish
from holdfast.runtime.registry import Workflow
from holdfast.store.capabilities import Catalog

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore

_log: Final = logging.getLogger("holdfast.worker")
BUILT_IN: Final = "holdfast."
"""How the names of Holdfast's own workflows begin, as that of notifications; people do not start them."""


def publish_workflows(app: AppCore) -> Plan[list[str]]:
    """Publish the workflows of an app that have changed; return their names."""
    names = [name for name in app.registry.own_names() if not name.startswith(BUILT_IN)]
    described = {name: describe(app.registry.workflows[name]) for name in names}
    return (yield lambda: publish(app.core, described))  # type: ignore[no-any-return]


def try_publish(app: AppCore) -> None:
    """Publish the workflows if the store allows it; a worker works without that."""
    if not isinstance(app.core.port, Catalog):
        return
    try:
        app.blocking.run(publish_workflows(app))
    except HoldfastError as error:
        _log.warning("the workflows were not published, so other processes cannot list them: %s", error)


def describe(workflow: Workflow) -> Description:
    """What is published of a workflow."""
    if workflow.is_declared:
        from holdfast.graphs.fields import form_of_fields  # loads graphs

        graph = getattr(workflow, "graph", None)
        given = graph.input if graph is not None else None
        text = graph.description if graph is not None and isinstance(graph.description, str) else ""
        return Description(workflow.version, _first_paragraph(text), form_of_fields(given or {}), declared=True)
    fields = _fields(workflow.fn)
    return Description(workflow.version, _first_paragraph(inspect.getdoc(workflow.fn) or ""), Form(tuple(fields)))


def _first_paragraph(text: str) -> str:
    return " ".join(text.strip().partition("\n\n")[0].split())


def _fields(fn: Any) -> list[Field]:
    """A field for each parameter after the run."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a builtin may have no signature
        return []
    try:
        hints = typing.get_type_hints(fn, include_extras=True)
    except Exception:  # an annotation that cannot be evaluated here
        hints = {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [_field(each, hints.get(each.name, Any)) for each in parameters[1:] if each.kind in named][:FIELDS_MAX]


def _field(parameter: inspect.Parameter, hint: object) -> Field:
    """The field of a parameter; one of any kind if its annotation or default cannot be described."""
    name, default = parameter.name, parameter.default
    options: dict[str, Any] = {} if default is parameter.empty else {"default": default}
    for kind, more in ((hint, options), (Any, options)):
        try:
            return form_of({name: field(kind, **more)}).fields[0]
        except (InvalidInput, TypeError, ValueError):
            continue
    return Field(name, "any", form_of({name: Any}).fields[0].label, required=default is parameter.empty)
