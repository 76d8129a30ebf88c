"""The inbox: gates that wait for an answer, of one run or of all."""

from __future__ import annotations

from holdfast.errors import InvalidInput
from holdfast.model.gates import GateInfo
from holdfast.runtime.outside import GATE_STATES, gate_info
from holdfast.verbs.reading import known_run
from holdfast.verbs.store import Store


def gates_of(
    store: Store, run_id: str | None = None, *, state: str | None = "open", limit: int = 1000
) -> list[GateInfo]:
    """Gates, longest open first; with `state=None` also those that are answered, expired or closed.

    Example:
        [gate.prompt for gate in gates_of(store)]
    """
    if state not in (None, *GATE_STATES):
        raise InvalidInput(f"state must be one of {', '.join(GATE_STATES)}, or None for all, not {state!r}")
    core = store._place.core
    number = None if run_id is None else known_run(core, run_id).run
    return [gate_info(run, row) for run, row in core.port.gates(number, state, limit)]
