"""Directories of the five foreign formats, with the sidecars that Holdfast keeps beside them."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import holdfast
from holdfast import formats
from holdfast.formats import brainwires, car, clawdia, mur, simple_agents
from holdfast.testing import ManualClock
from tests.formats.sample_files import EXECUTION, before_step, covering, intent, outcome, paused, record, scope
from tests.golden.contents import compact, read_store

SYSTEMS = ("car", "simple_agents", "brainwires", "mur", "clawdia")
_FIELD = {"name": "approve", "field_type": "boolean", "required": True, "label": "Approve?"}


def write_directories(folder: Path) -> None:
    """Write one directory of each system. The claims of CAR are those of a process that is under way."""
    runs = car.Directory(folder / "car")
    runs.save(paused("waiting", fields=[_FIELD], wf_state={"order": "A-17", "big": 2**70, "unknown": {"kept": 1.5}}))
    for name in ("claimed", "weird.name"):
        runs.save(paused(name, iterations=2))
    assert runs.claim("claimed") is not None
    with contextlib.closing(simple_agents.Directory(folder / "simple_agents")) as checkpoints:
        checkpoints.save(scope("run-1", future_field=[1, {"a": None}]))
        checkpoints.save(scope("run-2", step=4, next_node_id="other"))
    with contextlib.closing(brainwires.Directory(folder / "brainwires")) as tasks:
        for number in range(3):
            effect = brainwires.side_effect(f"use-{number}", "send_mail", "ana@example.org")
            effect["completed_at"] = 1_700_000_000 + number  # results of a task that is a second old outlive a copy
            tasks.mark_step_complete("task/a", f"use-{number}", effect, result={"sent": number})
    _write_mur(folder / "mur")
    _write_clawdia(folder / "clawdia")


def _write_mur(folder: Path) -> None:
    with contextlib.closing(mur.Directory(folder)) as executions:
        for step in range(4):
            executions.save(before_step(step), workflow="deploy")
        executions.roll_back(EXECUTION, to=2)


def _write_clawdia(folder: Path) -> None:
    with contextlib.closing(clawdia.Directory(folder)) as agents:
        agents.append(record(1))
        agents.append(intent(2, "effect-1"))
        agents.append(outcome(3, "effect-1"))
        agents.append(intent(4, "effect-2"))
        for number in (1, 2, 3):
            agents.save(covering(number, number))
        agents.append(record(None))
        agents.append(record(1, run_id="run/b"))
        agents.save(covering(1, 1, run_id="run/b", loop_state="completed"))


def read_directories(folder: Path) -> dict[str, Any]:
    """What the verbs of each system read, and the runs that an import makes of it."""
    with contextlib.closing(car.Directory(folder / "car")) as runs:
        found: dict[str, Any] = {"car": {name: compact(runs.load(name)) for name in runs.list()}}
    with contextlib.closing(simple_agents.Directory(folder / "simple_agents")) as checkpoints:
        found["simple_agents"] = {name: compact(checkpoints.load(name)) for name in ("run-1", "run-2")}
    with contextlib.closing(brainwires.Directory(folder / "brainwires")) as tasks:
        found["brainwires"] = [compact(tasks.load_checkpoint("task/a"))]
        found["brainwires"] += [compact(tasks.result("task/a", f"use-{number}")) for number in range(3)]
    with contextlib.closing(mur.Directory(folder / "mur")) as executions:
        found["mur"] = [executions.steps(EXECUTION), compact(executions.load_latest(EXECUTION, workflow="deploy"))]
    with contextlib.closing(clawdia.Directory(folder / "clawdia")) as agents:
        found["clawdia"] = {
            run: [compact(list(agents.list(run))), compact(list(agents.records(run)))] for run in agents.runs()
        }
    return {**found, "imported": {system: _read_imported(system, folder) for system in SYSTEMS}}


def _read_imported(system: str, folder: Path) -> dict[str, Any]:
    with holdfast.App(holdfast.open("memory:", clock=ManualClock())) as app:
        report = formats.import_dir(system, folder / system, app.store)
        assert not report.damaged, report
        text = json.dumps(read_store(app))  # an import makes ids of its own for checkpoints that have none
        found: dict[str, Any] = json.loads(re.sub(r'"(\d+)\.[0-9a-f]{10}"', r'"\1.own"', text))
        return found
