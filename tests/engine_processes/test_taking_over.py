"""A run whose process died or was stopped is taken over: at once where death can be seen, else after the lease."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

import holdfast
from tests.engine_processes.actors import make_app
from tests.engine_processes.cast import Cast, told, until

KINDS = ("holding", "holding_async")


def resume_when_free(app: holdfast.App, run_id: str) -> int:
    """Resume a run as soon as that is allowed; how often it was not."""
    refused = 0
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            app.resume(run_id)
            return refused
        except holdfast.RunClaimed:
            refused += 1
            time.sleep(0.02)
    raise AssertionError(f"{run_id} was never free")


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_process_is_taken_over_at_once_where_its_death_can_be_seen_and_else_after_its_lease(
    actors: Cast, url: str, place: str, kind: str
) -> None:
    local = not url.startswith("postgresql")
    process = actors.begin(
        "start", url=url, workflow=kind, place=place, run_id="one", lease_s=600 if local else 1.0
    )  # fmt: skip
    until(lambda: told(place, "step", "hold"))
    with make_app(url) as app:
        with pytest.raises(holdfast.RunClaimed):
            app.resume("one")  # it lives
        process.send_signal(signal.SIGKILL)
        process.wait()
        refused = resume_when_free(app, "one")
        assert (refused == 0) == local
        assert app.handle("one").result(timeout=10) == "held"
        kinds = [entry.kind for entry in app.store.journal("one")]
        assert kinds == ["started", "step", "intent", "outcome", "completed"]
        assert len(told(place, "effect", "mail")) == 1
        assert app.store.verify().problems == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_stopped_past_its_lease_is_taken_over_and_then_neither_writes_nor_begins_an_effect(
    actors: Cast, url: str, place: str, kind: str
) -> None:
    process = actors.begin("start", url=url, workflow=kind, place=place, run_id="one", lease_s=0.6)
    until(lambda: told(place, "step", "hold"))
    process.send_signal(signal.SIGSTOP)
    with make_app(url) as app:
        assert resume_when_free(app, "one") > 0
        before = [(entry.kind, entry.data) for entry in app.store.journal("one")]
        row = app.store.port.run("one")
        process.send_signal(signal.SIGCONT)
        Path(f"{place}.go").touch()
        assert process.wait(30) == 0
        assert [(entry.kind, entry.data) for entry in app.store.journal("one")] == before
        assert app.store.port.run("one") == row
        assert row is not None
        assert row.status == "completed"
    assert told(place, "user", "LeaseLost")
    assert told(place, "caller", "ClaimLost")
    assert [line.pid for line in told(place, "effect", "mail")] != [process.pid]
    assert len(told(place, "effect", "mail")) == 1
