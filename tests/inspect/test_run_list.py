"""Lists of runs: filters that the store does not have, in limited steps, and one line about each run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Store
from holdfast.inspect import run_list
from holdfast.inspect.family import relatives
from holdfast.inspect.run_list import RunFilter, RunLine, read_marks, run_page
from tests.harness import ShiftedClock


@pytest.fixture(params=["memory:", "sqlite:{}/runs.db", "dir:{}/runs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with holdfast.open(request.param.format(tmp_path), clock=ShiftedClock()) as found:
        yield found


def clock_of(store: Store) -> ShiftedClock:
    clock = store.access.core.clock
    assert isinstance(clock, ShiftedClock)
    return clock


def listed(store: Store, wanted: RunFilter, limit: int = 50) -> list[str]:
    """All runs that fit, read page by page."""
    found: list[str] = []
    before: int | None = None
    while True:
        page = run_page(store, wanted, before=before, limit=limit)
        found += [line.run_id for line in page.lines]
        if page.following is None:
            return found
        before = page.following


def fill(store: Store, count: int) -> dict[str, dt.datetime]:
    for number in range(count):
        store.save(f"run-{number}", {}, workflow=f"w{number % 4}", metadata={"even": number % 2 == 0})
        clock_of(store).advance(600)
    return {run.run_id: run.created_at for run in store.runs(limit=1000)}


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_pages_together_have_every_run_once(store: Store, limit: int) -> None:
    created = fill(store, 23)
    names = [f"run-{number}" for number in range(22, -1, -1)]
    assert listed(store, RunFilter(), limit) == names
    assert listed(store, RunFilter(workflow="w1"), limit) == [name for name in names if int(name[4:]) % 4 == 1]
    assert listed(store, RunFilter(metadata={"even": True}), limit) == names[::2]
    assert listed(store, RunFilter(text="RUN-1"), limit) == [name for name in names if name.startswith("run-1")]
    since, until = created["run-5"], created["run-9"]
    assert listed(store, RunFilter(since=since, until=until), limit) == [f"run-{n}" for n in (9, 8, 7, 6, 5)]
    assert listed(store, RunFilter(until=created["run-0"] - dt.timedelta(seconds=1)), limit) == []


@pytest.mark.parametrize("names", [(), ("w1", "w2", "none")])
def test_only_visible_workflows_are_listed(store: Store, names: tuple[str, ...]) -> None:
    fill(store, 12)
    wanted = RunFilter(can_see=lambda name: name in ("w1", "w2"), names=names)
    assert listed(store, wanted, 3) == [f"run-{number}" for number in (10, 9, 6, 5, 2, 1)]
    hidden = RunFilter(can_see=lambda name: name in ("w1", "w2"), names=names, workflow="w3")
    assert listed(store, hidden, 3) == []


def test_a_search_stops_after_some_runs_and_says_how_far_it_came(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_list, "SCANNED_MAX", 5)
    created = fill(store, 12)
    page = run_page(store, RunFilter(text="run-2"))
    assert (page.lines, page.is_cut, page.reached) == ((), True, created["run-7"])
    assert listed(store, RunFilter(text="run-2")) == ["run-2"]


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=25), st.data())
def test_times_are_found_by_bisection_whatever_the_gaps_are(pauses: list[int], data: st.DataObject) -> None:
    with holdfast.open("memory:", clock=ShiftedClock()) as store:
        for number, pause in enumerate(pauses):
            store.save(f"run-{number}", {})
            clock_of(store).advance(pause)
        created = {run.run_id: run.created_at for run in store.runs(limit=1000)}
        moments = sorted(created.values())
        until, since = data.draw(st.sampled_from(moments)), data.draw(st.sampled_from(moments))
        wanted = [name for name, at in created.items() if since <= at <= until]
        assert listed(store, RunFilter(since=since, until=until), 4) == wanted


def test_each_line_says_what_the_run_waits_for() -> None:
    with holdfast.open("memory:") as store, holdfast.App(store) as app:

        @app.workflow
        def work(run: Any, kind: str) -> object:
            if kind == "ask":
                return run.ask("Sure?", bool)
            if kind == "event":
                return run.wait_for("shipped", timeout=3_600)
            if kind == "sleep":
                return run.sleep(3_600)
            if kind == "child":
                return run.child(work, "ask")
            if kind == "retry":
                return run.step(int, "x", retry=holdfast.Retry(attempts=3, initial_delay=3_600))
            raise ValueError("no such kind\nand more")

        for kind in ("ask", "event", "sleep", "child", "retry", "fail"):
            app.start(work, kind, run_id=kind)
        app.start(work, "sleep", run_id="paused")
        app.pause("paused", by="ben")
        lines: dict[str, RunLine] = {line.run_id: line for line in run_page(store, RunFilter()).lines}
        assert [gate.prompt for gate in lines["ask"].gates] == ["Sure?"]
        assert lines["event"].text == "the event shipped"
        assert lines["event"].until is not None
        assert lines["sleep"].text == "the timer sleep"
        assert lines["child"].text == "child run child/child:work#1"
        assert lines["retry"].text == "the next attempt of int"
        assert lines["fail"].text == "ValueError: no such kind"
        assert lines["paused"].text == "by ben"
        assert [line.run_id for line in run_page(store, RunFilter(has_gates=True)).lines] == [
            "child/child:work#1", "ask",
        ]  # fmt: skip


def test_marks_change_with_every_commit(store: Store) -> None:
    fill(store, 5)
    before = read_marks(store, RunFilter(), limit=3)
    assert read_marks(store, RunFilter(), limit=3) == before
    store.save("run-0", {"n": 1})
    assert read_marks(store, RunFilter(), limit=3) == before
    store.save("run-4", {"n": 1})
    assert read_marks(store, RunFilter(), limit=3) != before


def test_parents_and_children_find_each_other() -> None:
    with holdfast.open("memory:") as store, holdfast.App(store) as app:

        @app.workflow
        def leaf(run: Any, name: str) -> object:
            return run.ask(f"{name}?", bool)

        @app.workflow
        def middle(run: Any) -> object:
            run.child(leaf, "loose", detached=True)
            return run.child(leaf, "tight")

        @app.workflow
        def top(run: Any) -> object:
            return run.child(middle)

        long = "x" * 480
        for run_id in ("top", long):
            app.start(top, run_id=run_id)
            below = relatives(store, run_id)
            assert [child.info.workflow for child in below.children if child.info] == ["middle"]
            assert below.parents == ()
            between = relatives(store, below.children[0].run_id)
            assert [(child.detached, child.info is not None) for child in between.children] == [
                (False, True), (True, True),
            ]  # fmt: skip
            assert [parent.run_id for parent in between.parents] == [run_id]
            last = relatives(store, between.children[0].run_id)
            assert [parent.run_id for parent in last.parents] == [below.children[0].run_id, run_id]
        store.delete("top")
        orphan = relatives(store, "top/child:middle#1")
        assert [(parent.run_id, parent.info) for parent in orphan.parents] == [("top", None)]
