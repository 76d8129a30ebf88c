"""Changes by the JSON API: start, answer, control, roll back and fork, carried out by a worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

import holdfast
from tests.web.acting import STORES, Api, World, world


@pytest.fixture(params=STORES)
def w(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def ana(w: World) -> Api:
    return w.api("ana")


def test_a_run_is_started_once_however_often_it_is_sent(w: World, ana: Api) -> None:
    body = {"workflow": "order", "input": {"order": "A"}, "run_id": "one", "metadata": {"team": "a"}}
    created = ana.post("/runs", body, 201)
    assert created["run"]["status"] == "ready"
    assert "No running worker" in created["message"]
    w.work()
    assert ana.post("/runs", body)["run"]["status"] == "waiting"
    assert w.did == [("pay", "A")]
    conflict = ana.post("/runs", {**body, "input": {"order": "B"}}, 409)["error"]
    assert conflict["code"] == "input_conflict"
    assert conflict["details"]["run_id"] == "one"
    assert ana.post("/runs", {"workflow": "hello", "input": {"name": "Ana"}}, 201)["run"]["run_id"].startswith("hello-")
    w.work()
    assert [run.status for run in w.store.runs(workflow="hello")] == ["completed"]


def test_starts_at_once_with_one_id_make_one_run(w: World) -> None:
    clients = [w.api("ana") for _ in range(4)]
    body = {"workflow": "order", "input": {"order": "A"}, "run_id": "one"}

    def start(api: Api) -> int:
        done = api._client.post("/api/v1/runs", json=body, headers=api._headers)
        return done.status_code

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(start, clients)) <= {200, 201}
    w.work()
    assert w.did == [("pay", "A")]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "order"),
        ({"order": "A", "amount": "many"}, "amount"),
        ({"order": "A", "other": 1}, "other"),
        ({"order": 3}, "order"),
    ],
)
def test_input_that_does_not_fit_is_refused_with_all_problems(w: World, ana: Api, given: object, problem: str) -> None:
    error = ana.post("/runs", {"workflow": "order", "input": given}, 422)["error"]
    assert error["code"] == "input_refused"
    assert any(problem in text for text in error["problems"])
    assert w.store.runs() == []


def test_a_run_begins_later(w: World, ana: Api) -> None:
    for when in ({"after": 3600}, {"at": "2100-01-01T09:00:00+01:00"}):
        started = ana.post("/runs", {"workflow": "order", "input": {"order": "A-18"}, **when}, 201)
        assert started["run"]["status"] == "waiting"
    for wrong in ({"after": -1}, {"at": "2100-01-01T09:00:00"}, {"after": 1, "at": "2100-01-01T09:00:00Z"}):
        ana.post("/runs", {"workflow": "order", "input": {"order": "A-18"}, **wrong}, 422)
    assert len(w.store.runs()) == 2


def test_an_unknown_workflow_is_not_started(w: World, ana: Api) -> None:
    error = ana.post("/runs", {"workflow": "ordre"}, 404)["error"]
    assert "did you mean 'order'" in error["message"]
    assert w.store.runs() == []


def test_a_gate_is_answered_and_the_second_answer_names_the_first(w: World, ana: Api) -> None:
    w.start("order", "A", run_id="a")
    invalid = ana.post("/runs/a/gates/approve/answer", {"answer": {"ok": "perhaps"}}, 422)["error"]
    assert invalid["code"] == "invalid_answer"
    assert invalid["problems"]
    accepted = w.api("ben").post("/runs/a/gates/approve/answer", {"answer": {"ok": True}})
    assert accepted["run"]["status"] == "ready"
    second = ana.post("/runs/a/answer", {"answer": {"ok": False}, "gate": "approve"}, 409)["error"]
    assert second["code"] == "already_answered"
    assert second["details"]["by"] == "ben"
    w.work()
    assert w.app.handle("a").result()["ok"] is True
    assert w.entries("a", "answered")[0]["by"] == "ben"


def test_of_two_answers_at_once_one_wins_and_the_other_is_a_conflict(w: World) -> None:
    w.start("order", "A", run_id="a")
    both = [w.api("ana"), w.api("ben")]

    def answer(api: Api) -> int:
        path = "/api/v1/runs/a/answer"
        return api._client.post(path, json={"answer": {"ok": True}}, headers=api._headers).status_code

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(answer, both)) == [200, 409]
    w.work()
    assert w.did == [("pay", "A"), ("ship", "A")]


def test_a_gate_for_others_is_not_answered_but_reassigned(w: World, ana: Api) -> None:
    @w.app.workflow
    def private(run: holdfast.Run) -> object:
        return run.ask("Yours?", bool, who="group:leads")

    w.start("private", run_id="p")
    ben = w.api("ben")
    refused = ben.post("/runs/p/answer", {"answer": True}, 403)["error"]
    assert refused["code"] == "may_not_answer"
    gate = ana.post("/runs/p/gates/ask/reassign", {"who": ["group:finance"], "reason": "holiday"})
    assert gate["who"] == ["group:finance"]
    assert gate["assigned"][0]["by"] == "ana"
    assert gate["assigned"][0]["via"] == "api"
    ben.post("/runs/p/answer", {"answer": True})
    w.work()
    assert w.app.handle("p").result() is True
    assert ana.post("/runs/p/reassign", {"who": ["ana"]}, 409)["error"]["code"]


def test_only_operators_and_people_that_may_answer_reassign_a_gate(w: World, ana: Api) -> None:
    @w.app.workflow
    def private(run: holdfast.Run) -> object:
        return run.ask("Yours?", bool, who="group:leads")

    w.start("private", run_id="p")
    ben = w.api("ben")
    for path in ("/runs/p/reassign", "/runs/p/gates/ask/reassign"):
        assert ben.post(path, {"who": ["ben"]}, 403)["error"]["code"] == "forbidden"
    ben.post("/runs/p/answer", {"answer": True}, 403)
    ana.post("/runs/p/reassign", {"who": ["ben"]})
    ben.post("/runs/p/reassign", {"who": ["cleo"]})
    ben.post("/runs/p/reassign", {"who": ["ben"]}, 403)
    assert w.app.gates("p")[0].who == ("cleo",)


def test_an_answer_names_the_question_it_is_for(w: World, ana: Api) -> None:
    w.start("order", "A", run_id="a")
    [gate] = ana.get("/gates")["gates"]
    w.app.rollback("a", to="pay")
    [now] = ana.get("/gates")["gates"]
    for path in ("/runs/a/answer", f"/runs/a/gates/{quote(now['gate'], safe='')}/answer"):
        error = ana.post(path, {"answer": {"ok": True}, "question": gate["question"]}, 409)["error"]
        assert error["code"] == "gate_closed"
    ana.post("/runs/a/answer", {"answer": {"ok": True}, "question": now["question"]})


def test_a_fork_is_bound_to_its_plan(w: World, ana: Api) -> None:
    w.start("order", "A", run_id="a")
    basis = ana.get("/runs/a/rollback-plan", to="pay")["basis"]
    w.app.answer("a", {"ok": True})
    body = {"at": "pay", "effects": "perform", "basis": basis, "run_id": "b"}
    assert ana.post("/runs/a/fork", body, 409)["error"]["code"] == "plan_changed"
    ana.get("/runs/b", 404)


def test_unknown_gates_and_runs_are_404(w: World, ana: Api) -> None:
    w.start("order", "A", run_id="a")
    ana.get("/runs/none", 404)
    ana.get("/runs/a/gates/none", 404)
    ana.post("/runs/a/gates/none/answer", {"answer": True}, 404)
    ana.post("/runs/a/answer", {"answer": True, "gate": "none"}, 404)
    ana.post("/runs/a%01/pause", None, 404)


def test_a_run_is_paused_resumed_and_cancelled_by_a_worker(w: World, ana: Api) -> None:
    w.start("order", "A", run_id="a")
    assert "a worker stops it before its next call" in ana.post("/runs/a/pause")["message"]
    w.work()
    assert ana.get("/runs/a")["run"]["status"] == "paused"
    ana.post("/runs/a/resume", {})
    w.work()
    assert ana.get("/runs/a")["run"]["status"] == "waiting"
    ana.post("/runs/a/cancel")
    assert ana.get("/runs/a")["cancel_requested_by"] == "ana"
    w.work()
    assert ana.get("/runs/a")["run"]["status"] == "cancelled"
    conflict = ana.post("/runs/a/resume", None, 409)["error"]
    assert conflict["code"] == "run_ended"
    assert conflict["details"]["status"] == "cancelled"
    assert "api" in json.dumps(w.entries("a", "paused")[0])


def test_a_failed_run_is_retried(w: World, ana: Api) -> None:
    w.start("convert", 2, run_id="c")
    w.rates["eur"] = 4
    ana.post("/runs/c/retry")
    w.work()
    assert ana.get("/runs/c")["result"] == 8
    assert ana.post("/runs/c/retry", None, 409)["error"]["code"] == "conflict"


def test_an_event_with_a_key_is_received_once(w: World, ana: Api) -> None:
    w.start("listen", run_id="l")
    for number in range(2):
        ana.post("/runs/l/send", {"event": "shipped", "value": {"parcel": number}, "key": "p"}, 200)
    w.work()
    assert w.app.handle("l").result() == {"parcel": 0}


def test_a_rollback_is_bound_to_its_plan(w: World, ana: Api) -> None:
    w.start("order", "A", run_id="a")
    plan = ana.get("/runs/a/rollback-plan", to="pay")
    assert [effect["tool"] for effect in plan["undo"]] == ["pay"]
    w.app.answer("a", {"ok": True})
    changed = ana.post("/runs/a/rollback", {"to": plan["to"], "basis": plan["basis"]}, 409)["error"]
    assert changed["code"] == "plan_changed"
    basis = ana.get("/runs/a/rollback-plan", to="pay")["basis"]
    refused = ana.post("/runs/a/rollback", {"to": "pay", "basis": basis}, 409)["error"]
    assert refused["code"] == "rollback_refused"
    assert "cannot be undone" in refused["problems"][0]
    assert w.did == [("pay", "A"), ("ship", "A")]
    ana.post("/runs/a/rollback", {"to": "pay", "force": True})
    w.work()
    assert w.did == [("pay", "A"), ("ship", "A"), ("take back", "A"), ("pay", "A")]
    assert w.status("a") == "waiting"
    assert ana.get("/runs/a/rollback-plan", 404, to="nothing")["error"]["code"] == "not_found"
    assert ana.get("/runs/a/rollback-plan", 400, to="999")["error"]["code"] == "invalid_cursor"


def test_a_fork_begins_with_changed_values(w: World, ana: Api) -> None:
    w.start("order", "A", run_id="a")
    checkpoint = w.app.handle("a").info().checkpoint_id
    made = ana.post("/runs/a/fork", {"at": checkpoint, "run_id": "b", "update": {"order.amount": 1}}, 201)
    assert made["run"]["forked_from"].startswith("a@")
    assert ana.post("/runs/a/fork", {"run_id": "b"}, 409)["error"]["code"] == "run_exists"
    assert ana.post("/runs/a/fork", {"update": {"customer.iban": "•••"}}, 422)["error"]["code"] == "masked"
    ana.post("/runs/a/fork", {"state": {}, "update": {}}, 422)
    w.work()
    ana.post("/runs/b/answer", {"answer": {"ok": False}})
    w.work()
    assert ana.get("/runs/b")["result"]["order"]["amount"] == 1
    assert w.did == [("pay", "A")]


def test_a_run_that_no_workflow_started_is_read_but_not_rolled_back(w: World, ana: Api) -> None:
    w.store.save("hand", {"messages": ["hi"]}, workflow="mine")
    w.store.append("hand", [{"kind": "note", "text": "x"}])
    assert ana.get("/runs/hand")["run"]["workflow"] == "mine"
    assert ana.get("/runs/hand/journal")["entries"][0]["kind"] == "note"
    ana.get("/runs/hand/timeline")
    ana.get("/runs/hand/rollback-plan", 409, to="1")
    ana.post("/runs/hand/rollback", {"to": 1}, 409)
    ana.post("/runs/hand/fork", {}, 409)
    ana.post("/runs/hand/resume", None, 409)
