"""Which functions count as one when they are registered under one name."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, InvalidInput, Run

Fn = Callable[..., Any]


@pytest.fixture
def app() -> Any:
    with App("memory:") as app:
        yield app


def _workflow(app: App, fn: Fn) -> None:
    app.workflow(name="one")(fn)


def _undo(app: App, fn: Fn) -> None:
    app.undo(name="one")(fn)


def _function(app: App, fn: Fn) -> None:
    app.function(name="one")(fn)


every = pytest.mark.parametrize("register", [_workflow, _undo, _function])


def _cell(text: str, cell: int) -> dict[str, Any]:
    """What a notebook does: each cell is compiled under a file name of its own and runs in `__main__`."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, f"<cell {cell}>", "exec"), names)
    return names


def _made(number: int) -> Fn:
    def flow(run: Any) -> int:
        return number

    return flow


def _logged(fn: Fn) -> Fn:
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


def _wrapped(fn: Fn) -> Fn:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


class _Agent:
    def flow(self, run: Any) -> None:
        """Nothing."""


def _add(number: int, run: Any) -> int:
    return number


def _other(run: Any) -> None:
    """Nothing."""


@every
@pytest.mark.parametrize("decorate", [lambda fn: fn, _logged, _wrapped], ids=["plain", "decorated", "wraps"])
def test_a_cell_that_is_run_again_replaces_its_function(
    app: App, register: Callable[[App, Fn], None], decorate: Callable[[Fn], Fn]
) -> None:
    for cell, value in enumerate((1, 2)):
        register(app, decorate(_cell(f"def flow(run):\n    return {value}", cell)["flow"]))
    if register is _workflow:
        assert app.start("one").result() == 2


@every
def test_a_lambda_of_a_cell_that_is_run_again_is_replaced(app: App, register: Callable[[App, Fn], None]) -> None:
    for cell, value in enumerate((1, 2)):
        register(app, _cell(f"flow = lambda run: {value}", cell)["flow"])


@every
@pytest.mark.parametrize(
    "functions",
    [
        (_made(1), _made(2)),
        (_logged(_made), _logged(_other)),
        (_wrapped(_made), _wrapped(_other)),
        (_Agent().flow, _Agent().flow),
        (functools.partial(_add, 1), functools.partial(_add, 2)),
        (lambda run: 1, _other),
        (
            lambda run: 1,
            lambda run: 2,
        ),
    ],
    ids=["factory", "decorator", "wraps", "methods", "partials", "lambda", "lambdas"],
)
def test_another_function_of_the_name_is_refused(
    app: App, register: Callable[[App, Fn], None], functions: tuple[Fn, Fn]
) -> None:
    register(app, functions[0])
    with pytest.raises(InvalidInput, match=r"already has an? .* 'one'; give one of them another name="):
        register(app, functions[1])
    register(app, functions[0])


@every
def test_closures_of_equal_values_are_the_same(app: App, register: Callable[[App, Fn], None]) -> None:
    register(app, _made(1))
    register(app, _made(1))


def test_a_reloaded_module_replaces_its_functions_and_old_references_mean_the_new(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "reloaded_flows.py"
    text = "def register(app):\n    @app.workflow\n    def flow(run):\n        return {}\n    return flow\n"
    file.write_text(text.format(1))
    module = importlib.import_module("reloaded_flows")
    before = module.register(app)
    app.upgrade("flow", 1)(lambda state: state)
    file.write_text("\n" + text.format(22))
    module = importlib.reload(module)
    after = module.register(app)
    monkeypatch.delitem(sys.modules, "reloaded_flows")
    assert app.start(before).result() == app.start(after).result() == 22
    assert list(app.registry.workflows["flow"].upgrades) == [1]


def test_a_function_that_encloses_itself_can_be_registered_again(app: App) -> None:
    def make() -> Fn:
        def flow(run: Run, depth: int = 0) -> Any:
            return depth or flow

        return flow

    app.workflow(name="one")(make())
    with pytest.raises(InvalidInput, match="already has"):
        app.workflow(name="one")(make())
