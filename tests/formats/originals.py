"""What the original programs do to files, call by call: to work beside them, and to show that a test can fail.

Their calls and the order of these are facts; nothing of their text is here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.formats.interleaving import Steps, finish


def car_claim(place: Path, run_id: str) -> Any:
    """CAR claims."""
    return finish(car_claim_steps(place, run_id))


def car_claim_steps(place: Path, run_id: str) -> Steps[Any]:
    """CAR claims: looks, removes, renames, reads."""
    source, target = place / f"{run_id}.json", place / f"{run_id}.inflight"
    yield
    if source.exists():
        yield
        target.unlink(missing_ok=True)
    yield
    try:
        source.rename(target)
    except FileNotFoundError:
        return None
    yield
    try:
        return json.loads(target.read_text("utf-8"))
    except FileNotFoundError:
        return None


def car_complete(place: Path, run_id: str) -> None:
    """CAR completes."""
    finish(car_complete_steps(place, run_id))


def car_complete_steps(place: Path, run_id: str) -> Steps[None]:
    """CAR completes: removes the marker, whoever's it is."""
    yield
    (place / f"{run_id}.inflight").unlink(missing_ok=True)


def car_save_steps(place: Path, paused: dict[str, Any]) -> Steps[bool]:
    """CAR saves: writes beside, renames."""
    temporary = place / f".{paused['run_id']}.{'0' * 32}.tmp"
    yield
    temporary.write_text(json.dumps(paused, indent=2), "utf-8")
    yield
    temporary.rename(place / f"{paused['run_id']}.json")
    return True


def car_listed(place: Path) -> list[str]:
    """What CAR lists."""
    return sorted(path.stem for path in place.iterdir() if path.suffix == ".json")


def car_recovered(place: Path) -> int:
    """CAR recovers."""
    return finish(car_recover_steps(place))


def car_recover_steps(place: Path) -> Steps[int]:
    """CAR recovers everything that is claimed."""
    count = 0
    yield
    for path in list(place.iterdir()):
        if path.suffix == ".inflight":
            yield
            is_there = path.with_suffix(".json").exists()
            yield
            if is_there:
                path.unlink(missing_ok=True)
            else:
                path.rename(path.with_suffix(".json"))
                count += 1
    return count


def write_steps(path: Path, value: Any) -> Steps[None]:
    """A file written in place, as SimpleAgents and MUR do: it is emptied, then filled."""
    yield
    with path.open("wb", buffering=0) as file:
        yield
        file.write(json.dumps(value, indent=2).encode())


def simple_agents_save_steps(root: Path, checkpoint: dict[str, Any]) -> Steps[bool]:
    """SimpleAgents saves: makes the directory, writes in place."""
    yield
    root.mkdir(exist_ok=True)
    yield from write_steps(root / f"{checkpoint['run_id']}.json", checkpoint)
    return True


def simple_agents_load_steps(root: Path, run_id: str) -> Steps[Any]:
    """SimpleAgents loads: looks, reads."""
    yield
    if not (root / f"{run_id}.json").exists():
        return None
    yield
    return json.loads((root / f"{run_id}.json").read_bytes())


def mur_save_steps(place: Path, checkpoint: dict[str, Any]) -> Steps[bool]:
    """MUR saves: makes the directory, writes in place."""
    yield
    (place / checkpoint["execution_id"]).mkdir(parents=True, exist_ok=True)
    yield from write_steps(place / checkpoint["execution_id"] / f"{checkpoint['step_index']}.json", checkpoint)
    return True


def mur_load_latest_steps(place: Path, execution: str) -> Steps[Any]:
    """MUR loads the latest: looks, lists, reads."""
    yield
    if not (place / execution).exists():
        return None
    yield
    latest = mur_latest(place / execution)
    if latest is None:
        return None
    yield
    return json.loads((place / execution / f"{latest}.json").read_text("utf-8"))


def mur_cleanup_steps(place: Path, execution: str) -> Steps[bool]:
    """MUR cleans up: looks, removes one file after the other, then the directory."""
    yield
    if (place / execution).exists():
        for path in sorted((place / execution).iterdir()):
            yield
            path.unlink(missing_ok=True)
        yield
        (place / execution).rmdir()
    return True


def brainwires_mark(place: Path, task_id: str, tool_use_id: str) -> None:
    """Brainwires marks: reads, changes, writes to a temporary file of a fixed name, renames."""
    path = place / f"{task_id}.json"
    found = json.loads(path.read_text("utf-8")) if path.exists() else None
    checkpoint = found or {
        "task_id": task_id, "agent_id": "unknown", "step_index": 0, "completed_tool_ids": [], "side_effects_log": [],
        "updated_at": 0,
    }  # fmt: skip
    checkpoint["completed_tool_ids"].append(tool_use_id)
    checkpoint["side_effects_log"].append(
        {"tool_use_id": tool_use_id, "tool_name": "t", "target": None, "completed_at": 1, "reversible": False}
    )
    checkpoint["step_index"] += 1
    temporary = place / f"{task_id}.json.tmp"
    temporary.write_text(json.dumps(checkpoint, indent=2), "utf-8")
    os.replace(temporary, path)


def mur_latest(place: Path) -> int | None:
    """The step MUR takes for the latest: of any file whose name begins with a number."""
    steps = [int(path.stem) for path in place.iterdir() if path.stem.isdigit()]
    return max(steps, default=None)


def clawdia_checkpoints(place: Path) -> list[Any]:
    """The checkpoints Clawdia finds; one that cannot be read hides all."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(place.iterdir()) if path.suffix == ".json"]


def clawdia_records(path: Path) -> list[Any]:
    """The records Clawdia finds in a journal; one that cannot be read hides all."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
