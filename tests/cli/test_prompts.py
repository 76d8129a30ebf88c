"""Questions in a terminal: fields of every kind, mistakes, Ctrl-C."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import field
from tests.cli.terminal import CTRL_C, CTRL_D, Terminal

URL = "sqlite:holdfast.db"


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Any]:
    """Starts a run that asks for a form, and gives its app."""
    with holdfast.App(f"sqlite:{tmp_path / 'holdfast.db'}") as app:

        def start(form: Any, **more: Any) -> holdfast.App:
            app.workflow(name="asks")(lambda run: run.ask("What about it?", form, **more))
            app.start("asks", run_id="r")
            return app

        yield start


def test_each_kind_of_field_is_asked_for_and_what_does_not_fit_is_asked_again(asking: Any, tmp_path: Path) -> None:
    app = asking(
        {
            "approve": bool,
            "count": field(int, minimum=1, help="how many parcels"),
            "price": float,
            "colour": Colour,
            "sizes": field(list[str], choices=["small", "large", "huge"]),
            "tags": list[str],
            "numbers": list[int],
            "day": dt.date,
            "note": field(str, multiline=True),
            "extra": dict[str, Any],
            "who": field(str, default="ana"),
            "why": field(str, required=False),
        },
        show={"order": "A-17"},
    )
    with Terminal("answer", "r", cwd=tmp_path) as terminal:
        terminal.expect("What about it?")
        terminal.expect('"order": "A-17"')
        for asked, keys in (
            ("Approve (y/n)", "perhaps\n"), ("expected yes or no", ""), ("Approve (y/n)", "y\n"),
            ("how many parcels", ""), ("Count (a whole number)", "0\n"), ("Count", "3\n"),
            ("Price (a number)", "12.5\n"),
            ("2) green", ""), ("Colour (number or name)", "7\n"), ("expected one of", ""), ("Colour", "2\n"),
            ("Sizes (numbers or names", "1, huge\n"),
            ("Tags", "a, b\n"), ("", "c\n"), ("", "\n"),
            ("Numbers", "1\n"), ("", "2\n"), ("", "\n"),
            ("Day (a date", "tomorrow\n"), ("Day", "2026-03-31\n"),
            ("Note", "first\n"), ("", "\n"), ("", "second\n"), ("", ".\n"),
            ("Extra (JSON)", '{"a":\n'), ("", "1}\n"), ("", ".\n"),
            ("Who [ana]", "\n"), ("Why [nothing]", "\n"),
        ):  # fmt: skip
            terminal.expect(asked)
            terminal.send(keys)
        assert terminal.wait() == 0, terminal.text
    assert app.handle("r").result(timeout=240) == {
        "approve": True, "count": 3, "price": 12.5, "colour": "green", "sizes": ["small", "huge"],
        "tags": ["a, b", "c"], "numbers": [1, 2], "day": dt.date(2026, 3, 31), "note": "first\n\nsecond",
        "extra": {"a": 1}, "who": "ana", "why": None,
    }  # fmt: skip


def test_a_single_value_is_asked_for_and_can_be_given_bare(asking: Any, tmp_path: Path) -> None:
    app = asking(int)
    with Terminal("answer", "r", cwd=tmp_path) as terminal:
        terminal.expect("Answer (a whole number)")
        terminal.send("7\n")
        assert terminal.wait() == 0, terminal.text
    assert app.handle("r").result(timeout=240) == 7


@pytest.mark.parametrize(("keys", "code"), [(CTRL_C, 130), (CTRL_D, 130)])
def test_who_goes_away_leaves_the_question_open_and_is_told_how_to_go_on(
    asking: Any, tmp_path: Path, keys: str, code: int
) -> None:
    app = asking({"approve": bool, "note": str})
    with Terminal("answer", "r", cwd=tmp_path) as terminal:
        terminal.expect("Approve")
        terminal.send("y\n")
        terminal.expect("Note: ")
        terminal.send(keys)
        terminal.expect("The question is still open: holdfast answer r --gate")
        assert terminal.wait() == code
    assert [gate.state for gate in app.gates("r", state=None)] == ["open"]


def test_of_several_questions_one_is_chosen(tmp_path: Path) -> None:
    with holdfast.App(f"sqlite:{tmp_path / 'holdfast.db'}") as app:

        @app.workflow
        def two(run: holdfast.Run) -> Any:
            return run.gather(lambda a: a.ask("First?", bool), lambda b: b.ask("Second?", bool))

        app.start("two", run_id="r")
        with Terminal("answer", "r", cwd=tmp_path) as terminal:
            terminal.expect("Second?")
            terminal.expect("Which gate")
            terminal.send("2\n")
            terminal.expect("Second?")
            terminal.send("n\n")
            assert terminal.wait() == 0
        assert [gate.prompt for gate in app.gates("r")] == ["First?"]


def test_a_prompt_cannot_move_the_cursor(tmp_path: Path) -> None:
    with holdfast.App(f"sqlite:{tmp_path / 'holdfast.db'}") as app:
        app.workflow(name="evil")(lambda run: run.ask("Pay\x1b[2J 5?\x07", bool, show="a\x1b]0;t\x07b"))
        app.start("evil", run_id="r")
        with Terminal("answer", "r", "--no-color", cwd=tmp_path) as terminal:
            terminal.expect("Answer")
            terminal.send("y\n")
            assert terminal.wait() == 0
        assert "\x1b[2J" not in terminal.raw
        assert "\x07" not in terminal.raw
