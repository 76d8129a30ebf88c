"""What a stage costs: one commit, which records the result of the function together with the end of the stage."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from holdfast.errors import StorageFailed
from tests.graphs.conftest import GraphStage

STAGES = 4


def declare(stage: GraphStage) -> None:
    def add(n: int) -> int:
        stage.calls.append(n)
        return n + 1

    stage.function(add)
    stages = [
        {"id": f"s{at}", "type": "call", "function": "add", "with": {"n": "{{ n }}"}, "output_key": "n"}
        for at in range(STAGES)
    ]
    names = [*(f"s{at}" for at in range(STAGES)), "end"]
    stage.graph([*stages, {"id": "end", "type": "end"}], list(itertools.pairwise(names)), variables={"n": 0})


def test_a_stage_that_calls_a_function_costs_one_commit(stage: GraphStage) -> None:
    declare(stage)
    assert stage.go().result(240)["n"] == STAGES
    assert len(stage.wire.commits) == STAGES + 3, "the creation, the beginning of the walk, each stage, and the end"
    assert [entry["result"] for entry in stage.journal("step")] == list(range(1, STAGES + 1))


@pytest.mark.parametrize("late", [False, True])
def test_a_crash_at_any_commit_repeats_at_most_the_stage_in_progress(stage: GraphStage, late: bool) -> None:
    declare(stage)
    base = stage.run_id
    for cut in range(STAGES + 3):
        stage.run_id, stage.calls[:] = f"{base}-{cut}", []
        stage.wire.cut_after(cut, late=late)
        with contextlib.suppress(StorageFailed):
            stage.go()
        assert stage.wire.dead
        stage.restart()
        assert stage.go().result(240)["n"] == STAGES
        repeated = [cut - 2] if 2 <= cut < STAGES + 2 and not late else []
        assert sorted(stage.calls) == sorted([*range(STAGES), *repeated])
        assert [entry["result"] for entry in stage.journal("step")] == list(range(1, STAGES + 1))


def test_the_result_of_a_stage_is_recorded_if_the_walk_fails_after_it(stage: GraphStage) -> None:
    def give() -> dict[str, int]:
        return {"x": 1}

    stage.function(give)
    stage.graph(
        [
            {"id": "give", "type": "call", "function": "give", "output_key": "given"},
            {"id": "end", "type": "end", "failed": "no: {{ given.x }}"},
        ],
        [("give", "end")],
    )
    assert stage.go().status() == "failed"
    assert [entry["result"] for entry in stage.journal("step")] == [{"x": 1}]
