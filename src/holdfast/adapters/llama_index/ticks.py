"""Recorded ticks of LlamaIndex, as they are restored, and changes of a state store as patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workflows.runtime.types.results import AddWaiter, StepWorkerFailed
from workflows.runtime.types.ticks import TickStepResult, WorkflowTick


def with_requirements(tick: WorkflowTick, required: Mapping[str, Any]) -> WorkflowTick:
    """A tick with what waiting steps require of an event, which LlamaIndex does not serialize."""
    if not required or not isinstance(tick, TickStepResult):
        return tick
    results = [
        result.model_copy(update={"requirements": dict(required[result.waiter_id])})
        if isinstance(result, AddWaiter) and result.waiter_id in required
        else result
        for result in tick.result
    ]
    return tick.model_copy(update={"result": results})


def is_final_failure(result: object) -> bool:
    if not isinstance(result, StepWorkerFailed):
        return False
    return result.retry_decision is None or result.retry_decision.delay is None


def state_patch(old: Any, new: Any, path: str = "") -> list[dict[str, Any]]:
    """A JSON Patch from one tree to another. LlamaIndex's own does not see values that were changed in place."""
    if isinstance(old, dict) and isinstance(new, dict):
        patch = [{"op": "remove", "path": f"{path}/{_escape(name)}"} for name in old if name not in new]
        for name, value in new.items():
            if name in old:
                patch += state_patch(old[name], value, f"{path}/{_escape(name)}")
            else:
                patch.append({"op": "add", "path": f"{path}/{_escape(name)}", "value": value})
        return patch
    if isinstance(old, list) and isinstance(new, list) and len(new) >= len(old):
        patch = [op for at, value in enumerate(old) for op in state_patch(value, new[at], f"{path}/{at}")]
        return patch + [{"op": "add", "path": f"{path}/{at}", "value": new[at]} for at in range(len(old), len(new))]
    return [] if type(old) is type(new) and old == new else [{"op": "replace", "path": path, "value": new}]


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
