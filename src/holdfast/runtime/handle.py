"""`Handle`: one run by its id, for blocking callers outside the run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from holdfast.clock import US
from holdfast.drivers import Plan
from holdfast.engine.commands import EntryData
from holdfast.engine.gates import seconds_us
from holdfast.engine.record import Record, record_of
from holdfast.errors import NotFinished, RunCancelled, RunFailed
from holdfast.ids import gate_labels
from holdfast.model.rows import AT_WORK, BEGIN, CANCELLED, COMPLETED, PAUSED, READY, TERMINAL, WAITING, RunRow, TimerRow
from holdfast.model.views import GateInfo, RunInfo
from holdfast.operations.views import decode_body, moment, run_info
from holdfast.runtime import control
from holdfast.runtime.reaper import fire_all_due, redeliver
from holdfast.runtime.registry import R
from holdfast.runtime.replay_input import ReplayInput, first_entry, last_entry, read_replay_input
from holdfast.runtime.start import Claimed, claim, is_held
from holdfast.store.capabilities import WorkerRegistry
from holdfast.store.checksum import verify_run

if TYPE_CHECKING:
    from holdfast.runtime.app import App
    from holdfast.runtime.app_core import AppCore

_FIRST_POLL_S: Final = 0.005
_POLL_MAX_S: Final = 0.25


class HandleState(NamedTuple):
    """The result of one poll of a run: its result, a claim to execute it, or its status."""

    ended: bool = False
    result: Any = None
    claimed: Claimed | None = None
    status: str = ""


Memo = dict[str, tuple[int, list[str]]]
"""By run: the position of its journal that was read, and the children that it waits for."""


def read_state(app: AppCore, run_id: str, memo: Memo, *, only_wait: bool) -> Plan[HandleState]:
    """Poll a run: its result if it has ended, else a claim if it can be executed here, unless `only_wait`."""
    row = yield from control.require_run(app, run_id)
    if row.status in TERMINAL:
        last = yield lambda: last_entry(app.core, row)
        if row.status == COMPLETED:
            known, result = app.known(row.workflow), last.get("result")
            return HandleState(True, result if known is None else known.typed_result(result))
        if row.status == CANCELLED:
            raise RunCancelled(run_id, last.get("by", ""))
        raise RunFailed(run_id, last.get("error") or {"type": "Unknown", "message": "its journal records no error"})
    if only_wait:
        return HandleState(status=row.status)
    yield from fire_all_due(app)
    yield from redeliver(app)
    row = yield from control.require_run(app, run_id)
    return HandleState(claimed=(yield from _claim_if_possible(app, row, memo)), status=row.status)


def _claim_if_possible(app: AppCore, row: RunRow, memo: Memo) -> Plan[Claimed | None]:
    """Claim the run if it can be executed here, else a child that it waits for."""
    if app.known(row.workflow) is None:
        return None
    if row.status == READY or (row.status in AT_WORK and not (yield from is_held(app, row))):
        return (yield from claim(app, row.run_id))
    if row.status != WAITING:
        return None
    if memo.get(row.run_id, (0, []))[0] != row.position:
        past = yield lambda: read_replay_input(app.core, row)
        children = record_of(past.entries).children
        memo[row.run_id] = row.position, [name for name, entry in children.items() if not entry["detached"]]
    for child in memo[row.run_id][1]:
        found = yield lambda child=child: app.core.port.run(child)
        claimed = (yield from _claim_if_possible(app, verify_run(found), memo)) if found is not None else None
        if claimed is not None:
            return claimed
    return None


def deadline(timeout: float | None) -> float | None:
    """The end of a wait, on the monotonic clock."""
    return None if timeout is None else time.monotonic() + seconds_us("timeout", timeout) / US


def next_poll_s(polls: int) -> float:
    """The delay before the next poll: short at first, then longer."""
    return min(_POLL_MAX_S, _FIRST_POLL_S * 1.5 ** min(polls, 30))


def not_finished(
    app: AppCore, run_id: str, status: str, timeout: float | None, *, only_wait: bool
) -> Plan[NotFinished]:
    """The error of a wait that timed out: what the run waits for, and whether a running worker knows its workflow."""
    detail = f" after {timeout:g} s"
    row: RunRow = yield from control.require_run(app, run_id)
    port = app.core.port
    if isinstance(port, WorkerRegistry) and (only_wait or app.known(row.workflow) is None):
        found: dict[str, tuple[str, ...]] = yield port.workers
        knowing = [owner for owner, names in found.items() if row.workflow in names]
        if knowing:
            detail += f"; worker {knowing[0]!r} knows workflow {row.workflow!r}"
        else:
            detail += f"; no running worker knows workflow {row.workflow!r}: start one with `holdfast worker`"
    waits: str = yield lambda: describe_waits(app, row)
    return NotFinished(run_id, status, detail + (waits and f"; it {waits}"))


class Handle(Generic[R]):
    """A run by its id, with the type of its result. `app.start` and `app.handle` return one.

    Example:
        handle = app.handle("order-17")
        handle.status(), handle.gates()
    """

    def __init__(self, app: App, run_id: str, *, only_wait: bool = False) -> None:
        self._app = app
        self._only_wait = only_wait
        self.run_id = run_id

    def info(self) -> RunInfo:
        """The run's facts.

        Example:
            handle.info().workflow
        """
        core = self._app._core
        return run_info(self._app._run("info", control.require_run(core, self.run_id)))

    def status(self) -> str:
        """The run's status.

        Example:
            handle.status()
        """
        return self.info().status

    def gates(self) -> list[GateInfo]:
        """Its open gates.

        Example:
            handle.gates()
        """
        return self._app.gates(self.run_id)

    def result(self, timeout: float | None = None) -> R:
        """Wait until the run has ended and return its result.

        The handle executes the run in this process whenever it is ready, so no worker is needed. A handle of a call
        with `enqueue=True` only waits, and a worker executes the run. Raises RunFailed, RunCancelled, or NotFinished
        after `timeout` seconds, which reports what the run waits for and whether a running worker knows the workflow.

        Example:
            app.answer("order-17", {"approve": True}).result(timeout=5)
        """
        core, only_wait, until = self._app._core, self._only_wait, deadline(timeout)
        polls, memo = 0, Memo()
        while True:
            found = self._app._run("result", read_state(core, self.run_id, memo, only_wait=only_wait))
            if found.ended:
                result: R = found.result
                return result
            if found.claimed is not None:
                self._app._advance(found.claimed)
                polls = 0
                continue
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                late = not_finished(core, self.run_id, found.status, timeout, only_wait=only_wait)
                raise self._app._run("result", late)
            wait = next_poll_s(polls)
            time.sleep(wait if left is None else min(wait, left))
            polls += 1

    def __repr__(self) -> str:
        return f"<run {self.run_id!r}>"


def describe_waits(app: AppCore, row: RunRow) -> str:
    """What the run waits for, or why it is paused; empty if neither is recorded."""
    if row.status not in (WAITING, PAUSED) or not first_entry(app.core, row):  # another program wrote the journal
        return ""
    past = read_replay_input(app.core, row)
    if row.status == PAUSED:
        return _pause_reason(past)
    record = record_of(past.entries)
    found = [*_gates(app, row), *_events(record), *_timers(app, row, record)]
    found += [_child(app, name, entry) for name, entry in record.children.items() if not entry["detached"]]
    return f"waits for {' and '.join(found)}" if found else ""


def _pause_reason(past: ReplayInput) -> str:
    last = next((entry for _, entry in reversed(past.entries) if entry["kind"] in ("paused", "diverged")), None)
    if last is None or last["kind"] == "paused":
        return f"was paused by {last['by']}" if last is not None and last.get("by") else ""
    return f"cannot continue: {last.get('message', '')}"


def _gates(app: AppCore, row: RunRow) -> list[str]:
    rows = app.core.gates_of(row.run)
    labels = gate_labels([gate.gate for gate in rows])
    found = []
    for gate in rows:
        body = decode_body(gate.body, f"gate {gate.gate!r} of run {row.run_id!r}")
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
    for timer in app.core.port.rows(TimerRow, row.run):
        kind = kinds.get(timer.timer, "sleep")
        if timer.timer == BEGIN and not record.scopes:
            found.append(f"its start at {moment(timer.due_us).isoformat(timespec='seconds')}")
            continue
        what = f"the timer {timer.timer!r}" if kind == "sleep" else f"the next attempt of {timer.timer!r}"
        found += [f"{what} at {moment(timer.due_us).isoformat(timespec='seconds')}"] if kind != "wait" else []
    return found


def _child(app: AppCore, name: str, entry: EntryData) -> str:
    """A child, with what it waits for itself, or with the fact that no running worker knows its workflow."""
    row = app.core.port.run(name)
    workflow = entry["workflow"]
    if app.known(workflow) is None:
        port = app.core.port
        if isinstance(port, WorkerRegistry) and not any(workflow in names for names in port.workers().values()):
            return f"child run {name!r} of workflow {workflow!r}, which no running worker knows"
    inner = describe_waits(app, verify_run(row)) if row is not None else ""
    return f"child run {name!r}" + (f", which {inner}" if inner else "")
