"""`holdfast prune`: remove checkpoints and runs that are not needed any more."""

from __future__ import annotations

import datetime as dt
from typing import Final

import click

from holdfast.cli import exits
from holdfast.cli.acting import runs_argument
from holdfast.cli.ages import age
from holdfast.cli.output import size
from holdfast.cli.pruning import Line, Work, checkpoint_remover, each, pruner, remover
from holdfast.cli.selecting import selected
from holdfast.cli.session import Session
from holdfast.inspect.threads import THREADS
from holdfast.model.status import TERMINAL
from holdfast.model.views import Keep, RunInfo

_SHOWN_MAX: Final = 20
_REASONS: Final = {
    "resume": "that a resume, retry or rollback goes on from",
    "ended": "saved when the run ended; --no-keep-terminal removes them",
    "effect": "from before an effect in doubt; holdfast effects lists those",
    "needed": "needed by a kept checkpoint",
    "delta": "needed by delta channels of a kept checkpoint; --fold removes them",
}
"""Keys of `Pruned.kept_more`."""


@click.command()
@runs_argument
@click.option("--all", "every", is_flag=True, help="All runs.")
@click.option("--workflow", metavar="NAME", help="With --all: only runs of this workflow.")
@click.option(
    "--keep-last", type=click.IntRange(min=1), metavar="N", help="Keep the newest N checkpoints of each lane."
)
@click.option(
    "--keep-terminal/--no-keep-terminal", default=True, show_default=True,
    help="Keep the newest checkpoint that was saved when the run ended.",
)  # fmt: skip
@click.option(
    "--older-than", type=age, metavar="AGE", help="Only runs that nothing was written to for so long: 30d, 12h."
)
@click.option("--journal", is_flag=True, help="Also remove journal entries that no kept checkpoint needs.")
@click.option("--checkpoint", metavar="ID", help="Remove only this checkpoint of the one run that is named.")
@click.option("--lane", metavar="NAME", default="", help="With --checkpoint: the lane it is on.")
@click.option("--delete", is_flag=True, help="Remove whole runs that have ended; needs --older-than.")
@click.option(
    "--fold", is_flag=True,
    help="Of LangGraph threads, also remove checkpoints that delta channels of kept ones are computed from: store what "
    "they contribute beside the kept ones.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def command(
    session: Session, runs: tuple[str, ...], every: bool, workflow: str | None, keep_last: int | None,
    keep_terminal: bool, older_than: dt.timedelta | None, journal: bool, checkpoint: str | None, lane: str,
    delete: bool, fold: bool, dry_run: bool, yes: bool,
) -> int:  # fmt: skip
    """Remove checkpoints and runs that are not needed any more.

    Shows what would go and how many bytes that frees, and asks. The newest checkpoint of a run always stays, and so
    does what its live effects, its resuming and the delta channels of kept LangGraph checkpoints need; the output says
    how many more were kept than --keep-last asks for, and why. With --checkpoint one checkpoint goes, if nothing needs
    it. With --delete whole runs go, if they have ended, nothing was written to them for so long, and no run that stays
    needs them, as for holdfast delete; threads of LangGraph only if they are named or --workflow langgraph is given.
    May be broken off at any moment and begun again.

    \b
    Examples:
      holdfast prune --all --keep-last 10 --dry-run
      holdfast prune order-17 --keep-last 1 --journal
      holdfast prune order-17 --checkpoint 3-5f0c2a
      holdfast prune --all --delete --older-than 90d --yes
    """
    if delete and (older_than is None or keep_last is not None or journal):
        raise click.UsageError("--delete needs --older-than, and goes without --keep-last and --journal")
    if checkpoint is not None and (len(runs) != 1 or delete or journal or keep_last is not None):
        raise click.UsageError("--checkpoint needs one run, and goes without --keep-last, --journal and --delete")
    if lane and checkpoint is None:
        raise click.UsageError("--lane goes with --checkpoint")
    if not delete and keep_last is None and checkpoint is None:
        raise click.UsageError("say how many checkpoints to keep with --keep-last, or give --checkpoint or --delete")
    if fold and keep_last is None:
        raise click.UsageError("--fold goes with --keep-last")
    store = session.store()
    keep = Keep(last=keep_last or 1, latest_terminal=keep_terminal, journal=journal)
    chosen = selected(
        session, runs, every=every, workflow=workflow, status=tuple(TERMINAL) if delete else None,
        older_than=older_than, whole=True,
    )  # fmt: skip
    if delete and every and workflow is None:  # a conversation that has come to a rest is not over
        chosen = [info for info in chosen if info.workflow != THREADS]

    def work_of(runs: list[RunInfo], *, dry_run: bool) -> tuple[list[RunInfo], Work]:
        if delete:
            return remover(store, runs, dry_run=dry_run)
        if checkpoint is not None:
            return runs, checkpoint_remover(store, checkpoint, lane, dry_run=dry_run)
        return runs, pruner(store, keep, fold=fold, dry_run=dry_run)

    with session.out.progress("looking", len(chosen)) as progress:
        chosen, work = work_of(chosen, dry_run=True)
        plan = [line for line in each(chosen, work, progress.advance) if not line.is_nothing]
    todo = {line.run_id for line in plan if line.removes}
    if dry_run or not todo:
        return _told(session, plan, keep, dry_run=dry_run)
    if not session.json:
        _table(session, plan)
    about = size(sum(line.bytes_freed for line in plan))
    if not session.out.confirm(f"Remove this from {len(todo)} runs, about {about}?", yes=yes):
        session.say("nothing was done")
        return exits.OK
    session.how_to_go_on = "What was removed is removed whole; the same command goes on with the rest."
    with session.out.progress("pruning", len(todo)) as progress:
        done = each(*work_of([info for info in chosen if info.run_id in todo], dry_run=False), progress.advance)
    done += [line for line in plan if line.run_id not in todo]
    return _told(session, done, keep, dry_run=False)


