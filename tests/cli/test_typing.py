"""What the command says to type can be typed: it is quoted for a shell, and says what may be chosen."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Literal

import pytest

import holdfast
from holdfast import field
from holdfast.inspect.views import as_data
from tests.cli.processes import command as run
from tests.cli.terminal import Terminal

ODD = "order 17; touch owned"
LONG = [f"a rather long choice {n}" for n in range(5)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of an odd id with two questions."""
    with holdfast.App(f"sqlite:{tmp_path / 'holdfast.db'}") as app:

        @app.workflow
        def two(run: holdfast.Run) -> Any:
            form = {"size": Literal["small", "very large"], "many": field(str, choices=LONG), "why": str}
            return run.gather(lambda a: a.ask("First?", bool), lambda b: b.ask("Second?", form))

        app.start(two, run_id=ODD)
    return tmp_path


def typed(text: str) -> list[list[str]]:
    """The `answer` commands in a text, as a shell would read them."""
    lines = [line.partition("holdfast answer") for line in text.splitlines()]
    return [shlex.split(sign + rest) for _, sign, rest in lines if sign]


def test_every_command_that_answers_is_quoted_and_tells_the_choices(folder: Path) -> None:
    show = run("show", ODD, cwd=folder)
    first, second = typed(show.out)
    assert first == ["holdfast", "answer", ODD, "--gate", first[4], "answer=yes|no"]
    assert second == ["holdfast", "answer", ODD, "--gate", second[4], "size=small|very large", "many=…", "why=…"]
    assert typed(run("gates", cwd=folder).err) == [first]
    done = run(*first[1:-1], "answer=yes", cwd=folder)
    assert done.code in (0, 3), done.err
    assert typed(done.out) == [["holdfast", "answer", ODD, *second[5:]]]


def test_a_placeholder_that_is_typed_as_it_stands_answers_nothing(folder: Path) -> None:
    first, _ = typed(run("show", ODD, cwd=folder).out)
    done = run(*first[1:], cwd=folder)
    assert done.code == 2
    assert "yes or no" in done.err


def test_who_leaves_a_question_open_is_told_a_command_that_can_be_typed(folder: Path) -> None:
    first, _ = typed(run("show", ODD, cwd=folder).out)
    with Terminal(*first[1:-1], cwd=folder) as terminal:
        terminal.expect("(y/n)")
        terminal.send("\x04")
        terminal.expect(f"The question is still open: {shlex.join(first[:-1])}")
        assert terminal.wait() == 130


def test_the_lists_of_a_form_are_lists(folder: Path) -> None:
    done = run("gates", "--json", cwd=folder)
    assert "$tuple" not in done.out
    fields = [field for gate in done.data["gates"] for field in gate["form"]["fields"]]  # opened side by side
    found = [field["choices"] for field in fields if "choices" in field]
    assert [{"value": word, "label": word} for word in ("small", "very large")] in found
    with holdfast.open(f"sqlite:{folder / 'holdfast.db'}") as store:
        store.save("mine", {}, metadata={"pair": (1, 2)})
        assert json.loads(json.dumps(as_data(store.runs(prefix="mine"))))[0]["metadata"] == {"pair": {"$tuple": [1, 2]}}
