"""Where a run stands: in one sentence, with what it waits for and what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.clock import US
from holdfast.inspect.inbox import cancel_in_inbox
from holdfast.inspect.rows import error_text
from holdfast.inspect.shapes import PendingCancel, Row, Standing, Waiting
from holdfast.inspect.threads import THREADS, next_nodes
from holdfast.model.gates import GateInfo
from holdfast.model.names import display_name, gate_labels, is_named, short_name
from holdfast.model.rows import RunRow
from holdfast.model.status import AT_WORK, TERMINAL
from holdfast.store.port import Select
from holdfast.verbs.core import Core
from holdfast.verbs.values import moment

Commands = tuple[tuple[str, ...], ...]

_WORKER: Final = ("holdfast", "worker", "--app", "MODULE:NAME")
_CALLS: Final = frozenset({"step", "effect", "ask", "sleep", "wait", "child", "map", "gather", "call"})
_AROUND: Final = frozenset({"loop", "turn", "turns", "stage", "stages"})


def standing_of(
    core: Core, run: RunRow, rows: Sequence[Row], gates: Sequence[GateInfo], *, held: bool, workflow: bool
) -> Standing:
    """Where the run stands. `workflow`: whether its journal is the engine's, so that a worker could move it on."""
    cancel = cancel_in_inbox(core, run)
    waiting = () if run.status in TERMINAL or cancel is not None else tuple(_waiting(core, run, rows, gates))
    found = _Sentence(run, rows, waiting, held=held, workflow=workflow, cancel=cancel)
    left_us = None
    if run.owner:
        left_us = max(0, run.lease_us - core.clock.lease_time().us) if held else 0
    head = core.port.checkpoint(run.run_id, Select()) if run.head and run.status not in TERMINAL else None
    return Standing(
        status=run.status, sentence=found.text(), since=moment(run.updated_us), waiting=waiting,
        owner=run.owner or None, lease_left_s=None if left_us is None else left_us / US,
        next_node=_next_node(core, run, head), cancel=cancel, commands=found.commands(),
    )  # fmt: skip


def _next_node(core: Core, run: RunRow, head: Any) -> str | None:
    """What comes next; nothing, once it has ended."""
    if run.workflow == THREADS and run.status not in TERMINAL:
        return ", ".join(next_nodes(core, run)) or None
    if run.status in TERMINAL or head is None or head[1] is None:
        return None
    found: str | None = head[1].next_node
    return found


def _waiting(core: Core, run: RunRow, rows: Sequence[Row], gates: Sequence[GateInfo]) -> list[Waiting]:
    """All that the run waits for, persons first."""
    found = [
        Waiting(reason="person", what=gate.gate, text=gate.prompt, since=gate.opened_at, until=gate.expires_at)
        for gate in gates
    ]
    timers = {timer.timer: moment(timer.due_us) for timer in core.port.timers(run.run)}
    told: set[str] = set()
    for row in rows:
        if row.state != "waiting" or row.kind not in ("wait", "child", "sleep", "step", "effect"):
            continue
        until = timers.get(row.call)
        told.add(row.call)
        if row.kind == "wait":
            found.append(Waiting(reason="event", what=row.name, text=row.call, since=row.started_at, until=until))
        elif row.kind == "child":
            found.append(Waiting(reason="child", what=row.text, text=row.call, since=row.started_at))
        elif until is not None:
            reason = "timer" if row.kind == "sleep" else "retry"
            found.append(Waiting(reason=reason, what=row.call, text=row.text, since=row.started_at, until=until))
    found += [
        Waiting(reason="timer", what=name, text="", until=due) for name, due in timers.items() if name not in told
    ]
    return found


