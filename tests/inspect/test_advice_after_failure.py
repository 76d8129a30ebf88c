"""What is suggested for a run that failed can be done, and does not lead to the same failure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.inspect.timeline import timeline


class Trip:
    """Bookings that can be released, then a stage that fails while `broken`."""

    def __init__(self, app: holdfast.App, on_failure: str) -> None:
        self.app = app
        self.broken = True
        self.calls: list[str] = []

        @app.function
        def book(what: str) -> str:
            self.calls.append(f"book {what}")
            return what

        @app.undo
        def release(result: Any, what: str) -> None:
            self.calls.append(f"release {what}")

        @app.function
        def pay() -> None:
            if self.broken:
                raise ValueError("no money")

        stages: list[dict[str, Any]] = [
            {"id": what, "type": "effect", "function": "book", "with": {"what": what}, "compensation": "release"}
            for what in ("room", "car")
        ]
        app.graph(
            {
                "id": "trip",
                "stages": [*stages, {"id": "pay", "type": "call", "function": "pay", "on_failure": on_failure}],
            }
        )
        with pytest.raises(holdfast.RunFailed):
            app.start("trip", {}, run_id="r").result()

    def suggested(self) -> list[str]:
        return [shlex.join(arguments) for arguments in timeline(self.app.store, "r").standing.commands]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[holdfast.App]:
    with holdfast.App(f"sqlite:{tmp_path / 'holdfast.db'}") as app:
        yield app


def test_a_failed_run_goes_back_to_or_forks_before_what_failed(app: holdfast.App) -> None:
    trip = Trip(app, "abort")
    assert trip.suggested() == [
        "holdfast retry r", "holdfast rollback r --to pay", "holdfast fork r --at pay", "holdfast show r --full",
    ]  # fmt: skip
    trip.broken = False
    assert app.fork("r", "again", at="pay").status() == "completed"
    app.rollback("r", to="pay")
    assert app.handle("r").status() == "completed"
    assert trip.calls == ["book room", "book car"]


def test_a_run_that_has_undone_its_effects_is_forked_before_the_first_of_them(app: holdfast.App) -> None:
    trip = Trip(app, "compensate")
    with pytest.raises(holdfast.errors.RollbackRefused):
        app.rollback("r", to="loop#1[3]/pay#1")
    assert trip.suggested() == ["holdfast fork r --at room", "holdfast show r --full"]
    trip.broken = False
    trip.calls.clear()
    assert app.fork("r", "again", at="room").status() == "completed"
    assert trip.calls == ["book room", "book car"]
