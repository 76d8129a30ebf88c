"""The rollback dialog: places, the plan, and a rollback bound to the plan that was shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import holdfast
from tests.web.acting import STORES, World, send, world
from tests.web.html_page import HtmlForm, HtmlPage


@pytest.fixture(params=STORES)
def w(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def ana(w: World) -> TestClient:
    return w.served.browser("ana")


def rollback_form(page: HtmlPage) -> HtmlForm:
    """The form that executes the plan that is shown."""
    [form] = [form for form in page.forms if any(control.name == "basis" for control in form.controls)]
    return form


def test_without_a_place_the_dialog_lists_places_and_has_no_button_to_roll_back(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    page = w.page(ana, "/runs/a/rollback")
    assert "before pay" in page.text
    assert "checkpoint" in page.text
    assert all(control.name != "basis" for form in page.forms for control in form.controls)
    links = [link for link in page.links if "/runs/a/rollback?to=" in link]
    assert links
    for link in links:
        assert "Plan: back to position" in w.page(ana, link).text


def test_every_place_that_is_listed_can_be_chosen_after_a_rollback_and_a_cancel(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    w.app.rollback("a", to="pay")
    w.app.cancel("a")
    assert w.status("a") == "cancelled"
    for dialog, text in (("rollback?to=", "Plan: back to position"), ("fork?at=", "The fork begins at position")):
        page = w.page(ana, f"/runs/a/{dialog.partition('?')[0]}")
        links = [link for link in page.links if f"/runs/a/{dialog}" in link]
        assert links
        for link in links:
            assert text in w.page(ana, link).text


def test_the_plan_shows_what_is_undone_and_a_worker_undoes_it(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    page = w.page(ana, "/runs/a/rollback?to=pay")
    assert "Undone, in this order (1)" in page.text
    assert "take_back" in page.text
    assert "R-A" in page.text
    assert "force" not in page.ids
    done = send(ana, rollback_form(page))
    assert done.headers["location"] == "/runs/a"
    assert "a worker undoes 1 effect and then continues" in HtmlPage(ana.get("/start").text).text
    assert w.did == [("pay", "A")]
    w.work()
    assert w.did == [("pay", "A"), ("take back", "A"), ("pay", "A")]
    [begun] = w.entries("a", "rolling_back")
    assert (begun["by"], begun["via"]) == ("ana", "web")
    assert w.status("a") == "waiting"


def test_what_cannot_be_undone_needs_force_and_says_what_that_means(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    w.app.answer("a", {"ok": True})
    assert w.status("a") == "completed"
    page = w.page(ana, "/runs/a/rollback?to=pay")
    assert "Not everything can be undone" in page.text
    assert "Cannot be undone (1)" in page.text
    assert "may be done a second time" in page.text
    form = rollback_form(page)
    refused = HtmlPage(send(ana, form, 409).text)
    assert "Nothing was done" in refused.text
    assert w.did == [("pay", "A"), ("ship", "A")]
    form = rollback_form(refused)
    form.set("force", "1")
    send(ana, form)
    w.work()
    assert w.did == [("pay", "A"), ("ship", "A"), ("take back", "A"), ("pay", "A")]


def test_a_run_that_changed_since_gets_a_new_plan_and_is_not_rolled_back(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    page = w.page(ana, "/runs/a/rollback?to=pay")
    w.app.answer("a", {"ok": True})
    done = send(ana, rollback_form(page), 409)
    again = HtmlPage(done.text)
    assert "The run has changed since the plan was shown" in again.text
    assert "Cannot be undone (1)" in again.text
    w.work()
    assert w.did == [("pay", "A"), ("ship", "A")]
    assert w.status("a") == "completed"


def test_a_run_that_was_created_again_is_not_rolled_back(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    page = w.page(ana, "/runs/a/rollback?to=pay")
    w.store.delete("a")
    w.start("order", "B", run_id="a")
    send(ana, rollback_form(page), 409)
    w.work()
    assert w.did == [("pay", "A"), ("pay", "B")]


@pytest.mark.parametrize(
    ("place", "text"),
    [("nothing", "has no checkpoint, stage or call named 'nothing'"), ("99", "ends at position"), ("ä\0", "named")],
)
def test_a_place_that_does_not_exist_is_reported_at_the_field(w: World, ana: TestClient, place: str, text: str) -> None:
    w.start("order", "A", run_id="a")
    done = ana.get("/runs/a/rollback", params={"to": place})
    page = HtmlPage(done.text)
    assert done.status_code == 400
    assert text in page.text
    assert "to-wrong" in page.ids
    assert "to-wrong" in page.described


def test_a_claimed_run_is_not_rolled_back_and_the_page_names_its_worker(w: World, ana: TestClient) -> None:
    w.start("order", "A", run_id="a")
    claim = w.store.claim("a", owner="worker-3", lease=600)
    assert claim is not None
    page = w.page(ana, "/runs/a/rollback?to=pay")
    done = send(ana, rollback_form(page), 409)
    assert "worker-3" in HtmlPage(done.text).text
    assert w.did == [("pay", "A")]
    claim.release("waiting")


def test_a_rollback_that_stopped_can_be_continued(w: World, ana: TestClient) -> None:
    fails = [True]

    @w.app.undo
    def give_back(result: object) -> None:
        if fails:
            raise OSError("the bank is closed")
        w.did.append("given back")

    @w.app.workflow
    def lend(run: holdfast.Run) -> None:
        run.effect(lambda: "lent", name="lend", undo=give_back)
        run.ask("Enough?", bool)

    w.start("lend", run_id="x")
    send(ana, rollback_form(w.page(ana, "/runs/x/rollback?to=lend")))
    w.work()
    page = w.page(ana, "/runs/x/rollback")
    assert "A rollback has begun" in page.text
    fails.clear()
    [form] = [form for form in page.forms if any(control.name == "continue" for control in form.controls)]
    send(ana, form)
    w.work()
    assert w.did == ["given back"]
    assert w.status("x") == "waiting"


def test_a_run_that_no_workflow_started_is_refused(w: World, ana: TestClient) -> None:
    w.store.save("hand", {"messages": []}, workflow="mine")
    for page in ("rollback", "rollback?to=1", "fork"):
        assert "was not started by a workflow" in w.page(ana, f"/runs/hand/{page}", 409).text


def test_masked_values_are_not_in_the_plan(w: World, ana: TestClient) -> None:
    w.served.site.mask = ("card.number",)
    w.start("order", "A", run_id="a")
    page = w.page(ana, "/runs/a/rollback?to=pay")
    assert "4242" not in page.text
    assert "•••" in page.text


def test_stored_markup_is_shown_as_text(w: World, ana: TestClient) -> None:
    w.start("order", "<img src=x onerror=alert(1)>", run_id="<i>a</i>")
    done = ana.get("/runs/%3Ci%3Ea%3C%2Fi%3E/rollback?to=pay")
    assert done.status_code == 200
    assert "<img" not in done.text
    assert "<i>" not in done.text
