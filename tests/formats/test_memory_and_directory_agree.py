"""Files and memory do the same, whatever is done to them; and anything that is JSON goes in and comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.formats import brainwires, car, clawdia, export_run, import_dir
from tests.faults.core.scratch import scratch
from tests.formats.sample_files import covering, intent, outcome, paused, raw, record

Act = Callable[[Any], Any]
SEQS = st.integers(0, 9)
NAMES = st.sampled_from(["run.a", "b/c", "ü"])
STATES = st.sampled_from(["running", "completed", "terminal:failed", "terminal", "waiting"])
FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def told(act: Act, thing: Any) -> Any:
    """What came of it: a value, or the error's class."""
    try:
        return act(thing)
    except holdfast.HoldfastError as error:
        return type(error)


def saved(name: str, seq: int, number: int, state: str, latest: int | None) -> Act:
    return lambda runs: runs.save(covering(seq, number, name, loop_state=state), latest)


def appended(name: str, seq: int, kind: int) -> Act:
    made = [record(seq), intent(seq, f"e{seq % 3}"), outcome(seq, f"e{seq % 3}"), record(None)][kind]
    return lambda runs: runs.append({**made, "run_id": name, "record_id": f"r{seq}"})


def pruned(name: str, before: int, terminal: bool, pending: bool) -> Act:
    policy = clawdia.PrunePolicy(
        prune_covered_before=before, preserve_latest_terminal=terminal, preserve_before_pending=pending
    )
    return lambda runs: runs.prune(name, policy)


def replayed(name: str) -> Act:
    return lambda runs: clawdia.replay(runs.records(name))


CLAWDIA = st.one_of(
    st.builds(saved, NAMES, SEQS, st.integers(0, 4), STATES, st.none() | SEQS),
    st.builds(appended, NAMES, SEQS, st.integers(0, 3)),
    st.builds(pruned, NAMES, SEQS, st.booleans(), st.booleans()),
)


@FEW
@given(st.lists(CLAWDIA, max_size=25))
def test_clawdia_does_the_same_in_files_and_in_memory(acts: list[Act]) -> None:
    with scratch(fast=True) as place:
        files, memory = clawdia.Directory(place), clawdia.Memory()
        for act in acts:
            assert told(act, files) == told(act, memory)
        for name in ("run.a", "b/c", "ü"):
            fresh = clawdia.Directory(place)
            assert fresh.list(name) == memory.list(name)
            assert fresh.records(name) == memory.records(name)
            assert fresh.latest_journal_seq(name) == memory.latest_journal_seq(name)
            assert [fresh.load_at_or_before(name, seq) for seq in range(10)] == [
                memory.load_at_or_before(name, seq) for seq in range(10)
            ]
            assert told(replayed(name), fresh) == told(replayed(name), memory)
            assert fresh.problems(name) == []
        files.close()


TASKS = st.sampled_from(["task-a", "täsk", "x y"])
USES = st.sampled_from(["u1", "u2", "u3"])


def marked(task: str, use: str, result: Any) -> Act:
    effect = {**brainwires.side_effect(use, "tool"), "completed_at": 7}
    return lambda tasks: tasks.mark_step_complete(task, use, effect, result=result)


BRAINWIRES = st.one_of(
    st.builds(marked, TASKS, USES, st.none() | st.integers()),
    st.builds(lambda task: lambda tasks: tasks.delete_checkpoint(task), TASKS),
    st.builds(lambda task: lambda tasks: tasks.save_checkpoint(brainwires.new_checkpoint(task, "a")), TASKS),
)


@FEW
@given(st.lists(BRAINWIRES, max_size=25))
def test_brainwires_does_the_same_in_files_and_in_memory(acts: list[Act]) -> None:
    with scratch(fast=True) as place:
        files, memory = brainwires.Directory(place), brainwires.Memory()
        for act in acts:
            assert told(act, files) == told(act, memory)
        for task in ("task-a", "täsk", "x y"):
            found = [tasks.load_checkpoint(task) or {} for tasks in (brainwires.Directory(place), memory)]
            assert [{**one, "updated_at": 0} for one in found[:1]] == [{**one, "updated_at": 0} for one in found[1:]]
            done = found[0].get("completed_tool_ids", [])
            assert [files.result(task, use) for use in done] == [memory.result(task, use) for use in done]
        files.close()


TEXT = st.text(st.characters(codec="utf-8"))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=30
)


@FEW
@given(st.dictionaries(TEXT, JSON, max_size=5), JSON)
def test_whatever_json_a_workflow_holds_is_imported_and_exported_equal(state: dict[str, Any], newer: Any) -> None:
    with scratch(fast=True) as place, holdfast.open("memory:") as store:
        before = paused(wf_state=state, newer=newer)
        (place / "run-1.json").write_text(json.dumps(before, ensure_ascii=False), "utf-8")
        report = import_dir("car", place, store)
        assert report.damaged == ()
        export_run("car", store, "run-1", place / "out")
        after = raw(place / "out" / "run-1.json")
        assert after == before
        assert repr(after) == repr(before), "numbers keep their kind"
        runs = car.Directory(place)
        claimed = runs.claim("run-1")
        assert claimed == before
        runs.close()
