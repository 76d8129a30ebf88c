"""`answer` and `reassign`: answer gates, and change the people that may answer."""

from __future__ import annotations

from shlex import quote

import click

from holdfast.cli import exit_codes, run_args, run_reads
from holdfast.cli.exit_codes import CannotAsk
from holdfast.cli.output import one_line, read_line
from holdfast.cli.prompts import ask_gate, given_answer
from holdfast.cli.session import Session
from holdfast.errors import Conflict, GateClosed, InvalidAnswer, InvalidInput
from holdfast.ids import display_name, find_gates, is_named
from holdfast.inspect.status import pending_cancel
from holdfast.inspect.threads import THREADS
from holdfast.limits import NUMBER_MAX
from holdfast.model.views import GateInfo
from holdfast.runtime.control import default_actor


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
        call = run_reads.resume_call(run_id)
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
    run_id = run_reads.find_run(session, run, whole=True)
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
            gate for gate in run_reads.open_gates(session.store(), run_id) if name is None or is_named(gate.gate, name)
        ]
    if len(fits) < 2:
        return fits[0] if fits else None
    if name is not None or not session.out.can_ask:
        commands = "; ".join(run_reads.answer_line(gate, among=fits) for gate in fits)
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
        raise CannotAsk(f"there is no terminal to ask in; pass the answer: {run_reads.answer_line(gate)}")
    return ask_gate(session, gate)
