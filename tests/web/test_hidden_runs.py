"""A user that does not see all workflows learns nothing of the effects and gates of their runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import holdfast
from tests.web.runs_of_all_kinds import client_of, run_path

BEARER = {"Authorization": "Bearer x"}


@pytest.fixture
def app() -> Iterator[holdfast.App]:
    with holdfast.App("memory:") as app:

        def transfer(iban: str, amount: int) -> dict[str, str]:
            return {"receipt": f"R-{iban}"}

        @app.undo
        def take_back(result: object, iban: str, amount: int) -> None: ...

        @app.workflow
        def secret(run: holdfast.Run) -> object:
            run.effect(transfer, "DE-SECRETIBAN", 7, undo=take_back)
            run.effect(transfer, "DE-SECRETIBAN", 8)
            return run.ask("SECRETPROMPT?", {"ok": bool}, key="secret-gate")

        @app.workflow
        def parent(run: holdfast.Run) -> object:
            run.step(lambda: 1, name="first")
            run.effect(transfer, "own", 1, undo=take_back)
            return run.child(secret)

        app.start(parent, run_id="p1")
        yield app


@pytest.fixture
def limited(app: holdfast.App) -> Iterator[TestClient]:
    with client_of(app, name="lim", workflows=("parent",)) as client:
        client.follow_redirects = False
        yield client


def test_a_plan_has_no_effects_of_runs_that_the_user_may_not_see(app: holdfast.App, limited: TestClient) -> None:
    plan = limited.get("/api/v1/runs/p1/rollback-plan?to=1").json()
    assert "SECRET" not in str(plan)
    assert len(plan["undo"]) + len(plan["irreversible"]) == 1
    assert (plan["children"], plan["hidden_effects"]) == ([], 2)
    for path in ("rollback?to=1", "fork?at=1"):
        text = limited.get(run_path("p1", path)).text
        assert not re.findall("SECRET", text)
        assert "2 effects of runs that you may not see" in text
        assert "own" in text
    with client_of(app) as client:
        plan = client.get("/api/v1/runs/p1/rollback-plan?to=1").json()
        assert (len(plan["undo"]), len(plan["irreversible"]), plan["hidden_effects"]) == (2, 1, 0)
        assert "you may not see" not in client.get(run_path("p1", "rollback?to=1")).text


@pytest.mark.parametrize("force", [False, True])
def test_a_rollback_of_effects_that_the_user_may_not_see_is_refused(
    app: holdfast.App, limited: TestClient, force: bool
) -> None:
    position = app.handle("p1").info().position
    done = limited.post("/api/v1/runs/p1/rollback", json={"to": 1, "force": force}, headers=BEARER)
    assert (done.status_code, done.json()["error"]["code"]) == (403, "hidden_effects")
    assert "SECRET" not in done.text
    text = limited.get(run_path("p1", "rollback?to=1")).text
    fields = dict(re.findall(r'name="(csrf|basis)" value="([^"]*)"', text))
    page = limited.post(run_path("p1", "rollback"), data={**fields, "to": "1", "force": "1" if force else "0"})
    assert page.status_code == 409
    assert "you may not see" in page.text
    assert "SECRET" not in page.text
    assert app.handle("p1").info().position == position


def test_an_error_does_not_name_gates_of_children_that_the_user_may_not_see(
    app: holdfast.App, limited: TestClient
) -> None:
    for path, body in (("answer", {"answer": {"ok": True}}), ("reassign", {"who": ["eve"]})):
        done: Any = limited.post(f"/api/v1/runs/p1/{path}", json=body, headers=BEARER)
        assert done.status_code == 404
        assert "secret" not in done.text
    with client_of(app) as client:
        done = client.post("/api/v1/runs/p1/answer", json={"answer": {"ok": True}}, headers=BEARER)
        assert "secret-gate" in done.text
