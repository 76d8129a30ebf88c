"""Edges: which is taken, how often a run may go round, and where it stands after a pause."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import RunFailed
from holdfast.state import tracked_encoder
from tests.graphs.conftest import GraphStage, edge_of

ENDS = [{"id": name, "type": "end", "result": name} for name in ("a", "b", "c")]
START = {"id": "start", "type": "set", "values": {"x": 1}}


def test_the_highest_priority_that_fits_is_taken_then_the_order_then_the_default(stage: GraphStage) -> None:
    stage.graph(
        [START, *ENDS],
        [{**edge_of("start", "c"), "conditions": [], "default": True}, edge_of("start", "a", ("input.n", "gt", 0)),
         {**edge_of("start", "b", ("input.n", "gt", 5)), "priority": 1}],
    )  # fmt: skip
    found = [stage.app.start("flow", {"n": n}, run_id=f"{stage.run_id}-{n}").result() for n in (0, 3, 9)]
    assert found == ["c", "a", "b"]


@pytest.mark.parametrize(("n", "expected"), [(1, "a"), (2, "b"), (7, "a"), (3, "b")])
def test_and_and_or_may_lie_in_one_another(stage: GraphStage, n: int, expected: str) -> None:
    either: dict[str, Any] = {
        "any": [{"key": "input.n", "value": 1}, {"all": [{"key": "input.n", "operator": "gt", "value": 5},
                                                         {"key": "x", "operator": "exists"}]}],
    }  # fmt: skip
    stage.graph([START, *ENDS], [{"from": "start", "to": "a", "conditions": [either]}, ("start", "b", None)])
    assert stage.go(n=n).result() == expected


def test_where_no_edge_fits_the_run_fails_and_says_at_which_stage(stage: GraphStage) -> None:
    stage.graph([START, *ENDS[:1]], [("start", "a", ("x", "eq", 2))])
    with pytest.raises(RunFailed, match="stage 'start' failed: NoEdge: none of its 1 edges fits"):
        stage.go().result()


def test_a_loop_of_edges_is_bounded_and_the_count_outlives_pauses(everywhere: GraphStage) -> None:
    ask = {"id": "again", "type": "ask", "prompt": "Again?", "fields": {"yes": "bool"}, "output_key": "again"}
    everywhere.graph(
        [ask, {"id": "end", "type": "end"}],
        [("again", "again", ("again.yes", "eq", True)), ("again", "end", None)],
        max_iterations=3,
    )
    everywhere.go()
    for _ in range(3):
        assert everywhere.status() == "waiting"
        everywhere.restart()
        everywhere.app.answer(everywhere.run_id, {"yes": True})
    with pytest.raises(RunFailed, match="has performed 3 stages, its max_iterations"):
        everywhere.app.handle(everywhere.run_id).result()
    assert everywhere.state["stage"]["again"]["iteration"] == 3


def test_a_run_of_very_many_stages_resumes_without_reading_them_all(stage: GraphStage) -> None:
    @stage.function
    def count(n: int) -> int:
        return n + 1

    stage.graph(
        [{"id": "count", "type": "call", "function": "count", "with": {"n": "{{ n }}"}, "output_key": "n"},
         {"id": "wait", "type": "wait", "event": "go"}, {"id": "end", "type": "end", "result": "{{ n }}"}],
        [("count", "count", ("n", "lt", 200)), ("count", "wait", None), ("wait", "end")],
        variables={"n": 0}, max_iterations=None,
    )  # fmt: skip
    stage.go()
    assert len(stage.journal()) > 400
    stage.restart()
    stage.wire.rows_read = 0
    assert stage.app.send(stage.run_id, "go").result() == 200
    assert stage.wire.rows_read < 20


def test_each_stage_is_one_checkpoint_that_names_the_next(stage: GraphStage) -> None:
    stage.graph([{**START, "id": "one"}, {**START, "id": "two"}, {"id": "end", "type": "end"}])
    stage.go()
    history = list(stage.onlooker.history(stage.run_id))
    assert [info.next_node for info in history] == ["two", "end", "end"]
    assert history[-1].status == "completed"


def test_without_edges_stages_follow_one_another_and_the_last_one_ends(stage: GraphStage) -> None:
    stage.graph([{"id": n, "type": "set", "values": {n: 1}} for n in ("one", "two")])
    result = stage.go().result()
    assert (result["one"], result["two"]) == (1, 1)
    assert "graph" not in result


def test_a_breakpoint_pauses_before_its_stage_until_somebody_resumes(everywhere: GraphStage) -> None:
    @everywhere.function
    def pay() -> str:
        everywhere.calls.append("paid")
        return "ok"

    pay_stage = {"id": "pay", "type": "effect", "function": "pay", "breakpoint": "look at the amount first"}
    everywhere.graph([{**START, "id": "one"}, pay_stage, {"id": "end", "type": "end", "result": "done"}])
    handle = everywhere.go()
    assert (handle.status(), everywhere.calls) == ("paused", [])
    (entry,) = everywhere.journal("breakpoint")
    assert entry["message"] == "look at the amount first"
    everywhere.restart()
    everywhere.app.worker().run(until_idle=True)
    assert everywhere.status() == "paused", "a worker does not pass it"
    assert everywhere.app.resume(everywhere.run_id).result() == "done"
    assert everywhere.calls == ["paid"]


def test_a_breakpoint_in_a_loop_pauses_each_time_and_can_be_cancelled(stage: GraphStage) -> None:
    stage.graph(
        [{**START, "id": "one", "breakpoint": True}, {"id": "end", "type": "end"}],
        [("one", "one", ("stage.one.iteration", "lt", 2)), ("one", "end", None)],
    )
    handle = stage.go()
    stage.app.resume(stage.run_id)
    assert handle.status() == "paused"
    assert len(stage.journal("breakpoint")) == 2
    stage.app.cancel(stage.run_id)
    assert handle.status() == "cancelled"


def test_a_breakpoint_whose_state_cannot_be_stored_does_not_leave_the_run_waiting_for_nothing(
    stage: GraphStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracked_encoder, "TRACKED_STATE_BYTES_MAX", 10_000)
    stage.graph([{**START, "id": "one", "breakpoint": True}, {"id": "end", "type": "end"}])
    handle = stage.go(text="x" * 20_000)
    assert handle.status() == "failed"
    with pytest.raises(RunFailed, match="LimitExceeded"):
        handle.result()


def test_a_run_can_be_paused_from_outside_between_stages(stage: GraphStage) -> None:
    @stage.function
    def first() -> None:
        stage.onlooker  # noqa: B018 - opened outside of the run
        stage.app.pause(stage.run_id, enqueue=True)

    stage.graph(
        [{"id": "first", "type": "call", "function": "first"}, {"id": "nap", "type": "sleep", "seconds": 0},
         {"id": "end", "type": "end"}]
    )  # fmt: skip
    handle = stage.go()
    assert handle.status() == "paused"
    assert stage.state["stage"]["first"]["succeeded"] is True
    assert stage.app.resume(stage.run_id).status() == "completed"
