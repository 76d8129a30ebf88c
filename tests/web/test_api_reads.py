"""Reading by the JSON API: runs, journals, checkpoints, gates, counts and workflows."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import holdfast
from holdfast.store.port import RunCounts
from tests.web.acting import STORES, Api, World, world


@pytest.fixture(params=STORES)
def w(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def ana(w: World) -> Api:
    return w.api("ana")


def test_runs_are_listed_in_pages_newest_first(w: World, ana: Api) -> None:
    for number in range(5):
        w.start("order", f"A{number}", run_id=f"a{number}", metadata={"team": "x" if number % 2 else "y"})
    first = ana.get("/runs", limit=2)
    second = ana.get("/runs", limit=2, after=first["next"])
    third = ana.get("/runs", limit=2, after=second["next"])
    names = [run["run_id"] for page in (first, second, third) for run in page["runs"]]
    assert names == ["a4", "a3", "a2", "a1", "a0"]
    assert third["next"] is None
    assert [run["run_id"] for run in ana.get("/runs", metadata="team=x")["runs"]] == ["a3", "a1"]
    assert [run["run_id"] for run in ana.get("/runs", prefix="a2")["runs"]] == ["a2"]
    assert ana.get("/runs", status=["completed", "failed"])["runs"] == []
    assert len(ana.get("/runs", status="waiting", workflow="order")["runs"]) == 5


def test_a_run_is_described_with_what_it_waits_for_and_how_it_ended(w: World, ana: Api) -> None:
    w.start("order", "A", run_id="a")
    found = ana.get("/runs/a")
    assert found["run"]["status"] == "waiting"
    assert found["waiting"][0]["reason"] == "person"
    assert found["gates"][0]["answer_schema"]["required"] == ["ok"]
    assert "Ship A?" in found["sentence"]
    assert found["result"] is None
    w.app.answer("a", {"ok": False})
    ended = ana.get("/runs/a")
    assert ended["run"]["status"] == "completed"
    assert ended["result"] == {"order": {"name": "A", "amount": 40}, "ok": False}
    assert ended["commit"] != found["commit"]
    w.start("convert", 2, run_id="c")
    failed = ana.get("/runs/c")
    assert failed["error"]["type"] == "StepFailed"


def test_the_journal_is_read_in_pages(w: World, ana: Api) -> None:
    w.start("order", "A", run_id="a")
    found: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = ana.get("/runs/a/journal", after=after, limit=2)
        found += page["entries"]
        after = page["next"]
    assert [entry["position"] for entry in found] == list(range(1, w.app.handle("a").info().position + 1))
    assert found[0]["kind"] == "started"


def test_the_timeline_the_ledger_and_the_family_are_read(w: World, ana: Api) -> None:
    w.start("order", "A", run_id="a")
    w.app.fork("a", "b", at="pay", enqueue=True)
    rows = ana.get("/runs/a/timeline")["rows"]
    assert [row["name"] for row in rows if row["kind"] == "effect"] == ["pay"]
    [effect] = ana.get("/runs/a/effects")["effects"]
    assert effect["state"] == "done"
    assert effect["result"]["receipt"] == "R-A"
    assert [one["run_id"] for one in ana.get("/runs/a/family")["branches"]] == ["a", "b"]


def test_checkpoints_are_listed_read_and_compared(w: World, ana: Api) -> None:
    @w.app.workflow
    def count(run: holdfast.Run) -> None:
        run.state["numbers"] = []
        for turn in run.loop():
            run.state["numbers"].append(turn)
            if turn == 3:
                return

    w.start("count", run_id="n")
    first = ana.get("/runs/n/checkpoints", limit=2)
    rest = ana.get("/runs/n/checkpoints", before=first["next"])
    found = first["checkpoints"] + rest["checkpoints"]
    assert rest["next"] is None
    assert [one["number"] for one in found] == sorted((one["number"] for one in found), reverse=True)
    assert all("holdfast" not in one["metadata"] for one in found)
    old, new = found[-1]["checkpoint_id"], found[0]["checkpoint_id"]
    state = ana.get(f"/runs/n/checkpoints/{quote(new)}")["state"]
    assert state["numbers"]
    changes = ana.get("/runs/n/diff", a=old, b=new)["changes"]
    assert changes
    assert all(change["path"].startswith("/numbers") for change in changes)
    ana.get("/runs/n/checkpoints/none", 404)
    ana.get("/runs/n/diff", 404, a=old, b="none")


def test_masked_values_leave_neither_by_states_nor_by_texts(w: World, ana: Api) -> None:
    w.served.site.mask = ("customer.iban", "card.number", "order.name")

    @w.app.workflow
    def leaky(run: holdfast.Run, customer: dict[str, str]) -> None:
        run.state["customer"] = dict(customer)
        run.checkpoint()
        run.step(lambda: {"card": {"number": "4242-4242"}}, name="read")
        run.log(f"the number is {customer['iban']}")
        run.ask(f"Pay to {customer['iban']}?", bool, show={"card": {"number": "4242-4242"}})

    w.start("leaky", customer={"iban": "DE0212345"}, run_id="m")
    w.start("order", "A", run_id="a")
    checkpoint = w.app.handle("m").info().checkpoint_id
    texts = [
        ana.get(path)
        for path in (
            "/runs/m/journal",
            "/runs/m/timeline",
            "/runs/m",
            f"/runs/m/checkpoints/{checkpoint}",
            "/runs/m/effects",
            "/runs/a",
            "/runs/a/effects",
        )
    ]
    shown = json.dumps(texts, ensure_ascii=False)
    assert "4242" not in shown
    assert "DE0212345" not in json.dumps([texts[1], texts[2]], ensure_ascii=False)
    assert "•••" in shown
    plan = json.dumps(ana.get("/runs/a/rollback-plan", to="pay"), ensure_ascii=False)
    assert "4242" not in plan


def test_values_that_json_does_not_have_are_written_as_objects(w: World, ana: Api) -> None:
    @w.app.workflow
    def strange(run: holdfast.Run) -> object:
        return {"at": dt.date(2026, 3, 31), "big": 2**70, "raw": b"\0\xff", "pair": (1, 2)}

    w.start("strange", run_id="s")
    assert ana.get("/runs/s")["result"] == {
        "at": {"$date": "2026-03-31"},
        "big": 2**70,
        "raw": {"$bytes": "AP8="},
        "pair": {"$tuple": [1, 2]},
    }


def test_gates_are_listed_in_pages_longest_open_first(w: World, ana: Api) -> None:
    for number in range(5):
        w.start("order", f"A{number}", run_id=f"a{number}")
    found: list[Any] = []
    after: str | None = ""
    while after is not None:
        page = ana.get("/gates", limit=2, after=after)
        found += page["gates"]
        after = page["next"]
    assert [gate["run_id"] for gate in found] == [f"a{number}" for number in range(5)]
    w.app.answer("a0", {"ok": False}, by="ben")
    assert len(ana.get("/gates")["gates"]) == 4
    [answered] = ana.get("/gates", state="answered")["gates"]
    assert answered["answered_by"] == "ben"
    assert ana.get("/gates", workflow="other")["gates"] == []


def test_gates_of_others_can_be_left_out(w: World, ana: Api) -> None:
    @w.app.workflow
    def private(run: holdfast.Run, who: str) -> None:
        run.ask("Yours?", bool, who=who)

    w.start("private", "ana", run_id="mine")
    w.start("private", "group:finance", run_id="theirs")
    assert [gate["run_id"] for gate in ana.get("/gates", mine=True)["gates"]] == ["mine"]
    assert [gate["run_id"] for gate in w.api("ben").get("/gates", mine="true")["gates"]] == ["theirs"]
    refused = ana.get("/runs/theirs/gates/ask")
    assert refused["may_answer"] is False
    assert "group:finance" in refused["may_not"]
    assert w.api("vera").get("/runs/mine/gates/ask")["may_answer"] is False


def test_counts_workflows_and_the_user_are_read(w: World, ana: Api) -> None:
    w.start("order", "A", run_id="a")
    assert ana.get("/counts") == {"runs": {"waiting": 1}, "open_gates": 1, "estimated": []}
    found = {one["name"]: one for one in ana.get("/workflows")["workflows"]}
    assert sorted(found) == ["convert", "hello", "listen", "order"]
    assert found["order"]["input_schema"]["required"] == ["order"]
    assert found["order"]["published_at"] is not None
    assert w.api("ben").get("/me") == {"name": "ben", "role": "approver", "groups": ["finance"], "workflows": ["*"]}


def test_what_a_user_may_not_see_does_not_exist(w: World) -> None:
    w.start("order", "A", run_id="a")
    w.app.workflow(name="refund")(lambda run: run.ask("Refund?", bool))
    w.app.publish_workflows()
    w.start("refund", run_id="r")
    rita = w.api("rita")
    assert [run["run_id"] for run in rita.get("/runs")["runs"]] == ["r"]
    assert [gate["run_id"] for gate in rita.get("/gates")["gates"]] == ["r"]
    assert rita.get("/counts") == {"runs": {"waiting": 1}, "open_gates": 1, "estimated": []}
    assert [one["name"] for one in rita.get("/workflows")["workflows"]] == ["refund"]
    rita.get("/runs/a", 404)
    rita.post("/runs", {"workflow": "order", "input": {"order": "A"}}, 404)
    rita.get("/events", 404, view="run", run="a")


def test_of_many_ended_runs_the_counts_are_estimates_that_are_named(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("order", "refund")
    asked: list[list[str]] = []

    def count_runs(can_see: Callable[[str], bool] | None = None) -> RunCounts:
        asked.append([name for name in names if can_see is None or can_see(name)])
        return RunCounts({"paused": 5, "completed": 98_765}, frozenset({"completed"}))

    monkeypatch.setattr(w.store.port, "count_runs", count_runs)
    expected = {"runs": {"paused": 5, "completed": 98_765}, "open_gates": 0, "estimated": ["completed"]}
    assert w.api("ana").get("/counts") == w.api("rita").get("/counts") == expected
    assert asked == [["order", "refund"], ["refund"]]


def test_a_user_that_sees_little_gets_short_pages_and_a_cursor(w: World) -> None:
    w.app.workflow(name="refund")(lambda run: None)
    w.start("refund", run_id="old")
    for number in range(45):
        w.app.start("order", "A", run_id=f"a{number}", enqueue=True)
    rita = w.api("rita")
    names: list[str] = []
    pages = 0
    after: str | None = ""
    while after is not None:
        page = rita.get("/runs", limit=2, after=after)
        names += [run["run_id"] for run in page["runs"]]
        after, pages = page["next"], pages + 1
        assert pages < 10
    assert names == ["old"]
    assert pages > 1


@pytest.mark.parametrize("run_id", ["a/b", "a%2Fb", "ä ö", "x?y#z&=", "~", "..", "."])
def test_every_id_can_be_used(w: World, ana: Api, run_id: str) -> None:
    w.start("order", "A", run_id=run_id)
    path = f"/runs/{quote(run_id, safe='')}" if run_id not in (".", "..", "~") else f"/runs/~?run={run_id}"
    assert ana.get(path)["run"]["run_id"] == run_id
    place, _, query = path.partition("?")
    answered = ana.post(f"{place}/gates/approve/answer{query and '?' + query}", {"answer": {"ok": False}})
    assert answered["run"]["run_id"] == run_id
