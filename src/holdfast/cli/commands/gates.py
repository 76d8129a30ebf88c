"""`gates`, `answer` and `reassign`: list open gates, answer them, and change the people that may answer."""

from __future__ import annotations

from shlex import quote
from typing import Final

import click

from holdfast.cli import exit_codes, run_args
from holdfast.cli.exit_codes import CannotAsk
from holdfast.cli.format import command_lines
from holdfast.cli.output import one_line, read_line
from holdfast.cli.prompts import ask_gate, given_answer
from holdfast.cli.session import Session
from holdfast.errors import Conflict, GateClosed, InvalidAnswer, InvalidInput
from holdfast.ids import display_name, find_gates, gate_labels, is_named
from holdfast.inspect.status import gates_of, pending_cancel
from holdfast.inspect.threads import INTERRUPT, THREADS
from holdfast.inspect.views import as_data
from holdfast.limits import NUMBER_MAX
from holdfast.model.views import GateInfo
from holdfast.runtime.control import default_actor

_QUESTION_CHARS: Final = 300
"""How much of a question the list shows."""


@click.command()
@click.argument("run", metavar="[RUN]", required=False, shell_complete=run_args.complete_runs)
@click.option("--all", "everything", is_flag=True, help="Include gates that are answered, expired or closed.")
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(1), help="The maximum number of gates.")
@click.pass_obj
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
    run_id = None if run is None else run_args.find_run(session, run)
    store = session.store()
    gates = gates_of(store, run_id, state=None if everything else "open", limit=limit)
    if run_id is not None and not gates:
        gates = run_args.open_gates(store, run_id)[:limit]
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
            run_args.note_cancel(session, cancelled, cancel)
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
            f"answer: {one_line(run_args.answer_line(still_open[0], among=still_open))}", session.out.width
        ):
            session.out.note(line)
    interrupted = next((gate for gate in gates if gate.purpose == INTERRUPT), None)
    if interrupted is not None:
        session.out.note(
            one_line(f"answer an interrupt of LangGraph through its graph: {run_args.resume_call(interrupted.run_id)}")
        )


def _shorten(prompt: str) -> str:
    """The beginning of a question, on one line."""
    text = " ".join(prompt.split())
    return text if len(text) <= _QUESTION_CHARS else f"{text[: _QUESTION_CHARS - 1]}…"


@click.command()
@run_args.run_argument
@click.argument("values", nargs=-1, metavar="[FIELD=VALUE]...")
@click.option("--gate", metavar="GATE", help="The gate, if the run has several open ones.")
@click.option("--file", metavar="FILE", help="A JSON file with the answer; - reads standard input.")
@run_args.by_option
@click.option("--group", "groups", metavar="GROUP", multiple=True, help="A group of that person; repeatable.")
@run_args.enqueue_option
@click.pass_obj
def answer_command(
    session: Session,
    run: str,
    values: tuple[str, ...],
    gate: str | None,
    file: str | None,
    by: str | None,
    groups: tuple[str, ...],
    enqueue: bool,
) -> int:
    """Answer a gate of a run.

    Values are parsed by the type of their field: yes and no, numbers, dates, choices by name, lists with commas,
    objects as JSON. In a terminal, without values, it asks field by field. The first answer counts; one that does not
    fit changes nothing. With an app that has the workflow, the run continues here until it waits or ends. The exit code
    is 1 if it then fails, or if its code has changed and it cannot continue; the answer is kept.

    \b
    Examples:
      holdfast answer order-17
      holdfast answer order-17 approve=yes note="looks fine" --by ana
      holdfast answer order-17 --gate approve --file answer.json
      holdfast answer order-17 approve=yes --by ben --group finance
      echo '{"approve": true, "note": ""}' | holdfast answer order-17 --file -
    """
    app = session.app()
    run_id = run_args.find_and_adopt(session, run)
    if app.handle(run_id).info().workflow == THREADS:
        call = run_args.resume_call(run_id)
        raise InvalidInput(f"{run_id!r} is a thread of LangGraph; answer its interrupt through its graph: {call}")
    actor = default_actor(by)
    chosen = _choose_gate(session, run_id, gate)
    if chosen is None or chosen.state != "open":  # the store raises the error, which names the first answer
        app.answer(run_id, None, by=actor, groups=groups, gate=gate, enqueue=True)
        raise GateClosed(run_id, gate or "", "unknown")
    cancel = pending_cancel(session.store(), chosen.run_id)
    if cancel is not None:
        when = cancel.at.isoformat(timespec="seconds")
        raise Conflict(f"run {chosen.run_id!r} accepts no answer: {cancel.by!r} requested its cancel at {when}")
    answer = _read_answer(session, chosen, values, file, (actor, groups))
    session.how_to_continue = f"The answer may have been recorded; `holdfast show {quote(run_id)}` shows its status."
    if chosen.run_id != run_id:
        run_args.adopt(session, chosen.run_id)
    return run_args.record_and_report(
        session,
        run_id,
        f"the answer of {actor}",
        lambda: app.answer(
            chosen.run_id, answer, by=actor, groups=groups, gate=chosen.gate, enqueue=enqueue, via="cli"
        ),
        gate=chosen.gate,
        answer=chosen.form.check(answer).value,
        by=actor,
    )


