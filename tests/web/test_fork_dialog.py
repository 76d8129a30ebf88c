"""The fork dialog: the place, effects that are reused, and an edited state."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import pytest
from starlette.testclient import TestClient

import holdfast
from holdfast.ids import display_name
from tests.web.acting import STORES, World, send, twins, world
from tests.web.html_page import HtmlForm, HtmlPage


@pytest.fixture(params=STORES)
def w(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def ana(w: World) -> TestClient:
    return w.served.browser("ana")


def fork_form(page: HtmlPage) -> HtmlForm:
    [form] = [form for form in page.forms if form.method == "post" and "/fork" in form.action]
    return form


def forked(done: object) -> str:
    location: str = done.headers["location"]  # type: ignore[attr-defined]
    return unquote(location.removeprefix("/runs/"))


def test_a_fork_reuses_what_was_performed_since(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    page = w.page(ana, "/runs/a/fork?at=pay")
    assert "These effects were performed since" in page.text
    assert "R-A" in page.text
    name = forked(send(ana, fork_form(page)))
    assert name.startswith("order-")
    assert w.app.handle(name).info().forked_from == "a@journal.1"
    [entry] = w.entries(name, "forked")
    assert (entry["by"], entry["via"]) == ("ana", "web")
    w.work()
    assert w.did == [("pay", "A")]
    assert w.status(name) == "waiting"
    assert w.status("a") == "waiting"


def test_the_dialog_names_what_runs_again_and_which_gates_are_asked_again(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    page = w.page(ana, "/runs/a/fork?at=pay")
    plan = w.app.rollback_plan("a", "pay")
    assert plan.fork_calls == plan.calls
    assert f"Runs again ({len(plan.calls)})" in page.text
    assert "Asked again" in page.text
    for call in plan.calls:
        assert display_name(call) in page.text


def test_a_fork_from_the_end_asks_the_open_gate_again(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    plan = w.app.rollback_plan("a")
    assert (plan.calls, plan.gates) == ((), ())
    assert len(plan.fork_calls) == len(plan.fork_gates) == 1
    page = w.page(ana, "/runs/a/fork")
    assert "Runs again (1)" in page.text
    assert "Asked again" in page.text


def test_a_fork_performs_again_what_it_should_perform(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    form = fork_form(w.page(ana, "/runs/a/fork?at=pay"))
    form.set("effects", "perform")
    form.set("new_run_id", "again")
    assert forked(send(ana, form)) == "again"
    w.work()
    assert w.did == [("pay", "A"), ("pay", "A")]


def test_a_fork_from_the_end_has_nothing_to_reuse(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    page = w.page(ana, "/runs/a/fork")
    assert "there is nothing to reuse" in page.text
    name = forked(send(ana, fork_form(page)))
    w.work()
    w.app.answer(name, {"ok": False})
    assert w.app.handle(name).result()["ok"] is False
    assert w.did == [("pay", "A")]


def at_checkpoint(w: World, run_id: str) -> str:
    found = w.app.handle(run_id).info().checkpoint_id
    assert found is not None
    return found


def test_single_values_of_the_state_are_changed(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    form = fork_form(w.page(ana, f"/runs/a/fork?at={at_checkpoint(w, 'a')}"))
    form.set("edit", "set")
    form.set("set", 'order.amount=30\norder.note="for Ben"\n')
    name = forked(send(ana, form))
    w.work()
    w.app.answer(name, {"ok": False})
    assert w.app.handle(name).result()["order"] == {"name": "A", "amount": 30, "note": "for Ben"}


def test_the_whole_state_is_replaced_if_it_is_known(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    form = fork_form(w.page(ana, f"/runs/a/fork?at={at_checkpoint(w, 'a')}"))
    [area] = [control for control in form.controls if control.name == "state"]
    state = json.loads(area.value)
    assert state["order"] == {"name": "A", "amount": 40}
    form.set("edit", "replace")
    form.set("state", json.dumps({**state, "order": {"name": "A", "amount": 7}}))
    name = forked(send(ana, form))
    w.work()
    w.app.answer(name, {"ok": False})
    assert w.app.handle(name).result()["order"] == {"name": "A", "amount": 7}


def test_a_state_that_is_not_changed_is_not_replaced(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    form = fork_form(w.page(ana, f"/runs/a/fork?at={at_checkpoint(w, 'a')}"))
    form.set("edit", "replace")
    name = forked(send(ana, form))
    assert "edited" not in w.entries(name, "forked")[0]


@pytest.mark.parametrize("mode", ["keep", "replace"])
def test_values_that_the_chosen_way_does_not_use_are_refused(w: World, ana: TestClient, mode: str) -> None:
    w.start("order", "A", run_id="a")
    form = fork_form(w.page(ana, f"/runs/a/fork?at={at_checkpoint(w, 'a')}"))
    form.set("edit", mode)
    form.set("set", "order.amount=30")
    refused = ana.post(form.action, data=form.submit())
    assert refused.status_code == 400
    assert "These values would not be used" in refused.text
    again = fork_form(HtmlPage(refused.text))
    assert again.submit()["set"] == ["order.amount=30"]
    again.set("edit", "set")
    name = forked(send(ana, again))
    w.work()
    w.app.answer(name, {"ok": False})
    assert w.app.handle(name).result()["order"]["amount"] == 30


@pytest.mark.parametrize("mode", ["keep", "set"])
def test_a_state_that_the_chosen_way_does_not_use_is_refused(w: World, ana: TestClient, mode: str) -> None:
    w.start("order", "A", run_id="a")
    form = fork_form(w.page(ana, f"/runs/a/fork?at={at_checkpoint(w, 'a')}"))
    form.set("edit", mode)
    form.set("set", "" if mode == "keep" else "order.amount=30")
    [edited] = form.submit()["state"]
    edited = edited.replace("40", "7")
    form.set("state", edited)
    refused = ana.post(form.action, data=form.submit())
    assert refused.status_code == 400
    assert "This state would not be used" in refused.text
    again = fork_form(HtmlPage(refused.text))
    assert again.submit()["state"] == [edited]
    assert ana.post(again.action, data=again.submit()).status_code == 400
    again.set("edit", "replace")
    again.set("set", "")
    name = forked(send(ana, again))
    w.work()
    w.app.answer(name, {"ok": False})
    assert w.app.handle(name).result()["order"]["amount"] == 7


def test_a_state_with_masked_values_is_only_changed_in_parts(w: World, ana: TestClient) -> None:
    w.served.site.mask = ("customer.iban",)
    w.start("order", "A", run_id="a")
    place = at_checkpoint(w, "a")
    page = w.page(ana, f"/runs/a/fork?at={place}")
    assert "Some values are masked" in page.text
    assert "DE02" not in page.text
    form = fork_form(page)
    assert "state" not in [control.name for control in form.controls]
    assert "edit-replace" not in page.ids
    refused = ana.post(form.action, data={**form.submit(), "edit": "replace", "state": '{"customer": {"iban": "•••"}}'})
    assert refused.status_code == 400
    masked = ana.post(form.action, data={**form.submit(), "edit": "set", "set": "customer.iban=•••"})
    assert masked.status_code == 400
    assert "write the value itself" in masked.text
    form.set("edit", "set")
    form.set("set", "order.amount=1")
    name = forked(send(ana, form))
    w.work()
    w.app.answer(name, {"ok": False})
    assert w.app.handle(name).result()["order"]["amount"] == 1
    found = w.store.load(name)
    assert found is not None
    assert found.state["customer"] == {"name": "Ana", "iban": "DE02"}


def test_a_state_that_is_older_than_the_place_is_only_changed_in_parts(w: World, ana: TestClient) -> None:
    @w.app.workflow
    def later(run: holdfast.Run) -> object:
        run.state["count"] = 1
        run.checkpoint()
        run.state["count"] = run.step(lambda: 2, name="two")
        run.step(lambda: 3, name="three")
        run.ask("Go on?", bool)
        return run.state["count"]

    w.start("later", run_id="l")
    page = w.page(ana, "/runs/l/fork?at=three")
    assert "What the code has set since is known only when it runs" in page.text
    assert "edit-replace" not in page.ids
    form = fork_form(page)
    form.set("edit", "set")
    form.set("set", "other=5")
    name = forked(send(ana, form))
    w.work()
    w.app.answer(name, True)
    assert w.app.handle(name).result() == 2  # what the code has set is not lost


def test_a_state_that_json_does_not_have_is_only_changed_in_parts(w: World, ana: TestClient) -> None:
    @w.app.workflow
    def dated(run: holdfast.Run) -> None:
        run.state["at"] = dt.date(2026, 3, 31)
        run.checkpoint()
        run.ask("Go on?", bool)

    w.start("dated", run_id="d")
    page = w.page(ana, f"/runs/d/fork?at={at_checkpoint(w, 'd')}")
    assert "values that JSON does not have" in page.text
    assert "edit-replace" not in page.ids


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"edit": "set", "set": "order amount 30"}, "set-wrong"),
        ({"edit": "set", "set": "a=1\na=2"}, "set-wrong"),
        ({"edit": "set", "set": ""}, "set-wrong"),
        ({"edit": "set", "set": "order..amount=3"}, "set-wrong"),
        ({"edit": "replace", "state": "{"}, "state-wrong"),
        ({"edit": "replace", "state": "[1]"}, "state-wrong"),
        ({"edit": "replace", "state": '{"a": NaN}'}, "state-wrong"),
        ({"new_run_id": "a"}, "new_run_id-wrong"),
        ({"new_run_id": "x\x01"}, "new_run_id-wrong"),
        ({"effects": "twice"}, "at-wrong"),
    ],
)
def test_a_mistake_is_reported_at_its_field_and_nothing_typed_is_lost(
    w: World, ana: TestClient, fields: dict[str, str], where: str
) -> None:
    w.start("order", "A", run_id="a")
    form = fork_form(w.page(ana, f"/runs/a/fork?at={at_checkpoint(w, 'a')}"))
    done = ana.post(form.action, data={**form.submit(), **fields})
    page = HtmlPage(done.text)
    assert done.status_code == 400
    assert where in page.ids
    assert where in page.described
    again = fork_form(page)
    for name, value in fields.items():
        if name in ("set", "state"):
            assert [control.value for control in again.controls if control.name == name] == [value]
    assert len(w.store.runs()) == 1


def test_the_same_form_sent_twice_makes_one_fork(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    form = fork_form(w.page(ana, "/runs/a/fork?at=pay"))
    with ThreadPoolExecutor(2) as pool:
        names = list(pool.map(lambda browser: forked(send(browser, form)), twins(w, ana)))
    assert len(set(names)) == 1
    assert len(w.store.runs()) == 2


@pytest.mark.parametrize("at", ["", "?at=pay"])
def test_a_fork_of_a_run_that_has_gone_on_is_shown_again(w: World, ana: TestClient, at: str) -> None:
    w.start("order", "A", run_id="a")
    form = fork_form(w.page(ana, f"/runs/a/fork{at}"))
    form.set("effects", "perform")
    w.app.answer("a", {"ok": True})
    page = HtmlPage(send(ana, form, 400).text)
    assert "The run has changed since this page was shown" in page.text
    assert len(w.store.runs()) == 1
    send(ana, fork_form(page))
    assert len(w.store.runs()) == 2
