"""What CAR, SimpleAgents and MUR could not read again is refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import InvalidInput, formats
from holdfast.formats import car, mur, simple_agents
from tests.formats.sample_files import before_step, paused, raw, scope

DATES = [
    "", "2026-08-18", "2026-08-18T09:41:07", "2026-08-18 09:41:07Z", "2026-08-18t09:41:07Z", "2026-08-18T09:41Z",
    "2026-02-30T09:41:07Z", "2026-08-18T24:00:00Z", "2026-08-18T09:41:61Z", "2026-08-18T09:41:07.Z",
    "2026-08-18T09:41:07+24:00", "2026-08-18T09:41:07+12:60", "2026-08-18T09:41:07+0200", "now",
]  # fmt: skip
GOOD_DATES = ["2026-08-18T09:41:07Z", "2026-08-18T09:41:07.123456789Z", "2026-08-18T09:41:60+23:59"]
APPROVAL = {"type": "approval", "prompt": "Sure?", "fields": [], "output_key": "sure"}
RESULT = {"stage_id": "s", "stage_name": "S", "status": "failed", "output": {"type": "x"}, "duration_ms": 1}


def with_workflow(**more: Any) -> dict[str, Any]:
    return paused(workflow={**paused()["workflow"], **more})


def with_step(step: Any, **more: Any) -> dict[str, Any]:
    return with_workflow(stages=[{"id": "s", "name": "S", "step": step, **more}])


def without(name: str) -> dict[str, Any]:
    return paused(workflow={field: value for field, value in paused()["workflow"].items() if field != name})


def with_edge(**edge: Any) -> dict[str, Any]:
    return with_workflow(edges=[edge])


CAR = [
    *(paused(created_at=date) for date in DATES),
    paused(created_at=None), paused(created_at=1),
    paused(iterations=2**32), paused(iterations=1.0), paused(iterations=True),
    paused(prior_duration_ms=10**309), paused(prior_duration_ms=None),
    paused(paused_stage_id=""), paused(output_key=""), paused(completed_stage_ids=[""]), paused(wf_state=None),
    paused(fields=[{"name": ""}]), paused(fields=[{"name": "a", "options": [1]}]),
    paused(wf_state={"n": 10**309}), paused(wf_state={"n": float("inf")}), paused(wf_state={"n": "\ud800"}),
    paused(stage_results=[{}]), paused(stage_results=[{**RESULT, "status": "done"}]),
    paused(stage_results=[{**RESULT, "duration_ms": None}]), paused(stage_results=[{**RESULT, "stage_id": ""}]),
    paused(stage_results=[{name: value for name, value in RESULT.items() if name != "output"}]),
    with_workflow(id=""), with_workflow(start=""), with_workflow(max_iterations=2**32),
    with_workflow(max_iterations=-1), with_workflow(max_iterations=None), with_workflow(metadata=None),
    with_workflow(goal=7), with_workflow(stages=[{"id": "s", "name": "S"}]), with_workflow(stages=[{}]),
    with_step({}), with_step({"type": 1}), with_step({"type": ""}), with_step(APPROVAL, id=""),
    with_step(APPROVAL, timeout_ms=-1), with_step(APPROVAL, timeout_ms=2**64), with_step(APPROVAL, timeout_ms=1.5),
    with_step({"type": "approval"}), with_step({**APPROVAL, "output_key": ""}), with_step({**APPROVAL, "fields": [7]}),
    with_step({"type": "pattern", "task": "x"}), with_step({"type": "pattern", "pattern": "vote"}),
    with_step({"type": "for_each", "items_from": "", "body": APPROVAL}),
    with_step({"type": "for_each", "items_from": "x", "body": {"type": "approval"}}),
    with_step({"type": "loop_until", "until": [], "max_iterations": 0, "body": APPROVAL}),
    with_step({"type": "loop_until", "until": [{}], "max_iterations": 1, "body": APPROVAL}),
    with_step({"type": "loop_until", "until": [], "max_iterations": 2**32, "body": APPROVAL}),
    with_step({"type": "dedup", "items_from": "x", "into": "y"}), with_step({"type": "deliver"}),
    with_step({"type": "sub_workflow", "workflow": {}}), with_step({"type": "sub_workflow", "workflow": None}),
    with_step({"type": "sub_workflow", "workflow": with_step({"type": "approval"})["workflow"]}),
    with_edge(), with_edge(**{"from": "", "to": "b"}), with_edge(**{"from": "a", "to": "b", "conditions": [{}]}),
    with_edge(**{"from": "a", "to": "b", "label": None}),
]  # fmt: skip

SIMPLE = [
    scope(workflow_name=""), scope(next_node_id=""), scope(run_id=""), scope(step=2**64), scope(step=-1),
    scope(step=1.0), scope(scope_snapshot={"n": -(10**309)}), scope(scope_snapshot=float("nan")),
]  # fmt: skip

MUR = [
    *(before_step(0, created_at=date) for date in DATES),
    before_step(0, step_index=2**64), before_step(0, execution=""), before_step(0, variables={"n": 1}),
    before_step(0, completed_steps=[{"step_name": 1}]), before_step(0, completed_steps=[{"success": "yes"}]),
    before_step(0, completed_steps=[{"output": None}]), before_step(0, completed_steps=[{"n": 10**309}]),
]  # fmt: skip

SAVES: dict[str, tuple[Callable[[Path], Any], list[Any]]] = {
    "car": (car.Directory, CAR),
    "simple_agents": (simple_agents.Directory, SIMPLE),
    "mur": (mur.Directory, MUR),
}


@pytest.mark.parametrize(
    ("system", "number"), [(system, number) for system in SAVES for number in range(len(SAVES[system][1]))]
)
def test_it_is_refused_and_nothing_is_written(tmp_path: Path, system: str, number: int) -> None:
    make, values = SAVES[system]
    with pytest.raises(InvalidInput):
        make(tmp_path / "d").save(values[number])
    assert not (tmp_path / "d").exists()


def test_a_null_in_a_field_of_a_question_is_left_out(tmp_path: Path) -> None:
    """Whether CAR reads a null there differs; what is left out has its default in every release."""
    given = [{"name": "a", "label": None, "field_type": None, "options": None, "required": None, "newer": None}]
    written = [{"name": "a", "newer": None}]
    question = {**APPROVAL, "fields": given}
    inner = with_step({"type": "for_each", "items_from": "x", "body": question})["workflow"]
    workflow = with_step({"type": "sub_workflow", "workflow": inner})["workflow"]
    runs = car.Directory(tmp_path)
    runs.save(paused(fields=given, workflow=workflow))
    found = runs.load("run-1")
    assert found is not None
    assert found["fields"] == written
    assert found["workflow"]["stages"][0]["step"]["workflow"]["stages"][0]["step"]["body"]["fields"] == written
    assert given[0]["label"] is None, "what the caller gave is not changed"


def test_the_largest_and_oddest_that_they_read_is_written(tmp_path: Path) -> None:
    steps = [
        APPROVAL,
        {"type": "pattern", "pattern": "vote", "task": ""},
        {"type": "later", "unknown": {"to": "us"}},
        {"type": "sub_workflow", "workflow": with_step(APPROVAL)["workflow"]},
        {"type": "loop_until", "until": [{"key": "k"}], "max_iterations": 2**32 - 1, "body": APPROVAL},
    ]
    for step in steps:
        workflow = with_step(step, timeout_ms=2**63 - 1, compensation=None, newer=1)["workflow"]
        more = {"wf_state": {"n": -(2**80)}, "iterations": 2**32 - 1, "prior_duration_ms": 1e308}
        results = [{**RESULT, "error": None}]
        made = paused(f"run-{steps.index(step)}", workflow=workflow, stage_results=results, **more)
        car.Directory(tmp_path / "car").save(made)
    for date in GOOD_DATES:
        mur.Directory(tmp_path / "mur").save(before_step(0, step_index=2**64 - 1, created_at=date))
        car.Directory(tmp_path / "dates").save(paused(created_at=date))
    simple_agents.Directory(tmp_path / "simple").save(scope(step=2**64 - 1, scope_snapshot=None))
    assert raw(tmp_path / "simple" / "run-1.json")["step"] == 2**64 - 1


def test_a_step_nested_without_end_is_refused_like_other_values(tmp_path: Path) -> None:
    step: dict[str, Any] = APPROVAL
    for _ in range(50_000):
        step = {"type": "for_each", "items_from": "x", "body": step}
    with pytest.raises(InvalidInput, match="127"):
        car.Directory(tmp_path / "d").save(with_step(step))
    while "body" in step:  # or the interpreter would take it apart one inside the other
        step = step.pop("body")


def test_what_was_written_before_is_still_read_but_not_exported(tmp_path: Path) -> None:
    """Files of an earlier Holdfast may hold what is refused now."""
    place = tmp_path / "d"
    runs = car.Directory(place)
    runs.save(paused())
    text = (place / "run-1.json").read_text().replace("2026-08-18T09:41:07.123456789Z", "yesterday")
    (place / "run-1.json").write_text(text)
    found = runs.claim("run-1")
    assert found is not None
    with pytest.raises(InvalidInput, match="created_at 'yesterday'"):
        runs.save(dict(found), claimed=found)
    runs.save({**found, "created_at": "2026-08-18T09:41:07Z"}, claimed=found)
    runs.complete(found)
    (place / "run-1.json").write_text(text)
    with holdfast.open("memory:") as store:
        assert formats.import_dir("car", place, store).runs == ("run-1",)
        with pytest.raises(InvalidInput, match="created_at"):
            formats.export_run("car", store, "run-1", tmp_path / "out")


# --- the definition --------------------------------------------------------------------------------------------------


REWRITTEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (with_workflow(goal=None), with_workflow()),
    (with_workflow(metadata={}), without("metadata")), (with_workflow(), without("max_iterations")),
    (with_step(APPROVAL, compensation=None, timeout_ms=None), with_step(APPROVAL)),
    (with_edge(**{"from": "a", "to": "b"}), with_edge(**{"from": "a", "to": "b", "conditions": [], "label": ""})),
    (
        with_edge(**{"from": "a", "to": "b", "conditions": [{"key": "k"}]}),
        with_edge(**{"from": "a", "to": "b", "conditions": [
            {"key": "k", "operator": "eq", "value": None, "description": ""}]}),
    ),
    (
        with_step({**APPROVAL, "fields": [{"name": "a"}]}),
        with_step({**APPROVAL, "fields": [{"name": "a", "label": "", "options": [], "required": False}]}),
    ),
    (
        with_step({"type": "for_each", "items_from": "x", "body": {"type": "deliver", "sinks": []}}),
        with_step({"type": "for_each", "items_from": "x", "max_concurrent": None,
                   "body": {"type": "deliver", "sinks": [], "payload_key": None}}),
    ),
    (
        with_step({"type": "sub_workflow", "workflow": with_workflow(goal=None)["workflow"]}),
        with_step({"type": "sub_workflow", "workflow": with_workflow()["workflow"]}),
    ),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REWRITTEN)))
def test_a_definition_that_the_original_has_rewritten_is_the_same(tmp_path: Path, number: int) -> None:
    for ours, theirs in (REWRITTEN[number], REWRITTEN[number][::-1]):
        runs = car.Directory(tmp_path / str(ours is REWRITTEN[number][0]))
        runs.save(theirs)
        runs.save(ours)
        claimed = runs.claim("run-1")
        assert claimed is not None
        runs.save(theirs, claimed=claimed)
        runs.complete(claimed)
        runs.close()


@pytest.mark.parametrize(
    "other",
    [
        with_workflow(goal="another"), with_workflow(max_iterations=7), with_workflow(metadata={"a": None}),
        with_step(APPROVAL), with_edge(**{"from": "a", "to": "b", "conditions": [{"key": "k", "value": False}]}),
    ],
)  # fmt: skip
def test_a_definition_that_differs_is_a_conflict(tmp_path: Path, other: dict[str, Any]) -> None:
    runs = car.Directory(tmp_path)
    runs.save(with_edge(**{"from": "a", "to": "b", "conditions": [{"key": "k"}]}))
    with pytest.raises(holdfast.errors.WorkflowConflict):
        runs.save(other)
