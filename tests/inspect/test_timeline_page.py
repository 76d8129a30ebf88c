"""Pages of a timeline: together they have the rows of the whole timeline; the newest costs little in a long run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.errors import InvalidCursor
from holdfast.inspect import timeline_page
from holdfast.inspect.timeline import timeline
from holdfast.inspect.timeline_page import TimelinePage, read_newest, read_window
from holdfast.inspect.views import Row
from holdfast.model.rows import EntryRow
from tests.harness import ShiftedClock


@pytest.fixture
def app() -> Iterator[holdfast.App]:
    clock = ShiftedClock()
    with holdfast.open("memory:", clock=clock) as store, holdfast.App(store) as found:
        _register(found)
        yield found


def say(word: str) -> str:
    return word


def take_back(*_: Any) -> None: ...


def _register(app: holdfast.App) -> None:
    app.undo(take_back)

    @app.workflow
    def agent(run: Any, turns: int) -> object:
        run.step(say, "before")
        for turn in run.loop():
            run.state["turn"] = run.step(say, f"turn {turn}")
            if turn == turns:
                return run.ask("Enough?", bool)
        return None

    @app.workflow
    def nested(run: Any, outer: int, inner: int) -> object:
        for turn in run.loop():
            run.step(say, f"outer {turn}")
            for below in run.loop():
                run.step(say, f"inner {below}")
                if below == inner:
                    break
            if turn == outer:
                return run.ask("Enough?", bool)
        return None

    @app.workflow
    def mixed(run: Any) -> object:
        run.map(say, [f"item {number}" for number in range(20)])
        run.gather(lambda r: r.step(say, "a"), lambda r: r.ask("b?", bool))
        for number in range(10):
            run.effect(say, f"effect {number}", undo=take_back)
        return run.ask("c?", bool)


def identity(row: Row) -> tuple[str, str, str, int]:
    return row.kind, row.name, row.call, row.first


def windows(app: holdfast.App, run_id: str, limit: int) -> list[TimelinePage]:
    found = [read_window(app.store, run_id, first=1, limit=limit)]
    while found[-1].later:
        found.append(read_window(app.store, run_id, first=found[-1].last + 1, limit=limit))
    return found


def calls_in(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if row.kind not in ("gap", "turn", "stage")]


def start_mixed(app: holdfast.App) -> None:
    app.start("mixed", run_id="r")
    app.answer("r", True, gate="gather#1[1]/ask#1", by="ana")
    app.rollback("r", to="map#1", by="ben")
    app.answer("r", False, by="ana")


@pytest.mark.parametrize("limit", [1, 7, 50, 1_000])
def test_windows_together_have_every_row_once_with_its_state(app: holdfast.App, limit: int) -> None:
    start_mixed(app)
    app.start("agent", 30, run_id="loop")
    for run_id in ("r", "loop"):
        whole = calls_in(timeline(app.store, run_id).rows)
        parts = [row for page in windows(app, run_id, limit) for row in calls_in(page.timeline.rows)]
        assert [identity(row) for row in parts] == [identity(row) for row in whole]
        assert [row.state for row in parts] == [row.state for row in whole]
        assert [row.result for row in parts] == [row.result for row in whole]


def test_a_call_that_ends_far_behind_a_window_continues(app: holdfast.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_page, "OVERLAP", 3)
    start_mixed(app)
    whole = {identity(row): row.state for row in calls_in(timeline(app.store, "r").rows)}
    for page in windows(app, "r", 5):
        for row in calls_in(page.timeline.rows):
            state = whole.get(identity(row), "missing")
            assert row.state in (state, "continues") or state == "missing", identity(row)


def test_rows_that_a_later_rollback_took_back_are_marked(app: holdfast.App) -> None:
    start_mixed(app)
    page = read_window(app.store, "r", first=2, limit=5)
    assert {row.state for row in page.timeline.rows if row.kind == "step"} == {"taken_back"}


def test_the_newest_page_of_a_loop_folds_all_finished_turns_and_reads_few_entries(
    app: holdfast.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.start("agent", 400, run_id="r")
    port, read = app.store.port, []
    rows = port.rows

    def counted(kind: Any, *args: Any, **kwargs: Any) -> Any:
        found = rows(kind, *args, **kwargs)
        read.extend(found if kind is EntryRow else [])
        return found

    monkeypatch.setattr(port, "rows", counted)
    page = read_newest(app.store, "r", limit=50)
    assert len(read) < 20
    assert [(row.kind, row.name, row.state) for row in page.timeline.rows if row.kind != "gap"] == [
        ("started", "agent", "done"),
        ("step", "say", "done"),
        ("loop", "loop", "waiting"),
        ("turns", "turns 1 to 399", "done"),
        ("turn", "turn 400", "waiting"),
        ("step", "say", "done"),
        ("ask", "ask", "waiting"),
    ]
    turns = next(row for row in page.timeline.rows if row.kind == "turns")
    inside = read_window(app.store, "r", first=turns.first, limit=10_000)
    assert [row.name for row in inside.timeline.rows if row.kind == "turn"][:2] == ["turn 1", "turn 2"]
    assert turns.last == next(row.last for row in inside.timeline.rows if row.name == "turn 399")
    assert page.timeline.standing.sentence.startswith("waiting for an answer to 'Enough?'")
    assert (page.earlier, page.is_folded) == (0, True)


def test_a_window_counts_the_turns_it_shows(app: holdfast.App) -> None:
    app.start("agent", 400, run_id="r")
    for page in (read_window(app.store, "r", first=1, limit=200), read_window(app.store, "r", first=1, limit=10_000)):
        [loop] = [row for row in page.timeline.rows if row.kind == "loop"]
        assert loop.count == max(row.count for row in page.timeline.rows if row.kind == "turn")


def test_loops_in_loops_are_folded_each_for_itself(app: holdfast.App) -> None:
    app.start("nested", 5, 30, run_id="r")
    page = read_newest(app.store, "r", limit=60)
    shown = [(row.name, row.depth) for row in page.timeline.rows if row.kind in ("turn", "turns")]
    assert shown == [("turns 1 to 4", 1), ("turn 5", 1), ("turns 1 to 29", 3), ("turn 30", 3)]
    whole = read_newest(app.store, "r", limit=1_000)
    assert [(row.name, row.depth) for row in whole.timeline.rows if row.kind in ("turn", "turns")] == shown


def test_many_stages_are_folded(app: holdfast.App) -> None:
    @app.function
    def count(n: int) -> int:
        return n + 1

    stages = [
        {"id": "init", "type": "set", "values": {"n": 0}},
        {"id": "add", "type": "call", "function": "count", "with": {"n": "{{ n }}"}, "output_key": "n"},
        {"id": "ask", "type": "ask", "prompt": "Go on?", "fields": {"ok": "bool"}, "output_key": "a"},
        {"id": "end", "type": "end"},
    ]
    edges = [
        {"from": "init", "to": "add"},
        {"from": "add", "to": "ask", "conditions": [{"key": "n", "operator": "gte", "value": 150}]},
        {"from": "add", "to": "add", "default": True},
        {"from": "ask", "to": "end"},
    ]
    app.graph({"id": "counting", "stages": stages, "edges": edges, "max_iterations": None})
    app.start("counting", {}, run_id="r")
    page = read_newest(app.store, "r", limit=40)
    folded = [row for row in page.timeline.rows if row.kind == "stages"]
    assert [row.name for row in folded] == ["stages 1 to 151"]
    assert page.timeline.standing.next_node == "ask"
    assert any(row.kind == "stage" and row.name == "add" for row in read_window(app.store, "r", first=10).timeline.rows)


def test_the_newest_page_of_a_run_without_loops_has_the_last_calls(app: holdfast.App) -> None:
    start_mixed(app)
    page = read_newest(app.store, "r", limit=10)
    assert page.earlier == page.first - 2
    shown = calls_in(page.timeline.rows)
    assert shown[0].kind == "started"
    assert all(row.first >= page.first or row.state in ("waiting", "in_doubt") for row in shown[1:])
    assert read_newest(app.store, "r", limit=1_000).earlier == 0


def test_pages_of_a_pruned_journal(app: holdfast.App) -> None:
    app.start("agent", 100, run_id="r")
    app.store.prune("r", holdfast.Keep(last=1, journal=True))
    names = [(row.kind, row.text) for row in read_newest(app.store, "r", limit=20).timeline.rows]
    assert ("pruned", "entries 4 to 201 were pruned") in names
    pages = windows(app, "r", 20)
    assert any(row.kind == "pruned" for page in pages for row in page.timeline.rows)


def test_positions_are_checked(app: holdfast.App) -> None:
    app.start("agent", 2, run_id="r")
    for wrong in (0, -1, 2**40, True):
        with pytest.raises(InvalidCursor):
            read_window(app.store, "r", first=wrong)
    assert read_window(app.store, "r", first=10_000).timeline.rows
    app.store.save("by-hand", {})
    with pytest.raises(InvalidCursor, match="no journal of a workflow"):
        read_window(app.store, "by-hand", first=1)
    assert read_newest(app.store, "by-hand").timeline.rows


def test_a_run_that_no_worker_has_taken_yet_does_not_run_again(app: holdfast.App) -> None:
    app.start("agent", 1, run_id="r", enqueue=True)
    assert timeline(app.store, "r").standing.sentence == "ready: it will run when a worker takes it"
