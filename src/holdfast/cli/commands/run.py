"""`holdfast run`: start a workflow and follow it here."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

import click

from holdfast.cli.acting import offered_files
from holdfast.cli.flows import graph_named, input_of, is_file, pairs_of
from holdfast.cli.following import Following
from holdfast.cli.session import Session
from holdfast.errors import DefinitionChanged, InvalidGraph, RunNotFound
from holdfast.runtime.outside import somebody

if TYPE_CHECKING:
    from holdfast.graphs.definition import Graph
    from holdfast.runtime.app import App


@click.command()
@click.argument("workflow", metavar="FLOW", shell_complete=offered_files)
@click.option("--input", "-i", "given", multiple=True, metavar="NAME=VALUE", help="A field of the input; repeatable.")
@click.option("--input-file", metavar="FILE", help="The input as a JSON object; - reads standard input.")
@click.option("--variable", multiple=True, metavar="NAME=VALUE", help="A variable of the graph; repeatable.")
@click.option("--run-id", metavar="ID", help="The run's id. A run that is there already is taken up.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="Metadata of the run; repeatable.")
@click.option("--by", metavar="NAME", help="Who answers; else the user of this process.")
@click.option("--wait", "wait_s", type=float, default=60.0, show_default=True, metavar="SECONDS",
              help="Stay for timers that are due within so long.")  # fmt: skip
@click.option("--migrate", is_flag=True, help="Let a run that has begun go on by the file as it is now.")
@click.option("--enqueue", is_flag=True, help="Only start it, and leave it to a worker.")
@click.pass_obj
def command(
    session: Session, workflow: str, given: tuple[str, ...], input_file: str | None, variable: tuple[str, ...],
    run_id: str | None, meta: tuple[str, ...], by: str | None, wait_s: float, migrate: bool, enqueue: bool,
) -> int:  # fmt: skip
    """Start a workflow and answer its questions here.

    FLOW is the file of a declared workflow (.yaml, .yml or .json), or the name of a workflow of your app. The functions
    a file names must be registered in the app that --app names; nothing is imported because a file says so.

    In a terminal its questions are asked here; Ctrl-C leaves the run waiting, and nothing is lost. Without one it
    stops at a question with exit code 3 and prints the command that answers it.

    \b
    Examples:
      holdfast run flow.yaml --input order=A-17
      holdfast run flow.yaml --app shop:app --input-file order.json --run-id order-17
      holdfast run refund --app shop:app -i order=A-17 --json
    """
    app = session.app(create=True)
    is_elsewhere = enqueue and not is_file(workflow) and not app.knows(workflow)
    graph = None if is_elsewhere else graph_named(app, workflow)
    who = somebody(by)
    if run_id is not None and graph is not None and is_file(workflow):
        _same_definition(app, run_id, graph, migrate=migrate, by=who)
    values = input_of(session, graph, given, input_file)
    name = graph.id if graph is not None and is_file(workflow) else workflow
    more = {"variables": pairs_of(variable)} if variable else {}
    args, kwargs = ((values,), more) if graph is not None else ((), values)
    session.how_to_go_on = f"The run goes on from where it stands: holdfast resume {quote(run_id or '@latest')}"
    try:
        handle = app.start(name, *args, run_id=run_id, metadata=pairs_of(meta) or None, enqueue=True, **kwargs)
    except InvalidGraph as error:
        if session.app_named() is None and any("no function" in problem for problem in error.problems):
            error.problems.append("name the app that registers them with --app module:name")
        raise
    session.how_to_go_on = (
        f"The run goes on from where it stands: holdfast resume {quote(handle.run_id)} "
        "(an effect that was under way is asked about, or done as it says)"
    )
    if run_id is None:
        session.say(f"{handle.run_id} is started")
    following = Following(session, handle.run_id, by=who, wait_s=wait_s)
    return following.left() if enqueue else following.to_its_rest()


def _same_definition(app: App, run_id: str, graph: Graph, *, migrate: bool, by: str) -> None:
    """A run that has begun goes on by the definition it carries: another one is refused, or it is migrated."""
    from holdfast.graphs.changes import changes

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
