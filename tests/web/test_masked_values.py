"""Masked values and the API: forms, inputs, effects, filters and forks do not show or replace them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

import holdfast
from tests.web.runs_of_all_kinds import client_of, run_path

SECRET = "DE02-SECRET-99"
MASK = ("customer.iban", "iban")
BEARER = {"Authorization": "Bearer x"}


def transfer(iban: str, amount: int) -> None:
    raise holdfast.InDoubt("the bank did not answer")


def remit(iban: str, amount: int) -> dict[str, Any]:
    return {"receipt": "R-1"}


class World:
    def __init__(self, app: holdfast.App) -> None:
        self.app = app
        self._register()
        self.client = client_of(app, MASK)

    def _register(self) -> None:
        app = self.app

        @app.undo
        def take_back(result: object, iban: str, amount: int) -> None: ...

        @app.workflow
        def pay(run: holdfast.Run, order: str, iban: str) -> object:
            run.state["customer"] = {"iban": iban, "name": "Ida"}
            run.state["items"] = [1]
            run.effect(remit, iban, 5, undo=take_back)
            run.checkpoint()
            run.ask("Pay?", {"ok": bool, "iban": holdfast.field(str, default=iban)}, key="g")
            run.effect(transfer, iban, 5)
            return None

        @app.workflow
        def plain(run: holdfast.Run, order: str, iban: str) -> object:
            return run.ask("Go on?", {"ok": bool}, key="g")

    def get(self, path: str) -> str:
        done = self.client.get(path)
        assert done.status_code == 200, (path, done.text[-300:])
        return done.text

    def api(self, path: str, **more: Any) -> Any:
        if more:
            return self.client.post(f"/api/v1{path}", json=more, headers=BEARER)
        return self.client.get(f"/api/v1{path}", headers=BEARER)


@pytest.fixture
def world() -> Iterator[World]:
    with holdfast.App("memory:") as app:
        yield World(app)


def test_the_default_of_a_masked_field_is_not_shown_and_is_still_the_answer(world: World) -> None:
    world.app.start("pay", "A-17", SECRET, run_id="r1")
    for text in (
        world.get("/"), world.get(run_path("r1", "gates/g")), world.api("/gates").text, world.api("/runs/r1").text,
        world.api("/runs/r1/gates/g").text,
    ):  # fmt: skip
        assert SECRET not in text
        assert "Pay?" in text
    assert world.api("/runs/r1/gates/g/answer", answer={"ok": True}).status_code == 200
    world.app.resume("r1")
    answered = [entry.data for entry in world.app.store.journal("r1") if entry.kind == "answered"]
    assert SECRET in str(answered[0])


def test_an_input_by_position_is_masked_by_the_name_of_its_parameter(world: World) -> None:
    world.app.start("plain", "A-17-order", SECRET, run_id="r1")
    for path in ("/runs/r1/journal", "/runs/r1/timeline"):
        assert SECRET not in world.api(path).text
        assert "A-17-order" in world.api(path).text
    for tab in ("", "journal", "journal.json"):
        assert SECRET not in world.get(run_path("r1", tab))
        assert "A-17-order" in world.get(run_path("r1", tab)), tab


def test_an_input_by_position_is_hidden_if_its_workflow_is_not_known(world: World) -> None:
    world.app.start("plain", "A-17-order", SECRET, run_id="r1")
    with holdfast.App(world.app.store) as other, client_of(other, MASK) as client:
        for path in ("/api/v1/runs/r1/journal", "/api/v1/runs/r1/timeline", run_path("r1"), run_path("r1", "journal")):
            assert SECRET not in client.get(path).text
            assert "A-17-order" not in client.get(path).text
            assert client.get(path).status_code == 200


def test_arguments_of_effects_by_position_are_masked(world: World) -> None:
    world.app.start("pay", "A-17", SECRET, run_id="r1")
    pages = [world.get(run_path("r1", tab)) for tab in ("rollback?to=1", "fork?at=1", "journal", "ledger")]
    pages += [world.api(path).text for path in ("/runs/r1/rollback-plan?to=1", "/runs/r1/journal", "/runs/r1/effects")]
    world.app.answer("r1", {"ok": True}, by="ana")
    gate = world.app.gates("r1")[0]
    assert gate.purpose == "in_doubt"
    pages += [world.get(run_path("r1", f"gates/{quote(gate.gate, safe='')}")), world.get("/"), world.api("/gates").text]
    assert [SECRET in page for page in pages] == [False] * len(pages)


# --- filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [f'{{"iban":"{SECRET}"}}', '{"iban":"DE03"}', '{"name":"Ida"}', "[]", f'[{{"iban":"{SECRET}"}}]']
)
def test_runs_are_not_found_by_metadata_above_a_masked_value(world: World, value: str) -> None:
    world.app.start("plain", "A", "B", run_id="r1", metadata={"customer": {"iban": SECRET}, "team": {"name": "a"}})
    done = world.api(f"/runs?metadata=customer={quote(value)}")
    assert (done.status_code, "masked" in done.text) == (400, True)
    page = world.client.get(f"/runs?meta=customer={quote(value)}")
    assert (page.status_code, "masked" in page.text) == (400, True)
    team = quote('{"name":"a"}')
    assert world.api(f"/runs?metadata=team={team}").json()["runs"][0]["run_id"] == "r1"
    assert world.api("/runs?metadata=customer=Ida").json()["runs"] == []


# --- forks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"state": {"x": 1}},
        {"state": {"customer": {"iban": "EVIL"}}},
        {"update": {"customer.iban": "EVIL"}},
        {"update": {"/customer/iban": "EVIL"}},
        {"update": {"customer": {"iban": "EVIL"}}},
        {"update": {"customer": {"name": "Eve"}}},
        {"update": {"customer": None}},
        {"update": {"items": [{"iban": "EVIL"}]}},
    ],
)
def test_a_fork_does_not_replace_masked_values(world: World, change: dict[str, Any]) -> None:
    world.app.start("pay", "A-17", SECRET, run_id="r1")
    done = world.api("/runs/r1/fork", run_id="r2", **change)
    assert (done.status_code, done.json()["error"]["code"]) == (422, "masked")
    assert world.api("/runs/r2").status_code == 404


@pytest.mark.parametrize("line", ["customer.iban=EVIL", "customer=null", 'customer={"name": "Eve"}'])
def test_the_page_of_a_fork_does_not_set_masked_values(world: World, line: str) -> None:
    world.app.start("pay", "A-17", SECRET, run_id="r1")
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', world.get(run_path("r1", "fork"))))
    sent = {**hidden, "edit": "set", "set": line, "effects": "reuse", "new_run_id": "r2"}
    sent.pop("state_shown", None)
    done = world.client.post(run_path("r1", "fork"), data=sent, follow_redirects=False)
    assert (done.status_code, "masked" in done.text) == (400, True)
    sent["set"] = "customer.name=Eve"
    assert world.client.post(run_path("r1", "fork"), data=sent, follow_redirects=False).status_code == 303


def test_a_fork_changes_other_values(world: World) -> None:
    world.app.start("pay", "A-17", SECRET, run_id="r1")
    assert world.api("/runs/r1/fork", run_id="r2", update={"customer.name": "Eve", "items": [2]}).status_code == 201
