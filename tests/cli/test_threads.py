"""Threads of LangGraph in the command: their statuses, interrupts, states and changes, as processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.types import Command

from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph.material import Plain, chat, config, said
from tests.cli.processes import command as run
from tests.golden.threads import approval


@pytest.fixture
def folder(tmp_path: Path, url: str) -> Path:
    """A store with a conversation, a thread that waits for an answer, and one that got it."""
    scheme, _, path = url.partition(":")
    with HoldfastSaver(f"{scheme}:{tmp_path / path}") as saver:
        for number in range(3):
            chat(saver, Plain).invoke(said(f"hello {number}"), config("chat"))
        for order in ("A-17", "B-18"):
            approval(saver).invoke({"order": order}, config(order))
        approval(saver).invoke(Command(resume={"ok": True}), config("B-18"))
    return tmp_path


def given(folder: Path, url: str, *arguments: str) -> Any:
    done = run(*arguments, "--store", url, "--json", cwd=folder)
    assert done.code == 0, done.err
    return json.loads(done.out)


def texts(value: Any) -> Iterator[str]:
    """All keys and texts in a value."""
    if isinstance(value, dict):
        yield from value
        for part in value.values():
            yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)
    elif isinstance(value, str):
        yield value


def test_threads_are_listed_by_their_true_status(folder: Path, url: str) -> None:
    found = given(folder, url, "list", "--status", "completed")["runs"]
    assert {info["run_id"] for info in found} == {"chat", "B-18"}
    found = given(folder, url, "list", "--status", "waiting")["runs"]
    assert [info["run_id"] for info in found] == ["A-17"]


def test_interrupts_of_threads_are_among_the_gates(folder: Path, url: str) -> None:
    (gate,) = given(folder, url, "gates")["gates"]
    assert (gate["run_id"], gate["workflow"], gate["purpose"]) == ("A-17", "langgraph", "interrupt")
    assert (gate["show"], json.loads(gate["prompt"])) == ({"approve": "A-17"}, {"approve": "A-17"})
    (same,) = given(folder, url, "gates", "A-17")["gates"]
    assert same == gate
    assert given(folder, url, "gates", "B-18") == {"gates": []}
    told = run("gates", "--store", url, cwd=folder)
    assert gate["gate"] in told.out
    assert "Command(resume=" in told.err
    shown = run("show", "A-17", "--store", url, cwd=folder).out
    assert f"(interrupt {gate['gate']})" in shown
    assert "holdfast answer" not in shown


def test_an_interrupt_is_answered_through_its_graph_only(folder: Path, url: str) -> None:
    before = given(folder, url, "show", "A-17")
    done = run("answer", "A-17", "ok=yes", "--store", url, cwd=folder)
    assert done.code != 0
    assert "Command(resume=" in done.err
    assert given(folder, url, "show", "A-17")["run"] == before["run"]


def test_the_state_of_a_thread_is_readable(folder: Path, url: str) -> None:
    state = given(folder, url, "show", "chat", "--state")["state"]
    assert [(one["$type"], one["content"]) for one in state["messages"]] == [
        (kind, f"{lead}hello {number}")
        for number in range(3)
        for kind, lead in (("HumanMessage", ""), ("AIMessage", "re: "))
    ]
    told = run("show", "chat", "--state", "--store", url, cwd=folder).out
    assert "hello 2" in told
    assert "$bytes" not in told


def test_the_difference_between_two_checkpoints_of_a_thread_is_what_was_said(folder: Path, url: str) -> None:
    patch = given(folder, url, "diff", "chat~1", "chat")
    assert [(change["op"], change["path"], change["value"]["content"]) for change in patch] == [
        ("add", "/messages/5", "re: hello 2")
    ]
    told = run("diff", "chat~1", "chat", "--store", url, cwd=folder).out
    assert "re: hello 2" in told
    assert "$bytes" not in told


class Stored:
    """A serializer that stores these bytes as JSON, whatever the value is."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def dumps_typed(self, _value: Any) -> tuple[str, bytes]:
        return "json", self._body

    def loads_typed(self, _data: tuple[str, bytes]) -> Any:
        return None


