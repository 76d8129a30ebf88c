"""Checkpoints and records as the originals write them, and a road around our own code to read files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).parent / "samples"
EXECUTION = "2f1c0d0e-1111-4222-8333-444455556666"


def raw(path: Path) -> Any:
    """What a file says, read by another road than the code under test."""
    return json.loads(path.read_text("utf-8"))


def paused(run_id: str = "run-1", **more: Any) -> dict[str, Any]:
    """A CAR checkpoint."""
    return {
        "run_id": run_id,
        "workflow": {
            "id": "wf", "name": "WF", "start": "gate", "stages": [], "edges": [], "max_iterations": 100, "metadata": {},
        },
        "paused_stage_id": "gate",
        "prompt": "approve?",
        "fields": [],
        "output_key": "approval",
        "wf_state": {},
        "stage_results": [],
        "completed_stage_ids": [],
        "iterations": 1,
        "prior_duration_ms": 0.0,
        "created_at": "2026-08-18T09:41:07.123456789Z",
        **more,
    }  # fmt: skip


def scope(run_id: str = "run-1", **more: Any) -> dict[str, Any]:
    """A SimpleAgents checkpoint."""
    return {
        "run_id": run_id,
        "workflow_name": "wf",
        "step": 3,
        "next_node_id": "tool",
        "scope_snapshot": {"input": {"k": "v"}},
        **more,
    }


def before_step(step: int, execution: str = EXECUTION, **more: Any) -> dict[str, Any]:
    """A MUR checkpoint."""
    return {
        "execution_id": execution,
        "step_index": step,
        "variables": {"key": "value"},
        "completed_steps": [{"step_name": f"s{n}", "success": True, "output": "ok"} for n in range(step)],
        "created_at": "2026-03-08T10:15:30.123456Z",
        **more,
    }


def covering(seq: int, number: int = 1, run_id: str = "run.a", **more: Any) -> dict[str, Any]:
    """A Clawdia checkpoint."""
    return {
        "checkpoint_id": f"checkpoint.{number}",
        "run_id": run_id,
        "checkpoint_seq": number,
        "covers_journal_seq": seq,
        "loop_state": "running",
        "runtime_package_fingerprint": "fp",
        "state_hash": "sha256:00",
        "created_at_millis": 1_700_000_000_000 + number,
        "writer_id": "w1",
        **more,
    }


SOURCE = {"kind": "sdk", "id": "s", "trust": "host_provided", "privacy": "internal"}
PAYLOADS: dict[str, dict[str, Any]] = {
    "run": {"type": "run_lifecycle", "status": "running", "reason": ""},
    "turn": {"type": "turn_lifecycle", "turn_id": "turn.1", "status": "started", "redacted_summary": ""},
}


def record(seq: int | None, kind: str = "message", run_id: str = "run.a", **more: Any) -> dict[str, Any]:
    """A Clawdia journal record."""
    subject = {"kind": "run", "id": run_id, "privacy": "internal"}
    found: dict[str, Any] = {
        "journal_schema_version": 1,
        "journal_seq": seq,
        "record_id": f"record.{seq}",
        "record_kind": kind,
        "run_id": run_id,
        "agent_id": "agent.1",
        "subject_ref": subject,
        "source": SOURCE,
        "delivery_semantics": "journal_backed",
        "event_index": {
            "run_id": run_id, "agent_id": "agent.1", "event_family": kind, "event_kind": "recorded", "source": SOURCE,
            "subject_ref": subject, "privacy_class": "internal", "delivery_semantics": "journal_backed",
        },
        "timestamp_millis": 42,
        "runtime_package_fingerprint": "fp",
        "privacy": "internal",
        "redaction_policy_id": "redaction.default",
        "payload": PAYLOADS.get(
            kind, {"type": "message", "message_id": "message.1", "role": "user", "redacted_summary": ""}
        ),
        **more,
    }  # fmt: skip
    return found if seq is not None else {name: value for name, value in found.items() if name != "journal_seq"}


def intent(seq: int, effect_id: str, **more: Any) -> dict[str, Any]:
    """The intent of an effect."""
    payload = {
        "type": "effect_intent", "effect_id": effect_id, "kind": "tool_execution", "source": SOURCE,
        "subject_ref": {"kind": "tool_call", "id": effect_id, "privacy": "internal"}, "redacted_summary": "", **more,
    }  # fmt: skip
    return record(seq, "effect_intent", payload=payload)


def outcome(seq: int, effect_id: str, status: str = "completed") -> dict[str, Any]:
    """Its result."""
    payload = {"type": "effect_result", "effect_id": effect_id, "terminal_status": status, "redacted_summary": ""}
    return record(seq, "effect_result", payload=payload)


def ending(seq: int, status: str = "completed", effect_id: str = "effect.last") -> dict[str, Any]:
    """The record that says how a run ended."""
    payload = {
        "type": "terminal_result", "effect_id": effect_id, "result_record_id": "record", "terminal_status": status,
    }  # fmt: skip
    return record(seq, "run", payload=payload)


def unsettled(effect_id: str, **more: Any) -> dict[str, Any]:
    """A pending side effect, as a checkpoint or a recovery lists it."""
    return {"effect_id": effect_id, "intent_record_id": "record.0", "unsafe_pending_reason": "append failed", **more}


def recovery(seq: int, *pending: dict[str, Any]) -> dict[str, Any]:
    """The record of a recovery that leaves effects unsettled."""
    payload = {"type": "recovery", "unsafe_pending": list(pending), "recovery_reason": "append failed"}
    return record(seq, "recovery", payload=payload)
