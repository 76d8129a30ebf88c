"""Declared workflows as an app knows them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine.retry import ONCE
from holdfast.errors import InvalidInput, RunError, UnknownWorkflow
from holdfast.graphs.definition import Graph, SubWorkflow
from holdfast.graphs.fields import form_of_fields
from holdfast.graphs.findings import refuse_errors
from holdfast.graphs.reads import body_of
from holdfast.graphs.running import Runner, read_stored, stored
from holdfast.graphs.verifying import verify
from holdfast.runtime.registry import Registry, Workflow

if TYPE_CHECKING:
    from holdfast.graphs.definition import AnyStage
    from holdfast.runtime.starting import Start


class DeclaredWorkflow(Workflow):
    """A graph under its name. Without a graph, each run goes by the definition it carries."""

    is_declared = True

    def __init__(self, registry: Registry, name: str, graph: Graph | None) -> None:
        super().__init__(Runner(registry, name, graph), name, 1, ONCE)
        self.graph = graph
        self.is_adopted = graph is None
        self._registry = registry

    def inner(self) -> Iterator[tuple[str, Graph]]:
        """The graphs that its stages run as workflows of their own, with their names."""
        for stage in self.graph.stages if self.graph is not None else ():
            step: AnyStage | None = stage
            while step is not None:
                if isinstance(step, SubWorkflow) and step.graph is not None:
                    yield f"{self.name}/{stage.id}", step.graph
                step = body_of(step)

    def check_run(self, run_id: str, definition: Any) -> None:
        """A process that has no definition of its own does only what it has all the functions for."""
        if self.graph is not None:
            return
        if definition is None:
            raise UnknownWorkflow(self.name, self._registry.declared())
        graph = read_stored(definition, run_id)
        missing = [finding for finding in verify(graph, self._registry) if finding.code.startswith("unknown")]
        if missing:
            raise UnknownWorkflow(f"{self.name} ({missing[0].message})", self._registry.declared())

    def prepared(self, start: Start) -> Start:
        """The run with its definition. Input that does not fit, or a graph that is not sound, is refused."""
        self.check_input(start.args, start.kwargs)
        if "resume" in start.kwargs:
            raise InvalidInput(f"{self.name!r} cannot start with resume=, which only an imported run has; leave it out")
        if start.definition is not None:  # the graph inside another, which was checked with that
            graph = Graph.from_data(start.definition["graph"])
        elif self.graph is None:
            raise RunError(f"this process has no definition of {self.name!r}; register it with app.graph(…)")
        else:
            graph = self.graph
            refuse_errors(self.name, verify(graph, self._registry))
        given = start.args[0] if start.args else start.kwargs.get("input")
        metadata = {**graph.metadata, **(start.metadata or {})}
        more = {name: value for name, value in start.kwargs.items() if name != "input"}
        if more.get("variables") is not None:
            _check_variables(self.name, graph, more["variables"])
        return msgspec.structs.replace(
            start, args=(_checked(self.name, graph, given),), kwargs=more, metadata=metadata or None,
            definition=start.definition or stored(graph),
        )  # fmt: skip


def _check_variables(name: str, graph: Graph, given: Any) -> None:
    """Variables given at the start: those the graph has."""
    if not isinstance(given, dict):
        raise InvalidInput(f"variables of the declared workflow {name!r} are a dict, not {given!r}")
    unknown = [key for key in given if key not in graph.variables]
    if unknown:
        listed = ", ".join(graph.variables) or "none"
        raise InvalidInput(f"the declared workflow {name!r} has no variable {unknown[0]!r}; it has: {listed}")


def _checked(name: str, graph: Graph, given: Any) -> dict[str, Any]:
    """The input, complete; InvalidInput lists what does not fit."""
    given = {} if given is None else given
    if not isinstance(given, dict):
        raise InvalidInput(f"the input of the declared workflow {name!r} is a dict, not {given!r}")
    if graph.input is None:
        return copy.copy(given)
    checked = form_of_fields(graph.input).check(given)
    if checked.problems:
        problems = "; ".join(str(problem) for problem in checked.problems)
        raise InvalidInput(f"the input of the declared workflow {name!r} does not fit: {problems}")
    found: dict[str, Any] = checked.value
    return found
