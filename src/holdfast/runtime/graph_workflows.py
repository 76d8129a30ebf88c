"""Declared workflows: graphs as workflows of an app, and the app's methods for them.

A run of a declared workflow carries its definition. Registering another graph under the same id does not change runs
that have begun.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar, overload

import msgspec

from holdfast.drivers import forbid_in_loop
from holdfast.engine.retry import ONCE
from holdfast.errors import InvalidInput, RunError, UnknownWorkflow
from holdfast.graphs.definition import Graph, JsonObject, SubWorkflow
from holdfast.graphs.fields import form_of_fields
from holdfast.graphs.flow import body_of
from holdfast.graphs.load import from_stored, to_stored
from holdfast.graphs.semantics import verify
from holdfast.graphs.stage_runner import GraphWorkflow
from holdfast.graphs.structure import refuse_errors
from holdfast.runtime.app_core import AppCore
from holdfast.runtime.registry import Registry, Workflow

if TYPE_CHECKING:
    from holdfast.graphs.definition import AnyStage
    from holdfast.runtime.start import Start

F = TypeVar("F", bound=Callable[..., object])
GraphSource = Graph | Mapping[str, object] | str | os.PathLike[str]
"""A graph, its data, or the path of a YAML or JSON file."""


class DeclaredWorkflow(Workflow):
    """A graph under its name. Without a graph, each run uses the definition that it carries."""

    is_declared = True

    def __init__(self, registry: Registry, name: str, graph: Graph | None) -> None:
        super().__init__(GraphWorkflow(registry, name, graph), name, 1, ONCE)
        self.graph = graph
        self.is_adopted = graph is None
        self._registry = registry

    def inner(self) -> Iterator[tuple[str, Graph]]:
        """The graphs that its stages run as separate workflows, with their names."""
        for stage in self.graph.stages if self.graph is not None else ():
            step: AnyStage | None = stage
            while step is not None:
                if isinstance(step, SubWorkflow) and step.graph is not None:
                    yield f"{self.name}/{stage.id}", step.graph
                step = body_of(step)

    def check_run(self, run_id: str, definition: object) -> None:
        """Refuse a run if this process has no definition of its own and lacks a function that the run's names."""
        if self.graph is not None:
            return
        if definition is None:
            raise UnknownWorkflow(self.name, self._registry.own_names())
        graph = from_stored(definition, run_id)
        missing = [finding for finding in verify(graph, self._registry) if finding.code.startswith("unknown")]
        if missing:
            raise UnknownWorkflow(f"{self.name} ({missing[0].message})", self._registry.own_names())

    def prepare(self, start: Start) -> Start:
        """The run with its definition. Input that does not fit, or a graph with errors, is refused."""
        self.check_input(start.args, start.kwargs)
        if "resume" in start.kwargs:
            raise InvalidInput(f"{self.name!r} cannot start with resume=, which only an imported run has; leave it out")
        if start.definition is not None:  # a graph inside another, which was checked with it
            graph = Graph.from_data(start.definition["graph"])
        elif self.graph is None:
            raise RunError(f"this process has no definition of {self.name!r}; register it with app.graph(…)")
        else:
            graph = self.graph
            refuse_errors(self.name, verify(graph, self._registry))
        given = start.args[0] if start.args else start.kwargs.get("input")
        metadata = {**graph.metadata, **(start.metadata or {})}
        kwargs = {name: value for name, value in start.kwargs.items() if name != "input"}
        if kwargs.get("variables") is not None:
            _check_variables(self.name, graph, kwargs["variables"])
        args, stored = (_check_input(self.name, graph, given),), start.definition or to_stored(graph)
        return msgspec.structs.replace(start, args=args, kwargs=kwargs, metadata=metadata or None, definition=stored)


def _check_variables(name: str, graph: Graph, given: object) -> None:
    """Refuse variables given at the start that the graph does not have."""
    if not isinstance(given, dict):
        raise InvalidInput(f"variables of the declared workflow {name!r} are a dict, not {given!r}")
    unknown = [key for key in given if key not in graph.variables]
    if unknown:
        listed = ", ".join(graph.variables) or "none"
        raise InvalidInput(f"the declared workflow {name!r} has no variable {unknown[0]!r}; it has: {listed}")


def _check_input(name: str, graph: Graph, given: object) -> JsonObject:
    """Return the input with its defaults; InvalidInput lists what does not fit."""
    given = {} if given is None else given
    if not isinstance(given, dict):
        raise InvalidInput(f"the input of the declared workflow {name!r} is a dict, not {given!r}")
    if graph.input is None:
        return copy.copy(given)
    checked = form_of_fields(graph.input).check(given)
    if checked.problems:
        problems = "; ".join(str(problem) for problem in checked.problems)
        raise InvalidInput(f"the input of the declared workflow {name!r} does not fit: {problems}")
    found: JsonObject = checked.value
    return found


