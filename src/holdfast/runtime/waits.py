"""What a run waits for, in words, for the errors of callers who wait for the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.engine.record import Record, record_of
from holdfast.limits import NUMBER_MAX
from holdfast.model.names import gate_labels
from holdfast.model.rows import RunRow
from holdfast.model.status import PAUSED, WAITING
from holdfast.runtime.reads import Past, first_entry, past_of
from holdfast.store.seal import check_run
from holdfast.verbs.values import body_value, moment

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore


def describe_waits(app: AppCore, row: RunRow) -> str:
    """What the run waits for, or why it is paused; empty if neither is recorded."""
    if row.status not in (WAITING, PAUSED) or not first_entry(app.core, row):  # a journal of another program
        return ""
    past = past_of(app.core, row)
    if row.status == PAUSED:
        return _pause_reason(past)
    record = record_of(past.entries)
    found = [*_gates(app, row), *_events(record), *_timers(app, row, record)]
    found += [_child(app, name, entry) for name, entry in record.children.items() if not entry["detached"]]
    return f"waits for {' and '.join(found)}" if found else ""


def _pause_reason(past: Past) -> str:
    last = next((entry for _, entry in reversed(past.entries) if entry["kind"] in ("paused", "diverged")), None)
    if last is None or last["kind"] == "paused":
        return f"was paused by {last['by']}" if last is not None and last.get("by") else ""
    return f"cannot go on as things are: {last.get('message', '')}"


def _gates(app: AppCore, row: RunRow) -> list[str]:
    rows = [gate for _, gate in app.core.port.gates(row.run, "open", NUMBER_MAX)]
    labels = gate_labels([gate.gate for gate in rows])
    found = []
    for gate in rows:
        body = body_value(gate.body, f"gate {gate.gate!r} of run {row.run_id!r}")
        prompt = body.get("prompt") if isinstance(body, dict) else None
        found.append(f"an answer to {prompt!r} (gate {labels[gate.gate]!r})")
    return found


def _events(record: Record) -> list[str]:
    last = [entries[-1] for scope in record.scopes.values() for entries in scope.calls.values()]
    return [f"the event {entry['event']!r}" for entry in last if entry["kind"] == "wait"]


def _timers(app: AppCore, row: RunRow, record: Record) -> list[str]:
    last = [entries[-1] for scope in record.scopes.values() for entries in scope.calls.values()]
    kinds = {entry["timer"]: entry["kind"] for entry in last if "timer" in entry}
    found = []
    for timer in app.core.port.timers(row.run):
        kind = kinds.get(timer.timer, "sleep")
        what = f"the timer {timer.timer!r}" if kind == "sleep" else f"the next attempt of {timer.timer!r}"
        found += [f"{what} at {moment(timer.due_us).isoformat(timespec='seconds')}"] if kind != "wait" else []
    return found


def _child(app: AppCore, name: str, entry: dict[str, Any]) -> str:
    """A child, with what it waits for itself, or with the fact that no process at hand executes its workflow."""
    row = app.core.port.run(name)
    workflow = entry["workflow"]
    if app.known(workflow) is None:
        workers = app.core.port.workers()
        if workers is not None and not any(workflow in names for names in workers.values()):
            return f"child run {name!r} of workflow {workflow!r}, which no living worker knows"
    inner = describe_waits(app, check_run(row)) if row is not None else ""
    return f"child run {name!r}" + (f", which {inner}" if inner else "")
