"""What the original programs do to files, call by call: to work beside them, and to show that a test can fail.

Their calls and the order of these are facts; nothing of their text is here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def car_claim(place: Path, run_id: str) -> Any:
    """CAR claims: looks, removes, renames, reads."""
    source, target = place / f"{run_id}.json", place / f"{run_id}.inflight"
    if source.exists():
        target.unlink(missing_ok=True)
    try:
        source.rename(target)
    except FileNotFoundError:
        return None
    try:
        return json.loads(target.read_text("utf-8"))
    except FileNotFoundError:
        return None


def car_complete(place: Path, run_id: str) -> None:
    """CAR completes: removes the marker, whoever's it is."""
    (place / f"{run_id}.inflight").unlink(missing_ok=True)


def car_listed(place: Path) -> list[str]:
    """What CAR lists."""
    return sorted(path.stem for path in place.iterdir() if path.suffix == ".json")


def car_recovered(place: Path) -> int:
    """CAR recovers everything that is claimed."""
    count = 0
    for path in list(place.iterdir()):
        if path.suffix == ".inflight":
            if path.with_suffix(".json").exists():
                path.unlink()
            else:
                path.rename(path.with_suffix(".json"))
                count += 1
    return count


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
