"""In a terminal of 80 columns no line of `list`, `gates`, `effects` and `log` is wider; a pipe gets everything."""

from __future__ import annotations

import shlex
import subprocess
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli.format import command_lines
from holdfast.cli.output import chunks, cut
from tests.cli.processes import command as run
from tests.cli.terminal import Terminal

LONG = "order-" + "0123456789" * 12
WIDE = "注文-" + "返金する" * 20
QUESTION = "Shall we really refund this order, 本当に返金しますか, although " + "the customer was unkind and " * 8 + "?"
CALL = "a-very-long-name-of-a-step-" + "x" * 80


def cells(line: str) -> int:
    """How many cells of a terminal a line takes, counted without the code under test."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line
    )


def pay(order: str) -> dict[str, str]:
    return {"receipt": f"receipt of {order} " * 6}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with holdfast.App(f"sqlite:{tmp_path / 'holdfast.db'}") as app:

        @app.workflow(name="a-workflow-with-quite-a-long-name-" + "x" * 30)
        def work(run_: Any, order: str) -> Any:
            run_.step(lambda: "y" * 300, name=CALL)
            run_.effect(pay, order, key=f"payment of {order} by bank transfer")
            run_.effect(pay, order, key="second")
            run_.ask(
                QUESTION, {"approve": bool, "a-field-with-a-long-name": str}, who=["ana", "ben", "a group of people"]
            )
            return run_.ask("then?", bool)

        for run_id in ("short", LONG, WIDE):
            app.start(work, "A-17", run_id=run_id, metadata={"team": "本社" * 30, "tags": ["x"] * 40})
        app.fork(LONG, f"{LONG}-fork")
        app.fork(f"{LONG}-fork", "fork-of-a-fork")
        app.cancel(f"{LONG}-fork", enqueue=True)
        yield tmp_path


VERBS = [
    ("list",), ("gates",), ("gates", "--all"), ("effects", LONG), ("effects", WIDE), ("log", LONG), ("log", WIDE),
    ("log", LONG, "--graph"), ("log", "short"),
]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_no_line_is_wider_than_the_terminal(folder: Path, verb: tuple[str, ...]) -> None:
    with Terminal(*verb, cwd=folder, columns=80) as terminal:
        assert terminal.wait() == 0, terminal.text
    lines = terminal.text.split("\n")
    assert len(lines) > 2
    assert [line for line in lines if cells(line) > 80] == []


def test_ids_are_whole_in_a_terminal_and_a_pipe_has_everything_on_one_line(folder: Path) -> None:
    with Terminal("list", cwd=folder, columns=80) as terminal:
        assert terminal.wait() == 0
    for run_id in (LONG, WIDE):
        assert run_id in terminal.text.replace("\n", "")
    piped = run("list", cwd=folder).out.splitlines()
    assert len(piped) == 6
    assert [line.split()[0] for line in piped[1:]].count(LONG) == 1
    assert len(run("gates", cwd=folder).out.splitlines()) == 5
    assert any(QUESTION in line for line in run("gates", cwd=folder).out.splitlines())


def test_the_command_that_answers_can_be_typed_as_it_is_shown() -> None:
    line = f"holdfast answer {shlex.quote(LONG + ' and more')} --gate ask#1 approve='yes|no' note=…"
    lines = command_lines(line, 80)
    assert all(cells(each) <= 80 for each in lines)
    script = "holdfast() { printf '%s\\n' \"$@\"; }\n" + "\n".join(lines)
    typed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert ["holdfast", *typed.stdout.splitlines()] == shlex.split(line)
    assert command_lines("holdfast answer a", 80) == ["holdfast answer a"]


def test_text_is_cut_and_split_by_cells() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"
    assert cut("返金する", 5) == "返金…"
    assert cut("返金する", 4) == "返…"
    assert list(chunks("返金する", 5)) == ["返金", "する"]
    assert list(chunks("e\u0301e\u0301", 1)) == ["e\u0301", "e\u0301"]
    assert list(chunks("", 5)) == [""]
