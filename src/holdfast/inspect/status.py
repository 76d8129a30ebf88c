"""The status of a run in one sentence, with what it waits for and which command comes next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.clock import US
from holdfast.errors import InvalidInput
from holdfast.ids import display_name, gate_labels, is_named, short_name, via_of
from holdfast.inspect.rows import error_text
from holdfast.inspect.threads import THREADS, next_nodes, open_interrupts, readable_interrupts, waiting_threads
from holdfast.inspect.views import PendingAnswer, PendingCancel, Row, RunStatus, Waiting
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import AT_WORK, BEGIN, TERMINAL, ItemRow, RunRow, TimerRow
from holdfast.model.views import GateInfo
from holdfast.operations.context import StoreContext
from holdfast.operations.gates import GATE_STATES, gate_info
from holdfast.operations.read import known_run
from holdfast.operations.store_reads import StoreReads
from holdfast.operations.views import decode_body, moment
from holdfast.store.port import Select, Selected

Commands = tuple[tuple[str, ...], ...]
_WORKER: Final = ("holdfast", "worker", "--app", "MODULE:NAME")
_CALLS: Final = frozenset({"step", "effect", "ask", "sleep", "wait", "child", "map", "gather", "call"})
_AROUND: Final = frozenset({"loop", "turn", "turns", "stage", "stages"})


def find_status(
    core: StoreContext, run: RunRow, rows: Sequence[Row], gates: Sequence[GateInfo], *, held: bool, workflow: bool
) -> RunStatus:
    """The status of a run. `workflow`: whether the engine wrote its journal, so that a worker can execute it."""
    cancel = cancel_in_inbox(core, run)
    waiting = () if run.status in TERMINAL or cancel is not None else tuple(_waiting(core, run, rows, gates))
    found = _StatusText(run, rows, waiting, held=held, workflow=workflow, cancel=cancel)
    left_us = None
    if run.owner:
        left_us = max(0, run.lease_us - core.clock.lease_time().us) if held else 0
    head = core.port.checkpoint(run.run_id, Select()) if run.head and run.status not in TERMINAL else None
    return RunStatus(
        status=run.status,
        sentence=found.text(),
        since=moment(run.updated_us),
        waiting=waiting,
        owner=run.owner or None,
        lease_left_s=None if left_us is None else left_us / US,
        next_node=_next_node(core, run, head),
        cancel=cancel,
        commands=found.commands(),
    )


def _next_node(core: StoreContext, run: RunRow, head: Selected | None) -> str | None:
    """Return the node that comes next; None once the run has ended."""
    if run.workflow == THREADS and run.status not in TERMINAL:
        return ", ".join(next_nodes(core, run)) or None
    if run.status in TERMINAL or head is None or head[1] is None:
        return None
    return head[1].next_node


def _waiting(core: StoreContext, run: RunRow, rows: Sequence[Row], gates: Sequence[GateInfo]) -> list[Waiting]:
    """Everything the run waits for, people first."""
    found = [
        Waiting(reason="person", what=gate.gate, text=gate.prompt, since=gate.opened_at, until=gate.expires_at)
        for gate in gates
    ]
    timers = {timer.timer: moment(timer.due_us) for timer in core.port.rows(TimerRow, run.run)}
    listed: set[str] = set()
    for row in rows:
        if row.state != "waiting" or row.kind not in ("wait", "child", "sleep", "step", "effect"):
            continue
        until = timers.get(row.call)
        listed.add(row.call)
        if row.kind == "wait":
            found.append(Waiting(reason="event", what=row.name, text=row.call, since=row.started_at, until=until))
        elif row.kind == "child":
            found.append(Waiting(reason="child", what=row.text, text=row.call, since=row.started_at))
        elif until is not None:
            reason = "timer" if row.kind == "sleep" else "retry"
            found.append(Waiting(reason=reason, what=row.call, text=row.text, since=row.started_at, until=until))
    found += [
        Waiting(reason="start" if name == BEGIN else "timer", what=name, text="", until=due)
        for name, due in timers.items()
        if name not in listed
    ]
    return found


class _StatusText:
    """The status sentence of a run, and the commands that fit it."""

    def __init__(
        self,
        run: RunRow,
        rows: Sequence[Row],
        waiting: tuple[Waiting, ...],
        *,
        held: bool,
        workflow: bool,
        cancel: PendingCancel | None = None,
    ) -> None:
        self._run = run
        self._rows = [row for row in rows if row.kind != "gap" and row.state != "taken_back"]
        self._waiting = waiting
        self._held = held
        self._workflow = workflow
        self._cancel = cancel
        self._doubtful = [row for row in self._rows if row.kind == "effect" and row.state == "in_doubt"]

    def text(self) -> str:
        texts = {
            "completed": lambda: "completed",
            "failed": self._failed,
            "cancelled": self._cancelled,
            "paused": self._paused,
            "ready": self._ready,
            "waiting": self._waiting_text,
        }
        sentence = texts.get(self._run.status, self._at_work)()
        if self._cancel is not None:
            does = "its process will carry it out" if self._held else "the next worker that takes it will carry it out"
            sentence = (
                f"{sentence if self._held else self._run.status}; a cancel by {self._cancel.by} is pending: {does}"
            )
        doubt = len(self._doubtful)
        if doubt and self._run.status != "waiting":
            sentence += f"; {doubt} effect{'s are' if doubt > 1 else ' is'} in doubt"
        return sentence

    def _newest(self, *kinds: str) -> Row | None:
        return next((row for row in reversed(self._rows) if row.kind in kinds), None)

    def _failed(self) -> str:
        last = self._newest("ended")
        return f"failed: {error_text(last.error)}" if last is not None and last.error else "failed"

    def _cancelled(self) -> str:
        last = self._newest("ended")
        return f"cancelled by {last.by}" if last is not None and last.by else "cancelled"

    def _waiting_text(self) -> str:
        words = {
            "person": "an answer to {text!r} (gate {what})",
            "event": "the event {what!r}",
            "child": "child run {what!r}",
            "timer": "a timer ({what})",
            "start": "its start at {until}",
            "retry": "the next attempt of {what}",
        }
        found = [
            words[one.reason].format(
                what=one.what if one.reason in ("event", "child") else display_name(one.what),
                text=one.text,
                until=one.until.isoformat(timespec="seconds") if one.until is not None else "",
            )
            for one in self._waiting
        ]
        sentence = f"waiting for {' and '.join(found)}" if found else "waiting"
        if self._run.workflow == THREADS:
            return (
                f"{sentence}; its graph continues with Command(resume=…)"
                if found
                else f"{sentence} for its graph to be called"
            )
        last = self._newest("unreached")
        lost = [one.what for one in self._waiting if last is not None and one.what in last.result]
        return (
            f"{sentence}; its code does not reach {', '.join(map(display_name, lost))} any more" if lost else sentence
        )

    def _paused(self) -> str:
        last = self._newest("paused", "diverged", "breakpoint")
        if last is not None and last.kind == "breakpoint":
            return f"paused at a breakpoint: {last.text}"
        if last is not None and last.kind == "diverged":
            return f"paused, because it cannot continue: {last.text}"
        return f"paused by {last.by}" if last is not None and last.by else "paused"

    def _ready(self) -> str:
        if not self._workflow:
            return "ready: not claimed"
        again = " again" if any(row.kind not in ("started", "forked") for row in self._rows) else ""
        return f"ready: it will run{again} when a worker takes it"

    def _at_work(self) -> str:
        run = self._run
        last = self._newest("rollback") if run.status == "rolling_back" else None
        what = "retry" if last is not None and last.name == "retry" else "rollback"
        back = "being retried" if what == "retry" else "being rolled back"
        doing = back if run.status == "rolling_back" else "running"
        if run.status == "rolling_back" and not self._held:
            why = f": {last.text}" if last is not None and last.state == "failed" else ""
            return f"its {what} has stopped{why}; it can be continued"
        if self._held:
            return f"{doing}, claimed by {run.owner}"
        if run.owner:
            return f"{doing} until {run.owner} stopped: its lease expired or its process died; any worker can take it"
        return f"{doing}, not claimed"

    # --- commands ----------------------------------------------------------------------------------------------------

    def commands(self) -> Commands:
        """Return the next commands, the most likely first."""
        run_id, status = self._run.run_id, self._run.status
        if self._run.workflow == THREADS:  # only its graph can execute it
            return (("holdfast", "show", run_id, "--state"),)
        if self._cancel is not None and not self._held:
            return (_WORKER, ("holdfast", "show", run_id))
        if status == "completed":
            return (("holdfast", "show", run_id, "--state"), ("holdfast", "fork", run_id))
        if status == "failed":
            can_retry = self._workflow and self._newest("compensate") is None
            retry = (("holdfast", "retry", run_id),) if can_retry else ()
            return (*retry, *self._rollback_commands(), *self._fork_commands(), ("holdfast", "show", run_id, "--full"))
        if status == "cancelled":
            return (("holdfast", "fork", run_id),)
        if status == "waiting":
            return self._answer_commands()
        if status == "paused" and not self._workflow:
            return (("holdfast", "show", run_id, "--state"),)
        if status == "paused":
            last = self._newest("paused", "diverged")
            if last is not None and last.kind == "diverged":
                return (("holdfast", "check", run_id), ("holdfast", "resume", run_id), *self._rollback_commands())
            return (("holdfast", "resume", run_id),)
        if status == "rolling_back" and not self._held:
            return (("holdfast", "rollback", run_id), _WORKER)
        if status in AT_WORK and self._held:
            return (("holdfast", "show", run_id), ("holdfast", "pause", run_id))
        return (_WORKER, ("holdfast", "resume", run_id)) if self._workflow else (("holdfast", "log", run_id),)

    def _answer_commands(self) -> Commands:
        run_id = self._run.run_id
        persons = list(gate_labels([one.what for one in self._waiting if one.reason == "person"]).values())
        found: list[tuple[str, ...]] = [("holdfast", "answer", run_id, "--gate", gate) for gate in persons]
        if len(persons) == 1:
            found = [("holdfast", "answer", run_id)]
        found += [("holdfast", "send", run_id, one.what) for one in self._waiting if one.reason == "event"]
        found += [("holdfast", "show", one.what) for one in self._waiting if one.reason == "child"]
        if not persons and any(one.reason in ("timer", "retry", "start") for one in self._waiting):
            found.append(_WORKER)
        return tuple(found) or (("holdfast", "log", run_id),)

    def _rollback_commands(self) -> Commands:
        """Return the rollback to before the last call, or before the call that diverged.

        A rollback is refused once the run has compensated its effects.
        """
        last = self._diverged_call() if self._run.status == "paused" else self._last_call()
        if last is None or self._newest("compensate") is not None:
            return ()
        return (("holdfast", "rollback", self._run.run_id, "--to", self._place(last)),)

    def _place(self, row: Row) -> str:
        """Return a name for the place before a row: its short name if that is unique, else its position."""
        name = short_name(row.call)
        named = [other for other in self._rows if other.call and is_named(other.call, name)]
        stages = [other.name for other in self._rows if other.kind == "stage"]
        return name if len(named) == 1 and stages.count(name) <= 1 else str(row.first - 1)

    def _fork_commands(self) -> Commands:
        """Return a fork that can succeed: from before the last call, or before the first effect that was undone."""
        if not self._workflow:
            return (("holdfast", "fork", self._run.run_id),)
        place = self._last_call()
        if self._newest("compensate") is not None:
            place = next((row for row in self._rows if row.kind == "effect" and row.state == "undone"), None)
        return (
            ()
            if place is None or not place.call
            else (("holdfast", "fork", self._run.run_id, "--at", self._place(place)),)
        )

    def _diverged_call(self) -> Row | None:
        """Return the call at which the code diverged from the journal; None if that is unknown."""
        stopped = self._newest("diverged")
        at = (stopped.result or {}).get("at") if stopped is not None else None
        around = [row for row in self._rows if at and row.call and row.first <= at <= row.last]
        return max((row for row in around if row.kind not in _AROUND), key=lambda row: row.first, default=None)

    def _last_call(self) -> Row | None:
        return next((row for row in reversed(self._rows) if row.kind in _CALLS and row.call), None)


def gates_of(
    store: StoreReads, run_id: str | None = None, *, state: str | None = "open", limit: int = 1000
) -> list[GateInfo]:
    """Gates, longest open first; with `state=None` also those that are answered, expired or closed.

    Among the open ones are the interrupts of LangGraph threads, with the purpose `interrupt`.

    Example:
        [gate.prompt for gate in gates_of(store)]
    """
    if state not in (None, *GATE_STATES):
        raise InvalidInput(f"state must be one of {', '.join(GATE_STATES)}, or None for all, not {state!r}")
    core = store.access.core
    now_us = core.clock.now_us()
    run = None if run_id is None else known_run(core, run_id)
    if run is None:
        found = [gate_info(of, row, now_us) for of, row in core.port.gates(state, limit)]
    else:
        found = [gate_info(run, row, now_us) for row in core.gates_of(run.run, state)[:limit]]
    if state in (None, "open"):
        if run is None:
            found += [gate for thread in waiting_threads(store) for gate in readable_interrupts(core, thread)]
        elif run.workflow == THREADS:
            found += open_interrupts(core, run)
    return sorted(found, key=lambda gate: gate.opened_at)[:limit]


def pending_cancel(store: StoreReads, run_id: str) -> PendingCancel | None:
    """Return the requested cancel that is not carried out yet; None if there is none, or no such run.

    Example:
        pending_cancel(store, "order-17")
    """
    core = store.access.core
    run = core.port.run(run_id)
    return None if run is None else cancel_in_inbox(core, run)


def answers_in_inbox(core: StoreContext, run: RunRow) -> dict[str, PendingAnswer]:
    """Return the answers in the inbox of a run, by gate; no worker has read them yet."""
    return {
        item.name: PendingAnswer(
            by=item.by,
            at_us=item.created_us,
            answer=decode_body(item.body, f"the answer to gate {item.name!r} of run {run.run_id!r}"),
            via=via_of(item),
        )
        for item in core.port.rows(ItemRow, run.run, 0, NUMBER_MAX)
        if item.kind == "answer"
    }


def cancel_in_inbox(core: StoreContext, run: RunRow) -> PendingCancel | None:
    """Return the first cancel in the inbox of a run. The run reads nothing after it."""
    if run.status in TERMINAL:
        return None
    items = core.port.rows(ItemRow, run.run, 0, NUMBER_MAX)
    found = next((item for item in items if item.kind == "cancel"), None)
    return None if found is None else PendingCancel(by=found.by, at=moment(found.created_us))
