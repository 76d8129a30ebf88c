"""What is written is what Clawdia's own reader accepts: every field, kind, reference and privacy class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import InvalidInput, formats
from holdfast.formats import clawdia
from tests.formats.sample_files import SOURCE, covering, ending, intent, outcome, record, recovery, unsettled

Runs = clawdia.Directory | clawdia.Memory
DESTINATION = {"kind": "tool", "id": "d", "privacy": "secret", "retention": "host_policy"}
POLICY = {"kind": "approval", "id": "p"}
SUBJECT = {"kind": "run", "id": "r", "privacy": "public"}
INTENT = {name: value for name, value in intent(1, "e")["payload"].items() if name != "type"}
RESULT = {name: value for name, value in outcome(1, "e")["payload"].items() if name != "type"}
CURSOR = {"chunk_sequence": 1, "byte_offset": 2, "precision": "byte_offset"}

PAYLOADS: list[dict[str, Any]] = [
    {"type": "run_lifecycle", "status": "s", "reason": ""},
    {"type": "turn_lifecycle", "turn_id": "t", "run_ids": ["r"], "status": "failed", "redacted_summary": ""},
    {"type": "context_projection", "projection_id": "p", "selected_item_count": 3, "provider_destination": DESTINATION},
    {"type": "model_attempt", "provider_route_id": "", "provider_model_id": "", "request_message_count": 0,
     "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": None}},
    {"type": "structured_output", "record_type": "lifecycle", "record": {
        "record_schema_version": 1, "record_kind": "requested", "schema_id": "s",
        "output_schema_version": {"major": 1, "minor": 0, "patch": 0}, "schema_fingerprint": "f",
        "privacy": "sensitive", "redacted_summary": ""}},
    {"type": "approval", "record_type": "responded",
     "record": {"request_id": "a", "decision": {"decision": "denied", "reason_code": "no", "actor_ref": SOURCE}}},
    {"type": "approval", "record_type": "dispatch_result",
     "record": {"request_id": "a", "lifecycle_status": "timed_out", "effect_result": RESULT}},
    {"type": "tool", "tool_call_id": "t", "run_id": "r", "capability_id": "c", "canonical_tool_name": "n",
     "namespace": "n", "source": SOURCE, "destination": DESTINATION, "effect_class": "Write", "risk_class": "High",
     "privacy": "internal", "retention": "durable", "redacted_args_summary": "", "status": "intent_recorded",
     "effect_intent": INTENT, "policy_refs": [POLICY], "policy_outcome": {
         "stage": "PreTool", "decision": {"Allow": {"reason": {"code": "c", "policy_refs": []}}}, "policy_refs": [],
         "privacy": "public", "retention": "ephemeral"}},
    {"type": "output_delivery", "record_type": "intent", "record": {
        "delivery_id": "", "effect_intent": INTENT, "destination": DESTINATION, "sink_ref": "", "desired_sink_ref": "",
        "delivery_kind": {"type": "stream_chunk", "stream_cursor": "", "chunk_index": 1},
        "content_mode": "redacted_summary", "redacted_summary": "", "privacy": "public", "retention": "run_scoped",
        "dedupe_key": "k", "runtime_package_fingerprint": ""}},
    {"type": "hook", "schema_version": 1, "hook_id": "", "point": "before_tool_call",
     "payload": {"type": "completed", "invocation_id": "", "elapsed_ms": 1}},
    {"type": "stream_rule", "record_kind": "matched", "rule_id": "r", "rule_version": 1, "cursor": CURSOR,
     "redacted_summary": ""},
    {"type": "realtime_session", "kind": "connected", "session_id": "s", "run_id": "r", "agent_id": "a",
     "provider_route_ref": "", "send_cursor": CURSOR, "receive_cursor": CURSOR, "restart_count": 0,
     "backpressure_state": {"capacity": 1, "queued_frames": 0, "dropped_frames": 0, "gated_frames": 0,
                            "policy_ref": POLICY},
     "status": "connected", "channel": "assistant_text", "media_kind": "text", "privacy": "public",
     "retention": "persistent", "redacted_summary": ""},
    {"type": "isolation", "record_type": "failed",
     "record": {"environment_id": "e", "reason": "", "retry_classification": "NotRetryable"}},
    {"type": "child_lifecycle", "child_run_id": "c", "parent_run_id": "p", "artifact_kind": "subagent_run",
     "action": "detached", "status": "detached", "idempotency_key": "k"},
    {"type": "agent_pool", "pool_id": "p", "lifecycle_status": "created"},
    {"type": "run_message", "message_id": "m", "source_run_id": "r", "address_target": {"type": "run", "run_id": "x"},
     "content_ref": "c", "correlation": {"entries": [{"key": "k", "value": "v"}]}, "delivery_status": "accepted",
     "idempotency_key": "k"},
    {"type": "wake", "condition_id": "c", "run_id": "r", "event_filter_fingerprint": "", "timeout_millis": 1,
     "resume_policy": "none", "trigger_status": "registered", "idempotency_key": "k"},
    {"type": "subagent", "record_type": "usage_rolled_up", "record": {
        "child_run_id": "c", "parent_run_id": "p", "child_usage_ref": "", "parent_usage_ref": "", "input_tokens": 1,
        "output_tokens": 2, "total_tokens": 3, "terminal_status": "completed"}},
    {"type": "extension_action", "request_id": "r", "run_id": "r",
     "action_ref": {"extension_id": "e", "action_id": "a", "capability_id": "c"}, "action_kind": "host_action",
     "source": SOURCE, "destination": DESTINATION, "risk_class": "Low", "privacy": "public",
     "retention": "session_scoped", "redacted_input_summary": "", "status": "submitted"},
    {"type": "effect_intent", **INTENT}, {"type": "effect_result", **RESULT}, {"type": "checkpoint", **covering(0)},
    recovery(1, unsettled("e"))["payload"], ending(1)["payload"],
]  # fmt: skip
"""A payload of every type that Clawdia's own reader accepts (tried with it)."""

