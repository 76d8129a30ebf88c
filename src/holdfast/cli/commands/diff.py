"""`holdfast diff`: what changed in the state."""

from __future__ import annotations

import click

from holdfast.cli.naming import offered_runs
from holdfast.cli.output import one_line
from holdfast.cli.session import Session
from holdfast.cli.showing import change_lines
from holdfast.errors import CheckpointNotFound
from holdfast.inspect.changes import changes_between, json_patch
from holdfast.inspect.refs import Located, checkpoint_of


@click.command()
@click.argument("old", metavar="FROM", shell_complete=offered_runs)
@click.argument("new", metavar="[TO]", required=False, shell_complete=offered_runs)
@click.pass_obj
def command(session: Session, old: str, new: str | None) -> None:
    """Show what changed in the state between two checkpoints.

    FROM and TO are RUN, RUN~n, RUN@position or RUN:checkpoint, of one run or of two. Without TO it is the newest of the
    same run; a bare RUN then means the last change. With --json the changes are a JSON Patch (RFC 6902).

    \b
    Examples:
      holdfast diff order-17~2 order-17
      holdfast diff order-17
      holdfast diff order-17 order-17-again --json
    """
    before, after = _ends(session, old, new)
    changes = changes_between(session.store(), before, after)
    if session.json:
        session.out.give(json_patch(changes))
        return
    session.out.note(one_line(f"from {_named(before)} to {_named(after)}"))
    if not changes:
        session.out.note("nothing changed")
        return
    for line in change_lines(changes):
        session.say(line)


def _ends(session: Session, old: str, new: str | None) -> tuple[Located, Located]:
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


def _named(found: Located) -> str:
    info = found.checkpoint
    return f"{found.run.run_id}:{info.checkpoint_id} (step {info.step})" if info is not None else found.run.run_id
