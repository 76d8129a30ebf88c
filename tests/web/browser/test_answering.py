"""Answering gates in the browser: with the keyboard alone, without JavaScript, together with others."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.harness import until
from tests.web.browser.conftest import Enter
from tests.web.browser.server import Site
from tests.web.browser.visit import NARROW, WIDE

ALL_KINDS = {
    "send": True,
    "tone": "sorry",
    "parts": ["greeting", "offer"],
    "copies": 3,
    "discount": 0.25,
    "subject": "Your lamp",
    "text": "Dear Ida,\nsorry.",
}


@pytest.fixture
def gate(site: Site, run_id: str) -> str:
    """The run of a new gate."""
    site.do(site.app.start, "refund", run_id, run_id=run_id)
    return run_id


def inbox_of(run_id: str) -> str:
    return f"/?text={run_id}"


def card_of(page: Page, run_id: str) -> Locator:
    return page.locator("article.gate").filter(has=page.get_by_role("link", name=run_id, exact=True))


def answer_of(site: Site, run_id: str) -> tuple[str | None, Any]:
    """Who answered the gate of a run, and what."""
    found = [gate for gate in site.do(site.app.gates, run_id, state=None) if gate.state == "answered"]
    entries = site.do(site.app.store.journal, run_id)
    answers = [entry.data["answer"] for entry in entries if entry.kind == "answered"]
    return (found[0].answered_by if found else None), (answers[-1] if answers else None)


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until an element that fits has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"Tab does not reach {selector}")


@pytest.mark.parametrize(("javascript", "width"), [(True, NARROW), (False, WIDE)])
def test_a_gate_is_answered_in_its_card(site: Site, enter: Enter, gate: str, javascript: bool, width: int) -> None:
    page = enter(javascript=javascript, width=width).open(inbox_of(gate))
    card = card_of(page, gate)
    expect(card.locator(".prompt strong")).to_have_text("39.90 EUR")
    card.get_by_label("Yes").check()
    card.get_by_label("Note").fill("lost parcel")
    card.get_by_role("button", name="Answer").click()
    expect(page.get_by_role("status").first).to_be_visible()
    site.work()
    assert answer_of(site, gate) == ("ana", {"approve": True, "note": "lost parcel"})
    assert site.status(gate) == "completed"
    answered = next(entry for entry in site.do(site.app.store.journal, gate) if entry.kind == "answered")
    assert answered.data["via"] == "web"


def test_a_gate_is_found_and_answered_with_the_keyboard_alone(site: Site, enter: Enter, gate: str) -> None:
    page = enter().open("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("j")
    first = page.evaluate("() => document.activeElement.closest('[data-item]').id")
    page.keyboard.press("j")
    assert page.evaluate("() => document.activeElement.closest('[data-item]').id") != first
    page.keyboard.press("k")
    assert page.evaluate("() => document.activeElement.closest('[data-item]').id") == first
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type(gate)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**text={gate}**")
    page.keyboard.press("j")
    tab_to(page, "input[type=radio]")
    page.keyboard.press("Space")
    tab_to(page, "input[type=text], textarea")
    page.keyboard.type("by keyboard")
    tab_to(page, "button.primary")
    page.keyboard.press("Enter")
    until(lambda: answer_of(site, gate)[0] == "ana", "the answer arrives")
    site.work()
    by, answer = answer_of(site, gate)
    assert (by, answer["note"]) == ("ana", "by keyboard")


def test_focus_is_visible_wherever_tab_goes(enter: Enter, gate: str) -> None:
    page = enter().open(inbox_of(gate))
    for _ in range(12):
        page.keyboard.press("Tab")
        style = page.evaluate(
            """() => { const style = getComputedStyle(document.activeElement);
               return [style.outlineStyle, style.boxShadow, document.activeElement.tagName]; }"""
        )
        assert style[0] != "none" or style[1] != "none" or style[2] == "BODY", style


@pytest.mark.parametrize("javascript", [True, False])
def test_a_form_with_every_kind_of_field_is_answered(site: Site, enter: Enter, run_id: str, javascript: bool) -> None:
    site.do(site.app.start, "letter", "x", run_id=run_id)
    page = enter(javascript=javascript).open(inbox_of(run_id))
    card_of(page, run_id).get_by_role("link", name="Open the form").click()
    page.get_by_role("radiogroup", name="Send it").get_by_label("Yes").check()
    tone = page.get_by_role("radiogroup", name="Tone")
    if tone.count():
        tone.get_by_label("Sorry").check()
    else:
        page.get_by_label("Tone").select_option(label="Sorry")
    page.get_by_label("offer").check()
    page.get_by_label("Copies").fill("3")
    page.get_by_label("Discount").fill("0.25")
    page.get_by_label("Send on").fill("2026-12-24")
    page.get_by_label("Subject").fill("Your lamp")
    page.get_by_label("Text", exact=False).last.fill("Dear Ida,\nsorry.")
    page.locator("#answer").get_by_role("button", name="Answer", exact=True).last.click()
    page.wait_for_load_state()
    site.work()
    by, answer = answer_of(site, run_id)
    assert by == "ana", page.locator("main").inner_text()
    assert {name: answer[name] for name in ALL_KINDS} == ALL_KINDS
    assert str(answer["on"]) == "2026-12-24"


def test_problems_are_shown_at_their_fields_and_nothing_typed_is_lost(site: Site, enter: Enter, run_id: str) -> None:
    site.do(site.app.start, "letter", "x", run_id=run_id)
    visit = enter(width=NARROW)
    page = visit.open(f"/runs/{run_id}/gates/ask%231")
    page.get_by_label("Copies").fill("9")
    page.get_by_label("Subject").fill("no")
    page.get_by_label("Text", exact=False).last.fill("half a letter")
    page.locator("#answer").get_by_role("button", name="Answer", exact=True).last.click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("problems")
    expect(page.get_by_label("Copies")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("Copies")).to_have_value("9")
    expect(page.get_by_label("Text", exact=False).last).to_have_value("half a letter")
    assert page.evaluate("() => document.activeElement !== document.body"), "the focus is at the problem"
    alert.get_by_role("link").filter(has_text="Copies").first.click()
    expect(page.get_by_label("Copies")).to_be_focused()
    assert visit.axe() == []
    assert visit.overflow() == 0
    visit.problems.clear()  # the console reports the status of the response
    assert site.status(run_id) == "waiting"


def test_of_two_people_that_answer_at_once_one_wins_and_the_other_keeps_the_text(
    site: Site, enter: Enter, gate: str
) -> None:
    ana, ben = enter("ana"), enter("ben", javascript=False)  # ben's page does not update itself
    for visit in (ana, ben):
        page = visit.open(f"/runs/{gate}/gates/ask%231")
        page.get_by_label("Yes").check()
        page.get_by_label("Note").fill(f"typed by {'ana' if visit is ana else 'ben'}")
    ana.page.get_by_role("button", name="Answer").last.click()
    until(lambda: answer_of(site, gate)[0] == "ana", "ana's answer arrives")
    ben.page.get_by_role("button", name="Answer").last.click()
    expect(ben.page.get_by_role("alert").first).to_contain_text("ana")
    expect(ben.page.get_by_text("typed by ben").first).to_be_visible()
    ben.problems.clear()
    site.work()
    assert answer_of(site, gate) == ("ana", {"approve": True, "note": "typed by ana"})


def test_an_update_while_typing_keeps_text_focus_and_choice(site: Site, enter: Enter, run_id: str) -> None:
    ids = [f"{run_id}-{number}" for number in range(2)]
    for one in ids:
        site.do(site.app.start, "refund", "1", run_id=one)
    page = enter().open(inbox_of(run_id))
    card = card_of(page, ids[0])
    card.get_by_label("No", exact=True).check()
    card.get_by_label("Note").fill("half a sen")
    site.do(site.app.answer, ids[1], {"approve": True, "note": ""}, by="ben")
    expect(card_of(page, ids[1])).to_contain_text("Answered by ben")
    expect(card.get_by_label("Note")).to_be_focused()
    page.keyboard.type("tence")
    expect(card.get_by_label("Note")).to_have_value("half a sentence")
    expect(card.get_by_label("No", exact=True)).to_be_checked()
    site.do(site.app.start, "refund", "1", run_id=f"{run_id}-new")
    expect(card_of(page, f"{run_id}-new")).to_be_visible()
    expect(card.get_by_label("Note")).to_have_value("half a sentence")
    expect(card.get_by_label("Note")).to_be_focused()


@pytest.mark.parametrize("where", ["card", "card of another process", "page"])
def test_if_another_person_answers_first_the_card_says_so_and_keeps_the_text(
    site: Site, enter: Enter, gate: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "card of another process":
        monkeypatch.setattr("holdfast.web.gate_list.ShownGates.note", lambda *_: [])
    page = enter().open(inbox_of(gate) if where != "page" else f"/runs/{gate}/gates/ask%231")
    page.get_by_label("Note").fill("half a sentence")
    site.do(site.app.answer, gate, {"approve": True, "note": ""}, by="ben")
    expect(page.get_by_text("Answered by ben").first).to_be_visible()
    expect(page.get_by_label("Note")).to_have_value("half a sentence")


def test_an_update_that_was_lost_is_made_up_for(
    site: Site, enter: Enter, gate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.live.KEEP_ALIVE_S", 0.5)
    page = enter().open(inbox_of(gate))
    expect(page.get_by_label("Note")).to_be_visible()
    page.evaluate("""() => {
        window.lost = 0;
        const stop = (event) => { window.lost++; event.stopImmediatePropagation(); };
        document.addEventListener("changed", (event) => { if (event.detail?.data) stop(event); }, true);
    }""")
    site.do(site.app.answer, gate, {"approve": True, "note": ""}, by="ben")
    expect(page.get_by_text("Answered by ben").first).to_be_visible()
    assert page.evaluate("() => window.lost") > 0


def test_an_answer_is_confirmed_on_the_page_of_the_gate_and_in_another_tab(site: Site, enter: Enter, gate: str) -> None:
    visit = enter()
    page, idle = visit.open(f"/runs/{gate}/gates/ask%231"), visit.context.new_page()
    idle.goto(f"/runs/{gate}/gates/ask%231")
    page.get_by_label("Yes").check()
    page.get_by_role("button", name="Answer").last.click()
    site.work()
    for one in (page, idle):
        expect(one.locator(".status.completed")).to_be_visible()
        expect(one.get_by_text("Answered by ana").first).to_be_visible()
        expect(one.get_by_text("What you typed")).to_have_count(0)
        expect(one.get_by_label("Note")).to_have_count(0)
    expect(page.get_by_text(f"Answered refund {gate}.")).to_be_visible()


def test_several_gates_are_approved_after_a_page_that_lists_them(site: Site, enter: Enter, run_id: str) -> None:
    ids = [f"{run_id}-{number}" for number in range(3)]
    for one in ids:
        site.do(site.app.start, "refund", "1", run_id=one)
    visit = enter(width=NARROW)
    page = visit.open(inbox_of(run_id))
    for one in ids[:2]:
        card_of(page, one).get_by_role("checkbox", name="Select").check()
    page.get_by_role("button", name="Approve selected").click()
    expect(page.get_by_role("heading", name="Approve 2 gates?")).to_be_visible()
    for one in ids[:2]:
        expect(page.get_by_role("main")).to_contain_text(one)
    assert visit.axe() == []
    assert [answer_of(site, one)[0] for one in ids] == [None, None, None]
    page.get_by_role("button", name="Approve these 2 gates").click()
    expect(page.get_by_role("main")).to_contain_text("2 approved")
    site.work()
    assert [answer_of(site, one)[0] for one in ids] == ["ana", "ana", None]


def test_two_approvals_need_two_people_and_not_the_one_that_is_excluded(site: Site, enter: Enter, run_id: str) -> None:
    site.do(site.app.start, "payroll", "May", run_id=run_id)
    path = f"/runs/{run_id}/gates/ask%231"
    carl = enter("carl").open(path)
    expect(carl.get_by_text("You cannot answer it")).to_be_visible()
    ana = enter("ana").open(path)
    ana.get_by_label("Yes").check()
    ana.get_by_role("button", name="Answer").last.click()
    ana.goto(path)
    expect(ana.get_by_text("1 of 2 approvals")).to_be_visible()
    expect(ana.get_by_text("You cannot answer it")).to_be_visible()
    ben = enter("ben").open(path)
    ben.get_by_label("Yes").check()
    ben.get_by_role("button", name="Answer").last.click()
    until(lambda: answer_of(site, run_id)[0] == "ben", "the second approval arrives")
    site.work()
    assert site.status(run_id) == "completed"


def test_an_effect_in_doubt_shows_what_is_known_and_is_settled(site: Site, enter: Enter, run_id: str) -> None:
    site.do(site.app.start, "pay_supplier", "Lumen AG", 12.5, run_id=run_id)
    page = enter(width=NARROW).open(inbox_of(run_id))
    card = card_of(page, run_id)
    for text in ("Lumen AG", "12.5", "the bank closed the connection", "Idempotency key"):
        expect(card).to_contain_text(text)


def test_a_gate_is_reassigned(site: Site, enter: Enter, gate: str) -> None:
    page = enter().open(f"/runs/{gate}/gates/ask%231")
    page.get_by_text("Reassign").first.click()
    page.get_by_label("Who may answer instead").fill("group:leads")
    page.get_by_label("Reason").fill("ana is away")
    page.get_by_role("button", name="Reassign").click()
    expect(page.get_by_role("main")).to_contain_text("group:leads")
    assert site.do(site.app.gates, gate)[0].who == ("group:leads",)


def test_a_viewer_reads_the_question_and_cannot_press_the_button(enter: Enter, gate: str) -> None:
    card = card_of(enter("vera").open(inbox_of(gate)), gate)
    expect(card).to_contain_text("You cannot answer it")
    expect(card.get_by_role("button", name="Answer")).to_be_disabled()
    expect(card.get_by_label("Yes")).to_be_disabled()


def test_a_page_is_updated_although_a_script_arrives_late(site: Site, enter: Enter, gate: str) -> None:
    page = enter().page
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/hx-sse.min.js*", hold)
    page.goto(inbox_of(gate), wait_until="commit")
    page.wait_for_function("() => window.htmx")
    held[0].continue_()
    expect(card_of(page, gate)).to_be_visible()
    site.do(site.app.answer, gate, {"approve": True, "note": ""}, by="ben")
    expect(card_of(page, gate)).to_contain_text("Answered by ben")
