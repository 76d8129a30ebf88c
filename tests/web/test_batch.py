"""Several gates approved at once: what can be selected, what the confirmation lists, and what becomes of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import field
from holdfast.model.views import GateInfo
from holdfast.web.gate_list import GateList
from tests.web.html_page import HtmlForm, HtmlPage
from tests.web.inbox_world import SPECS, STORES, InboxWorld, gate_path, inbox_world, site_of


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InboxWorld]:
    with inbox_world(request.param, tmp_path) as made:
        yield made


def words(page: HtmlPage) -> str:
    return " ".join(page.text.split())


def picks(page: HtmlPage) -> dict[str, str]:
    """The gates that can be selected: their tokens by run."""
    boxes = [attributes for tag, attributes in page.tags if tag == "input" and attributes.get("name") == "gate"]
    return {(box["value"] or "").partition(" ")[2].partition("/")[0]: box["value"] or "" for box in boxes}


def select(world: InboxWorld, name: str, *gates: GateInfo, query: str = "") -> HtmlForm:
    """The form "Approve selected" of the inbox, with these gates."""
    page = world.page(name, f"/?{query}")
    form, found = page.form("/batch"), picks(page)
    for gate in gates:
        control = next(one for one in page.controls if one.value == found[gate.run_id])
        control.checked = True
        form.controls.append(control)
    return form


def state_of(world: InboxWorld, gate: GateInfo) -> str:
    return next(one.state for one in world.app.gates(gate.run_id, state=None) if one.gate == gate.gate)


def test_gates_are_approved_after_a_page_that_lists_them(world: InboxWorld) -> None:
    first = world.ask("Pay **30**?", show={"order": "A-17"})
    second, third = world.ask("Publish?", "noted"), world.ask("And this?", "bool")
    kept = world.ask("Not selected?")
    page = world.submit("ben", select(world, "ben", first, second, third, query="mine=1"), status=200)
    text = words(page)
    assert "Approve 3 gates?" in text
    for shown in ("Pay 30?", "order A-17", "Publish?", "And this?", first.run_id, second.run_id):
        assert shown in text
    assert "Not selected?" not in text
    assert [state_of(world, gate) for gate in (first, second, third)] == ["open"] * 3, "nothing is decided yet"
    assert "/?mine=1" in page.links, "back to the same list"
    page = world.submit("ben", page.form("/batch/confirm"), status=200)
    assert "3 approved" in words(page)
    world.work()
    results = [world.app.handle(gate.run_id).result() for gate in (first, second, third)]
    assert results == [{"approve": True}, {"approve": True, "note": ""}, True]
    assert state_of(world, kept) == "open"
    for gate in (first, second, third):
        (entry,) = [entry for entry in world.store.journal(gate.run_id) if entry.kind == "answered"]
        assert (entry["by"], entry["via"]) == ("ben", "web"), "each has an answer of its own"


def test_only_gates_that_need_a_yes_can_be_selected(world: InboxWorld) -> None:
    SPECS["two"] = {"a": bool, "b": bool}
    SPECS["text"] = {"approve": bool, "note": str}
    SPECS["optional"] = {"approve": bool, "n": field(int, default=3), "tags": field(list[str], default=[])}
    made = {spec: world.ask("?", spec, run_id=spec) for spec in ("approve", "bool", "two", "text", "optional", "free")}
    world.ask("?", who="ana", run_id="others")
    world.ask("long " * 2_000, run_id="long")
    assert set(picks(world.page("ben"))) == {"approve", "bool", "optional"}
    assert picks(world.page("vera")) == {}
    form = select(world, "ben", made["optional"])
    page = world.submit("ben", form, status=200)
    world.submit("ben", page.form("/batch/confirm"), status=200)
    world.work()
    assert world.app.handle("optional").result() == {"approve": True, "n": 3, "tags": []}


def changes(world: InboxWorld, gate: GateInfo, what: str) -> None:
    if what == "answered":
        world.app.answer(gate.run_id, {"approve": False}, by="cleo")
    elif what == "reassigned":
        world.app.reassign(gate.run_id, ["ben", "cleo"], by="ana")
    elif what == "taken away":
        world.app.reassign(gate.run_id, "cleo", by="ana")
    elif what == "expired":
        world.clock.advance(601)
    elif what == "cancelled":
        world.app.cancel(gate.run_id)
        world.work()
    else:
        world.app.cancel(gate.run_id)
        world.work()
        world.store.delete(gate.run_id)
        if what == "replaced":
            world.ask("Another question?", run_id=gate.run_id)


CHANGES = {
    "answered": ("too late", "It was already answered by cleo."),
    "reassigned": ("refused", "It has changed since it was shown."),
    "taken away": ("refused", "It has changed since it was shown."),
    "expired": ("too late", "It is expired."),
    "cancelled": ("too late", "It is closed."),
    "deleted": ("refused", "There is no such gate."),
    "replaced": ("refused", "It has changed since it was shown."),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_gate_that_changed_since_it_was_shown_is_not_approved(world: InboxWorld, what: str) -> None:
    gate = world.ask("Go on?", expires=600)
    other = world.ask("And this?")
    page = world.submit("ben", select(world, "ben", gate, other), status=200)
    confirmation = page.form("/batch/confirm")
    changes(world, gate, what)
    text = words(world.submit("ben", confirmation, status=200))
    assert "1 approved" in text
    assert CHANGES[what][0] in text
    assert CHANGES[what][1] in text
    assert state_of(world, other) == "answered"
    assert what in ("deleted", "answered") or state_of(world, gate) != "answered"


def test_what_changed_before_the_confirmation_is_not_offered(world: InboxWorld) -> None:
    gate, other = world.ask("Go on?"), world.ask("And this?")
    form = select(world, "ben", gate, other)
    world.app.answer(gate.run_id, {"approve": False}, by="cleo")
    page = world.submit("ben", form, status=200)
    assert "Approve 1 gate?" in words(page)
    assert "It was already answered by cleo." in words(page)
    assert len([c for c in page.form("/batch/confirm").controls if c.name == "gate"]) == 1


def test_an_answer_in_the_same_moment_is_not_overwritten(world: InboxWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = world.ask("Go on?")
    page = world.submit("ben", select(world, "ben", gate), status=200)
    real = world.page_app.answer

    def late(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        world.app.answer(gate.run_id, {"approve": False}, by="cleo")
        return real(*args, **kwargs)

    monkeypatch.setattr(world.page_app, "answer", late)
    text = words(world.submit("ben", page.form("/batch/confirm"), status=200))
    assert "0 approved, 1 too late" in text
    assert "It was already answered by cleo." in text


def test_an_approval_of_several_is_counted(world: InboxWorld) -> None:
    gate = world.ask("Go on?", approvals=2)
    for name, words_shown, state in (("ana", "Approved: 1 of 2 approvals.", "open"), ("ben", "Approved.", "answered")):
        page = world.submit(name, select(world, name, gate), status=200)
        assert words_shown in words(world.submit(name, page.form("/batch/confirm"), status=200))
        assert state_of(world, gate) == state
    assert picks(world.page("ana")) == {}


def test_nothing_selected_is_said(world: InboxWorld) -> None:
    world.ask("Go on?")
    page = world.submit("ben", select(world, "ben"), status=422)
    assert "Select at least one gate." in page.text


def test_gates_that_were_not_offered_are_refused(world: InboxWorld) -> None:
    """Tokens of other origin: no version, a gate of others, one of a workflow that is not visible."""
    hidden, others, larger = world.ask("?"), world.ask("?", who="ana"), world.ask("?", "order")
    refund = world.refund("A-17")
    tokens = {run: value for name in ("ana", "ben") for run, value in picks(world.page(name)).items()}
    gates = GateList.of(site_of(world))
    found = gates.find(larger.run_id, larger.gate)
    assert found is not None
    forged = [
        f"{found.version} {larger.run_id} {larger.gate.replace('#', '%23')}",
        "x",
        "",
        "a b c d",
        f"x {hidden.run_id} ask%231",
    ]
    for name, more in (("rita", [tokens[hidden.run_id]]), ("ben", [tokens[others.run_id]]), ("ben", forged)):
        secret = next(one.value for one in world.page(name, gate_path(refund)).controls if one.name == "csrf")
        response = world.browser(name).post("/batch/confirm", data={"csrf": secret, "gate": more})
        assert response.status_code == 200
        assert "0 approved" in response.text
    assert all(state_of(world, gate) == "open" for gate in (hidden, others, larger, refund))


def test_never_more_gates_than_a_page_shows(world: InboxWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.pages.batch.PAGE", 2)
    gates = [world.ask("Go on?") for _ in range(3)]
    page = world.submit("ben", select(world, "ben", *gates), status=200)
    assert "Approve 2 gates?" in words(page)


def test_a_viewer_cannot_approve(world: InboxWorld) -> None:
    gate = world.ask("Go on?")
    form = select(world, "ben", gate)
    secret = next(c.value for c in world.answer_form("vera", gate).controls if c.name == "csrf")
    world.submit("vera", form, status=403, csrf=secret)
    done = world.browser("ben").get("/batch")
    assert (done.status_code, done.headers["location"]) == (303, "/")
    assert state_of(world, gate) == "open"