@click.command()
@run_args.run_argument
@click.option("--who", metavar="NAME", multiple=True, required=True, help="A person or group:NAME; repeatable.")
@click.option("--gate", metavar="GATE", help="The gate, if the run has several open ones.")
@click.option("--reason", metavar="TEXT", default="", help="The reason to record.")
@run_args.by_option
@click.pass_obj
def reassign_command(
    session: Session, run: str, who: tuple[str, ...], gate: str | None, reason: str, by: str | None
) -> int:
    """Change the people that may answer a gate.

    They replace everyone that may answer it now. Escalations that are not due yet stay. The change is recorded with the
    gate.

    \b
    Examples:
      holdfast reassign order-17 --who ben
      holdfast reassign order-17 --gate approve --who ben --who group:finance --reason "on holiday"
    """
    run_id = run_args.find_run(session, run, whole=True)
    changed = session.app().reassign(run_id, who, gate=gate, by=by, reason=reason, via="cli")
    if session.json:
        session.out.give({"run_id": run_id, "gate": changed.gate, "who": list(changed.who)})
    else:
        session.say(one_line(f"{run_id}: {changed.name} is for {', '.join(changed.who)}"))
    return exit_codes.OK


def _choose_gate(session: Session, run_id: str, name: str | None) -> GateInfo | None:
    """Return the named gate, or the only open one; None if the store must report why there is none."""
    known = session.app().gates(run_id, state=None, limit=NUMBER_MAX)
    fits = [gate for gate in known if gate.state == "open"] if name is None else find_gates(known, name)
    if not fits:
        fits = [
            gate for gate in run_args.open_gates(session.store(), run_id) if name is None or is_named(gate.gate, name)
        ]
    if len(fits) < 2:
        return fits[0] if fits else None
    if name is not None or not session.out.can_ask:
        commands = "; ".join(run_args.answer_line(gate, among=fits) for gate in fits)
        raise InvalidInput(f"run {run_id!r} and its children have {len(fits)} open gates; use one of: {commands}")
    for number, gate in enumerate(fits, 1):
        session.out.note(one_line(f"  {number}) {gate.run_id} {display_name(gate.gate)}: {gate.prompt}"))
    while True:
        text = read_line("Which gate (number): ").strip()
        if text.isascii() and text.isdigit() and 0 < int(text[:9]) <= len(fits):
            return fits[int(text[:9]) - 1]


def _read_answer(
    session: Session, gate: GateInfo, values: tuple[str, ...], file: str | None, actor: tuple[str, tuple[str, ...]]
) -> object:
    refused = gate.may_answer(*actor)
    if refused is not None:  # before the answer is typed
        raise InvalidAnswer(gate.run_id, gate.gate, [refused])
    if values or file is not None:
        return given_answer(gate, values, file)
    if not gate.form.fields:
        return {}
    if not session.out.can_ask:
        raise CannotAsk(f"there is no terminal to ask in; pass the answer: {run_args.answer_line(gate)}")
    return ask_gate(session, gate)
