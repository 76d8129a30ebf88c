"""The state of a run as a tree with search, and the changes between any two checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.runs_of_all_kinds import Stage, fill, links_with


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    found = Stage()
    fill(found)
    yield found
    found.close()


@pytest.fixture
def fresh() -> Iterator[Stage]:
    found = Stage()
    yield found
    found.close()


def test_the_state_is_a_tree_with_search(fresh: Stage) -> None:
    state = {"order": {"id": "A-17", "notes": ["first", "Second"]}, "a/b~c": {"x": 1}, "n": None, "tuple": (1, 2)}
    fresh.store.save("r", state)
    page = fresh.run("r", "state")
    assert "order 2 keys id: A-17 notes 2 items [0]: first [1]: Second" in page.text
    found = fresh.run("r", "state", "q=SECOND")
    assert "1 place" in found.text
    assert "[1]: Second" in found.text
    assert "A-17" not in found.text.partition("Checkpoints")[0].partition("1 place")[2]
    assert "0 places" in fresh.run("r", "state", "q=zzz").text
    part = fresh.run("r", "state", "path=/a~1b~0c")
    assert "x: 1" in part.text
    assert "A-17" not in part.text
    fresh.run("r", "state", "path=/missing", status=404)
    fresh.run("r", "state", "path=order", status=404)
    assert json.loads(fresh.client.get("/runs/r/state.json").text)["order"] == state["order"]


def test_large_states_are_shown_in_parts(fresh: Stage) -> None:
    words = [f"word {number}" for number in range(1_000)]
    deep: Any = "bottom"
    for _ in range(100):
        deep = {"in": deep}
    fresh.store.save(
        "r", {"words": words, "text": "0123456789" * 5_000, "deep": deep, "many": [{"n": n} for n in words]}
    )
    page = fresh.run("r", "state")
    assert len(page.source) < 150_000
    assert "950 more" in page.text
    assert "48,000 more characters" in page.text
    more = fresh.get(links_with(page, "path=%2Fwords", "at=50")[0])
    assert "[50]: word 50" in more.text
    text = fresh.get(links_with(page, "path=%2Ftext")[0])
    assert "30,000 more characters" in text.text
    rest = fresh.get(links_with(text, "path=%2Ftext", "at=20000")[0])
    assert "10,000 more characters" in rest.text
    assert "word 999" in fresh.run("r", "state", "q=word+999").text
    assert "bottom" in fresh.run("r", "state", "path=/deep" + "/in" * 90).text


def test_any_checkpoint_can_be_chosen(fresh: Stage) -> None:
    for number in range(60):
        fresh.store.save("r", {"n": number}, next_node=f"node-{number}")
    first = fresh.run("r", "state")
    assert "n: 59" in first.text
    assert "node-59" in first.text
    older = fresh.get(links_with(first, "older=")[0])
    assert "node-0" in older.text
    assert "n: 3 " in fresh.run("r", "state", "checkpoint=4").text
    by_id = next(iter(fresh.store.history("r"))).checkpoint_id
    assert "n: 0 " in fresh.run("r", "state", f"checkpoint={by_id}").text
    fresh.run("r", "state", "checkpoint=missing", status=404)
    fresh.store.save("r", {"in": "lane"}, lane="drafts")
    assert "lane drafts" in fresh.run("r", "state").text
    assert "in: lane" in fresh.run("r", "state", "checkpoint=61").text
    assert (
        "No checkpoint yet." in fresh.run("empty", "state").text if fresh.store.append("empty", [{"kind": "n"}]) else 1
    )


def test_any_two_checkpoints_can_be_compared(fresh: Stage) -> None:
    long = "\n".join(f"line {number}" for number in range(50))
    fresh.store.save("r", {"a": 1, "b": [1, 2], "text": long, "word": "x" * 100 + "old" + "y" * 100})
    fresh.store.save("r", {"a": 1, "b": [1, 2, 3], "text": long.replace("line 7\n", "line seven\n"), "new": {"k": "v"}})
    fresh.store.save("r", {"a": 2, "b": [], "text": "short", "word": "x" * 100 + "new" + "y" * 100})
    page = fresh.run("r", "diff", "a=1&b=2")
    assert "added b[2] 3" in page.text
    assert "removed word" in page.text
    assert "- line 7" in page.text
    assert "+ line seven" in page.text
    assert "line 40" not in page.text, "only the lines that differ, and some around them"
    swapped = fresh.run("r", "diff", "a=2&b=1")
    assert "removed b[2] 3" in swapped.text
    newest = fresh.run("r", "diff")
    assert "changed a 1 2" in newest.text
    whole = fresh.run("r", "diff", "a=1&b=3")
    assert "oldyyy" in whole.text
    assert "newyyy" in whole.text
    assert "No changes." in fresh.run("r", "diff", "a=2&b=2").text
    fresh.run("r", "diff", "a=1&b=77", status=404)
    assert "It is the first checkpoint" in fresh.run("r", "diff", "b=1").text


def test_checkpoints_of_forks_can_be_compared_too(stage: Stage) -> None:
    last = list(stage.store.history("a/fork"))[-1].number
    page = stage.run("a/fork", "diff", f"a=1@forked&b={last}")
    assert 'changed order "A-18" "B"' in page.text
    assert '<option value="1@forked" selected>' in page.source
    assert 'added order "A-18"' not in page.text


def test_many_changes_are_shown_in_pages(fresh: Stage) -> None:
    fresh.store.save("r", {str(number): 0 for number in range(250)})
    fresh.store.save("r", {str(number): 1 for number in range(250)})
    page = fresh.run("r", "diff")
    assert "250 changes, showing 1 to 100." in page.text
    last = fresh.get(links_with(fresh.get(links_with(page, "at=100")[0]), "at=200")[0])
    assert "showing 201 to 250." in last.text
