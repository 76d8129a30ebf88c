"""`holdfast log`: a run's journal, or its family of forks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.acting import run_argument
from holdfast.cli.naming import note_cancel, run_named
from holdfast.cli.output import columns, cut, one_line
from holdfast.cli.session import Session
from holdfast.cli.showing import SHORT, command_line, value_text
from holdfast.inspect.family import family
from holdfast.inspect.inbox import pending_cancel
from holdfast.inspect.plain import as_data
from holdfast.inspect.threads import THREADS
from holdfast.model.names import display_name
from holdfast.model.status import TERMINAL
from holdfast.verbs.reading import known_run

if TYPE_CHECKING:
    from holdfast.inspect.family import Branch, Family, Node
    from holdfast.model.views import Entry

_LOOK_S: Final = 0.5
_DATA_MIN: Final = 20
"""With less room than this the data of an entry stands on a line of its own."""
_INDENT: Final = " " * 8
_ABOUT: Final = frozenset({"kind", "call", "in", "digest", "keyed", "us"})
"""What of an entry is said elsewhere in its line, or to nobody."""


@click.command()
@run_argument
@click.option("--graph", is_flag=True, help="The run's family: forks, checkpoints and rollbacks, as a tree.")
@click.option("--after", default="0", metavar="POSITION", help="Only what stands behind this position.")
@click.option("--limit", type=click.IntRange(1), help="How many entries at most.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until the run ends.")
@click.pass_obj
def command(session: Session, run: str, graph: bool, after: str, limit: int | None, follow: bool) -> None:
    """Print a run's journal, or with --graph its family of forks.

    \b
    Examples:
      holdfast log order-17 --after 40
      holdfast log order-17 --graph
      holdfast log @latest --follow
    """
    run_id = run_named(session, run)
    if graph:
        _graph(session, family(session.store(), run_id))
        return
    if follow and session.json:
        raise click.UsageError("--follow has no end, so it does not go together with --json")
    start: int | str = int(after) if after.isascii() and after.isdigit() else after
    entries = session.store().journal(run_id, after=start, limit=limit)
    if session.json:
        cursor = f"journal.{_end(entries[-1])}" if entries else None
        session.out.give({"run_id": run_id, "entries": as_data(entries), "cursor": cursor})
        return
    _print(session, entries)
    if not entries and known_run(session.store()._place.core, run_id).workflow == THREADS:
        shows = command_line(("holdfast", "show", run_id))
        session.out.note(
            one_line(f"{run_id} is a thread of LangGraph and has no journal; `{shows}` lists its checkpoints")
        )
        return
    cancel = pending_cancel(session.store(), run_id)
    if cancel is not None:
        note_cancel(session, run_id, cancel)
    if follow:
        _follow(session, run_id, _end(entries[-1]) if entries else start)


def _follow(session: Session, run_id: str, at: int | str) -> None:
    session.how_to_go_on = f"`{command_line(('holdfast', 'log', run_id, '--follow'))}` looks on."
    store = session.store()
    while True:
        found = store.port.run(run_id)
        entries = store.journal(run_id, after=at) if found is not None else []
        _print(session, entries)
        session.out.stream.flush()
        at = _end(entries[-1]) if entries else at
        if found is None or (found.status in TERMINAL and not entries):
            return
        time.sleep(_LOOK_S)


def _end(entry: Entry) -> int:
    """The last position an entry stands for."""
    through = entry.data.get("through") if entry.kind == "pruned" else None
    return through if type(through) is int else entry.position


def _print(session: Session, entries: list[Entry]) -> None:
    for entry in entries:
        data = entry.data if isinstance(entry.data, dict) else {}
        call = data.get("call")
        name = display_name(call) if isinstance(call, str) else ""
        about = {key: part for key, part in data.items() if key not in _ABOUT}
        head = one_line(f"{entry.position:>6}  {session.out.time(entry.created_at)}  {entry.kind:<12}  {name}")
        text = value_text(about, SHORT) if about else ""
        left = session.out.width - columns(head) - 2
        if left >= min(_DATA_MIN, columns(text)):
            session.say(f"{head}  {cut(text, left)}".rstrip())
            continue
        for line in session.out.wrapped(head.rstrip(), _INDENT):
            session.say(line)
        if text:
            session.say(f"{_INDENT}{cut(text, session.out.width - len(_INDENT))}")


# --- the family ------------------------------------------------------------------------------------------------------


def _graph(session: Session, found: Family) -> None:
    if session.json:
        session.out.give(as_data(found))
        return
    for branch in found.branches:
        _branch(session, branch)
    if found.more_runs:
        session.out.note(f"only the newest {len(found.branches)} runs of the family are shown")


def _branch(session: Session, branch: Branch) -> None:
    lead = "│ " * branch.depth
    origin = one_line(f"  forked from {branch.forked_from} at {branch.forked_at}") if branch.forked_from else ""
    bend = "│ " * (branch.depth - 1) + "├─" if branch.depth else ""
    name, workflow = session.out.styled(one_line(branch.run_id), bold=True), one_line(branch.workflow)
    line = f"{bend}◉ {one_line(branch.run_id)}  {branch.status}  {workflow}{origin}".rstrip()
    if columns(line) <= session.out.width:
        session.say(f"{bend}◉ {name}  {session.out.status(branch.status)}  {workflow}{origin}".rstrip())
    else:
        below = f"{lead}│   "
        first, *rest = session.out.wrapped(f"{below}{branch.status}  {workflow}{origin}".rstrip(), below)
        coloured = first.replace(branch.status, session.out.status(branch.status), 1)
        for each in (*session.out.wrapped(f"{bend}◉ {one_line(branch.run_id)}", below), coloured, *rest):
            session.say(each)
    if branch.left_out:
        session.say(f"{lead}│ … {branch.left_out} older checkpoints")
    for node in branch.nodes:
        for each in session.out.wrapped(f"{lead}{_node(session, node)}", f"{lead}│   "):
            session.say(each)
    session.say(lead.rstrip())


def _node(session: Session, node: Node) -> str:
    sign: Any = "↶" if node.kind == "rollback" else "○" if node.taken_back else "●"
    told = [f"step {node.step}", f"covers {node.covers}"]
    told += [f"next {node.next_node}"] if node.next_node else []
    told += [f"lane {node.lane}"] if node.lane else []
    told += ["rolled back to here"] if node.kind == "rollback" else []
    told += ["taken back"] if node.taken_back else []
    return one_line(f"{sign} {node.checkpoint_id}  {session.out.time(node.created_at)}  {', '.join(told)}")
