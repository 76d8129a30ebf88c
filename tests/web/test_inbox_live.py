"""The inbox while it is open: what a live update notices, and what stays on the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse, Response

from holdfast.web import User, gate_list
from holdfast.web.live import Live
from tests.web.html_page import HtmlPage
from tests.web.inbox_world import STORES, InboxWorld, gate_path, inbox_world, site_of


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InboxWorld]:
    with inbox_world(request.param, tmp_path) as made:
        yield made


def cards(page: HtmlPage) -> list[str]:
    """The ids of the cards, in their order."""
    return [attributes["id"] or "" for tag, attributes in page.tags if tag == "article"]


def _words(page: HtmlPage) -> str:
    return " ".join(page.text.split())


def marks(world: InboxWorld, monkeypatch: pytest.MonkeyPatch, name: str, query: str = "") -> Any:
    """A function that reads the mark of a live view, and the key by which views are shared."""
    seen: dict[str, Any] = {}

    def response(_: Live, key: str, mark: Any, known: str) -> Response:
        seen.update(key=key, mark=mark, known=known)
        return PlainTextResponse(mark())

    monkeypatch.setattr(Live, "response", response)
    monkeypatch.setattr("holdfast.web.pages.inbox.SCAN_AGE_S", 0.0)
    assert world.browser(name).get(f"/live/inbox?{query}").status_code == 200
    return seen


def test_the_mark_changes_when_the_list_changes(world: InboxWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = world.ask("One?", who="ana", approvals=2, escalate=[(60, "group:leads")], expires=600, run_id="one")
    seen = marks(world, monkeypatch, "ana", "text=one")
    before = seen["mark"]()
    html = world.browser("ana").get("/?text=one").text
    assert f"/live/inbox?mark={before}&amp;text=one" in html, "the page is rendered with its mark"
    assert seen["mark"]() == before

    def changed() -> bool:
        nonlocal before
        before, last = str(seen["mark"]()), before
        assert seen["mark"]() == before
        return before != last

    world.ask("another one?", run_id="another")
    assert changed()
    world.app.answer(gate.run_id, {"approve": True}, by="ana")
    assert changed(), "an approval"
    world.app.reassign(gate.run_id, ["ben", "cleo"])
    assert changed(), "other people"
    world.clock.advance(61)
    assert changed(), "an escalation"
    world.clock.advance(600)
    assert changed(), "its expiry"
    world.app.answer("another", {"approve": True}, by="ben")
    assert changed(), "an answer"


def test_views_are_shared_unless_they_differ_for_their_users(
    world: InboxWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {
        (name, query): marks(world, monkeypatch, name, query)["key"]
        for name in ("ana", "ben", "rita")
        for query in ("", "mine=1", "text=a", "after=1/1/x")
    }
    assert keys["ana", ""] == keys["ben", ""] != keys["rita", ""]
    assert keys["ana", "mine=1"] != keys["ben", "mine=1"]
    assert len({keys["ana", query] for query in ("", "mine=1", "text=a", "after=1/1/x")}) == 4


def test_live_views_with_filters_share_one_reading(world: InboxWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    gates = gate_list.GateList(site_of(world))
    reads, real = [], gates._read_all

    def counted() -> Iterator[gate_list.Entry]:
        reads.append(1)
        return real()

    monkeypatch.setattr(gates, "_read_all", counted)
    for text in ("a", "b", "c"):
        gates.page(User(name="ana"), gate_list.Filter(text=text), max_age_s=3600)
    assert len(reads) == 1
    gates.page(User(name="ana"), gate_list.Filter(text="a"))
    assert len(reads) == 2, "a page itself is always read"


def test_a_card_stays_when_another_person_answers(world: InboxWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, other = world.ask("One?", "noted"), world.ask("Two?")
    before = world.page("ana")
    world.app.answer(gate.run_id, {"approve": True}, by="ben")
    after = world.page("ana", update=True)
    assert cards(after) == cards(before), "the same ids, so that what is typed stays"
    assert "Answered by ben" in _words(after)
    forms = {form.action: form for form in after.forms}
    fields = forms[gate_path(gate, "answer")].controls
    assert [c.id for c in fields] == [c.id for c in before.form(gate_path(gate, "answer")).controls]
    assert all(control.disabled for control in fields if control.type in ("radio", "text", "submit"))
    assert "1 open gate" in after.text
    assert cards(world.page("ana")) == cards(before)[1:], "a page that is opened now does not have it"
    assert cards(world.page("ana", update=True)) == cards(before)
    monkeypatch.setattr(gate_list.ShownGates, "STAY_S", 0.0)
    assert cards(world.page("ana", update=True)) == cards(before)[1:]
    assert world.app.gates()[0].run_id == other.run_id


def test_a_card_that_was_typed_into_stays_also_if_another_process_serves_the_page(
    world: InboxWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, other = world.ask("One?", "noted", run_id="a/b é"), world.ask("Two?")
    before = world.page("ana")
    world.app.answer(gate.run_id, {"approve": True}, by="ben")
    monkeypatch.setattr(gate_list.ShownGates, "note", lambda *_: [])  # as a process that has not shown it
    after = world.page("ana", update=True, typed=(gate, other))
    assert cards(after) == cards(before)
    assert "Answered by ben" in _words(after)
    assert cards(world.page("ana", update=True, typed=(other,))) == cards(before)[1:]
    assert cards(world.page("rita", update=True, typed=(gate,))) == [], "rita does not see this workflow"
    for header in ("", "x", "%00/x", "a%2Fb%20%C3%A9/", "/ /", "\xff" * 3):
        response = world.browser("ana").get("/", headers={b"HX-Request": b"true", b"X-Typed": header.encode("latin-1")})
        assert response.status_code == 200


def test_what_waits_for_a_user_is_what_it_can_answer_now(world: InboxWorld) -> None:
    world.ask("One?", expires=60)
    assert len(cards(world.page("ana", "/?mine=1"))) == 1
    assert cards(world.page("vera", "/?mine=1")) == [], "a viewer answers nothing"
    world.clock.advance(61)
    assert cards(world.page("ana", "/?mine=1")) == [], "no worker has closed it yet"
    assert len(cards(world.page("ana"))) == 1


def test_a_card_stays_when_its_gate_is_given_to_others(world: InboxWorld) -> None:
    gate = world.ask("One?")
    before = world.page("ana", "/?mine=1")
    world.app.reassign(gate.run_id, "ben")
    after = world.page("ana", "/?mine=1", update=True)
    assert cards(after) == cards(before)
    assert "'ana' may not answer it; it is for ben" in after.text


def test_the_card_of_a_deleted_run_goes(world: InboxWorld) -> None:
    gate = world.ask("One?")
    assert len(cards(world.page("ana"))) == 1
    world.app.cancel(gate.run_id)
    world.work()
    world.store.delete(gate.run_id)
    assert cards(world.page("ana", update=True)) == []
