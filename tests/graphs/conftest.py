"""A stage for declared workflows: the engine's, with functions and graphs that every app to come knows as well."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Handle
from tests.folders import quick_folder
from tests.harness import Stage
from tests.store.postgres import shared_servers

_count = itertools.count(1)


class GraphStage(Stage):
    """A store, an app, registered functions, one graph."""

    def __init__(self, url: str, run_id: str) -> None:
        self._functions: list[Callable[..., Any]] = []
        self._graphs: dict[str, dict[str, Any]] = {}
        super().__init__(url, "def", run_id)

    def open(self, **options: Any) -> App:
        app = super().open(**options)
        for fn in self._functions:
            app.function(fn)
        for data in self._graphs.values():
            app.graph(data)
        return app

    def function(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Register a function, here and in every app to come."""
        self._functions.append(fn)
        self.app.function(fn)
        return fn

    def graph(self, stages: list[dict[str, Any]], edges: Any = None, **more: Any) -> dict[str, Any]:
        """Register a graph of the id "flow", here and in every app to come. Edges: (from, to, …conditions)."""
        data: dict[str, Any] = {"id": "flow", "stages": stages, **more}
        if edges is not None:
            data["edges"] = [edge_of(*edge) if isinstance(edge, tuple) else edge for edge in edges]
        self._graphs[data["id"]] = data
        self.app.graph(data)
        return data

    def go(self, **given: Any) -> Handle:
        """Start the test's run with this input."""
        return self.app.start("flow", given, run_id=self.run_id)

    @property
    def state(self) -> dict[str, Any]:
        """The newest state, by another road."""
        found = self.onlooker.load(self.run_id)
        assert found is not None
        state: dict[str, Any] = found.state
        return state


def edge_of(source: str, target: str, *conditions: tuple[Any, ...] | None) -> dict[str, Any]:
    """An edge; a condition is (key, operator, value). None for the conditions: the default edge."""
    if conditions == (None,):
        return {"from": source, "to": target, "default": True}
    listed = [dict(zip(("key", "operator", "value"), condition, strict=False)) for condition in conditions if condition]
    return {"from": source, "to": target, "conditions": listed}


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A place for stores; in memory where there is such a place."""
    with quick_folder("graphs") as found:
        yield found


@functools.cache
def _postgres() -> str:
    return shared_servers.new_url()


@pytest.fixture(params=["sqlite", "dir", "postgres"])
def everywhere(request: pytest.FixtureRequest, folder: Path) -> Iterator[GraphStage]:
    """On each kind of store that outlives a process."""
    urls = {"sqlite": f"sqlite:{folder / 'runs.db'}", "dir": f"dir:{folder / 'runs'}"}
    stage = GraphStage(urls.get(request.param) or _postgres(), f"run-{next(_count)}")
    yield stage
    stage.close()


@pytest.fixture
def stage(folder: Path) -> Iterator[GraphStage]:
    """On SQLite: for what does not depend on the store."""
    stage = GraphStage(f"sqlite:{folder / 'runs.db'}", f"run-{next(_count)}")
    yield stage
    stage.close()
