"""The page of a gate: everything about it, its answer, and who is first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount
from starlette.testclient import TestClient

import holdfast
from holdfast.model.views import GateInfo
from holdfast.web.live import Live
from tests.web.html_page import HtmlPage
from tests.web.inbox_world import STORES, InboxWorld, check_page, gate_path, inbox_world


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InboxWorld]:
    with inbox_world(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[InboxWorld]:
    with inbox_world("memory:", tmp_path) as made:
        yield made


def words(page: HtmlPage) -> str:
    return " ".join(page.text.split())


def token(world: InboxWorld, name: str, gate: GateInfo) -> str:
    """The CSRF token of a user."""
    return next(c.value for c in world.answer_form(name, gate).controls if c.name == "csrf")


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_has_everything_about_the_gate(world: InboxWorld) -> None:
    gate = world.ask(
        "Pay **30**?", "noted", show={"order": "A-17"}, who=["cleo", "group:finance"], approvals=2, not_by="ana"
    )
    world.app.reassign(gate.run_id, ["ben", "cleo"], by="ana", reason="Finance is away", via="web")
    world.app.answer(gate.run_id, {"approve": True}, by="cleo", via="cli")
    text = words(world.page("ben", gate_path(gate)))
    assert "Pay 30?" in text
    assert "order A-17" in text
    assert "For ben, cleo, but not ana" in text
    assert "1 of 2 approvals: cleo" in text
    assert "Reassigned to ben, cleo by ana via web: Finance is away" in text
    assert "Approved (1 of 2) by cleo via cli" in text
    assert f"Gate {gate.gate}" in text
    form = world.answer_form("ben", gate)
    form.fill(approve="true")
    assert world.submit("ben", form).headers["location"] == gate_path(gate)
    for _ in ("in the inbox of the run", "in its journal"):
        text = words(world.page("vera", gate_path(gate)))
        assert "Answered by ben" in text
        assert "Answered by ben via web" in text
        assert "The answer Approve yes Note" in text
        assert "Answer to" not in text, "no form"
        world.work()
    assert world.app.handle(gate.run_id).result() == {"approve": True, "note": ""}


KEYS = ["plain", "a/b", "a b?c", "100%", "%2F", "x]@", "ü#", ".", "..", "~", "a&b=c", "'\"<>"]


@pytest.mark.parametrize("key", KEYS)
def test_names_of_any_signs_have_their_page(memory: InboxWorld, key: str) -> None:
    @memory.app.workflow
    def keyed(run: holdfast.Run) -> object:
        first = run.ask("Sure?", bool, key=key)
        return first, run.gather(
            lambda branch: branch.ask("Sure?", bool, key=key), lambda branch: branch.step(len, "a")
        )

    memory.app.start(keyed, run_id=key)
    for _ in ("alone", "in a branch", "alone after a rollback", "in a branch after a rollback"):
        (gate,) = memory.app.gates(key)
        link = next(link for link in memory.page("ana").links if "/gates/" in link)
        page = memory.page("ana", link)
        assert f"Gate {gate.gate} Run {key}" in words(page)
        form = page.form("/answer")
        form.fill(answer="true")
        memory.submit("ana", form)
        memory.work()
        assert "Answered by ana" in words(memory.page("ana", link))
        if memory.app.handle(key).status() == "completed" and "@" not in gate.gate.rpartition("/")[2].removeprefix(key):
            memory.app.rollback(key, to=1)
    assert memory.app.handle(key).result() == (True, [True, 1])


def test_a_gate_that_does_not_exist_or_is_not_visible_is_not_found(world: InboxWorld) -> None:
    gate = world.ask("Go on?")
    for name, path in (
        ("ana", "/runs/none/gates/ask%231"),
        ("ana", f"/runs/{gate.run_id}/gates/other"),
        ("rita", gate_path(gate)),
        ("rita", gate_path(gate, "live")),
    ):
        world.page(name, path, status=404)
    secret = token(world, "ana", gate)
    for path in (gate_path(gate, "answer"), gate_path(gate, "reassign")):
        assert world.browser("rita").post(path, data={"csrf": secret}).status_code in (403, 404)
        assert world.browser("ana").get(path).headers["location"] == gate_path(gate), "a link decides nothing"


def test_a_form_without_the_token_of_the_session_is_refused(world: InboxWorld) -> None:
    gate = world.ask("Go on?")
    form = world.answer_form("ana", gate)
    form.fill(approve="true")
    for csrf in ("", "x", token(world, "ben", gate)):
        world.submit("ana", form, status=403, csrf=csrf)
    assert world.app.gates() != []


# --- answers ---------------------------------------------------------------------------------------------------------


def test_a_larger_form_is_answered(world: InboxWorld) -> None:
    gate = world.ask("How much?", "order")
    form = world.answer_form("ana", gate)
    form.fill(amount="7", note="one line")
    for number in range(2):
        page = world.submit("ana", form, "f/tags~add", "1", status=200)
        form = page.form("/answer")
        form.set(f"f/tags/{number}", f"tag {number}")
    assert world.app.gates() != [], "a button for rows answers nothing"
    world.submit("ana", form)
    world.work()
    assert world.app.handle(gate.run_id).result() == {"amount": 7, "tags": ["tag 0", "tag 1"], "note": "one line"}


def test_an_answer_that_does_not_fit_keeps_what_was_typed(world: InboxWorld) -> None:
    gate = world.ask("How much?", "order")
    form = world.answer_form("ana", gate)
    form.fill(amount="99", note="typed")
    page = world.submit("ana", form, status=422)
    assert "There is a problem" in page.text
    assert "Amount: Must be at most 9, not 99" in words(page)
    again = page.form("/answer")
    kept = {control.name: control for control in again.controls}
    assert (kept["f/amount"].value, kept["f/note"].value) == ("99", "typed")
    assert kept["f/amount"].attributes["aria-invalid"] == "true"
    assert kept["f/amount"].id in [link.removeprefix("#") for link in page.links]
    assert [one.state for one in world.app.gates(gate.run_id)] == ["open"]
    again.fill(amount="9")
    world.submit("ana", again)
    assert world.app.gates() == []


def test_a_second_answer_gets_the_first_one_and_keeps_what_was_typed(world: InboxWorld) -> None:
    gate = world.ask("Go on?", "noted")
    form = world.answer_form("ana", gate)
    form.fill(approve="true", note="my long text")
    world.app.answer(gate.run_id, {"approve": False, "note": "no way"}, by="ben")
    for _ in range(2):
        text = words(world.submit("ana", form, status=409))
        assert "Answered by ben" in text
        assert "Your answer was not used: the first answer counts." in text
        assert "What you typed Approve Yes Note my long text" in text
        assert "The answer Approve no Note no way" in text
        world.work()
    assert world.app.handle(gate.run_id).result() == {"approve": False, "note": "no way"}


def test_an_answer_in_the_same_moment_is_refused_too(world: InboxWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = world.ask("Go on?")
    form = world.answer_form("ana", gate)
    form.fill(approve="true")
    real = world.page_app.answer

    def late(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        world.app.answer(gate.run_id, {"approve": False}, by="ben")
        return real(*args, **kwargs)

    monkeypatch.setattr(world.page_app, "answer", late)
    text = words(world.submit("ana", form, status=409))
    assert "Answered by ben" in text
    assert "What you typed Approve Yes" in text


def test_expired_and_closed_gates_accept_no_answer_and_say_so(world: InboxWorld) -> None:
    expiring, closing = world.ask("Go on?", "noted", expires=60), world.ask("And this?", "noted")
    forms = []
    for gate in (expiring, closing):
        form = world.answer_form("ana", gate)
        form.fill(approve="true", note="kept")
        forms.append(form)
    world.clock.advance(61)
    text = words(world.submit("ana", forms[0], status=403))
    assert "Your answer was not used: it has expired." in text
    assert "Note kept" in text
    world.work()
    text = words(world.submit("ana", forms[0], status=409))
    assert "It is expired. Your answer was not used." in text
    assert "What it counts as Approve no" in text
    world.app.cancel(closing.run_id, by="ben")
    world.work()
    text = words(world.submit("ana", forms[1], status=409))
    assert "It is closed. Your answer was not used." in text
    assert "Note kept" in text


def test_a_user_that_may_not_answer_is_refused(world: InboxWorld) -> None:
    gate = world.ask("Go on?", who=["ana", "group:leads"], not_by="cleo")
    for name, reason in (
        ("ben", "'ben' may not answer it; it is for ana, group:leads"),
        ("cleo", "'cleo' may not answer it; it must be answered by others than cleo"),
        ("vera", "answering needs the role approver, and 'vera' is viewer"),
    ):
        page = world.page(name, gate_path(gate))
        assert f"You cannot answer it: {reason}." in words(page)
        form = page.form("/answer")
        assert all(control.disabled for control in form.controls if control.type != "hidden")
        for control in form.controls:
            control.disabled = False
        form.fill(approve="true")
        world.submit(name, form, status=403)
    assert [one.state for one in world.app.gates()] == ["open"]


def test_members_of_a_group_may_answer(world: InboxWorld) -> None:
    gate = world.ask("Go on?", who="group:finance")
    form = world.answer_form("ben", gate)
    form.fill(approve="true")
    world.submit("ben", form)
    assert world.app.gates(gate.run_id, state="answered")[0].answered_by == "ben"


def test_several_people_must_approve(world: InboxWorld) -> None:
    gate = world.ask("Go on?", approvals=2)
    form = world.answer_form("ana", gate)
    form.fill(approve="true")
    assert world.submit("ana", form).headers["location"] == gate_path(gate)
    assert "has already approved it; another person must" in world.page("ana", gate_path(gate)).text
    world.submit("ana", form, status=403)
    form = world.answer_form("ben", gate)
    form.fill(approve="true")
    world.submit("ben", form)
    world.work()
    assert world.app.handle(gate.run_id).result() == {"approve": True}
    text = words(world.page("vera", gate_path(gate)))
    assert "Approved (1 of 2) by ana via web" in text
    assert "Answered by ben via web" in text


def test_a_question_that_was_replaced_is_not_answered_by_an_old_form(world: InboxWorld) -> None:
    gate = world.ask("Pay 1 euro?", run_id="same")
    form = world.answer_form("ana", gate)
    form.fill(approve="true")
    world.app.cancel("same")
    world.work()
    world.store.delete("same")
    assert world.ask("Pay 1,000,000 euro?", run_id="same").gate == gate.gate
    text = words(world.submit("ana", form, status=409))
    assert "This question was replaced by another one" in text
    assert "Pay 1,000,000 euro?" in text
    assert [one.state for one in world.app.gates()] == ["open"]


def test_a_run_that_is_being_cancelled_accepts_no_answer(world: InboxWorld) -> None:
    gate = world.ask("Go on?")
    form = world.page("ana").form("/answer")
    form.fill(approve="true")
    world.app.cancel(gate.run_id, by="ben", enqueue=True)
    text = words(world.submit("ana", form, status=409))
    assert "Your answer was not used: 'ben' has requested to cancel the run" in text
    assert world.app.gates(gate.run_id) != []


def test_the_page_works_where_it_is_mounted(memory: InboxWorld) -> None:
    gate = memory.ask("Go on?", run_id="a/b")
    client = TestClient(
        Starlette(routes=[Mount("/holdfast", memory.site)]), follow_redirects=False, headers={"x-user": "ana"}
    )
    page = check_page(client.get("/holdfast/").text)
    link = f"/holdfast{gate_path(gate)}"
    assert link in page.links
    form = check_page(client.get(link).text).form("/answer")
    form.fill(approve="true")
    response = client.post(form.action, data=form.submit())
    assert (response.status_code, response.headers["location"]) == (303, link)
    form = page.form("/answer")
    assert "Answered by ana" in words(check_page(client.post(form.action, data=form.submit()).text))


# --- effects in doubt ------------------------------------------------------------------------------------------------


def test_an_effect_in_doubt_shows_what_is_known(world: InboxWorld) -> None:
    calls: list[Any] = []

    def pay(order: str, amount: int, *, idempotency_key: str) -> str:
        calls.append(idempotency_key)
        raise TimeoutError("the bank did not answer")

    def look(order: str, amount: int) -> str:
        return "perhaps"

    @world.app.workflow
    def shop(run: holdfast.Run) -> Any:
        return run.effect(pay, "A-17", amount=30, target="bank:DE02", check=look)

    world.app.start(shop, run_id="shop")
    (gate,) = world.app.gates("shop")
    assert gate.purpose == "in_doubt"
    for path in ("/", gate_path(gate)):
        text = words(world.page("ana", path))
        assert "in doubt" in text
        assert "Effect pay" in text
        assert "Target bank:DE02" in text
        assert "Arguments order='A-17' amount=30" in text
        assert f"Idempotency key {calls[0]}" in text
        assert "What its check did returned 'perhaps' instead of" in text
        assert "the bank did not answer" in text
    assert "Did not happen: it is performed again now" in text
    assert gate_path(gate) in world.page("ana", "/?purpose=in_doubt").links
    form = world.answer_form("ana", gate)
    form.fill(outcome='"did not happen"', result='{"receipt": 17}')
    refused = world.submit("ana", form, status=422)
    assert "Its result, if it happened: Must be left out" in words(refused)
    form.fill(outcome='"happened"', result='{"receipt": 17}')
    world.submit("ana", form)
    world.work()
    assert world.app.handle("shop").result() == {"receipt": 17}
    assert len(calls) == 1


@pytest.mark.parametrize("part", ["answer", "reassign"])
def test_the_address_of_a_form_leads_to_the_gate(world: InboxWorld, part: str) -> None:
    gate = world.ask("Go on?")
    done = world.browser("vera").get(gate_path(gate, part))
    assert (done.status_code, done.headers["location"]) == (303, gate_path(gate))


# --- live ------------------------------------------------------------------------------------------------------------


def test_the_mark_changes_when_the_gate_changes(world: InboxWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = world.ask("Go on?", approvals=2, expires=60)
    seen: dict[str, Any] = {}

    def response(_: Live, key: str, mark: Any, known: str) -> Response:
        seen.update(key=key, mark=mark)
        return PlainTextResponse(mark())

    monkeypatch.setattr(Live, "response", response)
    first = world.browser("ana").get(gate_path(gate, "live")).text
    assert f"/live?mark={first}" in world.browser("ana").get(gate_path(gate)).text
    found = [first]
    world.app.answer(gate.run_id, {"approve": True}, by="ana")
    found.append(seen["mark"]())
    world.clock.advance(61)
    found.append(seen["mark"]())
    world.work()
    found.append(seen["mark"]())
    world.store.delete(gate.run_id)
    found.append(seen["mark"]())
    assert len(set(found)) == 5
    assert found[-1] == "gone"


def test_an_update_of_an_answered_gate_has_no_form_if_nothing_was_typed(world: InboxWorld) -> None:
    gate = world.ask("How much?", "order")
    world.app.answer(gate.run_id, {"amount": 3, "tags": [], "note": ""}, by="ana")
    page = world.page("ana", gate_path(gate), update=True)
    assert "Answered by ana" in words(page)
    assert "What you typed" not in page.text
    assert [form for form in page.forms if form.action.endswith("/answer")] == []


def test_what_is_typed_stays_when_another_person_answers(world: InboxWorld) -> None:
    gate = world.ask("How much?", "order")
    before = world.answer_form("ana", gate)
    world.app.answer(gate.run_id, {"amount": 3, "tags": [], "note": ""}, by="ben")
    page = world.page("ana", gate_path(gate), update=True, typed=(gate,))
    after = page.form("/answer")
    assert "Answered by ben" in words(page)
    ids = [control.id for control in before.controls if control.id.endswith(("-amount", "-note"))]
    assert len(ids) == 2
    kept = {control.id: control for control in after.controls}
    assert all(kept[one].disabled for one in ids), "the same fields, disabled"
    assert not any("/answer" in form.action for form in world.page("ana", gate_path(gate)).forms)
