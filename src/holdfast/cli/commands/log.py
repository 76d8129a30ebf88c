"""`log`, `diff` and `effects`: the records of a run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.format import SHORT, change_lines, command_line, value_text
from holdfast.cli.output import columns, cut, one_line
from holdfast.cli.run_args import complete_runs, run_argument
from holdfast.cli.run_reads import find_run, note_cancel
from holdfast.cli.session import Session
from holdfast.errors import CheckpointNotFound
from holdfast.ids import display_name
from holdfast.inspect.calls import is_retry
from holdfast.inspect.family import family
from holdfast.inspect.refs import Located, changes_between, checkpoint_of
from holdfast.inspect.status import pending_cancel
from holdfast.inspect.threads import THREADS
from holdfast.inspect.views import as_data
from holdfast.model.rows import TERMINAL
from holdfast.operations.read import known_run
from holdfast.state.json_preview import json_patch

if TYPE_CHECKING:
    from holdfast.inspect.family import Branch, Family, Node
    from holdfast.model.views import Entry


_POLL_S: Final = 0.5
_DATA_MIN: Final = 20
"""If fewer columns are left, the data of an entry is written on a line of its own."""
_INDENT: Final = " " * 8
_ABOUT: Final = frozenset({"kind", "call", "in", "digest", "keyed", "us"})
"""Keys of an entry that are shown elsewhere in its line, or not at all."""


@click.command()
@run_argument
@click.option("--graph", is_flag=True, help="Show the family of the run as a tree: forks, checkpoints and rollbacks.")
@click.option("--after", default="0", metavar="POSITION", help="Only entries after this position.")
@click.option("--limit", type=click.IntRange(1), help="The maximum number of entries.")
@click.option("--follow", is_flag=True, help="Keep printing new entries until the run ends.")
@click.pass_obj
def log_command(session: Session, run: str, graph: bool, after: str, limit: int | None, follow: bool) -> None:
    """Print a run's journal, or with --graph its family of forks.

    \b
    Examples:
      holdfast log order-17 --after 40
      holdfast log order-17 --graph
      holdfast log @latest --follow
    """
    run_id = find_run(session, run)
    if graph:
        _print_family(session, family(session.store(), run_id))
        return
    if follow and session.json:
        raise click.UsageError("--follow has no end, so it cannot be combined with --json")
    start: int | str = int(after) if after.isascii() and after.isdigit() else after
    entries = session.store().journal(run_id, after=start, limit=limit)
    if session.json:
        cursor = f"journal.{_last_position(entries[-1])}" if entries else None
        session.out.give({"run_id": run_id, "entries": as_data(entries), "cursor": cursor})
        return
    _print_entries(session, entries)
    if not entries and known_run(session.store().access.core, run_id).workflow == THREADS:
        shows = command_line(("holdfast", "show", run_id))
        text = f"{run_id} is a thread of LangGraph and has no journal; `{shows}` lists its checkpoints"
        session.out.note(one_line(text))
        return
    cancel = pending_cancel(session.store(), run_id)
    if cancel is not None:
        note_cancel(session, run_id, cancel)
    if follow:
        _follow(session, run_id, _last_position(entries[-1]) if entries else start)


def _follow(session: Session, run_id: str, at: int | str) -> None:
    session.how_to_continue = f"`{command_line(('holdfast', 'log', run_id, '--follow'))}` continues."
    store = session.store()
    while True:
        found = store.port.run(run_id)
        entries = store.journal(run_id, after=at) if found is not None else []
        _print_entries(session, entries)
        session.out.stream.flush()
        at = _last_position(entries[-1]) if entries else at
        if found is None or (found.status in TERMINAL and not entries):
            return
        time.sleep(_POLL_S)


def _last_position(entry: Entry) -> int:
    """Return the last position that an entry stands for; a pruned entry stands for several."""
    through = entry.data.get("through") if entry.kind == "pruned" else None
    return through if type(through) is int else entry.position


def _print_entries(session: Session, entries: list[Entry]) -> None:
    for entry in entries:
        data = entry.data if isinstance(entry.data, dict) else {}
        call = data.get("call")
        name = display_name(call) if isinstance(call, str) else "retry" if is_retry(entry.kind, data) else ""
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


def _print_family(session: Session, found: Family) -> None:
    if session.json:
        session.out.give(as_data(found))
        return
    for branch in found.branches:
        _print_branch(session, branch)
    if found.more_runs:
        session.out.note(f"only the newest {len(found.branches)} runs of the family are shown")


def _print_branch(session: Session, branch: Branch) -> None:
    lead = "│ " * branch.depth
    origin = one_line(f"  forked from {branch.forked_from} at {branch.forked_at}") if branch.forked_from else ""
    bend = "│ " * (branch.depth - 1) + "├─" if branch.depth else ""
    name, about = one_line(branch.run_id), f"{branch.status}  {one_line(branch.workflow)}{origin}".rstrip()
    coloured = session.out.status(branch.status)
    if columns(f"{bend}◉ {name}  {about}") <= session.out.width:
        session.say(f"{bend}◉ {session.out.styled(name, bold=True)}  {about.replace(branch.status, coloured, 1)}")
    else:
        first, *rest = session.out.wrapped(f"{lead}│   {about}", f"{lead}│   ")
        heading = session.out.wrapped(f"{bend}◉ {name}", f"{lead}│   ")
        for each in (*heading, first.replace(branch.status, coloured, 1), *rest):
            session.say(each)
    if branch.left_out:
        session.say(f"{lead}│ … {branch.left_out} older checkpoints")
    for node in branch.nodes:
        for each in session.out.wrapped(f"{lead}{_node_line(session, node)}", f"{lead}│   "):
            session.say(each)
    session.say(lead.rstrip())


def _node_line(session: Session, node: Node) -> str:
    sign = "↶" if node.kind == "rollback" else "○" if node.taken_back else "●"
    facts = [f"step {node.step}", f"covers {node.covers}"]
    facts += [f"{name} {value}" for name, value in (("next", node.next_node), ("lane", node.lane)) if value]
    facts += ["retried from here" if node.is_retry else "rolled back to here"] if node.kind == "rollback" else []
    facts += ["rolled back"] if node.taken_back else []
    return one_line(f"{sign} {node.checkpoint_id}  {session.out.time(node.created_at)}  {', '.join(facts)}")


@click.command()
@click.argument("old", metavar="FROM", shell_complete=complete_runs)
@click.argument("new", metavar="[TO]", required=False, shell_complete=complete_runs)
@click.pass_obj
def diff_command(session: Session, old: str, new: str | None) -> None:
    """Show what changed in the state between two checkpoints.

    FROM and TO are RUN, RUN~n, RUN@position or RUN:checkpoint, of one run or of two. TO defaults to the newest
    checkpoint of the same run; FROM alone shows the last change. With --json the changes are a JSON Patch (RFC 6902).

    \b
    Examples:
      holdfast diff order-17~2 order-17
      holdfast diff order-17
      holdfast diff order-17 order-17-again --json
    """
    before, after = _find_ends(session, old, new)
    changes = changes_between(session.store(), before, after)
    if session.json:
        session.out.give(json_patch(changes))
        return
    session.out.note(one_line(f"from {_checkpoint_name(before)} to {_checkpoint_name(after)}"))
    if not changes:
        session.out.note("no changes")
        return
    for line in change_lines(changes):
        session.say(line)


def _find_ends(session: Session, old: str, new: str | None) -> tuple[Located, Located]:
    store = session.store()
    before = checkpoint_of(store, old)
    if new is not None:
        return before, checkpoint_of(store, new)
    newest = checkpoint_of(store, before.run.run_id)
    if before.checkpoint is None or newest.checkpoint is None:
        raise CheckpointNotFound(before.run.run_id, "yet")
    if before.checkpoint.number == newest.checkpoint.number:
        before = checkpoint_of(store, f"{before.run.run_id}~1")
    return before, newest


def _checkpoint_name(found: Located) -> str:
    info = found.checkpoint
    return f"{found.run.run_id}:{info.checkpoint_id} (step {info.step})" if info is not None else found.run.run_id


@click.command()
@run_argument
@click.option(
    "--state", type=click.Choice(["in_doubt", "done", "failed", "undone"]), help="Only effects in this state."
)
@click.pass_obj
def effects_command(session: Session, run: str, state: str | None) -> None:
    """List a run's side effects and their outcomes.

    An effect in doubt was started, but its outcome was not recorded. The idempotency key was passed to the function of
    the effect; the service it called may find the effect by it.

    \b
    Examples:
      holdfast effects order-17
      holdfast effects order-17 --state in_doubt --json
    """
    run_id = find_run(session, run)
    found = [line for line in session.store().effects(run_id) if state in (None, line.state)]
    if session.json:
        session.out.give({"run_id": run_id, "effects": as_data(found)})
        return
    if not found:
        session.out.note("no effects" if state is None else f"no effects in state {state}")
        return
    rows = [
        (
            display_name(line.key),
            line.state,
            line.tool or "-",
            line.target or "-",
            "yes" if line.reversible else "no",
            session.out.time(line.updated_at),
            line.idempotency_key or "-",
            value_text(line.result) if line.result is not None else "",
        )
        for line in found
    ]
    session.out.table(("EFFECT", "STATE", "TOOL", "TARGET", "UNDO", "UPDATED", "IDEMPOTENCY KEY", "RESULT"), rows)
