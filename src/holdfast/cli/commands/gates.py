"""`holdfast gates`: the inbox of everything that waits for somebody."""

from __future__ import annotations

import click

from holdfast.cli.acting import answering, resuming
from holdfast.cli.naming import note_cancel, offered_runs, run_named
from holdfast.cli.output import one_line
from holdfast.cli.session import Session
from holdfast.cli.showing import command_lines
from holdfast.inspect.inbox import gates_of, pending_cancel
from holdfast.inspect.plain import as_data
from holdfast.inspect.threads import INTERRUPT, THREADS
from holdfast.model.names import gate_labels


@click.command()
@click.argument("run", metavar="[RUN]", required=False, shell_complete=offered_runs)
@click.option("--all", "everything", is_flag=True, help="Also those that are answered, expired or closed.")
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(1), help="How many at most.")
@click.pass_obj
def command(session: Session, run: str | None, everything: bool, limit: int) -> None:
    """List the questions that wait for an answer.

    \b
    Examples:
      holdfast gates
      holdfast gates order-17 --all
      holdfast gates --json
    """
    run_id = None if run is None else run_named(session, run)
    store = session.store()
    gates = gates_of(store, run_id, state=None if everything else "open", limit=limit)
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
            note_cancel(session, cancelled, cancel)
    if not gates:
        session.out.note("nothing waits for an answer" if not everything else "no gates")
        return
    labels = {
        run: gate_labels([gate.gate for gate in gates if gate.run_id == run]) for run in {g.run_id for g in gates}
    }
    rows = []
    for gate in gates:
        if gate.purpose == INTERRUPT:
            rows.append(
                (gate.run_id, gate.gate, gate.state, session.out.time(gate.opened_at), "", THREADS, gate.prompt)
            )
            continue
        until = session.out.time(gate.expires_at)
        by = f"by {gate.answered_by}" if gate.answered_by else ", ".join(gate.who)
        name, opened = labels[gate.run_id][gate.gate], session.out.time(gate.opened_at)
        rows.append((gate.run_id, name, gate.state, opened, until, by, gate.prompt))
    session.out.table(("RUN", "GATE", "STATE", "OPENED", "EXPIRES", "WHO", "QUESTION"), rows)
    still_open = [
        gate for gate in gates if gate.state == "open" and gate.purpose != INTERRUPT and cancels[gate.run_id] is None
    ]
    if still_open:
        for line in command_lines(f"answer: {one_line(answering(still_open[0], among=still_open))}", session.out.width):
            session.out.note(line)
    interrupted = next((gate for gate in gates if gate.purpose == INTERRUPT), None)
    if interrupted is not None:
        session.out.note(
            one_line(f"answer an interrupt of LangGraph through its graph: {resuming(interrupted.run_id)}")
        )
