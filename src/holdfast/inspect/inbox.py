"""The inbox: gates that wait for an answer, of one run or of all."""

from __future__ import annotations

from holdfast.errors import InvalidInput
from holdfast.inspect.shapes import PendingAnswer, PendingCancel
from holdfast.inspect.threads import THREADS, open_interrupts, readable_interrupts, waiting_threads
from holdfast.limits import NUMBER_MAX
from holdfast.model.gates import GateInfo
from holdfast.model.rows import RunRow
from holdfast.model.status import TERMINAL
from holdfast.runtime.outside import GATE_STATES, gate_info
from holdfast.verbs.core import Core
from holdfast.verbs.reading import known_run
from holdfast.verbs.store import Store
from holdfast.verbs.values import body_value, moment


def gates_of(
    store: Store, run_id: str | None = None, *, state: str | None = "open", limit: int = 1000
) -> list[GateInfo]:
    """Gates, longest open first; with `state=None` also those that are answered, expired or closed.

    Among the open ones are the interrupts of LangGraph threads, with the purpose `interrupt`.

    Example:
        [gate.prompt for gate in gates_of(store)]
    """
    if state not in (None, *GATE_STATES):
        raise InvalidInput(f"state must be one of {', '.join(GATE_STATES)}, or None for all, not {state!r}")
    core = store._place.core
    run = None if run_id is None else known_run(core, run_id)
    found = [gate_info(of, row) for of, row in core.port.gates(None if run is None else run.run, state, limit)]
    if state in (None, "open"):
        if run is None:
            found += [gate for thread in waiting_threads(store) for gate in readable_interrupts(core, thread)]
        elif run.workflow == THREADS:
            found += open_interrupts(core, run)
    return sorted(found, key=lambda gate: gate.opened_at)[:limit]


def pending_cancel(store: Store, run_id: str) -> PendingCancel | None:
    """The cancel that was asked for and not carried out yet; None if there is none, or no such run.

    Example:
        pending_cancel(store, "order-17")
    """
    core = store._place.core
    run = core.port.run(run_id)
    return None if run is None else cancel_in_inbox(core, run)


def answers_in_inbox(core: Core, run: RunRow) -> dict[str, PendingAnswer]:
    """The answers in a run's inbox, by gate: given, and not taken up by a worker yet."""
    return {
        item.name: PendingAnswer(
            by=item.by, at_us=item.created_us,
            answer=body_value(item.body, f"the answer to gate {item.name!r} of run {run.run_id!r}"),
        )
        for item in core.port.inbox(run.run, 0, NUMBER_MAX)
        if item.kind == "answer"
    }  # fmt: skip


def cancel_in_inbox(core: Core, run: RunRow) -> PendingCancel | None:
    """The first cancel in a run's inbox. What was sent before it or since is not read by the run any more."""
    if run.status in TERMINAL:
        return None
    items = core.port.inbox(run.run, 0, NUMBER_MAX)
    found = next((item for item in items if item.kind == "cancel"), None)
    return None if found is None else PendingCancel(by=found.by, at=moment(found.created_us))
