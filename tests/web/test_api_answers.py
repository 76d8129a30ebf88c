"""Answers by the API: gates that have expired, and runs that are to be cancelled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

import holdfast
from holdfast.web.live import Live
from tests.web.runs_of_all_kinds import client_of, run_path

BEARER = {"Authorization": "Bearer x"}


@pytest.fixture
def app() -> Iterator[holdfast.App]:
    with holdfast.App("memory:") as app:

        @app.workflow
        def pay(run: holdfast.Run, expires: float | None = None) -> object:
            return run.ask("Pay?", {"ok": bool}, expires=expires, key="g")

        @app.workflow
        def named(run: holdfast.Run, gate: str) -> object:
            return run.ask("Pay?", {"ok": bool}, key=gate)

        yield app


@pytest.fixture
def client(app: holdfast.App) -> Iterator[TestClient]:
    with client_of(app) as client:
        yield client


def test_an_answer_to_a_run_that_is_to_be_cancelled_is_refused(app: holdfast.App, client: TestClient) -> None:
    app.start("pay", run_id="r1")
    app.cancel("r1", by="ben", enqueue=True)
    for path, more in (("gates/g/answer", {}), ("answer", {}), ("answer", {"gate": "g"})):
        done = client.post(f"/api/v1/runs/r1/{path}", json={"answer": {"ok": True}, **more}, headers=BEARER)
        assert (done.status_code, done.json()["error"]["code"]) == (409, "cancel_requested")
        assert "'ben' has requested to cancel" in done.json()["error"]["message"]
    assert app.gates("r1")[0].state == "open"


def test_a_gate_that_has_expired_cannot_be_answered(app: holdfast.App, client: TestClient) -> None:
    app.start("pay", 1e-6, run_id="r1")
    app.start("pay", run_id="r2")
    gate = client.get("/api/v1/runs/r1/gates/g").json()
    assert (gate["state"], gate["may_answer"], gate["may_not"]) == ("open", False, "it has expired")
    assert [one["run_id"] for one in client.get("/api/v1/gates?mine=true").json()["gates"]] == ["r2"]
    assert client.get("/api/v1/runs/r2/gates/g").json()["may_answer"] is True


def test_each_gate_is_watched_on_its_own(
    app: holdfast.App, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []

    def refuse(self: Live, key: str, *_: object) -> None:
        keys.append(key)
        raise holdfast.InvalidInput("noted")

    monkeypatch.setattr(Live, "response", refuse)
    app.start("named", "c", run_id="a b")
    app.start("named", "b c", run_id="a")
    client.get(run_path("a b", "gates/c/live"))
    client.get(run_path("a", "gates/b%20c/live"))
    assert len(keys) == len(set(keys)) == 2
