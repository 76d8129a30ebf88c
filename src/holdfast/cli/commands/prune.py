"""`holdfast prune`: remove checkpoints, journal entries and whole runs.

Every removal is planned and shown first. A run that changes after that is kept.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click
import msgspec

from holdfast.cli import exit_codes
from holdfast.cli.format import age
from holdfast.cli.output import size
from holdfast.cli.run_args import runs_argument, select_runs
from holdfast.cli.session import Session, langgraph_adapter
from holdfast.errors import Conflict, DamagedData, HoldfastError, RunNotFound, StorageError
from holdfast.inspect.deletion import Removal
from holdfast.inspect.threads import THREADS
from holdfast.model.rows import TERMINAL, CheckpointRow, RunRow
from holdfast.model.views import Keep, RunInfo
from holdfast.operations import prune
from holdfast.operations.views import moment
from holdfast.store.checksum import verify_run

if TYPE_CHECKING:
    from holdfast.model.views import Pruned
    from holdfast.operations.context import StoreContext
    from holdfast.operations.store import Store


_NOTIFY: Final = "holdfast.notify"
"""The workflow of notifications; importing its package would load clients of HTTP and SMTP."""
_SHOWN_MAX: Final = 20
_REASONS: Final = {
    "resume": "from which a resume, retry or rollback continues",
    "ended": "saved when the run ended; --no-keep-terminal removes them",
    "effect": "from before an effect in doubt; holdfast effects lists them",
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
    "--keep-terminal/--no-keep-terminal",
    default=True,
    show_default=True,
    help="Keep the newest checkpoint that was saved when the run ended.",
)
@click.option("--older-than", type=age, metavar="AGE", help="Only runs without a write for this long: 30d, 12h.")
@click.option("--journal", is_flag=True, help="Also remove journal entries that no kept checkpoint needs.")
@click.option("--checkpoint", metavar="ID", help="Remove only this checkpoint of the one run that is named.")
@click.option("--lane", metavar="NAME", default="", help="With --checkpoint: its lane.")
@click.option("--delete", is_flag=True, help="Remove whole runs that have ended; needs --older-than.")
@click.option(
    "--fold",
    is_flag=True,
    help="In LangGraph threads, also remove checkpoints that delta channels of kept ones depend on, and store their "
    "contribution with the kept ones.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def prune_command(
    session: Session,
    runs: tuple[str, ...],
    every: bool,
    workflow: str | None,
    keep_last: int | None,
    keep_terminal: bool,
    older_than: dt.timedelta | None,
    journal: bool,
    checkpoint: str | None,
    lane: str,
    delete: bool,
    fold: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Remove old checkpoints and runs.

    Shows what would be removed and how many bytes that frees, and asks. The newest checkpoint of a run is always kept,
    and so is what its live effects, a resume and the delta channels of kept LangGraph checkpoints need; the output
    reports how many more were kept than --keep-last asks for, and why. --checkpoint removes one checkpoint, if nothing
    needs it. --delete removes whole runs that have ended, that nothing was written to for the given time, and that no
    kept run needs; threads of LangGraph and sent notifications only if they are named, or with --workflow langgraph or
    --workflow holdfast.notify. The command may be interrupted at any moment and repeated.

    \b
    Examples:
      holdfast prune --all --keep-last 10 --dry-run
      holdfast prune order-17 --keep-last 1 --journal
      holdfast prune order-17 --checkpoint 3-5f0c2a
      holdfast prune --all --delete --older-than 90d --yes
    """
    if delete and (older_than is None or keep_last is not None or journal):
        raise click.UsageError("--delete requires --older-than, and excludes --keep-last and --journal")
    if checkpoint is not None and (len(runs) != 1 or delete or journal or keep_last is not None):
        raise click.UsageError("--checkpoint requires one run, and excludes --keep-last, --journal and --delete")
    if lane and checkpoint is None:
        raise click.UsageError("--lane requires --checkpoint")
    if not delete and keep_last is None and checkpoint is None:
        raise click.UsageError("pass --keep-last, --checkpoint or --delete")
    if fold and keep_last is None:
        raise click.UsageError("--fold requires --keep-last")
    store = session.store()
    keep = Keep(last=keep_last or 1, latest_terminal=keep_terminal, journal=journal)
    status = tuple(TERMINAL) if delete else None
    chosen = select_runs(
        session, runs, every=every, workflow=workflow, status=status, older_than=older_than, whole=True
    )
    if delete and every and workflow is None:
        # A thread without pending work may still be continued; a notification that was deleted would be sent again.
        chosen = [info for info in chosen if info.workflow not in (THREADS, _NOTIFY)]

    def work_of(runs: list[RunInfo], dry_run: bool) -> tuple[list[RunInfo], Work]:
        if delete:
            return _remover(store, runs, dry_run=dry_run)
        if checkpoint is not None:
            return runs, _checkpoint_remover(store, checkpoint, lane, dry_run=dry_run)
        return runs, _pruner(store, keep, fold=fold, dry_run=dry_run)

    return _prune(session, chosen, work_of, keep, dry_run=dry_run, yes=yes)