class Declaring:
    """The methods of an app for declared workflows."""

    _core: AppCore

    @property
    def registry(self) -> Registry:
        """The workflows, functions and undos of the app, by name."""
        return self._core.registry

    @overload
    def function(self, fn: F) -> F: ...
    @overload
    def function(self, *, name: str | None = None) -> Callable[[F], F]: ...
    def function(self, fn: F | None = None, *, name: str | None = None) -> F | Callable[[F], F]:
        """Register a function that stages of declared workflows may call, under its name or `name`.

        It is called with the values under `with` of the stage, by name. As an effect it also gets an `idempotency_key`,
        if it has a parameter of that name. A definition cannot call anything else.

        Example:
            @app.function
            def price(order):
                return {"order": order, "amount": 40}
        """
        return _register(self._core.registry.add_function, fn, name)

    @overload
    def undo(self, fn: F) -> F: ...
    @overload
    def undo(self, *, name: str | None = None) -> Callable[[F], F]: ...
    def undo(self, fn: F | None = None, *, name: str | None = None) -> F | Callable[[F], F]:
        """Register a function that undoes an effect, so that a rollback finds it in any process.

        It is called with the effect's result and its arguments. A crash may repeat the call, so it also gets an
        `idempotency_key`, if it has a parameter of that name.

        Example:
            @app.undo
            def take_back(receipt, order):
                ...
        """
        return _register(self._core.registry.add_undo, fn, name)

    def graph(self, graph: GraphSource, *, functions: Iterable[Callable[..., object]] = ()) -> Workflow:
        """Register a declared workflow under its id: a `Graph`, its data, or the path of a YAML or JSON file.

        Its functions may be registered later. Runs carry their definition: registering another one under the same id
        does not change those that have begun, and they are not resumed here until they are migrated.

        Example:
            app.graph({"id": "hello", "stages": [{"type": "end", "id": "end", "result": "hello {{ input.name }}"}]})
            app.start("hello", {"name": "ana"}).result()
        """
        made = to_graph(graph)
        for fn in functions:
            self._core.registry.add_function(fn, None)
        if "/" in made.id:
            raise InvalidInput(f"the id {made.id!r} has a '/', which separates the names of inner graphs; leave it out")
        return self._core.registry.declare(made.id, made)

    def graph_of(self, run_id: str) -> Graph:
        """The definition that a run uses.

        Example:
            app.graph({"id": "tea", "stages": [{"type": "wait", "id": "boil", "event": "boiled"}]})
            app.start("tea", run_id="tea-1")
            app.graph_of("tea-1").mermaid()
        """
        from holdfast.runtime import graph_migration

        forbid_in_loop("graph_of")
        return self._core.blocking.run(graph_migration.definition_of_run(self._core, run_id))

    def adopt(self, run_id: str) -> bool:
        """Register the declared workflow of a run from the definition it carries, so that it can be executed here.

        Returns False, and changes nothing, for a workflow of code or if it names functions this app does not have.

        Example:
            app.graph({"id": "tea", "stages": [{"type": "wait", "id": "boil", "event": "boiled"}]})
            app.start("tea", run_id="tea-3")
            app.adopt("tea-3")
        """
        from holdfast.runtime import graph_migration

        forbid_in_loop("adopt")
        return self._core.blocking.run(graph_migration.adopt_workflow(self._core, run_id))

    def migrate(
        self, run_id: str, graph: GraphSource | None = None, *, by: str | None = None, enqueue: bool = False
    ) -> list[str]:
        """Continue a run that has begun with another definition: the registered one, or `graph`. Returns the changes.

        The stage at which the run is must be in it, and of the same type. What was done stays done.

        Example:
            app.graph({"id": "tea", "stages": [{"type": "wait", "id": "boil", "event": "boiled"}]})
            app.start("tea", run_id="tea-2")
            app.graph({"id": "tea", "stages": [{"type": "wait", "id": "boil", "event": "boiled", "timeout_s": 60}]})
            app.migrate("tea-2")
        """
        from holdfast.runtime import graph_migration

        forbid_in_loop("migrate")
        new = None if graph is None else to_graph(graph)
        plan = graph_migration.migrate_run(self._core, run_id, new, by, here=not enqueue)
        found, claimed = self._core.blocking.run(plan)
        if claimed is not None:
            from holdfast.runtime.execute import run_until_idle

            self._core.blocking.run(run_until_idle(self._core, claimed))
        return found


def _register(add: Callable[[F, str | None], None], fn: F | None, name: str | None) -> F | Callable[[F], F]:
    """Add `fn`, or return the decorator that adds a function."""

    def register(fn: F) -> F:
        add(fn, name)
        return fn

    return register if fn is None else register(fn)


def to_graph(graph: object) -> Graph:
    """The graph, its data or the file at its path, checked."""
    if isinstance(graph, Mapping):
        return Graph.from_data(graph)
    if isinstance(graph, (str, os.PathLike)):
        return Graph.load(graph)
    if isinstance(graph, Graph):
        return Graph.from_data(graph.as_data())
    raise InvalidInput(f"a declared workflow is a Graph, its data or the path of its file, not {graph!r}")
