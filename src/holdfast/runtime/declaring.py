"""What an app registers by name beside workflows of code: functions, undos, declared workflows; and their migration."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast.errors import InvalidInput
from holdfast.runtime.core import AppCore
from holdfast.runtime.registry import Registry, Workflow
from holdfast.verbs.plans import forbid_in_loop

if TYPE_CHECKING:
    from holdfast.graphs.definition import Graph

F = TypeVar("F", bound=Callable[..., Any])


class Declaring:
    """The part of an app that is about declared workflows."""

    _core: AppCore

    @property
    def registry(self) -> Registry:
        """What the app knows by name: workflows, functions, undos."""
        return self._core.registry

    @overload
    def function(self, fn: F) -> F: ...
    @overload
    def function(self, *, name: str | None = None) -> Callable[[F], F]: ...
    def function(self, fn: Any = None, *, name: str | None = None) -> Any:
        """Register a function that stages of declared workflows may call, under its name or `name`.

        It gets what the stage says under `with`, by name; as an effect also an `idempotency_key`, if it has a parameter
        of that name. Nothing else can be called from a definition.

        Example:
            @app.function
            def price(order):
                return {"order": order, "amount": 40}
        """

        def register(fn: F) -> F:
            self._core.registry.add_function(fn, name)
            return fn

        return register if fn is None else register(fn)

    @overload
    def undo(self, fn: F) -> F: ...
    @overload
    def undo(self, *, name: str | None = None) -> Callable[[F], F]: ...
    def undo(self, fn: Any = None, *, name: str | None = None) -> Any:
        """Register a function that takes back an effect, so that a rollback finds it in any process.

        It is called with the effect's result and its arguments. Since a crash may repeat it, it gets an
        `idempotency_key` if it has a parameter of that name.

        Example:
            @app.undo
            def take_back(receipt, order):
                ...
        """

        def register(fn: F) -> F:
            self._core.registry.add_undo(fn, name)
            return fn

        return register if fn is None else register(fn)

    def graph(
        self, graph: Graph | Mapping[str, Any] | str | os.PathLike[str], *, functions: Iterable[Callable[..., Any]] = ()
    ) -> Workflow:
        """Register a declared workflow under its id: a `Graph`, its data, or the path of a YAML or JSON file.

        Its functions may be registered later. Runs carry their definition: registering another one under the same id
        does not change those that have begun, and they are not resumed here until they are migrated.

        Example:
            app.graph({"id": "hello", "stages": [{"type": "end", "id": "end", "result": "hello {{ input.name }}"}]})
            app.start("hello", {"name": "ana"}).result()
        """
        made = made_graph(graph)
        for fn in functions:
            self._core.registry.add_function(fn, None)
        if "/" in made.id:
            raise InvalidInput(f"the id {made.id!r} has a '/', by which graphs inside others are named; leave it out")
        return self._core.registry.declare(made.id, made)

    def graph_of(self, run_id: str) -> Graph:
        """The definition a run goes by.

        Example:
            app.graph({"id": "tea", "stages": [{"type": "wait", "id": "boil", "event": "boiled"}]})
            app.start("tea", run_id="tea-1")
            app.graph_of("tea-1").mermaid()
        """
        from holdfast.runtime import migrating

        forbid_in_loop("graph_of")
        return self._core.blocking.run(migrating.definition_of_run(self._core, run_id))

    def adopt(self, run_id: str) -> bool:
        """Know the declared workflow of a run by the definition it carries, so that it can be moved on here.

        False, and nothing is changed, if it is a workflow of code, or names functions this app does not have.

        Example:
            app.graph({"id": "tea", "stages": [{"type": "wait", "id": "boil", "event": "boiled"}]})
            app.start("tea", run_id="tea-3")
            app.adopt("tea-3")
        """
        from holdfast.runtime import migrating

        forbid_in_loop("adopt")
        return self._core.blocking.run(migrating.adopted(self._core, run_id))

    def migrate(
        self, run_id: str, graph: Graph | Mapping[str, Any] | str | os.PathLike[str] | None = None, *,
        by: str | None = None, enqueue: bool = False,
    ) -> list[str]:  # fmt: skip
        """Let a run that has begun go on by another definition: the registered one, or `graph`. What changed.

        The stage at which it stands must be in it, and of the same type. What was done stays done.

        Example:
            app.graph({"id": "tea", "stages": [{"type": "wait", "id": "boil", "event": "boiled"}]})
            app.start("tea", run_id="tea-2")
            app.graph({"id": "tea", "stages": [{"type": "wait", "id": "boil", "event": "boiled", "timeout_s": 60}]})
            app.migrate("tea-2")
        """
        from holdfast.runtime import migrating

        forbid_in_loop("migrate")
        new = None if graph is None else made_graph(graph)
        found, claimed = self._core.blocking.run(migrating.migrated(self._core, run_id, new, by, here=not enqueue))
        if claimed is not None:
            from holdfast.runtime.advancing import advanced

            self._core.blocking.run(advanced(self._core, claimed))
        return found


def made_graph(graph: Any) -> Graph:
    """A graph as it is given, checked, whoever made it."""
    from holdfast.graphs.definition import Graph as GraphType

    if isinstance(graph, Mapping):
        return GraphType.from_data(graph)
    if isinstance(graph, (str, os.PathLike)):
        return GraphType.load(graph)
    if isinstance(graph, GraphType):
        return GraphType.from_data(graph.as_data())
    raise InvalidInput(f"a declared workflow is a Graph, its data or the path of its file, not {graph!r}")
