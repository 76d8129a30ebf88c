"""`holdfast graph`: draw, verify, rehearse and migrate declared workflows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import exits
from holdfast.cli.acting import offered_files, offered_runs_and_files, run_argument
from holdfast.cli.answers import parse_json
from holdfast.cli.flows import input_of, is_file
from holdfast.cli.naming import run_named
from holdfast.cli.output import one_line
from holdfast.cli.session import Session
from holdfast.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.graphs.definition import Graph
    from holdfast.graphs.loading import Loaded


@click.group()
def command() -> None:
    """Draw or check a declared workflow.

    \b
    Examples:
      holdfast graph draw flow.yaml
      holdfast graph draw order-17
      holdfast graph verify flow.yaml --app shop:app
      holdfast graph dry-run flow.yaml --input order=A-17
      holdfast graph migrate order-17 flow.yaml --app shop:app
      holdfast graph schema > holdfast.schema.json
    """


@command.command()
@click.argument("target", metavar="FILE|RUN", shell_complete=offered_runs_and_files)
@click.pass_obj
def draw(session: Session, target: str) -> int:
    """Draw it as a Mermaid flowchart; of a run, with the stage marked at which it stands.

    \b
    Examples:
      holdfast graph draw flow.yaml
      holdfast graph draw order-17
    """
    run_id, current = None, None
    if is_file(target):
        graph = _loaded(target).graph
    else:
        run_id = run_named(session, target)
        graph, current = _of_run(session, run_id)
    picture = graph.mermaid(current)
    if session.json:
        session.out.give({"id": graph.id, "run_id": run_id, "current": current, "mermaid": picture})
    else:
        session.say(picture.rstrip("\n"))
    return exits.OK


def _of_run(session: Session, run_id: str) -> tuple[Graph, str | None]:
    found = session.store().load(run_id)
    return session.app().graph_of(run_id), None if found is None else found.next_node


@command.command()
@click.argument("file", metavar="FILE", shell_complete=offered_files)
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.pass_obj
def verify(session: Session, file: str, strict: bool) -> int:
    """Say what is wrong, or looks wrong, with a definition. With --app, also what that does not know.

    \b
    Examples:
      holdfast graph verify flow.yaml
      holdfast graph verify flow.yaml --app shop:app --strict
    """
    loaded = _loaded(file)
    findings = loaded.graph.verify(session.names())
    bad = [finding for finding in findings if strict or finding.level == "error"]
    if session.json:
        listed = [
            {"level": f.level, "code": f.code, "message": f.message, "stage": f.stage, "line": loaded.line(f),
             "path": list(f.path)}
            for f in findings
        ]  # fmt: skip
        session.out.give({"id": loaded.graph.id, "ok": not bad, "findings": listed})
    else:
        for finding in findings:
            color = "red" if finding.level == "error" else "yellow"
            session.say(session.out.styled(one_line(loaded.where(finding)), fg=color))
        stages = f"{loaded.graph.id}: {len(loaded.graph.stages)} stages"
        session.say(f"{stages}, {len(findings)} findings" if findings else f"{stages}, nothing to say against it")
    return exits.ERROR if bad else exits.OK


@command.command("dry-run")
@click.argument("file", metavar="FILE", shell_complete=offered_files)
@click.option("--input", "-i", "given", multiple=True, metavar="NAME=VALUE", help="A field of the input; repeatable.")
@click.option("--input-file", metavar="FILE", help="The input as a JSON object; - reads standard input.")
@click.option("--result", multiple=True, metavar="STAGE=JSON", help="What a stage would give; repeatable.")
@click.option("--answer", multiple=True, metavar="STAGE=JSON", help="What a person would answer; repeatable.")
@click.pass_obj
def dry_run(
    session: Session, file: str, given: tuple[str, ...], input_file: str | None, result: tuple[str, ...],
    answer: tuple[str, ...],
) -> int:  # fmt: skip
    """Walk through a definition without doing anything: no function is called, nothing is stored.

    \b
    Examples:
      holdfast graph dry-run flow.yaml --input order=A-17
      holdfast graph dry-run flow.yaml -i order=A-17 --result 'price={"amount": 40}'
    """
    graph = _loaded(file).graph
    values = input_of(session, graph, given, input_file)
    dry = graph.dry_run(values, results=_told(result), answers=_told(answer))
    if session.json:
        session.out.give({"id": graph.id, "outcome": dry.outcome, "why": dry.why, "visits": list(dry.visits)})
    else:
        for visit in dry.visits:
            to = f"  → {visit.to}" if visit.to else ""
            sure = f" (or {', '.join(visit.instead)})" if visit.instead else " (assumed)" if visit.assumed else ""
            session.say(f"{session.out.styled(visit.stage, bold=True)}  {one_line(visit.does)}{to}{sure}")
        session.say(f"{dry.outcome}" + (f": {one_line(dry.why)}" if dry.why else ""))
    return exits.OK if dry.outcome == "ends" else exits.ERROR


def _told(pairs: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise InvalidInput(f"{pair!r} has no value; write STAGE=JSON")
        found[name] = parse_json(text, f"the value of {name!r}")
    return found


@command.command()
@run_argument
@click.argument("file", metavar="FILE", shell_complete=offered_files)
@click.option("--by", metavar="NAME", help="Who does it; else the user of this process.")
@click.option("--enqueue", is_flag=True, help="Only record it, and leave the rest to a worker.")
@click.pass_obj
def migrate(session: Session, run: str, file: str, by: str | None, enqueue: bool) -> int:
    """Let a run that has begun go on by another version of its definition.

    \b
    Examples:
      holdfast graph migrate order-17 flow.yaml --app shop:app
    """
    app = session.app()
    run_id = run_named(session, run, whole=True)
    graph = _loaded(file).graph
    workflow = app.handle(run_id).info().workflow
    if workflow != graph.id:
        raise InvalidInput(f"run {run_id!r} is of workflow {workflow!r}, and {file} is {graph.id!r}")
    found = app.migrate(run_id, graph, by=by, enqueue=enqueue)
    status = app.handle(run_id).status()
    if session.json:
        session.out.give({"run_id": run_id, "workflow": workflow, "changes": found, "status": status})
    else:
        for change in found:
            session.say(f"  {one_line(change)}")
        session.say(f"{run_id} goes on by {file}" if found else f"{run_id} goes by this definition already")
        session.say(f"{run_id} is {session.out.status(status)}")
    return exits.OK


@command.command()
@click.pass_obj
def schema(session: Session) -> int:
    """Print the JSON Schema of definitions, for editors.

    \b
    Examples:
      holdfast graph schema > holdfast.schema.json
    """
    from holdfast.graphs.schema import json_schema

    if session.json:
        session.out.give(json_schema())
    else:
        session.say(json.dumps(json_schema(), ensure_ascii=False, indent=2))
    return exits.OK


def _loaded(file: str) -> Loaded:
    from holdfast.graphs.loading import load

    return load(file)
