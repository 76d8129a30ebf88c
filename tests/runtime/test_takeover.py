"""A run whose process died is taken over long before its lease ends; one that was stopped, after its lease."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

import holdfast
from holdfast.model.commit import Commit, Outcome, Reason, Refused
from holdfast.operations.claims import take_or_revoke_dead
from tests.processes import Cast, told, until
from tests.runtime.actors import make_app

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
def test_a_killed_process_is_taken_over_long_before_its_lease_ends(
    actors: Cast, url: str, place: str, kind: str
) -> None:
    process = actors.begin("start", url=url, workflow=kind, place=place, run_id="one", lease_s=600)
    until(lambda: told(place, "step", "hold"))
    with make_app(url) as app:
        with pytest.raises(holdfast.RunClaimed):
            app.resume("one")  # it lives
        process.send_signal(signal.SIGKILL)
        process.wait()
        refused = resume_when_free(app, "one")
        assert refused == 0 or url.startswith("postgresql"), "on a local store it is free at once"
        assert app.handle("one").result(timeout=240) == "held"
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
        resume_when_free(app, "one")
        before = [(entry.kind, entry.data) for entry in app.store.journal("one")]
        row = app.store.port.run("one")
        process.send_signal(signal.SIGCONT)
        Path(f"{place}.go").touch()
        assert process.wait(240) == 0
        assert [(entry.kind, entry.data) for entry in app.store.journal("one")] == before
        assert app.store.port.run("one") == row
        assert row is not None
        assert row.status == "completed"
    assert told(place, "user", "LeaseLost")
    assert told(place, "caller", "ClaimLost")
    assert [line.pid for line in told(place, "effect", "mail")] != [process.pid]
    assert len(told(place, "effect", "mail")) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_run_of_a_killed_worker_is_taken_over_by_another_long_before_its_lease_ends(
    actors: Cast, url: str, place: str, kind: str
) -> None:
    with make_app(url) as app:
        app.start(kind, place, run_id="one", enqueue=True)
        killed = actors.begin("work", url=url, place=place, lease_s=600)
        until(lambda: told(place, "step", "hold"))
        other = actors.begin("work", url=url, place=place, lease_s=600)
        until(lambda: len(told(place, "worker", "begins")) == 2)
        held = app.store.port.run("one")
        assert held is not None
        assert held.owner
        killed.send_signal(signal.SIGKILL)
        until(lambda: app.handle("one").status() == "completed")
        row = app.store.port.run("one")
        assert row is not None
        assert row.fence > held.fence
        assert row.incarnation == held.incarnation
    assert {line.pid for line in told(place, "step", "hold")} == {killed.pid, other.pid}
    assert [line.pid for line in told(place, "effect", "mail")] == [other.pid]
    other.send_signal(signal.SIGTERM)
    assert other.wait(30) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_process_is_not_robbed_before_its_lease_ends(actors: Cast, url: str, place: str, kind: str) -> None:
    stopped = actors.begin("start", url=url, workflow=kind, place=place, run_id="one", lease_s=600)
    until(lambda: told(place, "step", "hold"))
    stopped.send_signal(signal.SIGSTOP)
    killed = actors.begin("start", url=url, workflow=kind, place=f"{place}2", run_id="two", lease_s=600)
    until(lambda: told(f"{place}2", "step", "hold"))
    killed.send_signal(signal.SIGKILL)
    with make_app(url) as app:
        until(app.store.recover_expired)  # the one that died after the other was stopped
        assert [run.run_id for run in app.runs(status="ready")] == ["two"]
        with pytest.raises(holdfast.RunClaimed):
            app.resume("one")
        stopped.send_signal(signal.SIGCONT)
        Path(f"{place}.go").touch()
        assert stopped.wait(30) == 0
        assert app.handle("one").result(timeout=240) == "held"
    assert [line.pid for line in told(place, "effect", "mail")] == [stopped.pid]


@pytest.mark.parametrize(("revocations", "revoked"), [(0, []), (1, [1]), (None, [1, 2, 3])])
def test_only_so_many_claims_of_dead_owners_are_revoked_for_one_commit(
    revocations: int | None, revoked: list[int]
) -> None:
    with holdfast.open("memory:") as store:
        store.save("one", {})
        row = store.access.core.port.run("one")
        assert row is not None
        plan = take_or_revoke_dead(store.access, Commit("one", b"c" * 8), revocations=revocations)
        fences: list[int] = []
        refused = Refused(Reason.CLAIMED, replace(row, owner="w1", fence=1))
        step = next(plan)
        while True:
            answer: Outcome | bool = fences[-1:] != [3]  # the owner of the claim with fence 4 lives
            if isinstance(step, Commit):
                fences += [] if step.guard.gone is None else [step.guard.gone]
                answer = refused = Refused(Reason.CLAIMED, replace(row, owner="w1", fence=len(fences) + 1))
            try:
                step = plan.send(answer)
            except StopIteration as done:
                outcome = done.value
                break
        assert (outcome, fences) == (refused, revoked)
