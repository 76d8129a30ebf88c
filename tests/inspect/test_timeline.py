"""The timeline of a run: what it did, in order, and when it did nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.inspect.timeline import fold_turns, timeline
from holdfast.inspect.views import Row, Timeline, as_data
from holdfast.model.rows import EffectRow
from holdfast.operations.store import Store
from holdfast.store.memory import MemoryStore
from holdfast.testing import ManualClock


class Stage:
    """An app on a store whose clock stands still, unless it is to go."""

    def __init__(self, *, going: bool = False) -> None:
        self.clock = ManualClock()
        self.store = holdfast.open("memory:") if going else Store(MemoryStore(self.clock), clock=self.clock)
        self.app = holdfast.App(self.store)

    def seen(self, run_id: str = "r", **choice: Any) -> Timeline:
        found = timeline(self.store, run_id, **choice)
        json.dumps(as_data(found))
        return found

    def rows(self, run_id: str = "r") -> list[tuple[str, str, str]]:
        return [(row.kind, row.name, row.state) for row in self.seen(run_id).rows]

    def row(self, kind: str, run_id: str = "r") -> Row:
        found = [row for row in self.seen(run_id).rows if row.kind == kind]
        assert len(found) == 1, found
        return found[0]


@pytest.fixture
def stage() -> Iterator[Stage]:
    found = Stage()
    yield found
    found.app.close()
    found.store.close()


def say(word: str) -> str:
    return word


def fail(word: str) -> str:
    raise ValueError(f"no {word}\nand more")


def test_calls_are_rows_with_their_state_result_and_error() -> None:
    stage = Stage(going=True)

    @stage.app.workflow
    def work(run: Any) -> Any:
        run.log("hello", n=1)
        run.step(say, "a")
        run.effect(say, "b", key="my-key")
        return run.step(fail, "c", retry=holdfast.Retry(attempts=2, initial_delay=0.001))

    stage.app.start(work, run_id="r")
    assert stage.rows() == [
        ("started", "work", "done"),
        ("log", "info", "done"),
        ("step", "say", "done"),
        ("effect", "say", "done"),
        ("step", "fail", "failed"),
        ("ended", "failed", "failed"),
    ]
    _, log, step, effect, failed, ended = stage.seen().rows
    assert (log.text, log.result) == ("hello", {"n": 1})
    assert (step.call, step.result, step.first, step.last) == ("say#1", "a", 3, 3)
    assert effect.effect is not None
    assert (effect.effect.key, effect.effect.state, effect.result) == ("my-key", "done", "b")
    assert (failed.attempts, failed.text, failed.error["type"]) == (2, "ValueError: no c", "ValueError")
    assert ended.text.startswith("StepFailed: ")
    assert stage.seen().standing.sentence.startswith("failed: StepFailed: step 'fail#1' failed after 2 attempts")
    stage.app.close()


def test_the_wait_for_a_person_is_a_gap_and_so_is_the_wait_for_a_worker(stage: Stage) -> None:
    @stage.app.workflow
    def work(run: Any) -> Any:
        return run.ask("Sure?", {"ok": bool})

    stage.app.start(work, run_id="r")
    stage.clock.advance(3600)
    seen = stage.seen()
    assert [(row.kind, row.state) for row in seen.rows] == [("started", "done"), ("ask", "waiting"), ("gap", "waiting")]
    assert (seen.rows[2].reason, seen.rows[2].duration_us, seen.rows[2].ended_at) == ("person", 3_600_000_000, None)
    assert seen.standing.sentence == "waiting for an answer to 'Sure?' (gate ask)"
    assert seen.standing.commands == (("holdfast", "answer", "r"),)
    stage.app.answer("r", {"ok": True}, by="ana", enqueue=True)
    stage.clock.advance(60)
    assert stage.seen().standing.sentence == "ready: it will run again when a worker takes it"
    stage.app.resume("r")
    seen = stage.seen()
    gaps = [(row.reason, row.duration_us) for row in seen.rows if row.kind == "gap"]
    assert gaps == [("person", 3_600_000_000), ("unclaimed", 60_000_000)]
    assert seen.idle_us == 3_660_000_000
    asked = stage.row("ask")
    assert (asked.by, asked.result, asked.duration_us, asked.state) == ("ana", {"ok": True}, 3_600_000_000, "done")
    assert [row.kind for row in seen.rows] == ["started", "ask", "gap", "gap", "ended"]


def test_the_wait_for_the_next_attempt_is_a_gap(stage: Stage) -> None:
    def flaky() -> int:
        if stage.clock.now_us() < began_us + 30_000_000:
            raise ConnectionError("not yet")
        return 7

    @stage.app.workflow
    def work(run: Any) -> Any:
        return run.step(flaky, retry=holdfast.Retry(attempts=3, initial_delay=60, jitter=0))

    began_us = stage.clock.now_us()
    stage.app.start(work, run_id="r")
    assert stage.seen().standing.sentence == "waiting for the next attempt of flaky"
    stage.clock.advance(100)
    assert [(row.reason, row.duration_us) for row in stage.seen().rows if row.kind == "gap"] == [
        ("retry", 60_000_000), ("unclaimed", 40_000_000),
    ]  # fmt: skip
    stage.app.resume("r")
    step = stage.row("step")
    assert (step.state, step.attempts, step.result) == ("done", 2, 7)


def test_sleeping_and_waiting_for_events_are_gaps(stage: Stage) -> None:
    @stage.app.workflow
    def work(run: Any) -> Any:
        run.sleep(600)
        return run.wait_for("shipped")

    stage.app.start(work, run_id="r")
    assert stage.seen().standing.waiting[0].reason == "timer"
    assert ("holdfast", "worker", "--app", "MODULE:NAME") in stage.seen().standing.commands
    stage.clock.advance(700)
    stage.app.resume("r")
    stage.clock.advance(50)
    seen = stage.seen()
    assert [(row.reason, row.duration_us) for row in seen.rows if row.kind == "gap"] == [
        ("timer", 600_000_000), ("unclaimed", 100_000_000), ("event", 50_000_000),
    ]  # fmt: skip
    assert seen.standing.sentence == "waiting for the event 'shipped'"
    assert seen.standing.commands == (("holdfast", "send", "r", "shipped"),)
    stage.app.send("r", "shipped", 7, by="ben")
    waited = stage.row("wait")
    assert (waited.name, waited.by, waited.result, waited.state) == ("shipped", "ben", 7, "done")


def test_branches_and_turns_lie_under_what_made_them(stage: Stage) -> None:
    @stage.app.workflow
    def work(run: Any) -> None:
        run.map(say, ["a", "b"])
        for turn in run.loop():
            run.state["turn"] = turn
            run.step(say, "c")
            if turn == 4:
                return

    stage.app.start(work, run_id="r")
    seen = stage.seen()
    shape = [(row.depth, row.kind, row.name) for row in seen.rows]
    assert shape[:4] == [(0, "started", "work"), (0, "map", "map"), (1, "step", "say"), (1, "step", "say")]
    assert shape[4:7] == [(0, "loop", "loop"), (1, "turn", "turn 1"), (2, "step", "say")]
    assert stage.row("map").count == 2
    assert (stage.row("loop").count, stage.row("loop").state) == (4, "done")
    short = fold_turns(seen.rows)
    assert [(row.kind, row.name) for row in short[4:]] == [
        ("loop", "loop"), ("turns", "turns 1 to 3"), ("turn", "turn 4"), ("step", "say"), ("ended", "completed"),
    ]  # fmt: skip
    turns = [row for row in seen.rows if row.kind == "turn"]
    assert [bool(row.checkpoint_id) for row in turns] == [True, True, True, False]
    assert short[5].checkpoint_id == turns[-2].checkpoint_id


def test_the_turn_that_a_break_ends_has_its_own_row(stage: Stage) -> None:
    @stage.app.workflow
    def work(run: Any) -> None:
        for turn in run.loop():
            run.step(say, "c")
            if turn == 2:
                break
        run.step(say, "after", name="after_loop")
        run.ask("Sure?", bool)

    def rows() -> list[tuple[int, str, str]]:
        return [(row.depth, row.name, row.state) for row in stage.seen().rows[1:8]]

    stage.app.start(work, run_id="r")
    assert rows() == [
        (0, "loop", "waiting"), (1, "turn 1", "done"), (2, "say", "done"), (1, "turn 2", "waiting"),
        (2, "say", "done"), (2, "after_loop", "done"), (2, "ask", "waiting"),
    ]  # fmt: skip
    last = [row for row in fold_turns(stage.seen().rows) if row.kind == "turn"][-1]
    assert (last.count, last.text) == (2, "the last turn; includes calls after the loop")
    stage.app.answer("r", True, by="ana")
    assert [state for _, _, state in rows()] == ["done"] * 7


def test_a_loop_and_a_gather_that_have_not_ended_say_so(stage: Stage) -> None:
    @stage.app.workflow
    def work(run: Any) -> None:
        for turn in run.loop():
            run.state["turn"] = turn
            if turn == 3:
                run.gather(lambda r: r.step(say, "a"), lambda r: r.ask("Sure?", {"ok": bool}))
                return

    stage.app.start(work, run_id="r")
    assert [stage.row(kind).state for kind in ("loop", "gather", "ask")] == ["waiting"] * 3
    stage.app.answer("r", {"ok": True}, by="ana")
    assert [stage.row(kind).state for kind in ("loop", "gather", "ask")] == ["done"] * 3
    assert stage.row("loop").count == 3


def test_what_a_rollback_took_back_stays_and_is_marked(stage: Stage) -> None:
    @stage.app.undo
    def unsay(result: str, word: str) -> None:
        return None

    @stage.app.workflow
    def work(run: Any) -> Any:
        run.step(say, "a")
        run.effect(say, "b", key="b", undo=unsay)
        return run.ask("Sure?", {"ok": bool})

    stage.app.start(work, run_id="r")
    stage.app.rollback("r", to="b", by="ana")
    assert stage.rows() == [
        ("started", "work", "done"),
        ("step", "say", "done"),
        ("effect", "say", "taken_back"),
        ("ask", "ask", "taken_back"),
        ("rollback", "rollback", "done"),
        ("effect", "say", "done"),
        ("ask", "ask", "waiting"),
    ]
    told = stage.row("rollback")
    assert (told.text, told.by) == ("to position 2, undone: b", "ana")


def test_an_effect_in_doubt_says_so(stage: Stage) -> None:
    def die(word: str) -> None:
        raise KeyboardInterrupt

    @stage.app.workflow
    def work(run: Any) -> Any:
        return run.effect(die, "a", key="deed")

    with pytest.raises(KeyboardInterrupt):
        stage.app.start(work, run_id="r")
    assert stage.row("effect").state == "in_doubt"
    assert "1 effect is in doubt" in stage.seen().standing.sentence
    stage.app.resume("r")
    assert stage.row("effect").state == "in_doubt"
    assert stage.seen().standing.waiting[0].reason == "person"
    stage.app.answer("r", {"outcome": "happened", "result": 3}, by="ana")
    told = stage.row("effect")
    assert (told.state, told.by, told.text, told.result) == ("done", "ana", "answered by ana", 3)


def test_a_pruned_journal_says_what_is_missing(stage: Stage) -> None:
    @stage.app.workflow
    def work(run: Any) -> None:
        run.step(say, "a")
        for turn in run.loop():
            run.state["turn"] = turn
            run.step(say, "c")
            if turn == 5:
                return

    stage.app.start(work, run_id="r")
    stage.store.prune("r", holdfast.Keep(last=1, journal=True))
    pruned = stage.row("pruned")
    assert pruned.count == 8
    assert pruned.text == "entries 4 to 11 were pruned"


def test_a_run_without_a_workflow_has_its_entries_checkpoints_and_effects(stage: Stage) -> None:
    stage.store.save("r", {"a": 1}, next_node="think", metadata={"source": "loop"})
    stage.clock.advance(5)
    stage.store.append("r", [{"kind": "note", "call": ["odd"], "in": 3}])
    stage.store.mark_intent("r", "k", tool="mail", target="ana")
    stage.clock.advance(600)
    stage.store.save("r", {"a": 2}, lane="side")
    seen = stage.seen()
    assert [(row.kind, row.name, row.state, row.text) for row in seen.rows] == [
        ("checkpoint", "checkpoint", "done", "step 1"),
        ("entry", "note", "done", ""),
        ("effect", "mail", "in_doubt", "ana"),
        ("gap", "", "done", "nothing was recorded"),
        ("checkpoint", "checkpoint", "done", "step 1 on lane side"),
    ]
    assert seen.rows[0].next_node == "think"
    assert seen.rows[0].result == {"source": "loop"}
    assert seen.standing.sentence == "ready: not claimed; 1 effect is in doubt"
    stage.clock.advance(600)
    assert (stage.seen().rows[-1].reason, stage.seen().rows[-1].duration_us) == ("unclaimed", 600_000_000)


def test_only_checkpoints_have_a_timeline_too(stage: Stage) -> None:
    for n in range(3):
        stage.store.save("r", n)
        stage.clock.advance(100)
    assert [row.kind for row in stage.seen().rows] == ["checkpoint", "gap"] * 3


def test_a_long_journal_can_be_read_from_its_end(stage: Stage) -> None:
    @stage.app.workflow
    def work(run: Any) -> None:
        for n in range(40):
            run.state["n"] = n
            run.checkpoint()
            run.step(say, str(n))
            if n == 10:
                stage.clock.advance(100)

    stage.app.start(work, run_id="r")
    seen = stage.seen(newest=5)
    assert seen.left_out == 76
    assert [row.kind for row in seen.rows] == ["started", "checkpoint", "step", "checkpoint", "step", "ended"]
    assert [row.kind for row in stage.seen().rows].count("gap") == 1
    with pytest.raises(holdfast.InvalidInput):
        stage.seen(newest=0)


def test_values_json_has_no_form_for_can_be_told(stage: Stage) -> None:
    import datetime as dt
    from decimal import Decimal

    @stage.app.workflow
    def work(run: Any) -> Any:
        return run.step(
            lambda: {"when": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "sum": Decimal("1.5"), "raw": b"\x00", "set": {1}}
        )

    stage.app.start(work, run_id="r")
    data = as_data(stage.row("step"))
    assert data["result"] == {
        "when": {"$datetime": "2026-01-01T00:00:00+00:00"}, "sum": {"$decimal": "1.5"}, "raw": {"$bytes": "AA=="},
        "set": {"$set": [1]},
    }  # fmt: skip
    assert data["started_at"].endswith("+00:00")


def test_where_a_run_stands_in_every_status(stage: Stage) -> None:
    @stage.app.workflow
    def work(run: Any) -> Any:
        return run.ask("Sure?", {"ok": bool})

    for name in ("paused", "cancelled", "completed"):
        stage.app.start(work, run_id=name)
    stage.app.pause("paused", by="ana")
    stage.app.cancel("cancelled", by="ana")
    stage.app.answer("completed", {"ok": True}, by="ana")
    said = {name: stage.seen(name).standing for name in ("paused", "cancelled", "completed")}
    assert said["paused"].sentence == "paused by ana"
    assert said["paused"].commands == (("holdfast", "resume", "paused"),)
    assert said["cancelled"].sentence == "cancelled by ana"
    assert said["completed"].sentence == "completed"
    claim = stage.store.claim("paused", owner="w1", lease=30)
    assert claim is not None
    assert stage.seen("paused").standing.sentence == "running, claimed by w1"
    assert stage.seen("paused").standing.lease_left_s == 30
    stage.clock.advance(31)
    assert stage.seen("paused").standing.sentence.startswith("running until w1 stopped")
    assert stage.seen("paused").standing.lease_left_s == 0


def test_a_run_that_moves_on_meanwhile_is_read_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.store.append("r", [{"kind": "a"}])
    read, moved = stage.store.port.rows, iter([True, True])

    def rows(kind: Any, *about: Any) -> Any:
        if kind is EffectRow and next(moved, False):
            stage.store.append("r", [{"kind": "b"}])
        return read(kind, *about)

    monkeypatch.setattr(stage.store.port, "rows", rows)
    assert [row.name for row in stage.seen().rows] == ["a", "b", "b"]


def test_a_run_that_is_not_there_is_not_found(stage: Stage) -> None:
    with pytest.raises(holdfast.errors.RunNotFound):
        stage.seen("nothing")
