"""Requests that arrive between the read and the commit of another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, Run
from holdfast.errors import ClaimLost
from holdfast.runtime import control, start
from holdfast.testing import ManualClock

URLS = pytest.mark.parametrize("scheme", ["sqlite", "dir"])


def _apps(url: str, clock: ManualClock, done: list[str]) -> tuple[App, App]:
    """Two processes with the same workflows, as far as the store can tell."""
    found = []
    for _ in range(2):
        app = App(holdfast.open(url, clock=clock))

        @app.workflow(name="order")
        def order(run: Run) -> Any:
            run.ask("ship?", bool)
            return run.effect(done.append, "shipped")

        @app.workflow(name="kid")
        def kid(run: Run) -> Any:
            return run.effect(done.append, "paid")

        @app.workflow(name="parent")
        def parent(run: Run) -> Any:
            return run.child("kid")

        found.append(app)
    return found[0], found[1]


@URLS
def test_an_answer_to_a_run_that_was_paused_meanwhile_waits_in_its_inbox(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    one, other = _apps(f"{scheme}:{tmp_path / 'runs'}", ManualClock(), done)
    one.start("order", run_id="r")
    real = control.require_run

    def paused_after(app: Any, run_id: str) -> Any:
        row = yield from real(app, run_id)
        monkeypatch.setattr(control, "require_run", real)
        assert other.pause("r").status() == "paused"
        return row

    monkeypatch.setattr(control, "require_run", paused_after)
    assert one.answer("r", True).status() == "paused"
    assert done == []
    assert other.resume("r").status() == "completed"
    assert done == ["shipped"]


@URLS
def test_a_ready_run_that_was_paused_meanwhile_is_not_executed(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    one, other = _apps(f"{scheme}:{tmp_path / 'runs'}", ManualClock(), done)
    one.start("kid", run_id="r", enqueue=True)
    real = start.claim

    def paused_before(app: Any, run_id: str) -> Any:
        monkeypatch.setattr(start, "claim", real)
        assert other.pause("r").status() == "paused"
        return (yield from real(app, run_id))

    monkeypatch.setattr(start, "claim", paused_before)
    assert one.start("kid", run_id="r").status() == "paused"
    assert done == []


@URLS
def test_a_child_that_is_created_after_the_end_of_its_parent_does_nothing(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process was suspended past its lease just before it created the child, and the parent was cancelled."""
    done: list[str] = []
    clock = ManualClock()
    one, other = _apps(f"{scheme}:{tmp_path / 'runs'}", clock, done)
    real = start.create

    def create_late(app: Any, begin: Any, *, take: bool) -> Any:
        if begin.parent is not None:
            clock.advance(3600)
            other.cancel("p")
            other.store.recover_expired()
            other.worker().run(until_idle=True)
            assert other.handle("p").status() == "cancelled"
        return (yield from real(app, begin, take=take))

    monkeypatch.setattr(start, "create", create_late)
    with pytest.raises(ClaimLost):
        one.start("parent", run_id="p")
    other.worker().run(until_idle=True)
    assert [info.status for info in other.store.runs()] == ["cancelled", "cancelled"]
    assert done == []