def _told(session: Session, lines: list[Line], keep: Keep, *, dry_run: bool) -> int:
    freed = sum(line.bytes_freed for line in lines)
    if session.json:
        session.out.give({"dry_run": dry_run, "runs": lines, "bytes_freed": freed})
    elif not any(line.removes or line.problem for line in lines):
        session.say("there is nothing to remove")
        _explain(session, lines, keep)
    else:
        if dry_run:
            _table(session, lines)
        for line in lines:
            if line.problem and not dry_run:
                session.out.note(f"{line.run_id}: {line.problem}")
        session.say(f"{'would free about' if dry_run else 'freed'} {size(freed)}")
        _explain(session, lines, keep)
    return exits.ERROR if any(line.problem for line in lines) else exits.OK


def _explain(session: Session, lines: list[Line], keep: Keep) -> None:
    """Say how many checkpoints were kept beyond the newest that were asked for, and why."""
    counts: dict[str, int] = {}
    for line in lines:
        for reason, count in line.kept_more.items():
            counts[reason] = counts.get(reason, 0) + count
    if not counts:
        return
    total, runs = sum(counts.values()), sum(bool(line.kept_more) for line in lines)
    where = "1 run" if runs == 1 else f"{runs} runs"
    session.say(f"besides the newest {keep.last} of each lane, {total} more checkpoints were kept, in {where}:")
    for reason, count in counts.items():
        session.say(f"  {count} {_REASONS.get(reason, reason)}")


def _table(session: Session, lines: list[Line]) -> None:
    """The runs, in a terminal only those that free most: nobody reads thousands of lines before answering."""
    hidden = lines[:0]
    if session.out.is_terminal and len(lines) > _SHOWN_MAX:
        largest = sorted(lines, key=lambda line: (line.problem is None, -line.bytes_freed))
        lines, hidden = largest[:_SHOWN_MAX], largest[_SHOWN_MAX:]
    session.out.table(
        ("RUN", "STATUS", "REMOVED", "KEPT", "ENTRIES", "FREES", "PROBLEM"),
        [
            (
                line.run_id, line.status, "whole run" if line.deleted else line.checkpoints_removed,
                line.checkpoints_kept, line.entries_removed, size(line.bytes_freed), line.problem or "",
            )
            for line in lines
        ],
        status=1,
    )  # fmt: skip
    if hidden:
        session.say(
            f"… and {len(hidden)} more runs, {size(sum(line.bytes_freed for line in hidden))}; --json lists all"
        )
