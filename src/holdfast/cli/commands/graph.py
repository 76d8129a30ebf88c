"""`holdfast graph`: draw, verify, dry-run and migrate declared workflows."""

from __future__ import annotations

import json

import click

from holdfast.cli import exit_codes
from holdfast.cli.output import one_line
from holdfast.cli.prompts import input_of, is_file, parse_json
from holdfast.cli.run_args import by_option, complete_files, complete_runs_and_files, enqueue_option, run_argument
from holdfast.cli.run_reads import find_run
from holdfast.cli.session import Session
from holdfast.errors import InvalidInput
from holdfast.graphs.json_schema import json_schema
from holdfast.graphs.load import load


@click.group()
def graph_command() -> None:
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


@graph_command.command()
@click.argument("target", metavar="FILE|RUN", shell_complete=complete_runs_and_files)
@click.pass_obj
def draw(session: Session, target: str) -> int:
    """Draw a definition as a Mermaid flowchart; for a run, with its current stage marked.

    \b
    Examples:
      holdfast graph draw flow.yaml
      holdfast graph draw order-17
    """
    run_id, current = None, None
    if is_file(target):
        graph = load(target).graph
    else:
        run_id = find_run(session, target)
        found = session.store().load(run_id)
        graph, current = session.app().graph_of(run_id), None if found is None else found.next_node
    picture = graph.mermaid(current)
    if session.json:
        session.out.give({"id": graph.id, "run_id": run_id, "current": current, "mermaid": picture})
    else:
        session.say(picture.rstrip("\n"))
    return exit_codes.OK


@graph_command.command()
@click.argument("file", metavar="FILE", shell_complete=complete_files)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.pass_obj
def verify(session: Session, file: str, strict: bool) -> int:
    """Report errors and warnings of a definition. With --app, also functions that the app does not have.

    \b
    Examples:
      holdfast graph verify flow.yaml
      holdfast graph verify flow.yaml --app shop:app --strict
    """
    loaded = load(file)
    findings = loaded.graph.verify(session.names())
    bad = [finding for finding in findings if strict or finding.level == "error"]
    if session.json:
        listed = [
            {
                "level": finding.level,
                "code": finding.code,
                "message": finding.message,
                "stage": finding.stage,
                "line": loaded.line(finding),
                "path": list(finding.path),
            }
            for finding in findings
        ]
        session.out.give({"id": loaded.graph.id, "ok": not bad, "findings": listed})
    else:
        for finding in findings:
            color = "red" if finding.level == "error" else "yellow"
            session.say(session.out.styled(one_line(loaded.where(finding)), fg=color))
        stages = f"{loaded.graph.id}: {len(loaded.graph.stages)} stages"
        session.say(f"{stages}, {len(findings)} findings" if findings else f"{stages}, no problems found")
    return exit_codes.ERROR if bad else exit_codes.OK


@graph_command.command("dry-run")
@click.argument("file", metavar="FILE", shell_complete=complete_files)
@click.option("--input", "-i", "given", multiple=True, metavar="NAME=VALUE", help="A field of the input; repeatable.")
@click.option("--input-file", metavar="FILE", help="A JSON file with the input object; - reads standard input.")
@click.option("--result", multiple=True, metavar="STAGE=JSON", help="The result of a stage; repeatable.")
@click.option("--answer", multiple=True, metavar="STAGE=JSON", help="The answer to a stage that asks; repeatable.")
@click.pass_obj
def dry_run(
    session: Session,
    file: str,
    given: tuple[str, ...],
    input_file: str | None,
    result: tuple[str, ...],
    answer: tuple[str, ...],
) -> int:
    """Walk through a definition: no function is called, nothing is stored.

    \b
    Examples:
      holdfast graph dry-run flow.yaml --input order=A-17
      holdfast graph dry-run flow.yaml -i order=A-17 --result 'price={"amount": 40}'
    """
    graph = load(file).graph
    values = input_of(session, graph, given, input_file)
    dry = graph.dry_run(values, results=_parse_values(result), answers=_parse_values(answer))
    if session.json:
        session.out.give({"id": graph.id, "outcome": dry.outcome, "why": dry.why, "visits": list(dry.visits)})
    else:
        for visit in dry.visits:
            to = f"  → {visit.to}" if visit.to else ""
            sure = f" (or {', '.join(visit.instead)})" if visit.instead else " (assumed)" if visit.assumed else ""
            session.say(f"{session.out.styled(visit.stage, bold=True)}  {one_line(visit.does)}{to}{sure}")
        session.say(f"{dry.outcome}" + (f": {one_line(dry.why)}" if dry.why else ""))
    return exit_codes.OK if dry.outcome == "ends" else exit_codes.ERROR


def _parse_values(pairs: tuple[str, ...]) -> dict[str, object]:
    found = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise InvalidInput(f"{pair!r} has no value; write STAGE=JSON")
        found[name] = parse_json(text, f"the value of {name!r}")
    return found


@graph_command.command()
@run_argument
@click.argument("file", metavar="FILE", shell_complete=complete_files)
@by_option
@enqueue_option
@click.pass_obj
def migrate(session: Session, run: str, file: str, by: str | None, enqueue: bool) -> int:
    """Move a run to another version of its definition.

    \b
    Examples:
      holdfast graph migrate order-17 flow.yaml --app shop:app
    """
    app = session.app()
    run_id = find_run(session, run, whole=True)
    graph = load(file).graph
    workflow = app.handle(run_id).info().workflow
    if workflow != graph.id:
        raise InvalidInput(f"run {run_id!r} is of workflow {workflow!r}, but {file} defines {graph.id!r}")
    found = app.migrate(run_id, graph, by=by, enqueue=enqueue)
    status = app.handle(run_id).status()
    if session.json:
        session.out.give({"run_id": run_id, "workflow": workflow, "changes": found, "status": status})
    else:
        for change in found:
            session.say(f"  {one_line(change)}")
        session.say(f"{run_id} now follows {file}" if found else f"{run_id} already follows this definition")
        session.say(f"{run_id} is {session.out.status(status)}")
    return exit_codes.OK


@graph_command.command()
@click.pass_obj
def schema(session: Session) -> int:
    """Print the JSON Schema of definitions, for editors.

    \b
    Examples:
      holdfast graph schema > holdfast.schema.json
    """
    if session.json:
        session.out.give(json_schema())
    else:
        session.say(json.dumps(json_schema(), ensure_ascii=False, indent=2))
    return exit_codes.OK
