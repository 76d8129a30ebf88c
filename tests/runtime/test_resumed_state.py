"""The state of a resumed run: its first checkpoint costs what changed, and it is what it was."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import App, Keep, Run
from holdfast.state.encoder import encode
from holdfast.store.port import Select
from tests.state.test_tracked_machine import DICT_CHANGES, LIST_CHANGES, TINY, new_values
from tests.state.tracked_saves import count_encoded, message, plain
from tests.strategies import exactly

_MESSAGES = 400
_FEW_PAGES = 100_000
"""Of 440 KB."""


def chat(run: Run) -> int:
    """Asks in every turn after the first."""
    state = run.state  # stays the state of the run when the loop restores it
    for turn in run.loop():
        if turn == 1:
            state["messages"] = [message(number) for number in range(_MESSAGES)]
            state["index"] = {f"m{number}": number for number in range(1500)}
            continue
        state["messages"].append({"turn": turn})
        if run.ask("Go on?", bool) is False:
            break
    return len(run.state["messages"])


def root_of(app: App, run_id: str = "r") -> bytes:
    found = app.store.port.checkpoint(run_id, Select())
    assert found is not None
    assert found[1] is not None
    return found[1].root


def ends_of_turns(app: App, run_id: str) -> list[int]:
    return [entry.position for entry in app.store.journal(run_id) if entry.kind == "turn"]


def check_stored(app: App, run_id: str = "r") -> None:
    loaded = app.store.load(run_id)
    assert loaded is not None
    assert root_of(app, run_id) == encode(loaded.state).root
    assert not app.store.verify().problems


def encoded_by(monkeypatch: pytest.MonkeyPatch, act: Callable[..., object], *args: object) -> int:
    sizes = count_encoded(monkeypatch)
    act(*args)
    monkeypatch.undo()
    return sum(sizes)


def test_the_first_checkpoint_after_a_resume_encodes_what_changed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.start(app.workflow(chat), run_id="r")
    for turn in range(1, 4):
        assert encoded_by(monkeypatch, app.answer, "r", True) < _FEW_PAGES
        if turn == 2:
            app.fork("r", "fork", update={"messages.5": "forked", "note": [1]})
    assert encoded_by(monkeypatch, app.rollback, "r", ends_of_turns(app, "r")[1]) < _FEW_PAGES
    for run_id in ("r", "fork"):
        app.answer(run_id, False)
        assert app.handle(run_id).result() == _MESSAGES + (2 if run_id == "r" else 3)
        check_stored(app, run_id)
    fork = app.store.load("fork")
    assert fork is not None
    assert (fork.state["messages"][5], fork.state["note"]) == ("forked", [1])


def test_an_upgrade_changes_a_state_of_which_the_chunks_are_known() -> None:
    with App("memory:") as app:
        app.start(app.workflow(chat), run_id="r")
        other = App(app.store)
        other.workflow(version=3)(chat)

        @other.upgrade("chat", 1)
        def add_title(state: dict[str, Any]) -> dict[str, Any]:
            state["messages"][7]["title"] = "first"
            state["index"].pop("m900")
            return state

        @other.upgrade("chat", 2)
        def rename(state: dict[str, Any]) -> dict[str, Any]:
            return {"version": 3, **state}

        other.answer("r", True)
        other.answer("r", False)
        loaded = other.store.load("r")
        assert loaded is not None
        assert list(loaded.state) == ["version", "messages", "index"]
        assert loaded.state["messages"][7]["title"] == "first"
        assert len(loaded.state["messages"]) == _MESSAGES + 2
        assert len(loaded.state["index"]) == 1499
        check_stored(other)


def test_chunks_that_were_swept_during_an_execution_are_stored_again(app: App) -> None:
    def flow(run: Run) -> int:
        for turn in run.loop():
            if turn == 1:
                run.state["messages"] = [message(number) for number in range(60)]
            run.state["messages"][turn]["content"] = f"{turn} " * 400
            if turn % 3 == 0 and run.ask("Go on?", bool):
                app.store.prune("r", Keep(last=1))
            if turn == 10:
                break
        return len(run.state["messages"])

    app.start(app.workflow(flow), run_id="r")
    for _ in range(3):
        app.answer("r", True)
    assert app.handle("r").result() == 60
    row = app.store.port.run("r")
    assert row is not None
    assert row.gc_epoch > 1, "something was swept"
    check_stored(app)


changes = st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 999), st.integers(0, 99), new_values)
turns = st.tuples(st.lists(changes, max_size=4), st.sampled_from(["ask", "go on", "fork", "roll back"]))


def change(state: dict[str, Any], place: int, how: int, i: int, j: int, value: object) -> None:
    containers = [state, *[part for part in state.values() if isinstance(part, (dict, list))]]
    target = containers[place % len(containers)]
    made: list[Any] = LIST_CHANGES if isinstance(target, list) else DICT_CHANGES
    with contextlib.suppress(LookupError, ZeroDivisionError):
        made[how % len(made)](target, i, j, copy.deepcopy(value))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 80), st.lists(turns, max_size=6))
def test_a_run_that_resumes_has_the_state_of_one_that_does_not(count: int, script: list[tuple[list[Any], str]]) -> None:
    twin: dict[str, Any] = {"messages": [{"text": f"{i} " * 9} for i in range(count)]}
    begin = copy.deepcopy(twin)

    def flow(run: Run) -> None:
        state = run.state
        for turn in run.loop():
            if turn == 1:
                state.update(copy.deepcopy(begin))
            if turn > len(script):
                return
            edits, then = script[turn - 1]
            for edit in edits[::2]:
                change(state, *edit)
            if then != "go on":
                run.ask("Go on?", bool)
            for edit in edits[1::2]:
                change(state, *edit)

    with pytest.MonkeyPatch.context() as patched, App("memory:") as app:
        for module, names in TINY.items():
            for name, value in names.items():
                patched.setattr(module, name, value)
        app.start(app.workflow(flow), run_id="r")
        run_id = "r"
        for edits, then in script:
            before = plain(twin)  # loads no part as the same object twice
            if then == "roll back":
                app.rollback(run_id, ([1, *ends_of_turns(app, run_id)])[-1])
            elif then == "fork":
                app.fork(run_id, run_id := f"{run_id}-fork")
            if then != "go on":
                app.answer(run_id, True)
                twin = before
            for edit in [*edits[::2], *edits[1::2]]:
                change(twin, *edit)
        assert app.handle(run_id).status() == "completed"
        loaded = app.store.load(run_id)
        stored = {} if loaded is None else loaded.state
        assert exactly(stored) == exactly(twin)
        assert loaded is None or root_of(app, run_id) == encode(stored, split_min=100).root
