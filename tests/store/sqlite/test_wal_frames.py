"""What a commit writes: the WAL frames of common operations, counted exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import App, Run

_OPERATIONS = 200


@pytest.fixture(autouse=True)
def no_checkpoints() -> Iterator[None]:
    """Keep all frames in the WAL."""

    def configure(connection: apsw.Connection) -> None:
        connection.wal_autocheckpoint(0)

    apsw.connection_hooks.append(configure)
    yield
    apsw.connection_hooks.remove(configure)


def frames(path: Path, work: Callable[[int], object], first: int = 0) -> float:
    """The frames that one call of `work` writes, on average."""
    wal = Path(f"{path}-wal")
    before = wal.stat().st_size
    for number in range(first, first + _OPERATIONS):
        work(number)
    return (wal.stat().st_size - before) / (4096 + 24) / _OPERATIONS


def test_a_save_writes_the_row_of_the_run_and_that_of_the_checkpoint(tmp_path: Path) -> None:
    with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}") as store:
        store.save("r", {"text": "x"})
        assert frames(tmp_path / "runs.db", lambda number: store.save("r", {"text": f"{number:05}" * 200})) < 2.75


def test_a_pause_and_a_resume_write_no_index_whose_columns_do_not_change(tmp_path: Path) -> None:
    with App(f"sqlite:{tmp_path / 'runs.db'}") as app:

        @app.workflow
        def gated(run: Run, order: str) -> Any:
            return run.ask("Go on?", {"approve": bool})["approve"]

        def pause(number: int) -> None:
            app.start(gated, f"order-{number}", run_id=f"run-{number:05}")

        def resume(number: int) -> None:
            app.answer(f"run-{number:05}", {"approve": True})

        for first in (0, _OPERATIONS):
            assert frames(tmp_path / "runs.db", pause, first) < 11
            assert frames(tmp_path / "runs.db", resume, first) < 14.5