FULL = record(
    1, session_id="s", turn_id="t", attempt_id="a", related_refs=[{**SUBJECT, "source": SOURCE}], causal_refs=["c"],
    destination={**DESTINATION, "correlation": [{"key": "k", "value": "v"}]}, tags=["t"], content_refs=["c"],
    correlation_keys=[{"key": "k", "value": "v"}], idempotency_key="i", dedupe_key="d", checkpoint_ref="c",
)  # fmt: skip

WRONG: list[tuple[tuple[str | int, ...], Any]] = [
    (("journal_seq",), -1), (("journal_seq",), 2**64), (("journal_seq",), 1.0), (("journal_seq",), True),
    (("journal_schema_version",), 2), (("record_kind",), "note"), (("run_id",), ""), (("run_id",), "a\nb"),
    (("agent_id",), "x" * 513), (("session_id",), ""), (("subject_ref",), {}), (("subject_ref", "kind"), "Run"),
    (("subject_ref", "id"), ""), (("subject_ref", "privacy"), "private"), (("related_refs",), None),
    (("related_refs", 0, "source", "trust"), "none"), (("causal_refs",), [1]), (("source",), {}),
    (("source", "kind"), "program"), (("source", "trust"), None), (("destination",), {}),
    (("destination", "kind"), "file"), (("destination", "retention"), "forever"), (("tags",), "t"),
    (("correlation_keys", 0, "value"), ""), (("delivery_semantics",), None), (("event_index",), {}),
    (("event_index", "event_kind"), 5), (("event_index", "privacy_class"), "x"), (("event_index", "agent_id"), ""),
    (("timestamp_millis",), "42"), (("runtime_package_fingerprint",), None), (("privacy",), "Internal"),
    (("content_refs",), ["\x85"]), (("redaction_policy_id",), 1), (("idempotency_key",), ""),
    (("checkpoint_ref",), 1), (("payload",), None), (("payload",), {"type": "message"}), (("payload", "type"), "note"),
    (("payload", "newer"), 10**400),
]  # fmt: skip


