"""Run arguments: how commands find, act on and report a run.

    order-17     the run, or its end
    order-17~2   its checkpoint two before the newest
    order-17@42  position 42 of its journal

`inspect.refs` defines what ids and their beginnings mean. A command that changes a run requires its whole id.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

import click

from holdfast.cli import exit_codes
from holdfast.cli.exit_codes import message_of
from holdfast.cli.format import command_line
from holdfast.cli.output import one_line
from holdfast.cli.prompts import pairs_of
from holdfast.cli.run_reads import answer_line, find_run, open_gates
from holdfast.cli.session import Session
from holdfast.errors import HoldfastError, RunError, RunNotFound
from holdfast.inspect.refs import LATEST, checkpoint_of, run_of
from holdfast.limits import RUNS_PAGE_MAX
from holdfast.model.rows import FAILED, READY, ROLLING_BACK, WAITING
from holdfast.operations.read import known_run
from holdfast.operations.views import run_info

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from holdfast.model.views import GateInfo, RunInfo
    from holdfast.runtime.app import App


_AT: Final = re.compile(r"(?P<run>.+)@(?P<position>[0-9]{1,18})", re.DOTALL)
_COMPLETIONS_MAX: Final = 100


class RunRef(NamedTuple):
    """A run and a place in it; without a place, its end."""

    run_id: str
    at: int | None = None
    checkpoint_id: str | None = None


def find_and_adopt(session: Session, text: str) -> str:
    """Find a run to act on, by its whole id, and register its workflow if the run carries its definition."""
    run_id = find_run(session, text, whole=True)
    adopt(session, run_id)
    return run_id


def adopt(session: Session, run_id: str) -> None:
    """Register the declared workflow that a run carries, if the app has all the functions it names."""
    app = session.app()
    workflow = app.handle(run_id).info().workflow
    if not app.knows(workflow) and not app.adopt(run_id) and workflow == "car":
        from holdfast.formats.convert.car_converter import adopt_car

        adopt_car(app, run_id)


def locate(session: Session, text: str) -> RunRef:
    """Find a run, by its whole id, and a place in it. Text that is an existing id names that run, not a place."""
    store = session.store()
    if text == LATEST or store.port.run(text) is not None:
        return RunRef(run_of(store, text, whole=True))
    found = _AT.fullmatch(text)
    if found is not None:
        try:
            return RunRef(run_of(store, found["run"], whole=True), at=int(found["position"]))
        except RunNotFound:
            pass
    located = checkpoint_of(store, text, whole=True)
    if located.checkpoint is None:
        return RunRef(located.run.run_id)
    return RunRef(located.run.run_id, checkpoint_id=located.checkpoint.checkpoint_id)


def complete_runs(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a run id in a shell, newest runs first."""
    from click.shell_completion import CompletionItem

    session = context.find_object(Session)
    if session is None:
        return []
    try:
        runs = session.store().runs(limit=_COMPLETIONS_MAX, prefix=incomplete, damaged="skip")
    except HoldfastError:  # completion fails silently
        return []
    finally:
        session.close()
    return [CompletionItem(info.run_id, help=f"{info.workflow} {info.status}".strip()) for info in runs]


def select_runs(
    session: Session,
    named: tuple[str, ...],
    *,
    every: bool,
    workflow: str | None = None,
    status: tuple[str, ...] | None = None,
    older_than: dt.timedelta | None = None,
    whole: bool = False,
    **choice: Any,
) -> list[RunInfo]:
    """Return the named runs, or every run, oldest first. UsageError unless it is one of the two."""
    if bool(named) == every:
        raise click.UsageError("name runs, or pass --all")
    if workflow is not None and not every:
        raise click.UsageError("--workflow requires --all")
    if every:
        runs = list(all_runs(session, workflow, status, **choice))[::-1]
    else:
        core = session.store().access.core
        runs = [run_info(known_run(core, find_run(session, name, whole=whole))) for name in dict.fromkeys(named)]
        runs = [info for info in runs if status is None or info.status in status]
    if older_than is None:
        return runs
    before = dt.datetime.now(dt.UTC) - older_than
    return [info for info in runs if info.updated_at < before]


def all_runs(
    session: Session, workflow: str | None, status: tuple[str, ...] | None, **choice: Any
) -> Iterator[RunInfo]:
    """Iterate over all runs of a workflow and of these statuses, newest first, without damaged ones.

    `choice` is the `metadata` and `prefix` of `store.runs`.
    """
    after: str | None = None
    while True:
        page = session.store().runs(
            status=status,
            workflow=workflow,
            limit=RUNS_PAGE_MAX,
            after=after,
            damaged="skip",
            **choice,
        )
        yield from page
        after = page.cursor
        if after is None:
            return


# --- acting on a run, and reporting its status -----------------------------------------------------------------------

_ENTRIES: Final = 200
"""How many journal entries are read to describe the status of a run."""

run_argument = click.argument("run", metavar="RUN", shell_complete=complete_runs)
runs_argument = click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
by_option = click.option("--by", metavar="NAME", help="The name to record; the default is the user of this process.")
enqueue_option = click.option("--enqueue", is_flag=True, help="Only record the request; a worker executes it.")


