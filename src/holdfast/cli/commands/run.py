"""`run`, `worker`, `demo` and `completions`: execute workflows here."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from inspect import Parameter, signature
from shlex import quote
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import get_completion_class

from holdfast.cli import exit_codes
from holdfast.cli.commands.notifications import notifying
from holdfast.cli.follow import Following
from holdfast.cli.main import COMPLETE
from holdfast.cli.prompts import graph_named, input_of, is_file, pairs_of
from holdfast.cli.run_args import complete_files
from holdfast.cli.session import Session
from holdfast.errors import DefinitionChanged, InvalidGraph, InvalidInput, RunNotFound
from holdfast.errors.store import close_matches, did_you_mean
from holdfast.graphs.structure import moment_of
from holdfast.runtime.control import default_actor

if TYPE_CHECKING:
    from holdfast.graphs.definition import Graph
    from holdfast.runtime.app import App


@click.command()
@click.argument("workflow", metavar="FLOW", shell_complete=complete_files)
@click.option("--input", "-i", "given", multiple=True, metavar="NAME=VALUE", help="A field of the input; repeatable.")
@click.option("--input-file", metavar="FILE", help="A JSON file with the input object; - reads standard input.")
@click.option("--variable", multiple=True, metavar="NAME=VALUE", help="A variable of the graph; repeatable.")
@click.option("--run-id", metavar="ID", help="The id of the run. An existing run is continued.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="Metadata of the run; repeatable.")
@click.option("--by", metavar="NAME", help="The name to record with answers; the default is the user of this process.")
@click.option(
    "--wait",
    "wait_s",
    type=float,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait for timers that are due within this time.",
)
@click.option("--migrate", is_flag=True, help="Move an existing run to the present definition in the file.")
@click.option("--enqueue", is_flag=True, help="Only start the run; a worker executes it.")
@click.option("--at", metavar="TIME", help="Let a worker execute it from this time on, such as 2026-12-01T09:00+01:00.")
@click.option("--after", type=float, metavar="SECONDS", help="Let a worker execute it in so many seconds.")
@click.pass_obj
def run_command(
    session: Session,
    workflow: str,
    given: tuple[str, ...],
    input_file: str | None,
    variable: tuple[str, ...],
    run_id: str | None,
    meta: tuple[str, ...],
    by: str | None,
    wait_s: float,
    migrate: bool,
    enqueue: bool,
    at: str | None,
    after: float | None,
) -> int:
    """Start a workflow and answer its questions here.

    FLOW is the file of a declared workflow (.yaml, .yml or .json), or the name of a workflow of your app. The functions
    that a file names must be registered in the app that --app names; a file cannot cause an import.

    In a terminal, the questions of the run are asked here; Ctrl-C leaves the run waiting, and nothing is lost. Without
    a terminal, the command stops at a question with exit code 3 and prints the command that answers it.

    \b
    Examples:
      holdfast run flow.yaml --input order=A-17
      holdfast run flow.yaml --app shop:app --input-file order.json --run-id order-17
      holdfast run refund --app shop:app -i order=A-17 --json
      holdfast run refund --app shop:app -i order=A-17 --after 3600
    """
    begin = {"at": None if at is None else moment_of(at, "--at"), "after": after}
    enqueue = enqueue or at is not None or after is not None
    app = session.app(create=True)
    is_elsewhere = enqueue and not is_file(workflow) and not app.knows(workflow)
    graph = None if is_elsewhere else graph_named(app, workflow)
    actor = default_actor(by)
    if run_id is not None and graph is not None and is_file(workflow):
        _check_definition(app, run_id, graph, migrate=migrate, by=actor)
    values = input_of(session, graph, given, input_file)
    name = graph.id if graph is not None and is_file(workflow) else workflow
    more = {"variables": pairs_of(variable)} if variable else {}
    args, kwargs = ((values,), more) if graph is not None else ((), values)
    if graph is None and not is_elsewhere:
        _check_names(workflow, app.registry.workflows[workflow].fn, values)
    session.how_to_continue = f"Continue the run with: holdfast resume {quote(run_id or '@latest')}"
    try:
        handle = app.start(name, *args, run_id=run_id, metadata=pairs_of(meta) or None, enqueue=True, **begin, **kwargs)
    except InvalidGraph as error:
        if session.app_named() is None and any("no function" in problem for problem in error.problems):
            error.problems.append("name the app that registers them with --app module:name")
        raise
    except InvalidInput as error:
        if graph is not None or not given:
            raise
        advice = "values of --input are JSON, or else text: a list is -i 'numbers=[1, 2]'"
        raise InvalidInput(error.problem, advice) from error
    session.how_to_continue = (
        f"Continue the run with: holdfast resume {quote(handle.run_id)} "
        "(if an effect was interrupted, its in_doubt setting applies)"
    )
    if run_id is None:
        session.say(f"started {handle.run_id}")
    following = Following(session, handle.run_id, by=actor, wait_s=wait_s)
    return following.report() if enqueue else following.until_blocked()


def _check_names(workflow: str, fn: Callable[..., object], values: Iterable[str]) -> None:
    """Raise InvalidInput if the function of a workflow has no parameter for a value."""
    parameters = list(signature(fn).parameters.values())[1:]  # the first is the run
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = [parameter.name for parameter in parameters]
    for name in values:
        if name not in names:
            listed = did_you_mean(close_matches(name, names), f"it takes {', '.join(names) or 'none'}")
            raise InvalidInput(f"workflow {workflow!r} takes no input {name!r}: {listed}")


def _check_definition(app: App, run_id: str, graph: Graph, *, migrate: bool, by: str) -> None:
    """Migrate an existing run if its definition differs, or raise DefinitionChanged."""
    from holdfast.graphs.diff import changes

    try:
        info = app.handle(run_id).info()
    except RunNotFound:
        return
    if info.terminal or info.workflow != graph.id:
        return
    found = changes(app.graph_of(run_id).as_data(), graph.as_data())
    if found and migrate:
        app.migrate(run_id, by=by)
    elif found:
        raise DefinitionChanged(run_id, graph.id, found)


@click.command()
@click.option("--concurrency", type=click.IntRange(min=1), default=8, show_default=True, help="Runs at a time.")
@click.option("--limit", "limits", multiple=True, metavar="WORKFLOW=N", help="At most N runs of a workflow at a time.")
@click.option("--workflow", "workflows", multiple=True, metavar="NAME", help="Only runs of this workflow.")
@click.option("--until-idle", is_flag=True, help="End when no run is ready or executing.")
@click.option("--fail", is_flag=True, help="Exit with code 1 if a run failed.")
@click.option(
    "--drain",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="On stop: how long to wait for calls in flight.",
)
@click.pass_obj
def worker_command(
    session: Session,
    concurrency: int,
    limits: tuple[str, ...],
    workflows: tuple[str, ...],
    until_idle: bool,
    fail: bool,
    drain: float,
) -> int:
    """Execute ready runs until stopped.

    Any number of workers may share a store. On SIGTERM or Ctrl-C a worker executes its runs up to their next call and
    releases them; another worker may continue them. A worker also fires due timers and recovers runs of dead
    processes. A run that fails is logged on standard error, with the line of your code; at its end, the worker reports
    how many executions there were and how many runs failed.

    \b
    Examples:
      holdfast worker --app shop:app
      holdfast worker --app shop:app --concurrency 4 --limit refund=1
      holdfast worker --app shop:app --until-idle --fail
    """
    if session.app_named() is None:
        raise click.UsageError("a worker needs the app with the workflows: --app module:name")
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    app = session.app(create=True)
    worker = app.worker(
        concurrency=concurrency,
        limits=_parse_limits(limits),
        workflows=list(workflows) or None,
        drain_s=drain,
    )
    where = session.where()
    session.out.note(f"executing runs of {where.shown if where else app.store.url}; Ctrl-C stops")
    with notifying(app, until_idle=until_idle):
        worker.run(until_idle=until_idle)
    if session.json:
        session.out.give({"moved": worker.moved, "failed": worker.failed, "until_idle": until_idle})
    else:
        session.say("1 execution" if worker.moved == 1 else f"{worker.moved} executions")
        if worker.failed:
            failed = "1 run failed" if worker.failed == 1 else f"{worker.failed} runs failed"
            session.say(session.out.styled(f"{failed}; holdfast list --status failed", fg="red"))
    return exit_codes.ERROR if fail and worker.failed else exit_codes.OK


def _parse_limits(texts: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name or not (number.isascii() and number.isdigit()):
            raise click.UsageError(f"--limit {text!r}: write WORKFLOW=N")
        found[name] = int(number)
    return found


_WORDS: Final = """    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD """
_JOINED: Final = """    # bash splits `--status=wa` into three words; the equals sign is left out.
    local words=() count=$COMP_CWORD at
    for at in "${!COMP_WORDS[@]}"; do
        if [[ ${COMP_WORDS[at]} == '=' && at -lt COMP_CWORD ]]; then
            ((count--))
        else
            words+=("${COMP_WORDS[at]}")
        fi
    done
    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$count """


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_obj
def completions_command(session: Session, shell: str) -> int:
    """Print the completion script of a shell.

    It completes verbs, options and their values, and runs of the store.

    \b
    Examples:
      holdfast completions bash > ~/.local/share/bash-completion/completions/holdfast
      holdfast completions zsh > ~/.zfunc/_holdfast
      holdfast completions fish > ~/.config/fish/completions/holdfast.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click supports all three shells"
    complete = kind(click.Group("holdfast"), {}, "holdfast", COMPLETE)
    script = complete.source_template % complete.source_vars()  # source() would start bash to check its version
    assert shell != "bash" or _WORDS in script, "click has changed its script"
    script = script.replace(_WORDS, _JOINED)
    if session.json:
        session.out.give({"shell": shell, "script": script})
    else:
        session.say(script)
    return exit_codes.OK


@click.command()
@click.option("--web", is_flag=True, help="Then serve the page on the run, until Ctrl-C.")
@click.pass_obj
def demo_command(session: Session, web: bool) -> int:
    """Watch a run survive a killed process.

    An agent waits for your approval, is killed in the middle of a payment, and pays once. The demo uses a store in a
    temporary directory, which it removes at the end.

    \b
    Examples:
      holdfast demo
      holdfast demo --web
    """
    from holdfast.demo import main

    main(["--web"] if web else [])
    if session.json:
        session.out.give({"shown": True})
    return exit_codes.OK