def changed(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """The value with another one at a path; `...` takes it away."""
    made = json.loads(json.dumps(value))
    place = made
    for step in path[:-1]:
        place = place[step]
    if new is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = new
    return made


def required(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all fields in an object."""
    found: list[tuple[str | int, ...]] = []
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(value, dict):
            found.append((*path, name))
        if isinstance(part, (dict, list)):
            found += required(part, (*path, name))
    return found


@pytest.fixture(params=["directory", "memory"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Runs:
    return clawdia.Directory(tmp_path / "in") if request.param == "directory" else clawdia.Memory()


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload["type"])
def test_a_payload_of_every_type_is_accepted_and_none_without_what_it_needs(
    runs: Runs, payload: dict[str, Any]
) -> None:
    optional = {"usage", "stop_reason", "run_ids", "actor_ref", "effect_intent", "policy_refs", "policy_outcome",
                "timeout_millis", "cursor", "entries"}  # fmt: skip
    for path in required(payload):
        if path[-1] not in optional and not {"usage", "policy_outcome"} & set(path):
            with pytest.raises(InvalidInput, match="could not read"):
                runs.append(record(1, payload=changed(payload, path, ...)))
    assert runs.append(record(1, payload=payload)) == "journal.1"
    assert runs.records("run.a") == [record(1, payload=payload)]


@pytest.mark.parametrize(("path", "new"), WRONG, ids=str)
def test_a_record_that_clawdia_cannot_read_is_not_appended(runs: Runs, path: tuple[str | int, ...], new: Any) -> None:
    with pytest.raises(InvalidInput):
        runs.append(changed(FULL, path, new))
    assert runs.records("run.a") == []
    assert runs.append(FULL) == "journal.1"


def test_the_error_names_the_field_the_value_and_what_is_allowed(runs: Runs) -> None:
    with pytest.raises(InvalidInput, match=r"'record.1': `source.trust` is 'none', not one of trusted, sdk_generated"):
        runs.append(changed(FULL, ("source", "trust"), "none"))


@pytest.mark.parametrize("more", [
    {"turn_id": ""}, {"attempt_id": "a\0"}, {"content_ref_manifest": [""]}, {"pending_approvals": [1]},
    {"pending_side_effects": [unsettled("")]}, {"pending_side_effects": [unsettled("e", dedupe_key="x" * 513)]},
    {"run_id": "x" * 513}, {"created_at_millis": 2**64}, {"checkpoint_seq": 1.0},
], ids=str)  # fmt: skip
def test_a_checkpoint_that_clawdia_cannot_read_is_not_saved(runs: Runs, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        runs.save({**covering(0), **more}, 0)
    assert runs.list("run.a") == []


ODD = {**record(2), "record_kind": "odd_kind", "event_index": {}}


def test_what_clawdia_cannot_read_is_still_read_and_imported_but_not_exported(tmp_path: Path) -> None:
    runs = clawdia.Directory(tmp_path / "in")
    runs.append(record(1))
    (journal,) = tmp_path.rglob("journal.ndjson")
    journal.write_bytes(journal.read_bytes() + json.dumps(ODD).encode() + b"\n")
    assert runs.records("run.a") == [record(1), ODD]
    with holdfast.open("memory:") as store:
        formats.import_dir("clawdia", tmp_path / "in", store)
        assert [entry.kind for entry in store.journal("run.a")] == ["message", "record"]
        assert store.journal("run.a")[1]["record"] == ODD
        with pytest.raises(InvalidInput, match=r"'record.2': `record_kind` is 'odd_kind'"):
            formats.export_run("clawdia", store, "run.a", tmp_path / "out")
        assert not (tmp_path / "out").exists()
