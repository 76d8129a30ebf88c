"""A worker that is asked to end lets what is under way come to its next call, or gives it up when its time is over."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.fork_server import Forked
from tests.processes import Cast, told, until
from tests.runtime.actors import make_app

KINDS = ("holding", "holding_async")


def working(actors: Cast, url: str, place: str, workflow: str, **more: object) -> Forked:
    """A worker in the middle of the long step of run "one"."""
    with make_app(url) as app:
        app.start(workflow, place, run_id="one", enqueue=True)
    process = actors.begin("work", url=url, place=place, **more)
    until(lambda: told(place, "step", "hold"))
    return process


@pytest.mark.parametrize("kind", KINDS)
def test_on_sigterm_a_step_under_way_is_recorded_and_its_run_is_given_back_or_ended(
    actors: Cast, url: str, place: str, kind: str
) -> None:
    process = working(actors, url, place, kind, drain_s=20)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    Path(f"{place}.go").touch()
    assert process.wait(240) == 0
    with make_app(url) as app:
        row = app.store.port.run("one")
        assert row is not None
        assert (row.status, row.owner) in (("ready", ""), ("completed", ""))
        assert "step" in [entry.kind for entry in app.store.journal("one")]
        app.worker().run(until_idle=True)
        assert app.handle("one").result(timeout=240) == "held"
        assert app.store.verify().problems == []
    assert len(told(place, "step", "hold")) == 1
    assert len(told(place, "effect", "mail")) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_longer_than_the_drain_leaves_its_run_to_others_at_once_and_writes_nothing_any_more(
    actors: Cast, url: str, place: str, kind: str
) -> None:
    process = working(actors, url, place, kind, drain_s=0.3, lease_s=600, stay=True)
    process.send_signal(signal.SIGTERM)
    until(lambda: told(place, "worker", "ended"))
    with make_app(url) as app:
        assert app.resume("one").result(timeout=240) == "held"  # long before its lease
        before, row = [entry.kind for entry in app.store.journal("one")], app.store.port.run("one")
        Path(f"{place}.go").touch()  # the old process goes on with its step
        until(lambda: told(place, "user", "LeaseLost"))
        Path(f"{place}.exit").touch()
        assert process.wait(240) == 0
        assert [entry.kind for entry in app.store.journal("one")] == before
        assert app.store.port.run("one") == row
    assert [line.pid == process.pid for line in told(place, "effect", "mail")] == [False]


@pytest.mark.parametrize("kind", ["parent", "parent_async"])
def test_a_parent_and_its_child_that_outlive_the_drain_are_both_brought_to_their_end(
    actors: Cast, url: str, place: str, kind: str
) -> None:
    process = working(actors, url, place, kind, drain_s=0.3, lease_s=2.0, stay=True)
    process.send_signal(signal.SIGTERM)
    until(lambda: told(place, "worker", "ended"))
    other = actors.begin("work", url=url, place=place, lease_s=2.0)
    until(lambda: len(told(place, "worker", "begins")) == 2)
    with make_app(url) as app:
        until(lambda: app.handle("one").status() != "ready", "the parent was not taken on")
        Path(f"{place}.go").touch()  # the old process ends the child, if it still holds it
        until(lambda: app.handle("one").status() == "completed", f"the parent is {app.handle('one').status()}")
        until(lambda: all(run.status == "completed" for run in app.runs()))
        for run in app.runs():
            kinds = [entry.kind for entry in app.store.journal(run.run_id)]
            assert kinds.count("completed") == 1
            assert kinds.count("step") <= 1
        assert app.store.verify().problems == []
    assert len({line.key for line in told(place, "effect", "mail")}) == 1
    Path(f"{place}.exit").touch()
    other.send_signal(signal.SIGTERM)
    assert (process.wait(240), other.wait(30)) == (0, 0)
