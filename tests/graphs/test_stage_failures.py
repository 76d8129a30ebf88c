"""What becomes of a run whose stage fails: abort, skip, retry, compensate. And what a crash leaves of that."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from holdfast import Retry, RunFailed
from holdfast.errors import RollbackRefused, StorageFailed
from tests.graphs.conftest import GraphStage

END = {"id": "end", "type": "end", "result": "end"}


class World:
    """Effects with compensations, and a stage that fails."""

    def __init__(self, stage: GraphStage) -> None:
        self.stage = stage
        self.stuck: set[str] = set()
        self.failures = 10**9

        def book(what: str, idempotency_key: str) -> str:
            stage.calls.append(("book", what))
            return f"booked {what}"

        def fail(what: str) -> str:
            stage.calls.append(("fail", what))
            self.failures -= 1
            if self.failures >= 0:
                raise ConnectionError("the line is dead")
            return "at last"

        def release(result: Any, what: str, idempotency_key: str) -> None:
            stage.calls.append(("release", what, result))
            if what in self.stuck:
                raise ConnectionError(f"{what} cannot be released")

        stage.function(book)
        stage.function(fail)
        stage.undo(release)

    def book(self, what: str, **more: Any) -> dict[str, Any]:
        return {"id": what, "type": "effect", "function": "book", "with": {"what": what}, "compensation": "release",
                **more}  # fmt: skip

    def fail(self, **more: Any) -> dict[str, Any]:
        return {"id": "fail", "type": "call", "function": "fail", "with": {"what": "x"}, **more}


def test_abort_fails_the_run_and_leaves_what_was_done(everywhere: GraphStage) -> None:
    world = World(everywhere)
    everywhere.graph([world.book("room"), world.fail(), END])
    with pytest.raises(
        RunFailed, match="StageFailed: stage 'fail' failed: ConnectionError: the line is dead"
    ) as failed:
        everywhere.go().result()
    assert failed.value.failure["type"] == "StageFailed"
    assert [line.state for line in everywhere.onlooker.effects(everywhere.run_id)] == ["done"]
    assert everywhere.state["stage"]["fail"] == {
        "status": "failed", "succeeded": False, "iteration": 1,
        "error": {"type": "ConnectionError", "message": "the line is dead"},
    }  # fmt: skip


def test_skip_goes_on_along_the_edges_which_can_see_it(stage: GraphStage) -> None:
    world = World(stage)
    stage.graph(
        [world.fail(on_failure="skip", output_key="x"), END, {"id": "sorry", "type": "end", "result": "sorry"}],
        [("fail", "sorry", ("stage.fail.succeeded", "eq", False)), ("fail", "end", None)],
    )
    assert stage.go().result() == "sorry"
    assert stage.state["stage"]["fail"]["status"] == "skipped"


def test_retry_tries_again_by_its_policy_and_then_fails(stage: GraphStage) -> None:
    world = World(stage)
    world.failures = 2
    policy = {"attempts": 3, "first_s": 0.001}
    stage.graph([world.fail(on_failure="retry", retry=policy, output_key="x"), {**END, "result": "{{ x }}"}])
    assert stage.go().result() == "at last"
    assert len(stage.calls) == 3
    assert [entry["number"] for entry in stage.journal("attempt")] == [1, 2]


def test_retry_without_a_policy_is_three_attempts(stage: GraphStage) -> None:
    world = World(stage)
    stage.graph([world.fail(on_failure="retry"), END])
    handle = stage.go()
    for _ in range(4):
        stage.clock.advance(600)
        if handle.status() != "failed":
            stage.app.resume(stage.run_id)
    assert handle.status() == "failed"
    assert len(stage.calls) == Retry().attempts == 3


def test_a_time_limit_makes_a_stage_fail(stage: GraphStage) -> None:
    import threading

    @stage.function
    def slow() -> None:
        threading.Event().wait(5)

    stage.graph([{"id": "slow", "type": "call", "function": "slow", "timeout_s": 0.02}, END])
    with pytest.raises(RunFailed, match="stage 'slow' failed: TimeoutError"):
        stage.go().result()


def test_compensate_undoes_the_effects_newest_first_then_the_run_fails(everywhere: GraphStage) -> None:
    world = World(everywhere)
    everywhere.graph([world.book("room"), world.book("car"), world.fail(on_failure="compensate"), END])
    with pytest.raises(RunFailed, match="2 effects were undone"):
        everywhere.go().result()
    assert everywhere.calls[-2:] == [("release", "car", "booked car"), ("release", "room", "booked room")]
    assert [line.state for line in everywhere.onlooker.effects(everywhere.run_id)] == ["undone", "undone"]
    assert len(everywhere.state["compensation"]["undone"]) == 2


def test_a_compensation_that_fails_is_told_and_the_others_are_undone(stage: GraphStage) -> None:
    world = World(stage)
    world.stuck = {"car"}
    plain = {"id": "mail", "type": "effect", "function": "book", "with": {"what": "mail"}}
    stage.graph([world.book("room"), world.book("car"), plain, world.fail(on_failure="compensate"), END])
    with pytest.raises(RunFailed, match="1 effect was undone, 1 could not be, 1 has no compensation"):
        stage.go().result()
    states = {line.key.split("/")[1].split(":")[0]: line.state for line in stage.onlooker.effects(stage.run_id)}
    assert states == {"room": "undone", "car": "done", "mail": "done"}


def test_a_rollback_into_what_was_compensated_is_refused_and_behind_it_is_not(stage: GraphStage) -> None:
    world = World(stage)
    stage.graph([world.book("room"), world.fail(on_failure="compensate"), END])
    handle = stage.go()
    assert handle.status() == "failed"
    before = next(e.position for e in stage.onlooker.journal(stage.run_id) if e.kind == "compensating") - 1
    plan = stage.app.rollback_plan(stage.run_id, before)
    assert [effect.tool for effect in plan.compensated] == ["book"]
    with pytest.raises(RollbackRefused, match="was undone since"):
        stage.app.rollback(stage.run_id, before)
    world.failures = 0
    stage.app.rollback(stage.run_id, 1)
    assert handle.result() == "end"
    assert [line.state for line in stage.onlooker.effects(stage.run_id)] == ["done"]


@pytest.mark.parametrize("late", [False, True])
def test_a_crash_around_any_commit_changes_nothing_in_the_end(stage: GraphStage, late: bool) -> None:
    """Cut the wire at the first commit of a run, at the second of another, and so on."""
    world = World(stage)
    ask = {
        "id": "ask",
        "type": "ask",
        "prompt": "Go?",
        "fields": {"ok": "bool"},
        "output_key": "go",
        "breakpoint": True,
    }
    each = {"id": "each", "type": "for_each", "items_from": "input.items", "body": {**world.book("one"), "id": "",
            "with": {"what": "{{ item }}"}, "in_doubt": "retry"}}  # fmt: skip
    stage.graph([world.book("room", in_doubt="retry"), ask, each, world.fail(on_failure="compensate"), END])
    base, commits = stage.run_id, 0
    while True:
        stage.run_id = f"{base}-{commits}"
        stage.calls.clear()
        stage.wire.cut_after(commits, late=late)
        with contextlib.suppress(StorageFailed):
            drive(stage)
        if not stage.wire.dead:
            break
        stage.restart()
        drive(stage)
        check(stage, f"cut at commit {commits + 1}")
        commits += 1
    check(stage, "not cut")
    assert commits > 15


def drive(stage: GraphStage) -> None:
    """From wherever the run stands to its end, as people and processes would."""
    handle = stage.go(items=["a", "b"])
    for _ in range(6):
        status = handle.status()
        if status == "failed":
            return
        if stage.app.gates(stage.run_id):
            stage.app.answer(stage.run_id, {"ok": True})
        else:
            stage.app.resume(stage.run_id)
    raise AssertionError(f"it does not end: {handle.status()}")


def check(stage: GraphStage, when: str) -> None:
    effects = stage.onlooker.effects(stage.run_id)
    assert [line.state for line in effects] == ["undone"] * 3, when
    booked = {call[1] for call in stage.calls if call[0] == "book"}
    released = {call[1] for call in stage.calls if call[0] == "release"}
    assert booked == released == {"room", "a", "b"}, when
    assert len(stage.journal("answered")) == len(stage.journal("breakpoint")) == 1, when
    assert len(stage.journal("compensated")) == 1, when
    assert stage.state["graph"]["iterations"] == 4, when


def test_exceptions_of_an_effect_stage_are_judged_as_those_of_any_effect(stage: GraphStage) -> None:
    """Doubt opens a gate, the app's classifier counts, and a retry that was refused is explained."""

    class Odd(Exception):
        pass

    stage.open(classify=lambda error: "doubtful" if isinstance(error, Odd) and "doubt" in str(error) else None)

    def pay(text: str) -> None:
        stage.calls.append(text)
        raise Odd(text)

    stage.function(pay)
    effect = {"id": "pay", "type": "effect", "function": "pay", "with": {"text": "{{ input.text }}"}}
    stage.graph([{**effect, "on_failure": "retry"}, END])
    stage.go(text="in doubt")
    assert [gate.purpose for gate in stage.app.gates(stage.run_id)] == ["in_doubt"]
    with pytest.raises(RunFailed, match="Odd: no; it was not retried, because Odd does not prove"):
        stage.app.start("flow", {"text": "no"}, run_id=f"{stage.run_id}-no").result()
    assert stage.calls == ["in doubt", "no"]
