"""What the verbs that act on a run share: how the run is named, who acts, and what is said afterwards."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli import exits
from holdfast.cli.naming import offered_runs, open_gates, run_adopted
from holdfast.cli.output import one_line
from holdfast.cli.session import Session
from holdfast.cli.showing import command_line
from holdfast.cli.wording import worded
from holdfast.errors import RunError
from holdfast.model.names import gate_labels
from holdfast.model.status import FAILED, READY, ROLLING_BACK, WAITING

if TYPE_CHECKING:
    from holdfast.engine.forms import Field
    from holdfast.model.gates import GateInfo
    from holdfast.model.views import RunInfo
    from holdfast.runtime.app import App

_ENTRIES: Final = 200
"""So much of the journal is read to say where a run stands."""
_CHOICES_MAX: Final = 60
"""Choices that take more characters are not written out in a command."""

run_argument = click.argument("run", metavar="RUN", shell_complete=offered_runs)
runs_argument = click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=offered_runs)
by_option = click.option("--by", metavar="NAME", help="Who does it; else the user of this process.")
enqueue_option = click.option("--enqueue", is_flag=True, help="Only record it, and leave the rest to a worker.")


def act(session: Session, named: str, what: str, does: Callable[[App, str], Any]) -> int:
    """Do something to a run and say where it stands then; gives the exit code. `what`: what is recorded by it."""
    app = session.app()
    run_id = run_adopted(session, named)
    session.how_to_go_on = f"`{one_line(command_line(('holdfast', 'show', run_id)))}` says where the run stands."
    return record_and_tell(session, run_id, what, lambda: does(app, run_id))


def record_and_tell(session: Session, run_id: str, what: str, does: Callable[[], Any], **more: Any) -> int:
    """Record something for a run, which then goes on here, and say where it stands; gives the exit code.

    A run that cannot go on, as its code has changed, is paused. What was recorded is kept for when it can.
    """
    try:
        does()
    except RunError as error:  # all refusals to record it are other errors
        tell(session, run_id, **more)
        why = f": {worded(str(error))}" if session.json else ""
        session.out.note(one_line(f"{what} was recorded and is kept, but the run cannot go on{why}"))
        return exits.ERROR
    return code_of_standing(tell(session, run_id, **more))


def code_of_standing(found: dict[str, Any]) -> int:
    """The exit code of a command that has done what it says: an error if the run went on here and has failed."""
    return exits.ERROR if found["status"] == FAILED else exits.OK


def standing(session: Session, run_id: str) -> dict[str, Any]:
    """Where a run stands, as all acting verbs give it with --json."""
    app = session.app()
    info: RunInfo = app.handle(run_id).info()
    gates = [] if info.terminal else open_gates(app, run_id)
    return {
        "run_id": run_id,
        "workflow": info.workflow,
        "status": info.status,
        "gates": [{"run_id": gate.run_id, "gate": gate.gate, "prompt": gate.prompt} for gate in gates],
        "left_for_worker": info.status in (READY, ROLLING_BACK) and not app.knows(info.workflow),
    }


def waits_for_answer(found: dict[str, Any]) -> bool:
    """Whether a run that stands so waits for a person."""
    return found["status"] == WAITING and bool(found["gates"])


def tell(session: Session, run_id: str, **more: Any) -> dict[str, Any]:
    """Say where a run stands after a command, and give that."""
    found = standing(session, run_id)
    if session.json:
        session.out.give({**found, **more})
        return found
    session.say(f"{run_id} is {session.out.status(found['status'])}{_more(session, found)}")
    gates = open_gates(session.app(), run_id) if found["gates"] else []
    for gate in gates:
        session.say(one_line(f"waits for an answer: {gate.prompt}"))
        session.say(one_line(f"  {answering(gate, among=gates)}"))
    if found["left_for_worker"]:
        session.say("left for a worker: holdfast worker --app …")
    return found


def _more(session: Session, found: dict[str, Any]) -> str:
    """What there is to say beside the status, unless the lines below it say so."""
    from holdfast.inspect.timeline import timeline

    if found["gates"]:
        return ""
    stands = timeline(session.store(), found["run_id"], newest=_ENTRIES).standing
    if found["left_for_worker"] and stands.cancel is None:
        return ""
    sentence = stands.sentence
    more = sentence.removeprefix(found["status"])
    return one_line(more) if more != sentence else ""


# --- what to type for an answer --------------------------------------------------------------------------------------


def answering(gate: GateInfo, *, among: Sequence[GateInfo] = ()) -> str:
    """The command that answers a gate, with a placeholder for each value. `among`: all open gates."""
    return f"{command_line(('holdfast', 'answer', gate.run_id))} {usage_of(gate, among=among)}".rstrip()


def resuming(thread_id: str) -> str:
    """The call that answers an interrupt of a LangGraph thread."""
    return f'graph.invoke(Command(resume=…), {{"configurable": {{"thread_id": {json.dumps(thread_id)}}}}})'


def usage_of(gate: GateInfo, *, among: Sequence[GateInfo] = ()) -> str:
    """The arguments `answer` takes for a gate, with a placeholder for each value: what may be chosen, if it is short.

    It is quoted for a shell. Without quotes, `approve=yes|no` as it stands there would be a pipe, and say yes.
    """
    beside = [other.gate for other in among if other.run_id == gate.run_id]
    which = [command_line(("--gate", gate_labels(beside)[gate.gate]))] if len(beside) > 1 else []
    fields = [field for field in gate.form.fields if field.required]
    return " ".join([*which, *(f"{shlex.quote(field.name)}={_placeholder(field)}" for field in fields)])


def _placeholder(field: Field) -> str:
    if field.kind == "yes_no":
        return shlex.quote("yes|no")
    words = "|".join(choice.value if isinstance(choice.value, str) else choice.label for choice in field.choices)
    return shlex.quote(words) if words and len(words) <= _CHOICES_MAX else "…"


# --- what a shell may offer ------------------------------------------------------------------------------------------


def offered_files(_: click.Context, __: click.Parameter, incomplete: str) -> list[Any]:
    """Files, which the shell itself looks for."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def offered_runs_and_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Runs and files. Files come first: bash forgets what was offered before them."""
    return [*offered_files(context, parameter, incomplete), *offered_runs(context, parameter, incomplete)]
