"""`holdfast answer`: answer a question a run waits for."""

from __future__ import annotations

from shlex import quote
from typing import Any

import click

from holdfast.cli.acting import (
    answering,
    by_option,
    enqueue_option,
    record_and_tell,
    resuming,
    run_argument,
)
from holdfast.cli.answers import given_answer
from holdfast.cli.asking import ask_gate
from holdfast.cli.exits import CannotAsk
from holdfast.cli.naming import adopt, open_gates, run_adopted
from holdfast.cli.output import read_line
from holdfast.cli.session import Session
from holdfast.errors import Conflict, GateClosed, InvalidAnswer, InvalidInput
from holdfast.inspect.inbox import pending_cancel
from holdfast.inspect.threads import THREADS
from holdfast.limits import NUMBER_MAX
from holdfast.model.gates import GateInfo
from holdfast.model.names import find_gates, gate_labels
from holdfast.runtime.outside import somebody


@click.command()
@run_argument
@click.argument("values", nargs=-1, metavar="[FIELD=VALUE]...")
@click.option("--gate", metavar="GATE", help="Which question, if the run has several open ones.")
@click.option("--file", metavar="FILE", help="The answer as JSON; - reads standard input.")
@by_option
@enqueue_option
@click.pass_obj
def command(
    session: Session,
    run: str,
    values: tuple[str, ...],
    gate: str | None,
    file: str | None,
    by: str | None,
    enqueue: bool,
) -> int:
    """Answer a question a run waits for.

    Values are read by the type of their field: yes and no, numbers, dates, choices by name, lists with commas, objects
    as JSON. In a terminal, without values, it asks field by field. The first answer counts; one that does not fit
    changes nothing. With an app that knows the workflow the run goes on here until it next waits or ends; the exit code
    is 1 if it then fails, or cannot go on since its code has changed: the answer is kept.

    \b
    Examples:
      holdfast answer order-17
      holdfast answer order-17 approve=yes note="looks fine" --by ana
      holdfast answer order-17 --gate approve --file answer.json
      echo '{"approve": true, "note": ""}' | holdfast answer order-17 --file -
    """
    app = session.app()
    run_id = run_adopted(session, run)
    if app.handle(run_id).info().workflow == THREADS:
        raise InvalidInput(
            f"{run_id!r} is a thread of LangGraph; answer its interrupt through its graph: {resuming(run_id)}"
        )
    who = somebody(by)
    chosen = _chosen(session, run_id, gate)
    if chosen is None or chosen.state != "open":  # whoever was first is named by the store
        app.answer(run_id, None, by=who, gate=gate, enqueue=True)
        raise GateClosed(run_id, gate or "", "unknown")
    cancel = pending_cancel(session.store(), chosen.run_id)
    if cancel is not None:
        when = cancel.at.isoformat(timespec="seconds")
        raise Conflict(f"run {chosen.run_id!r} takes no answer any more: {cancel.by!r} asked to cancel it at {when}")
    answer = _answer(session, chosen, values, file, who)
    session.how_to_go_on = f"The answer was perhaps taken; `holdfast show {quote(run_id)}` says where the run stands."
    if chosen.run_id != run_id:
        adopt(session, chosen.run_id)
    return record_and_tell(
        session, run_id, f"the answer of {who}",
        lambda: app.answer(chosen.run_id, answer, by=who, gate=chosen.gate, enqueue=enqueue),
        gate=chosen.gate, answer=chosen.form.check(answer).value, by=who,
    )  # fmt: skip


def _chosen(session: Session, run_id: str, name: str | None) -> GateInfo | None:
    """The gate that is meant; None if that is for the store to say."""
    known = session.app().gates(run_id, state=None, limit=NUMBER_MAX)
    if name is not None:
        named = find_gates(known, name)
        return named[0] if len(named) == 1 else None
    still_open = [gate for gate in known if gate.state == "open"] or open_gates(session.app(), run_id)
    if len(still_open) < 2:
        return still_open[0] if still_open else None
    labels = gate_labels([gate.gate for gate in still_open])
    if not session.out.can_ask:
        names = ", ".join(labels.values())
        raise InvalidInput(f"run {run_id!r} has {len(still_open)} open questions; say which with --gate: {names}")
    for number, gate in enumerate(still_open, 1):
        session.out.note(f"  {number}) {labels[gate.gate]}: {gate.prompt}")
    while True:
        text = read_line("Which one (number or name): ").strip()
        by_number = {str(number): gate for number, gate in enumerate(still_open, 1)}
        named = [by_number[text]] if text in by_number else find_gates(still_open, text)
        if len(named) == 1:
            return named[0]


def _answer(session: Session, gate: GateInfo, values: tuple[str, ...], file: str | None, who: str) -> Any:
    if gate.who and who not in gate.who:  # before somebody types an answer that is not taken
        raise InvalidAnswer(gate.run_id, gate.gate, [f"{who!r} may not answer it; it is for {', '.join(gate.who)}"])
    if values or file is not None:
        return given_answer(gate, values, file)
    if not gate.form.fields:
        return {}
    if not session.out.can_ask:
        raise CannotAsk(f"nobody can be asked here, so give the answer: {answering(gate)}")
    return ask_gate(session, gate)