class _Sentence:
    """What to say about a run, and what to do about it."""

    def __init__(
        self, run: RunRow, rows: Sequence[Row], waiting: tuple[Waiting, ...], *, held: bool, workflow: bool,
        cancel: PendingCancel | None = None,
    ) -> None:  # fmt: skip
        self._run = run
        self._rows = [row for row in rows if row.kind != "gap" and row.state != "taken_back"]
        self._waiting = waiting
        self._held = held
        self._workflow = workflow
        self._cancel = cancel
        self._doubtful = [row for row in self._rows if row.kind == "effect" and row.state == "in_doubt"]

    def text(self) -> str:
        says = {
            "completed": lambda: "completed", "failed": self._failed, "cancelled": self._cancelled,
            "paused": self._paused, "ready": self._ready, "waiting": self._waits,
        }  # fmt: skip
        said = says.get(self._run.status, self._at_work)()
        if self._cancel is not None:
            does = "its process carries it out" if self._held else "a worker carries it out when it takes the run"
            said = f"{said if self._held else self._run.status}; a cancel by {self._cancel.by} is pending: {does}"
        doubt = len(self._doubtful)
        if doubt and self._run.status != "waiting":
            said += f"; {doubt} effect{'s are' if doubt > 1 else ' is'} in doubt"
        return said

    def _newest(self, *kinds: str) -> Row | None:
        return next((row for row in reversed(self._rows) if row.kind in kinds), None)

    def _failed(self) -> str:
        last = self._newest("ended")
        return f"failed: {error_text(last.error)}" if last is not None and last.error else "failed"

    def _cancelled(self) -> str:
        last = self._newest("ended")
        return f"cancelled by {last.by}" if last is not None and last.by else "cancelled"

    def _waits(self) -> str:
        words = {
            "person": "an answer to {text!r} (gate {what})", "event": "the event {what!r}",
            "child": "child run {what!r}", "timer": "a timer ({what})", "retry": "the next attempt of {what}",
        }  # fmt: skip
        found = [
            words[one.reason].format(
                what=one.what if one.reason in ("event", "child") else display_name(one.what), text=one.text
            )
            for one in self._waiting
        ]
        said = f"waiting for {' and '.join(found)}" if found else "waiting"
        if self._run.workflow == THREADS:
            return (
                f"{said}; its graph goes on with Command(resume=…)" if found else f"{said} for its graph to be called"
            )
        last = self._newest("unreached")
        lost = [one.what for one in self._waiting if last is not None and one.what in last.result]
        return f"{said}; its code does not reach {', '.join(map(display_name, lost))} any more" if lost else said

    def _paused(self) -> str:
        last = self._newest("paused", "diverged", "breakpoint")
        if last is not None and last.kind == "breakpoint":
            return f"paused at a breakpoint: {last.text}"
        if last is not None and last.kind == "diverged":
            return f"paused, since it cannot go on as things are: {last.text}"
        return f"paused by {last.by}" if last is not None and last.by else "paused"

    def _ready(self) -> str:
        return "ready: it goes on when a worker takes it" if self._workflow else "ready: nobody holds it"

    def _at_work(self) -> str:
        run = self._run
        doing = "being rolled back" if run.status == "rolling_back" else "running"
        if run.status == "rolling_back" and not self._held:
            last = self._newest("rollback")
            why = f": {last.text}" if last is not None and last.state == "failed" else ""
            return f"a rollback of it has stopped{why}; it can be taken up"
        if self._held:
            return f"{doing}, held by {run.owner}"
        if run.owner:
            return (
                f"{doing} until {run.owner} stopped: its lease is over or its process is gone, so anybody may take it"
            )
        return f"{doing}, held by nobody"

    # --- what to type ------------------------------------------------------------------------------------------------

    def commands(self) -> Commands:
        """What to type next, the likeliest first."""
        run_id, status = self._run.run_id, self._run.status
        if self._run.workflow == THREADS:  # only its graph moves it on
            return (("holdfast", "show", run_id, "--state"),)
        if self._cancel is not None and not self._held:
            return (_WORKER, ("holdfast", "show", run_id))
        if status == "completed":
            return (("holdfast", "show", run_id, "--state"), ("holdfast", "fork", run_id))
        if status == "failed":
            can_retry = self._workflow and self._newest("compensate") is None
            retry = (("holdfast", "retry", run_id),) if can_retry else ()
            return (*retry, *self._back(), *self._anew(), ("holdfast", "show", run_id, "--full"))
        if status == "cancelled":
            return (("holdfast", "fork", run_id),)
        if status == "waiting":
            return self._to_answer()
        if status == "paused" and not self._workflow:
            return (("holdfast", "show", run_id, "--state"),)
        if status == "paused":
            last = self._newest("paused", "diverged")
            if last is not None and last.kind == "diverged":
                return (("holdfast", "check", run_id), ("holdfast", "resume", run_id), *self._back())
            return (("holdfast", "resume", run_id),)
        if status == "rolling_back" and not self._held:
            return (("holdfast", "rollback", run_id), _WORKER)
        if status in AT_WORK and self._held:
            return (("holdfast", "show", run_id), ("holdfast", "pause", run_id))
        return (_WORKER, ("holdfast", "resume", run_id)) if self._workflow else (("holdfast", "log", run_id),)

    def _to_answer(self) -> Commands:
        run_id = self._run.run_id
        persons = list(gate_labels([one.what for one in self._waiting if one.reason == "person"]).values())
        found: list[tuple[str, ...]] = [("holdfast", "answer", run_id, "--gate", gate) for gate in persons]
        if len(persons) == 1:
            found = [("holdfast", "answer", run_id)]
        found += [("holdfast", "send", run_id, one.what) for one in self._waiting if one.reason == "event"]
        found += [("holdfast", "show", one.what) for one in self._waiting if one.reason == "child"]
        if not persons and any(one.reason in ("timer", "retry") for one in self._waiting):
            found.append(_WORKER)
        return tuple(found) or (("holdfast", "log", run_id),)

    def _back(self) -> Commands:
        """Going back to before the last thing it did, or before the call that diverged.

        A rollback is refused once the run has undone effects itself.
        """
        last = self._diverged_call() if self._run.status == "paused" else self._last_call()
        if last is None or self._newest("compensate") is not None:
            return ()
        return (("holdfast", "rollback", self._run.run_id, "--to", self._place(last)),)

    def _place(self, row: Row) -> str:
        """What to type for the place before a row: its short name if nothing else is named so, else its position."""
        name = short_name(row.call)
        named = [other for other in self._rows if other.call and is_named(other.call, name)]
        stages = [other.name for other in self._rows if other.kind == "stage"]
        return name if len(named) == 1 and stages.count(name) <= 1 else str(row.first - 1)

    def _anew(self) -> Commands:
        """A fork that does not fail at once: from before the last thing it did, or before the first it has undone."""
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
        """The call with which the code has diverged from the journal; None if that is not known."""
        stopped = self._newest("diverged")
        at = (stopped.result or {}).get("at") if stopped is not None else None
        around = [row for row in self._rows if at and row.call and row.first <= at <= row.last]
        return max((row for row in around if row.kind not in _AROUND), key=lambda row: row.first, default=None)

    def _last_call(self) -> Row | None:
        return next((row for row in reversed(self._rows) if row.kind in _CALLS and row.call), None)
