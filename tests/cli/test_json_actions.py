"""docs/cli-json-acting.md says what the acting commands write with --json: its keys are compared with real output."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.adapters.langgraph.material import chat, said
from tests.adapters.langgraph.sources import Source
from tests.cli import shop
from tests.cli.processes import command as run
from tests.cli.test_export_import import PAUSED

PAGE = Path(__file__).parents[2] / "docs" / "cli-json-acting.md"
MAKE = "tests.cli.shop:make"
_FREE = ("answer", "arguments", "keywords", "result")
"""Keys whose values are the user's own."""


def documented() -> dict[str, Any]:
    """Each section's example."""
    found: dict[str, Any] = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, rest = section.partition("\n")
        example = re.search(r"```json\n(.*?)```", rest, re.DOTALL)
        if example is not None:
            found[title.strip()] = json.loads(example[1])
    return found


def shape(value: Any) -> Any:
    """The keys of a value, without what is in them; a list is told by its first item."""
    if isinstance(value, dict):
        return {key: None if key in _FREE else shape(item) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return None


def fits(told: Any, real: Any) -> bool:
    """Whether two shapes agree; an empty list or null says nothing of what could be in it."""
    if isinstance(told, dict) and isinstance(real, dict):
        return told.keys() == real.keys() and all(fits(told[key], real[key]) for key in told)
    if isinstance(told, list) and isinstance(real, list):
        return not told or not real or fits(told[0], real[0])
    return not isinstance(real, dict | list) or (told is None and real in ({}, []))


@pytest.fixture
def paid(tmp_path: Path) -> Iterator[holdfast.App]:
    with shop.make(f"sqlite:{tmp_path / 'holdfast.db'}") as app:
        app.start("refund", "A-17", run_id="order-17")
        app.answer("order-17", {"approve": True, "note": ""})
        yield app


def given(folder: Path, *arguments: str) -> Any:
    return run(*arguments, "--json", cwd=folder).data


def agree(title: str, real: Any) -> None:
    told = documented()[title]
    assert fits(shape(told), shape(real)), f"{title}: {shape(told)} is documented, {shape(real)} is real"


def test_what_acts_on_a_run(paid: holdfast.App, tmp_path: Path) -> None:
    agree("pause, cancel, send", given(tmp_path, "send", "order-17", "event"))
    agree("pause, cancel, send", given(tmp_path, "pause", "order-17", "--app", MAKE))
    agree("resume --all", given(tmp_path, "resume", "--all", "--app", MAKE))
    agree("pause, cancel, send", given(tmp_path, "resume", "order-17", "--app", MAKE))
    agree("fork", given(tmp_path, "fork", "order-17@2", "b", "--app", MAKE))
    agree("answer", given(tmp_path, "answer", "b", "approve=no", "note=", "--by", "ana"))
    agree("error", given(tmp_path, "answer", "b", "approve=no", "note=", "--by", "ben"))
    agree("rollback --dry-run", given(tmp_path, "rollback", "order-17", "--to", "ask#1", "--dry-run"))
    agree("rollback", given(tmp_path, "rollback", "order-17", "--to", "ask#1", "--yes", "--app", MAKE))
    agree("check", given(tmp_path, "check", "--all", "--app", MAKE))
    agree("delete", given(tmp_path, "delete", "order-17", "--dry-run"))
    agree("pause, cancel, send", given(tmp_path, "cancel", "order-17", "--app", MAKE))
    agree("delete", given(tmp_path, "delete", "order-17", "--yes", "--force"))


def test_what_is_about_declared_workflows(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(PAGE.parents[1] / "examples" / "refund", tmp_path / "refund"))
    agree("run", given(folder, "run", "flow.yaml", "-i", "order=A-17", "--run-id", "order-17"))
    agree("run", given(folder, "run", "flow.yaml", "-i", "order=A-18", "--enqueue"))
    agree("graph draw", given(folder, "graph", "draw", "order-17"))
    agree("graph draw", given(folder, "graph", "draw", "flow.yaml"))
    agree("graph dry-run", given(folder, "graph", "dry-run", "flow.yaml", "-i", "order=A-17"))
    flow = folder / "flow.yaml"
    flow.write_text(flow.read_text().replace("free_up_to: 50", "free_up_to: 60"))
    agree("graph migrate", given(folder, "graph", "migrate", "order-17", "flow.yaml"))
    flow.write_text(flow.read_text().replace("function: pay", "function: pai"))
    agree("graph verify", given(folder, "graph", "verify", "flow.yaml"))


def test_what_keeps_and_moves_runs(tmp_path: Path) -> None:
    agree("migrate", given(tmp_path, "migrate"))
    with holdfast.open(f"sqlite:{tmp_path / 'holdfast.db'}") as store:
        for turn in range(3):
            store.save("own", {"turn": turn})
    agree("prune", given(tmp_path, "prune", "own", "--keep-last", "1", "--dry-run"))
    agree("prune", given(tmp_path, "prune", "own", "--keep-last", "1", "--yes"))
    agree("export", given(tmp_path, "export", "own"))
    agree("import FILE", given(tmp_path, "import", "own.holdfast", "--as", "again"))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "run-1.json").write_text(json.dumps(PAUSED))
    (tmp_path / "runs" / "torn.json").write_text("{")
    agree("import SYSTEM DIR", given(tmp_path, "import", "car", "runs"))
    agree("worker", given(tmp_path, "worker", "--until-idle", "--app", MAKE))
    agree("completions", given(tmp_path, "completions", "bash"))
    agree("demo", given(tmp_path, "demo"))


def test_langgraph(tmp_path: Path) -> None:
    source = Source("sqlite", tmp_path, "theirs")
    with source.saver() as saver:
        graph = chat(saver)
        for turn in range(3):
            graph.invoke(said(f"turn {turn}"), {"configurable": {"thread_id": "t-1"}})
    agree("langgraph import", given(tmp_path, "langgraph", "import", "theirs.sqlite"))
    agree("langgraph threads", given(tmp_path, "langgraph", "threads"))
    agree("langgraph retain", given(tmp_path, "langgraph", "retain", "--last", "1", "--yes"))


def test_shapes_that_differ_do_not_fit() -> None:
    assert not fits(shape({"a": 1}), shape({"a": 1, "b": 2}))
    assert not fits(shape({"a": [{"b": 1}]}), shape({"a": [{"c": 1}]}))
    assert not fits(shape({"a": None}), shape({"a": {"b": 1}}))
    assert fits(shape({"a": []}), shape({"a": [1]}))