@pytest.mark.parametrize("body", [
    b"[" * 900 + b"]" * 900, b'{"a":' * 450 + b"NaN" + b"}" * 450, b"[NaN, 1e999]", rb'{"\ud800": "\ud800"}',
])  # fmt: skip
def test_an_odd_value_of_one_thread_is_shown_and_stops_no_other(folder: Path, url: str, body: bytes) -> None:
    scheme, _, path = url.partition(":")
    with HoldfastSaver(f"{scheme}:{folder / path}", serde=Stored(body)) as saver:
        at = config("odd")
        for step in (1, 2):
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"v": step} if step == 2 else {}
            checkpoint["channel_versions"] = {"v": step}
            at = saver.put(at, checkpoint, {"source": "loop", "step": step}, {"v": step})
        saver.put_writes(at, [("__interrupt__", [1])], "task-1")
    for arguments in (["gates"], ["show", "odd"], ["show", "odd", "--state"], ["diff", "odd"]):
        done = run(*arguments, "--store", url, cwd=folder)
        assert done.code == 0, done.err
        done = run(*arguments, "--store", url, "--json", cwd=folder)
        assert done.code == 0, done.err
        json.loads(done.out, parse_constant=pytest.fail)
    assert {gate["run_id"] for gate in given(folder, url, "gates")["gates"]} == {"A-17", "odd"}


def test_a_thread_whose_closing_checkpoint_is_pruned_is_among_the_gates_again(folder: Path, url: str) -> None:
    scheme, _, path = url.partition(":")
    with HoldfastSaver(f"{scheme}:{folder / path}") as saver:
        graph = approval(saver)
        graph.update_state(config("A-17"), None, as_node="__end__")
        closed = graph.get_state(config("A-17")).config["configurable"]["checkpoint_id"]
    assert given(folder, url, "gates") == {"gates": []}
    assert run("prune", "A-17", "--checkpoint", closed, "--yes", "--store", url, cwd=folder).code == 0
    assert [gate["run_id"] for gate in given(folder, url, "gates")["gates"]] == ["A-17"]
    assert run("prune", "A-17", "--delete", "--older-than", "0s", "--yes", "--store", url, cwd=folder).code == 0
    assert "A-17" in {info["run_id"] for info in given(folder, url, "list")["runs"]}


def test_threads_that_have_come_to_a_rest_are_not_deleted_with_ended_runs(folder: Path, url: str) -> None:
    prune = ("prune", "--delete", "--older-than", "0s", "--yes")
    assert given(folder, url, *prune, "--all")["runs"] == []
    found = given(folder, url, *prune, "--all", "--workflow", "langgraph")["runs"]
    assert {line["run_id"] for line in found} == {"chat", "B-18"}


def test_threads_of_an_older_version_are_readable(golden_store: str, tmp_path: Path) -> None:
    for thread in ("plain", "interrupted", "approved", "odd"):
        state = given(tmp_path, golden_store, "show", thread, "--state")["state"]
        assert "frame" not in state
        assert not {"$unreadable"} & set(texts(state))
    for thread in ("delta", "delta-copied", "delta-pruned"):
        found = given(tmp_path, golden_store, "show", thread, "--state")["state"]["messages"]["$delta"]
        messages = [one for part in [found["from"] or [], *found["writes"]] for one in part]
        said = [one["content"].partition(" words")[0].strip() for one in messages]
        name = thread.replace("-copied", "")
        assert said == [f"{lead}{name} {number}" for number in range(4) for lead in ("", "re: ")]
    (gate,) = [gate for gate in given(tmp_path, golden_store, "gates")["gates"] if gate["purpose"] == "interrupt"]
    assert (gate["run_id"], gate["show"]) == ("interrupted", {"approve": "A-17"})


@pytest.fixture
def golden_store(tmp_path: Path) -> str:
    """A copy of the store that version 0.1.0 wrote."""
    shutil.copytree(Path(__file__).parents[1] / "golden" / "0.1.0" / "langgraph", tmp_path / "golden")
    return "sqlite:golden/threads.db"


def test_reading_threads_needs_no_langgraph(folder: Path, url: str) -> None:
    code = (
        "import sys; sys.modules['langgraph'] = sys.modules['langchain_core'] = None\n"
        "import holdfast\n"
        "from holdfast.inspect.status import gates_of\n"
        "from holdfast.inspect.timeline import timeline\n"
        f"with holdfast.open({url!r}) as store:\n"
        "    print(len(gates_of(store)), timeline(store, 'A-17').standing.next_node)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("1 gate")


def test_the_log_of_a_thread_says_that_it_has_no_journal(folder: Path, url: str) -> None:
    done = run("log", "chat", "--store", url, cwd=folder)
    assert (done.code, done.out) == (0, "")
    assert "chat is a thread of LangGraph and has no journal; `holdfast show chat` lists its checkpoints" in done.err
