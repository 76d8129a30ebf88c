"""`gates`: list open gates."""

from __future__ import annotations

from typing import Final

from holdfast.cli import run_reads
from holdfast.cli.format import command_lines
from holdfast.cli.output import one_line
from holdfast.cli.session import Session
from holdfast.cli.verb import Argument, Option, verb
from holdfast.ids import gate_labels
from holdfast.inspect.status import gates_of, pending_cancel
from holdfast.inspect.threads import INTERRUPT, THREADS
from holdfast.inspect.views import as_data

_QUESTION_CHARS: Final = 300
"""How much of a question the list shows."""


@verb(
    Argument("run", "[RUN]", required=False),
    Option("--all", "everything", "Include gates that are answered, expired or closed.", is_flag=True),
    Option("--limit", "limit", "The maximum number of gates.", default=1000, at_least=1),
)
def gates_command(session: Session, run: str | None, everything: bool, limit: int) -> None:
    """List the gates that wait for an answer.

    With RUN, these are its own gates; if it has none, those of its child runs. Long questions are shortened; `holdfast
    show RUN` prints all of them.

    \b
    Examples:
      holdfast gates
      holdfast gates order-17 --all
      holdfast gates --json
    """
    run_id = None if run is None else run_reads.find_run(session, run)
    store = session.reads()
    gates = gates_of(store, run_id, state=None if everything else "open", limit=limit)
    if run_id is not None and not gates:
        gates = run_reads.open_gates(store, run_id)[:limit]
    cancels = {
        id_: pending_cancel(store, id_) for id_ in sorted({gate.run_id for gate in gates if gate.state == "open"})
    }
    if not everything:
        gates = [gate for gate in gates if cancels[gate.run_id] is None]
    if session.json:
        session.out.give({"gates": as_data(gates)})
        return
    for cancelled, cancel in cancels.items():
        if cancel is not None:
            run_reads.note_cancel(session, cancelled, cancel)
    if not gates:
        session.out.note("no gate waits for an answer" if not everything else "no gates")
        return
    labels = {
        run: gate_labels([gate.gate for gate in gates if gate.run_id == run]) for run in {g.run_id for g in gates}
    }
    rows = []
    for gate in gates:
        if gate.purpose == INTERRUPT:
            opened = session.out.time(gate.opened_at)
            rows.append((gate.run_id, gate.gate, gate.state, opened, "", THREADS, _shorten(gate.prompt)))
            continue
        until = session.out.time(gate.expires_at)
        by = f"by {gate.answered_by}" if gate.answered_by else ", ".join(gate.who)
        name, opened = labels[gate.run_id][gate.gate], session.out.time(gate.opened_at)
        rows.append((gate.run_id, name, gate.state, opened, until, by, _shorten(gate.prompt)))
    session.out.table(("RUN", "GATE", "STATE", "OPENED", "EXPIRES", "WHO", "QUESTION"), rows)
    still_open = [
        gate for gate in gates if gate.state == "open" and gate.purpose != INTERRUPT and cancels[gate.run_id] is None
    ]
    if still_open:
        for line in command_lines(
            f"answer: {one_line(run_reads.answer_line(still_open[0], among=still_open))}", session.out.width
        ):
            session.out.note(line)
    interrupted = next((gate for gate in gates if gate.purpose == INTERRUPT), None)
    if interrupted is not None:
        session.out.note(
            one_line(f"answer an interrupt of LangGraph through its graph: {run_reads.resume_call(interrupted.run_id)}")
        )


def _shorten(prompt: str) -> str:
    """The beginning of a question, on one line."""
    text = " ".join(prompt.split())
    return text if len(text) <= _QUESTION_CHARS else f"{text[: _QUESTION_CHARS - 1]}…"
