"""docs/cli-json.md says what the reading commands write with --json: its keys are compared with real output."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.commands import HELPS
from holdfast.inspect.calls import FACTS, KINDS
from holdfast.inspect.views import Row
from tests.cli import shop
from tests.cli.processes import command as run

PAGE = Path(__file__).parents[2] / "docs" / "cli-json.md"
READING = {"list", "show", "log", "diff", "gates", "effects", "verify", "doctor"}
_FREE = ("metadata", "result", "state", "data", "show", "form", "versions", "store", "value", "error")
"""Keys whose values are the user's own, or named by what there is."""


def documented() -> dict[str, Any]:
    """Each section's example."""
    found: dict[str, Any] = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, rest = section.partition("\n")
        example = re.search(r"```json\n(.*?)```", rest, re.DOTALL)
        assert example is not None, title
        found[title.strip()] = json.loads(example[1])
    return found


def differences(told: Any, real: Any, place: str) -> list[str]:
    """Where keys differ. An empty list or null on either side says nothing of what could be in it."""
    if isinstance(told, dict) and isinstance(real, dict):
        found = [f"{place}: {sorted(told.keys() ^ real.keys())}"] if told.keys() != real.keys() else []
        inner = [key for key in told.keys() & real.keys() if key not in _FREE]
        return found + [line for key in inner for line in differences(told[key], real[key], f"{place}.{key}")]
    if isinstance(told, list) and isinstance(real, list):
        return [line for item in real if told for line in differences(told[0], item, f"{place}[]")]
    plain = not isinstance(told, dict | list) and not isinstance(real, dict | list)
    return [] if plain or told is None or real is None else [f"{place}: {told!r} is documented, {real!r} is real"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shop")
    with shop.make(f"sqlite:{place / 'holdfast.db'}") as app:
        app.start("refund", "A-17", run_id="order-17", metadata={"team": "a"})
        app.answer("order-17", {"approve": True, "note": "ok"}, by="ana")
        app.start("mail", "ana", run_id="mail-1")
        app.start("agent", 3, run_id="agent-1")
        app.fork("agent-1", "agent-2", at="loop#1")
    return place


@pytest.mark.parametrize(("title", "arguments"), [
    ("list", ["list"]),
    ("show", ["show", "order-17"]),
    ("show", ["show", "agent-2"]),
    ("show", ["show", "mail-1", "--full"]),
    ("show --state", ["show", "agent-1", "--state"]),
    ("show --state", ["show", "agent-1~1"]),
    ("log", ["log", "order-17"]),
    ("log --graph", ["log", "agent-1", "--graph"]),
    ("diff", ["diff", "agent-1~1"]),
    ("gates", ["gates", "--all"]),
    ("effects", ["effects", "order-17"]),
    ("verify", ["verify"]),
    ("doctor", ["doctor"]),
])  # fmt: skip
def test_the_page_says_what_the_command_writes(folder: Path, title: str, arguments: list[str]) -> None:
    real = run(*arguments, "--json", cwd=folder).data
    assert real
    assert differences(documented()[title], real, title) == []


def test_every_reading_command_is_on_the_page() -> None:
    assert {title.split()[0] for title in documented()} == READING
    assert set(HELPS) >= READING


def test_a_difference_would_be_noticed() -> None:
    told = {"a": 1, "b": [{"c": None}], "d": {"e": 1}}
    assert differences(told, {"a": 2, "b": [{"c": 3}, {"c": 4}], "d": None}, "x") == []
    assert differences(told, {"a": 2, "b": [{"c": 3}, {"f": 4}], "d": {"e": 1}}, "x") == ["x.b[]: ['c', 'f']"]
    assert differences(told, {"a": 2, "b": []}, "x") == ["x: ['d']"]
    assert differences(told, {"a": [], "b": [], "d": {}}, "x") != []


def test_every_kind_of_row_is_on_the_page_and_in_the_docstring() -> None:
    made = {*KINDS.values(), *FACTS.values(), "log", "turn", "turns", "stage", "stages", "rollback", "entry", "gap"}
    page = PAGE.read_text().partition("## show\n")[2].partition("```")[0]
    row = inspect.getsource(Row).partition("kind: str")[2].partition("name: str")[0]
    for told in (page, row):
        assert {kind for kind in made if f"`{kind}`" not in told} == set()
