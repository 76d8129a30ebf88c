"""A gate that is given to other people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.html_page import HtmlPage
from tests.web.inbox_world import STORES, InboxWorld, gate_path, inbox_world


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InboxWorld]:
    with inbox_world(request.param, tmp_path) as made:
        yield made


def words(page: HtmlPage) -> str:
    return " ".join(page.text.split())


def test_operators_and_people_that_may_answer_can_reassign(world: InboxWorld) -> None:
    gate = world.ask("Go on?", who="ben")
    for name, who, names in (("ana", "cleo, group:finance", ("cleo", "group:finance")), ("cleo", "ana", ("ana",))):
        form = world.page(name, gate_path(gate)).form("/reassign")
        form.fill(who=who, reason="On holiday")
        world.submit(name, form)
        (found,) = world.app.gates(gate.run_id)
        assert found.who == names
        assert (found.assigned[-1].by, found.assigned[-1].via, found.assigned[-1].reason) == (name, "web", "On holiday")
    for name in ("cleo", "vera"):
        page = world.page(name, gate_path(gate))
        assert not any("/reassign" in form.action for form in page.forms)
        secret = next(control.value for control in page.controls if control.name == "csrf")
        response = world.browser(name).post(gate_path(gate, "reassign"), data={"csrf": secret, "who": name})
        assert response.status_code == 403
    assert world.app.gates(gate.run_id)[0].who == ("ana",)


@pytest.mark.parametrize("who", ["", " , ;", "group:"])
def test_a_gate_is_reassigned_to_at_least_one_person(world: InboxWorld, who: str) -> None:
    gate = world.ask("Go on?", who="ben")
    form = world.page("ana", gate_path(gate)).form("/reassign")
    form.fill(who=who, reason="kept")
    page = world.submit("ana", form, status=422)
    again = page.form("/reassign")
    assert {c.name: c.value for c in again.controls if c.name != "csrf" and c.name} == {"who": who, "reason": "kept"}
    assert world.app.gates(gate.run_id)[0].who == ("ben",)


def test_an_answered_gate_cannot_be_reassigned(world: InboxWorld) -> None:
    gate = world.ask("Go on?")
    form = world.page("ana", gate_path(gate)).form("/reassign")
    form.fill(who="ben")
    world.app.answer(gate.run_id, {"approve": True}, by="cleo")
    assert "It is not open, so it was not reassigned." in words(world.submit("ana", form, status=409))
