"""Files that are almost right: whatever is in them is used, or is an error of ours; an import lists it and goes on."""

from __future__ import annotations

import contextlib
import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.formats import brainwires, car, clawdia, export_run, import_dir, mur, simple_agents
from holdfast.formats.clawdia.run_directory import segment
from tests.faults.core.scratch import scratch
from tests.formats.sample_files import EXECUTION, before_step, covering, intent, outcome, paused, record, scope

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
FEW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
RUN = f"runs/{segment('run.a')}"
FIELD = {"name": "n", "label": "L", "field_type": "select", "options": ["a", "b"], "required": True}
RESULT = {"stage_id": "s", "stage_name": "S", "status": "succeeded", "output": {"type": "x"}, "duration_ms": 1.0}
EFFECT = {"tool_use_id": "u", "tool_name": "t", "target": "x", "completed_at": 5, "reversible": True}
TASK = {**brainwires.new_checkpoint("t", "a"), "completed_tool_ids": ["u"], "side_effects_log": [EFFECT]}
PENDING = {"effect_id": "e", "intent_record_id": "r", "unsafe_pending_reason": "?"}
SAVED = record(4, "checkpoint", payload={"type": "checkpoint", **covering(3)})
ASKING = {"status": "awaiting_human_input", "human_request": {"input_type": "choice", "options": [{"value": 1}]}}

FILES: dict[str, dict[str, list[Any]]] = {
    "car": {"run-1.json": [paused(fields=[FIELD], stage_results=[RESULT])], "run-2.inflight": [paused("run-2")]},
    "simple_agents": {"run-1.json": [scope()], "asking.json": [ASKING]},
    "brainwires": {"t.json": [TASK]},
    "mur": {f"{EXECUTION}/0.json": [before_step(0)], f"{EXECUTION}/2.json": [before_step(2)]},
    "clawdia": {
        f"{RUN}/checkpoints/c.json": [covering(1, pending_side_effects=[PENDING])],
        f"{RUN}/journal.ndjson": [record(1), intent(2, "e"), outcome(3, "e"), SAVED],
    },
}
LOOKS: dict[str, Callable[[Path], list[Callable[[], object]]]] = {
    "car": lambda at: [
        lambda: car.Directory(at).load("run-1"), lambda: car.Directory(at).recover_orphaned(),
        lambda: car.Directory(at).claim("run-1"), lambda: car.Directory(at).list(),
        lambda: car.Directory(at).remove("run-1"),
    ],
    "simple_agents": lambda at: [
        lambda: simple_agents.Directory(at).load("run-1"), lambda: simple_agents.Directory(at).save(scope()),
    ],
    "brainwires": lambda at: [
        lambda: brainwires.Directory(at).load_checkpoint("t"),
        lambda: brainwires.Directory(at).mark_step_complete("t", "v", brainwires.side_effect("v", "t")),
    ],
    "mur": lambda at: [
        lambda: mur.Directory(at).load_latest(EXECUTION), lambda: mur.Directory(at).problems(EXECUTION),
        lambda: mur.Directory(at).roll_back(EXECUTION, 0),
    ],
    "clawdia": lambda at: [
        lambda: clawdia.Directory(at).list("run.a"), lambda: clawdia.Directory(at).problems("run.a"),
        lambda: clawdia.replay(clawdia.Directory(at).records("run.a")),
        lambda: clawdia.Directory(at).prune("run.a", clawdia.PrunePolicy(prune_covered_before=3)),
        lambda: clawdia.Directory(at).append(record(9)), lambda: clawdia.Directory(at).save(covering(1), 1),
    ],
}  # fmt: skip


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in a value."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in parts for found in paths_in(part, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The value with something else, or nothing, at a path."""
    if not path:
        return new
    whole = copy.deepcopy(value)
    inner = whole
    for key in path[:-1]:
        inner = inner[key]
    if new is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return whole


@pytest.mark.parametrize("system", FILES)
@FEW
@given(st.data())
def test_a_file_with_anything_anywhere_in_it_is_used_or_is_an_error_of_ours(system: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FILES[system])))
    values = FILES[system][name]
    at = data.draw(st.integers(0, len(values) - 1))
    path = data.draw(st.sampled_from(paths_in(values[at])))
    new = data.draw(VALUES | st.just(...)) if path else data.draw(VALUES)
    broken = {**FILES[system], name: [*values[:at], changed(values[at], path, new), *values[at + 1 :]]}
    with scratch(fast=True) as place, holdfast.open("memory:") as store:
        for file, contents in broken.items():
            (place / "in" / file).parent.mkdir(parents=True, exist_ok=True)
            (place / "in" / file).write_text("".join(json.dumps(one) + "\n" for one in contents))
        report = import_dir(system, place / "in", store)
        assert store.verify().problems == []
        for run_id in report.runs:
            with contextlib.suppress(holdfast.InvalidInput):  # of what the original could not read
                export_run(system, store, run_id, place / "out")
        for look in LOOKS[system](place / "in"):
            with contextlib.suppress(holdfast.HoldfastError):
                look()


@pytest.mark.parametrize("system", FILES)
@FEW
@given(st.data())
def test_a_file_cut_or_flipped_anywhere_is_used_or_is_an_error_of_ours(system: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FILES[system])))
    with scratch(fast=True) as place, holdfast.open("memory:") as store:
        for file, contents in FILES[system].items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            text = bytearray("".join(json.dumps(one) + "\n" for one in contents).encode())
            if file == name:
                at = data.draw(st.integers(0, len(text) - 1))
                text[at] ^= data.draw(st.integers(0, 255))
                del text[data.draw(st.integers(at, len(text))) :]
            (place / file).write_bytes(text)
            os.utime(place / file, (0, 0))  # the end of a file that was just written is not repaired at once
        import_dir(system, place, store)
        for look in LOOKS[system](place):
            with contextlib.suppress(holdfast.HoldfastError):
                look()