def _prune(
    session: Session,
    chosen: list[RunInfo],
    work_of: Callable[[list[RunInfo], bool], tuple[list[RunInfo], Work]],
    keep: Keep,
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """Show what would be removed, ask, and remove it. `work_of` orders the runs and returns the work for each."""
    with session.out.progress("planning", len(chosen)) as progress:
        chosen, work = work_of(chosen, True)
        plan = [line for line in _apply(chosen, work, progress.advance) if not line.is_empty]
    todo = {line.run_id for line in plan if line.removes}
    if dry_run or not todo:
        return _report(session, plan, keep, dry_run=dry_run)
    if not session.json:
        _table(session, plan)
    about = size(sum(line.bytes_freed for line in plan))
    if not session.out.confirm(f"Remove this from {len(todo)} runs and free about {about}?", yes=yes):
        session.say("nothing was done")
        return exit_codes.OK
    session.how_to_continue = "Every removal so far is complete; repeat the command to continue."
    with session.out.progress("pruning", len(todo)) as progress:
        done = _apply(*work_of([info for info in chosen if info.run_id in todo], False), progress.advance)
    done += [line for line in plan if line.run_id not in todo]
    return _report(session, done, keep, dry_run=False)


def _report(session: Session, lines: list[Line], keep: Keep, *, dry_run: bool) -> int:
    freed = sum(line.bytes_freed for line in lines)
    if session.json:
        session.out.give({"dry_run": dry_run, "runs": lines, "bytes_freed": freed})
    elif not any(line.removes or line.problem for line in lines):
        session.say("nothing to remove")
        _explain(session, lines, keep)
    else:
        if dry_run:
            _table(session, lines)
        for line in lines:
            if line.problem and not dry_run:
                session.out.note(f"{line.run_id}: {line.problem}")
        session.say(f"{'would free about' if dry_run else 'freed'} {size(freed)}")
        _explain(session, lines, keep)
    return exit_codes.ERROR if any(line.problem for line in lines) else exit_codes.OK


def _explain(session: Session, lines: list[Line], keep: Keep) -> None:
    """Report how many checkpoints were kept beyond --keep-last, and why."""
    counts: dict[str, int] = {}
    for line in lines:
        for reason, count in line.kept_more.items():
            counts[reason] = counts.get(reason, 0) + count
    if not counts:
        return
    total, runs = sum(counts.values()), sum(bool(line.kept_more) for line in lines)
    where = "1 run" if runs == 1 else f"{runs} runs"
    session.say(f"besides the newest {keep.last} of each lane, {total} more checkpoints were kept in {where}:")
    for reason, count in counts.items():
        session.say(f"  {count} {_REASONS.get(reason, reason)}")


def _table(session: Session, lines: list[Line]) -> None:
    """Print the runs; in a terminal only those that free most, so that the question stays visible."""
    hidden = lines[:0]
    if session.out.is_terminal and len(lines) > _SHOWN_MAX:
        largest = sorted(lines, key=lambda line: (line.problem is None, -line.bytes_freed))
        lines, hidden = largest[:_SHOWN_MAX], largest[_SHOWN_MAX:]
    headers = ("RUN", "STATUS", "REMOVED", "KEPT", "ENTRIES", "FREES", "PROBLEM")
    session.out.table(headers, [line.cells() for line in lines], status=1)
    if hidden:
        session.say(
            f"… and {len(hidden)} more runs, {size(sum(line.bytes_freed for line in hidden))}; --json lists all"
        )


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What is, or would be, removed from one run."""

    run_id: str
    status: str
    checkpoints_removed: int = 0
    checkpoints_kept: int = 0
    entries_removed: int = 0
    bytes_freed: int = 0
    deleted: bool = False
    """The whole run is removed."""
    problem: str | None = None
    """Why nothing, or not everything, was removed."""
    kept_more: dict[str, int] = {}
    """Checkpoints kept beyond --keep-last, by reason; see `Pruned.kept_more`."""

    @property
    def removes(self) -> bool:
        """Whether something is removed."""
        return bool(self.checkpoints_removed or self.entries_removed or self.bytes_freed or self.deleted)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is removed and there is nothing to explain."""
        return not self.removes and self.problem is None and not self.kept_more

    def cells(self) -> tuple[str | int, ...]:
        """Return the cells of its row in the table."""
        removed = "whole run" if self.deleted else self.checkpoints_removed
        kept, entries, freed = self.checkpoints_kept, self.entries_removed, size(self.bytes_freed)
        return self.run_id, self.status, removed, kept, entries, freed, self.problem or ""


Work = Callable[[RunInfo], Line]


def _apply(runs: Iterable[RunInfo], work: Work, advance: Callable[[], None]) -> list[Line]:
    """Do the work for every run. An error of one run becomes its problem; an error of the store is raised."""
    lines = []
    for info in runs:
        try:
            lines.append(work(info))
        except StorageError:
            raise
        except HoldfastError as error:
            lines.append(Line(run_id=info.run_id, status=info.status, problem=str(error)))
        advance()
    return lines


def _pruner(store: Store, keep: Keep, *, fold: bool, dry_run: bool) -> Work:
    """Return the work that prunes a run. With `fold`, folds are written to LangGraph threads first."""
    core = store.access.core
    estimate = prune.RemovalEstimate(core)
    if fold:
        langgraph_adapter()

    def work(info: RunInfo) -> Line:
        folds = None
        if fold and info.workflow == THREADS:
            from holdfast.adapters.langgraph import retention

            if dry_run:
                folds = retention.plan_fold(core, info.run_id, keep)
            else:
                store.access.run(retention.fold(store.access, info.run_id, keep))
        if dry_run:
            return _line(info, prune.plan_prune(core, info.run_id, keep, estimate, folds))
        return _line(info, store.prune(info.run_id, keep))

    return work


def _checkpoint_remover(store: Store, checkpoint_id: str, lane: str, *, dry_run: bool) -> Work:
    """Return the work that removes one checkpoint of a run."""
    return lambda info: _line(info, store.delete_checkpoint(info.run_id, checkpoint_id, lane=lane, dry_run=dry_run))


def _line(info: RunInfo, done: Pruned) -> Line:
    return Line(
        run_id=info.run_id,
        status=info.status,
        checkpoints_removed=len(done.removed),
        checkpoints_kept=done.kept,
        entries_removed=done.entries,
        bytes_freed=done.bytes_freed,
        problem=done.damage,
        kept_more=done.kept_more,
    )


def _remover(store: Store, chosen: list[RunInfo], *, dry_run: bool) -> tuple[list[RunInfo], Work]:
    """Return the runs in the order of their removal, and the work that removes a whole run unless it is needed."""
    core = store.access.core
    rows: dict[str, RunRow] = {}
    for info in chosen:
        with contextlib.suppress(DamagedData, Conflict, RunNotFound):  # `work` reports it
            rows[info.run_id] = _unchanged(core, info)
    removal = Removal(store, rows.values())
    order = {row.run_id: place for place, row in enumerate(removal.in_order())}
    kept = removal.keep_needed() if dry_run else {}
    estimate = prune.RemovalEstimate(core)

    def work(info: RunInfo) -> Line:
        row = rows.get(info.run_id) or _unchanged(core, info)
        if row.run in kept:
            return Line(run_id=info.run_id, status=info.status, problem="; ".join(kept[row.run]))
        checkpoints = core.port.rows(CheckpointRow, row.run)
        freed = (estimate if dry_run else prune.RemovalEstimate(core)).add_run(row)
        if not dry_run:
            removal.remove(row)
        return Line(
            run_id=info.run_id,
            status=info.status,
            checkpoints_removed=len(checkpoints),
            entries_removed=row.position,
            bytes_freed=freed.bytes,
            deleted=True,
        )

    return sorted(chosen, key=lambda info: order.get(info.run_id, -1)), work


def _unchanged(core: StoreContext, info: RunInfo) -> RunRow:
    """Return the row of a run; Conflict if it has changed since the run was selected."""
    found = core.port.run(info.run_id)
    if found is None:
        raise RunNotFound(info.run_id)
    row = verify_run(found)
    if row.status not in TERMINAL or moment(row.updated_us) != info.updated_at:
        raise Conflict("it has changed since it was selected")
    return row
