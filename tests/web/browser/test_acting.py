"""Acting on runs in the browser, with and without JavaScript: the page enqueues, a worker executes."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.browser.conftest import Enter
from tests.web.browser.server import Site
from tests.web.browser.visit import NARROW, WIDE


@pytest.fixture
def paid(site: Site, run_id: str) -> str:
    """A refund that was approved and paid."""
    site.do(site.app.start, "refund", "77", run_id=run_id)
    site.do(site.app.answer, run_id, {"approve": True, "note": ""}, by="ana")
    assert site.status(run_id) == "completed"
    return run_id


@pytest.mark.parametrize(("javascript", "width"), [(True, WIDE), (False, NARROW)])
def test_a_rollback_shows_its_plan_before_it_happens(
    site: Site, enter: Enter, paid: str, javascript: bool, width: int
) -> None:
    visit = enter(javascript=javascript, width=width)
    page = visit.open(f"/runs/{paid}/rollback")
    page.get_by_label("A position").fill("ask#1")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("region", name="Effects that are undone")).to_contain_text("take_back")
    expect(page.get_by_role("alert")).to_contain_text("write_mail")  # it cannot be undone
    assert site.status(paid) == "completed"
    page.get_by_label("Roll back nevertheless").check()
    page.get_by_role("button", name="Roll back to position").click()
    page.wait_for_url(f"**/runs/{paid}")
    site.work()
    assert site.status(paid) == "waiting"
    effects = site.do(site.app.store.effects, paid)
    assert [(effect.tool, effect.state) for effect in effects] == [("pay", "undone"), ("write_mail", "done")]


def test_a_rollback_without_force_changes_nothing_if_an_effect_cannot_be_undone(
    site: Site, enter: Enter, paid: str
) -> None:
    visit = enter()
    page = visit.open(f"/runs/{paid}/rollback?to=ask%231")
    page.get_by_role("button", name="Roll back to position").click()
    expect(page.get_by_role("alert").first).to_be_visible()
    visit.problems.clear()  # the console reports the status of the response
    site.work()
    assert site.status(paid) == "completed"


def test_on_a_narrow_screen_the_state_of_a_row_does_not_touch_its_duration(site: Site, enter: Enter, paid: str) -> None:
    site.do(site.app.rollback, paid, "ask#1", by="ana", force=True)
    page = enter(width=NARROW).open(f"/runs/{paid}")
    expect(page.locator(".timeline .status.taken_back").first).to_be_visible()
    distances = page.evaluate(
        """() => [...document.querySelectorAll(".timeline tbody tr")].filter((row) => row.querySelector(".status")).map(
          (row) => row.querySelector(".took").getBoundingClientRect().left
            - row.querySelector(".status").getBoundingClientRect().right)"""
    )
    assert min(distances) >= 0


def test_a_place_that_is_not_there_is_reported_at_its_field(enter: Enter, paid: str) -> None:
    visit = enter()
    page = visit.open(f"/runs/{paid}/rollback?to=nothing")
    expect(page.get_by_label("A position")).to_have_attribute("aria-invalid", "true")
    assert visit.axe() == []
    visit.problems.clear()


@pytest.mark.parametrize("javascript", [True, False])
def test_a_fork_begins_with_changed_values(site: Site, enter: Enter, paid: str, javascript: bool) -> None:
    page = enter(javascript=javascript).open(f"/runs/{paid}/fork?at=ask%231")
    page.get_by_label("Some values changed").check()
    page.get_by_label("Values to change").fill("order.amount=12")
    page.get_by_role("textbox", name="Id (optional)").fill(f"{paid}-fork")
    page.get_by_role("button", name="Fork", exact=True).click()
    page.wait_for_url(f"**/runs/{paid}-fork")
    site.work()
    found = site.do(site.app.store.load, f"{paid}-fork")
    assert found is not None
    assert found.state["order"]["amount"] == 12


@pytest.mark.parametrize("javascript", [True, False])
def test_a_workflow_is_started_from_a_form_of_its_signature(
    site: Site, enter: Enter, run_id: str, javascript: bool
) -> None:
    page = enter(javascript=javascript).open("/start")
    page.get_by_role("link", name="refund", exact=True).click()
    page.get_by_label("order").fill("88")
    page.get_by_role("textbox", name="Id (optional)").fill(run_id)
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url(f"**/runs/{run_id}")
    site.work()
    assert site.status(run_id) == "waiting"
    assert site.do(site.app.gates, run_id)[0].prompt.startswith("Refund **39.90 EUR** for order `88`?")


def test_input_that_does_not_fit_is_reported_at_its_field_and_nothing_is_started(enter: Enter, site: Site) -> None:
    visit = enter()
    page = visit.open("/start/agent")
    page.get_by_label("turns").fill("many")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_label("turns")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("turns")).to_have_value("many")
    assert visit.axe() == []
    visit.problems.clear()


@pytest.mark.parametrize("javascript", [True, False])
def test_a_cancel_asks_first(site: Site, enter: Enter, run_id: str, javascript: bool) -> None:
    site.do(site.app.start, "remind", 0, run_id=run_id)
    page = enter(javascript=javascript).open(f"/runs/{run_id}/cancel")
    expect(page.get_by_text("Nothing is undone")).to_be_visible()
    assert site.status(run_id) == "waiting"
    page.locator("#do").click()
    page.wait_for_url(f"**/runs/{run_id}")
    site.work()
    assert site.status(run_id) == "cancelled"


@pytest.mark.parametrize("javascript", [True, False])
def test_many_runs_are_cancelled_at_once_after_a_page_that_lists_them(
    site: Site, enter: Enter, run_id: str, javascript: bool
) -> None:
    ids = [f"{run_id}-{number}" for number in range(3)]
    for one in ids:
        site.do(site.app.start, "remind", 0, run_id=one)
    visit = enter(javascript=javascript)
    page = visit.open(f"/runs?prefix={run_id}")
    for one in ids[:2]:
        page.get_by_label(f"Choose {one}").check()
    page.get_by_role("button", name="Cancel…").click()
    expect(page.get_by_role("region", name="Runs to cancel").get_by_role("link")).to_have_text(sorted(ids[:2])[::-1])
    page.locator("#do").click()
    expect(page.get_by_role("main")).to_contain_text(ids[0])
    site.work()
    assert [site.status(one) for one in ids] == ["cancelled", "cancelled", "waiting"]


@pytest.mark.parametrize("javascript", [True, False])
def test_runs_are_filtered_and_paged_by_links_and_forms(
    site: Site, enter: Enter, run_id: str, javascript: bool
) -> None:
    visit = enter(javascript=javascript)
    page = visit.open("/runs")
    page.get_by_role("searchbox").fill("refund-47")
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**q=refund-47**")
    expect(page.get_by_role("region", name="List of runs")).to_contain_text("refund-4711")
    expect(page.get_by_role("region", name="List of runs")).not_to_contain_text("letter-9")
    page.get_by_role("navigation", name="Status").get_by_role("link", name="waiting").click()
    expect(page.get_by_role("region", name="List of runs")).not_to_contain_text("refund-4700")
    page.get_by_role("link", name="Clear all filters").click()
    expect(page.get_by_role("region", name="List of runs")).to_contain_text("letter-9")
