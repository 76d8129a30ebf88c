"""Every public name of the formats has an example, and it runs."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import formats
from holdfast.formats import brainwires, car, clawdia, mur, simple_agents
from tests.formats.sample_files import before_step, covering, paused, record, scope

SYSTEMS = (car, simple_agents, brainwires, mur, clawdia)
PLAIN = {"Claimed", "Recovered", "Imported", "PruneReport", "Replay", "SaveOutcome", "close"}
"""What verbs give back, and ends, need no example of their own."""


def documented() -> dict[str, Any]:
    """Everything public, by its full name."""
    found: dict[str, Any] = {"formats": formats}
    found |= {f"formats.{name}": getattr(formats, name) for name in formats.__all__}
    for module in SYSTEMS:
        short = module.__name__.removeprefix("holdfast.")
        for name in module.__all__:
            thing = getattr(module, name)
            found[f"{short}.{name}"] = thing
            found |= {f"{short}.{name}.{verb}": getattr(thing, verb) for verb in verbs_of(thing)}
    return {name: thing for name, thing in found.items() if not PLAIN.intersection(name.split("."))}


def verbs_of(thing: Any) -> list[str]:
    """The public methods of a class of ours."""
    ours = [base for base in getattr(thing, "__mro__", ()) if base.__module__.startswith("holdfast.formats")]
    names = {name for base in ours for name in vars(base) if callable(getattr(base, name, None))}
    return sorted(name for name in names if not name.startswith("_"))


@pytest.mark.parametrize("name", documented())
def test_every_public_name_has_an_example_and_it_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thing = documented()[name]
    example = textwrap.dedent((inspect.getdoc(thing) or "").partition("Example:\n")[2])
    assert example.strip(), f"{name} has no example"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    car.Directory("workflow-runs").save(paused())
    with holdfast.open("memory:") as store:
        names: dict[str, Any] = {
            "formats": formats, "store": store, "paused": paused(), "app": holdfast.App(store),
            **{module.__name__.rpartition(".")[2]: module for module in SYSTEMS},
        }  # fmt: skip
        if name == "formats.export_run":
            formats.import_dir("car", "workflow-runs", store)
        names |= world_of(name.split(".")[1] if "." in name else "", name)
        exec(compile(example, name, "exec"), names)


def world_of(system: str, name: str) -> dict[str, Any]:
    """What the examples of a system begin with."""
    if system == "car":
        runs = car.Directory("some")
        runs.save(paused())
        claimed = runs.claim("run-1") if name.endswith("complete") else None
        return {"runs": runs, "claimed": claimed}
    if system == "simple_agents":
        scopes = simple_agents.Directory("some")
        scopes.save(scope())
        return {"runs": scopes, "checkpoint": scope()}
    if system == "brainwires":
        return {"tasks": brainwires.Memory() if ".Memory" in name else brainwires.Directory("some")}
    if system == "mur":
        executions = mur.Directory("some")
        executions.save(before_step(0))
        return {"executions": executions, "checkpoint": before_step(0)}
    agents = clawdia.Memory() if ".Memory" in name else clawdia.Directory("some")
    agents.append(record(1))
    agents.save(covering(1), 1)
    return {"runs": agents, "checkpoint": covering(1), "record": {**record(2), "record_id": "new"}}


def test_importing_holdfast_does_not_load_the_formats() -> None:
    script = "import sys, holdfast; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name.startswith("holdfast.formats")]
