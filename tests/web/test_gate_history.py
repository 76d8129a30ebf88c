"""The history of a gate: the people asked, and the answer."""

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


def test_the_history_names_the_people_that_were_asked_first(world: InboxWorld) -> None:
    gate = world.ask("Go on?", who="group:finance", escalate=[(60, "cfo"), (3600, "group:board")])
    for seconds, escalated in ((0, ""), (120, "Escalated to cfo"), (7200, "Escalated to group:board")):
        world.clock.advance(seconds)
        text = words(world.page("ana", gate_path(gate)))
        assert "Opened for group:finance" in text
        assert "Opened for group:finance, " not in text
        assert escalated in text


def test_a_recorded_answer_is_shown_with_its_labels(world: InboxWorld) -> None:
    gate = world.ask("Which?", "labelled")
    world.app.answer(gate.run_id, {"cost_center": 200, "tags": ["b"], "note": ""}, by="ana")
    text = words(world.page("ana", gate_path(gate)))
    assert "Cost center 200 Marketing" in text
    assert "Tags Blue" in text