class Many(NamedTuple):
    """Which runs a verb is for if no run is named."""

    every: bool
    workflow: str | None
    metas: tuple[str, ...]
    prefix: str

    def check(self, run: str | None) -> None:
        """Raise UsageError unless a run is named, or --all is given, with or without filters."""
        if self.every == (run is not None):
            raise click.UsageError("name a run, or pass --all")
        if not self.every:
            for option, value in (("--workflow", self.workflow), ("--meta", self.metas), ("--prefix", self.prefix)):
                if value:
                    raise click.UsageError(f"{option} requires --all")

    def runs(self, session: Session, status: tuple[str, ...]) -> list[RunInfo]:
        """The runs, oldest first."""
        choice: dict[str, Any] = {"metadata": pairs_of(self.metas) or None, "prefix": self.prefix}
        return select_runs(session, (), every=True, workflow=self.workflow, status=status, **choice)


def many_options(which: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """The argument RUN and, for many runs, --all with filters; the command gets `run` and `many`. `which`: "paused"."""
    options = (
        click.argument("run", metavar="RUN", required=False, shell_complete=complete_runs),
        click.option("--all", "every", is_flag=True, help=f"All {which} runs, or those that the next options choose."),
        click.option("--workflow", metavar="NAME", help="With --all: only runs of this workflow."),
        click.option(
            "--meta", "metas", multiple=True, metavar="KEY=VALUE", help="With --all: only runs with this metadata."
        ),
        click.option("--prefix", default="", metavar="TEXT", help="With --all: only runs whose ids begin with this."),
    )

    def with_options(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def called(
            *given: Any, every: bool, workflow: str | None, metas: tuple[str, ...], prefix: str, **more: Any
        ) -> int:
            many = Many(every, workflow, metas, prefix)
            many.check(more["run"])
            return command(*given, many=many, **more)

        for option in reversed(options):
            called = option(called)
        return called

    return with_options


class GateFacts(TypedDict):
    """An open gate, as --json reports it."""

    run_id: str
    gate: str
    prompt: str


class StatusFacts(TypedDict):
    """The status of a run, as the acting verbs report it with --json."""

    run_id: str
    workflow: str
    status: str
    gates: list[GateFacts]
    left_for_worker: bool


def act(session: Session, named: str, what: str, does: Callable[[App, str], object]) -> int:
    """Do something to a run, report its status and return the exit code. `what` names what is recorded."""
    app = session.app()
    run_id = find_and_adopt(session, named)
    session.how_to_continue = f"`{one_line(command_line(('holdfast', 'show', run_id)))}` shows its status."
    return record_and_report(session, run_id, what, lambda: does(app, run_id))


def record_and_report(session: Session, run_id: str, what: str, does: Callable[[], object], **more: object) -> int:
    """Record something for a run, which then continues here; report its status and return the exit code.

    A run that cannot continue, because its code has changed, is paused. What was recorded is kept.
    """
    try:
        does()
    except RunError as error:  # a refusal to record it is another error
        report_status(session, run_id, **more)
        why = f": {message_of(error)}" if session.json else ""
        session.out.note(one_line(f"{what} was recorded and is kept, but the run cannot continue{why}"))
        return exit_codes.ERROR
    return exit_code_of(report_status(session, run_id, **more))


def exit_code_of(found: StatusFacts) -> int:
    """Return the exit code of a command that succeeded: an error if the run has failed since."""
    return exit_codes.ERROR if found["status"] == FAILED else exit_codes.OK


def gate_facts(gates: Sequence[GateInfo]) -> list[GateFacts]:
    """Return the facts of gates that --json reports."""
    return [{"run_id": gate.run_id, "gate": gate.gate, "prompt": gate.prompt} for gate in gates]


def status_facts(session: Session, run_id: str) -> StatusFacts:
    """Return the status of a run."""
    app = session.app()
    info = app.handle(run_id).info()
    gates = [] if info.terminal else open_gates(session.store(), run_id)
    return {
        "run_id": run_id,
        "workflow": info.workflow,
        "status": info.status,
        "gates": gate_facts(gates),
        "left_for_worker": info.status in (READY, ROLLING_BACK) and not app.knows(info.workflow),
    }


def waits_for_answer(found: StatusFacts) -> bool:
    """Return whether the run waits for an answer."""
    return found["status"] == WAITING and bool(found["gates"])


def report_status(session: Session, run_id: str, **more: object) -> StatusFacts:
    """Report the status of a run after a command, and return it."""
    found = status_facts(session, run_id)
    if session.json:
        session.out.give({**found, **more})
        return found
    session.say(f"{run_id} is {session.out.status(found['status'])}{_more(session, found)}")
    gates = open_gates(session.store(), run_id) if found["gates"] else []
    for gate in gates:
        session.say(one_line(f"waits for an answer: {gate.prompt}"))
        session.say(one_line(f"  {answer_line(gate, among=gates)}"))
    if found["left_for_worker"]:
        session.say("left for a worker: holdfast worker --app …")
    return found


def _more(session: Session, found: StatusFacts) -> str:
    """Return the rest of the status sentence, unless the lines below it say the same."""
    from holdfast.inspect.timeline import timeline

    if found["gates"]:
        return ""
    stands = timeline(session.store(), found["run_id"], newest=_ENTRIES).standing
    if found["left_for_worker"] and stands.cancel is None:
        return ""
    sentence = stands.sentence
    more = sentence.removeprefix(found["status"])
    return one_line(more) if more != sentence else ""


# --- completion ------------------------------------------------------------------------------------------------------


def complete_files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete a file name."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def complete_runs_and_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete runs and files. Files come first: bash drops the completions before them."""
    return [*complete_files(context, parameter, incomplete), *complete_runs(context, parameter, incomplete)]
