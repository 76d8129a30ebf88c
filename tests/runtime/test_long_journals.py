"""What is done near the end of a long journal reads only its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import HoldfastError
from holdfast.inspect.journal_page import journal_page
from holdfast.inspect.run_list import RunFilter, run_page
from holdfast.inspect.timeline import timeline
from holdfast.inspect.timeline_page import read_newest, read_window
from holdfast.model.rollback_plan import RollbackPlan
from holdfast.runtime import rollback
from holdfast.runtime.run_history import read_history
from tests.store.postgres.server import newest
from tests.store.postgres.shared_servers import new_schema, shared

FEW, MANY = 40, 240


def say(word: str) -> str:
    return word


def take_back(*_: Any) -> None: ...


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[holdfast.App]:
    urls = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path / 'runs.db'}"}
    url = urls.get(request.param) or shared(newest()).url(schema=new_schema(), durability="relaxed")
    with holdfast.App(url) as found:
        register(found)
        yield found


@pytest.fixture
def app() -> Iterator[holdfast.App]:
    with holdfast.App("memory:") as found:
        register(found)
        yield found


def register(app: holdfast.App) -> None:
    app.undo(take_back)

    @app.workflow
    def agent(run: Any, turns: int) -> bool:
        run.effect(say, "before", undo=take_back)
        for turn in run.loop():
            run.state["turn"] = run.step(say, f"turn {turn}")
            run.effect(say, f"effect {turn}", undo=take_back)
            if turn == turns:
                break
        return bool(run.ask("Enough?", bool))

    @app.workflow
    def chat(run: Any) -> None:
        for _ in run.loop():
            run.ask("What next?", str)

    @app.workflow
    def nested(run: Any, turns: int) -> bool:
        run.effect(say, "before", undo=take_back)
        for outer in run.loop():
            run.effect(say, "outer", undo=take_back, key=f"outer {outer % 2}")
            for inner in run.loop():
                run.effect(say, f"inner {inner}", undo=take_back if inner % 2 else None)
                if inner == 2:
                    run.gather(lambda r: r.step(say, "a"), lambda r: r.ask("Go on?", bool))
                    break
            run.checkpoint()
            if outer == turns:
                break
        return bool(run.ask("Enough?", bool))


def rows_read(app: holdfast.App, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> Counter[str]:
    """The rows that a call reads, by their kinds."""
    port, read = app.store.port, Counter[str]()
    plain_rows, plain_find, plain_all = port.rows, port.find_checkpoints, port.run_rows

    def rows(kind: Any, *args: Any, **kwargs: Any) -> Any:
        found = plain_rows(kind, *args, **kwargs)
        read[kind.__name__] += len(found)
        return found

    def find(*args: Any) -> Any:
        found = plain_find(*args)
        read["CheckpointRow"] += len(found)
        return found

    def everything(*args: Any) -> Any:
        read["run_rows"] += 1
        return plain_all(*args)

    with monkeypatch.context() as patched:
        for name, method in (("rows", rows), ("find_checkpoints", find), ("run_rows", everything)):
            patched.setattr(port, name, method)
        call()
    return +read


CALLS: dict[str, Callable[[holdfast.App, str, int], object]] = {
    "list": lambda app, _, __: [app.runs(), run_page(app.store, RunFilter())],
    "timeline": lambda app, run_id, _: timeline(app.store, run_id, newest=10),
    "newest page": lambda app, run_id, _: read_newest(app.store, run_id, limit=10),
    "last window": lambda app, run_id, end: read_window(app.store, run_id, first=end - 9, limit=10),
    "journal page": lambda app, run_id, _: journal_page(app.store, run_id, limit=10),
    "journal": lambda app, run_id, end: app.store.journal(run_id, after=end - 10),
    "plan of a position": lambda app, run_id, end: app.rollback_plan(run_id, to=end - 3),
    "plan of the end": lambda app, run_id, _: app.rollback_plan(run_id, to=None),
    "rollback": lambda app, run_id, end: app.rollback(run_id, to=end - 3),
    "resume": lambda app, run_id, _: app.answer(run_id, True),
}


def test_the_end_of_a_long_journal_is_read_without_the_rest(
    stored: holdfast.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {turns: f"run-{turns}" for turns in (FEW, MANY)}
    for turns, run_id in runs.items():
        stored.start("agent", turns, run_id=run_id)
    for name, call in CALLS.items():
        found = []
        for run_id in runs.values():
            row = stored.store.port.run(run_id)
            assert row is not None
            found.append(rows_read(stored, monkeypatch, partial(call, stored, run_id, row.position)))
        few, many = found
        assert many["EntryRow"] <= few["EntryRow"] < MANY, name
        assert many["CheckpointRow"] <= few["CheckpointRow"] + 1, name
        assert many["EffectRow"] <= few["EffectRow"] + 100 < MANY, name
        assert many["run_rows"] == 0, name


def test_an_answer_is_taken_without_reading_the_gates_of_earlier_turns(
    app: holdfast.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.start("chat", run_id="run")
    found = []
    for _ in range(2):
        for _ in range(5):
            app.answer("run", "on")
        app.answer("run", "on", enqueue=True)
        found.append(rows_read(app, monkeypatch, lambda: app.worker().run(until_idle=True))["GateRow"])
    assert found == [1, 1]


def plans(app: holdfast.App, run_id: str) -> list[RollbackPlan | str]:
    """The plan for each position, or the error."""
    row = app.store.port.run(run_id)
    assert row is not None
    found: list[RollbackPlan | str] = []
    for to in (None, *range(row.position + 2)):
        try:
            found.append(app.rollback_plan(run_id, to=to))
        except HoldfastError as error:
            found.append(str(error))
    return found


def answer_all(app: holdfast.App, run_id: str, count: int) -> None:
    for _ in range(count):
        [*_, gate] = app.gates(run_id)
        app.answer(run_id, True, gate=gate.gate)


@pytest.mark.parametrize("actions", ["", "r", "rr", "ra", "rara", "e", "er", "c", "cr"])
def test_a_plan_made_from_the_end_is_that_made_from_the_whole_journal(
    app: holdfast.App, monkeypatch: pytest.MonkeyPatch, actions: str
) -> None:
    app.start("nested", 3, run_id="run")
    answer_all(app, "run", 3)
    for at, action in enumerate(actions):
        row = app.store.port.run("run")
        assert row is not None
        if action == "r":
            app.rollback("run", to=row.position // (at + 2), force=True)
        elif action == "c":
            app.cancel("run")
        else:
            answer_all(app, "run", 1)
    from_end = plans(app, "run")
    monkeypatch.setattr(rollback, "read_history_to", lambda core, run_id, _: read_history(core, run_id))
    assert from_end == plans(app, "run")
