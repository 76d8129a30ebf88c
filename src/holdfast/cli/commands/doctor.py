"""`doctor`, `verify` and `check`: report problems of a store, its bytes and its runs.

Nothing here writes to the store.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from holdfast.cli import exit_codes
from holdfast.cli.output import one_line, size
from holdfast.cli.run_args import adopt, runs_argument, select_runs
from holdfast.cli.session import Session
from holdfast.errors import DamagedData, DefinitionChanged, Diverged, HoldfastError, StorageError
from holdfast.inspect.health import Health, health, unreachable
from holdfast.inspect.run_size import KEEP
from holdfast.inspect.views import as_data
from holdfast.model.rows import STATUSES
from holdfast.operations.verify import verify_store

if TYPE_CHECKING:
    from holdfast.model.views import RunInfo
    from holdfast.runtime.app import App


_LEVELS: Final = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "bad": ("BAD ", "red")}


@click.command()
@click.pass_obj
def doctor_command(session: Session) -> int:
    """Report problems and risks of a store and its runs.

    Examines versions, settings, the file system, clocks, claims, effects in doubt, overdue gates and timers,
    undelivered messages and growth. Of many runs it examines a sample. Nothing is changed. The exit code is 1 if a
    check found a fault.

    \b
    Examples:
      holdfast doctor
      holdfast doctor --store postgresql://db/app --json
    """
    found = _examine(session)
    code = exit_codes.ERROR if found.bad else exit_codes.OK
    if session.json:
        session.out.give({"ok": not found.bad, **as_data(found)})
        return code
    session.say(f"store: {found.url} ({found.source})")
    session.say("versions: " + ", ".join(f"{name} {number}" for name, number in found.versions.items()))
    if found.store:
        session.say("backend: " + ", ".join(f"{name} {value}" for name, value in found.store.items()))
    session.say()
    for finding in found.findings:
        sign, color = _LEVELS[finding.level]
        session.say(f"{session.out.styled(sign, fg=color)}  {finding.what}: {one_line(finding.detail)}")
        if finding.hint and finding.level != "ok":
            session.say(f"      {finding.hint}")
    _print_biggest(session, found)
    if found.sampled:
        session.say("all runs were examined" if found.complete else f"{found.sampled} runs were examined, not all")
    return code


def _examine(session: Session) -> Health:
    try:
        store = session.store()
        where = session.where()
        return health(store, where.source if where is not None else "")
    except (StorageError, DamagedData) as error:
        where = session.where()
        return unreachable(where.shown if where else "", where.source if where else "", error)


def _print_biggest(session: Session, found: Health) -> None:
    if not found.biggest:
        return
    session.say()
    rows: list[tuple[str | int, ...]] = []
    for run in found.biggest:
        keys = ", ".join(f"{weight.key} {size(weight.bytes)}" for weight in run.keys)
        weights = [size(n) if n is not None else "-" for n in (run.bytes, run.bytes_per_checkpoint, run.prune_frees)]
        rows.append((run.run_id, run.checkpoints, run.entries, *weights, keys))
    session.out.table(("BIGGEST", "CHECKPOINTS", "ENTRIES", "BYTES", "EACH", "PRUNE FREES", "STATE"), rows)
    session.say(f"PRUNE FREES is by `holdfast prune RUN --keep-last {KEEP.last} --journal`")
    session.say()


@click.command()
@click.pass_obj
def verify_command(session: Session) -> int:
    """Check every stored byte and report damage.

    Nothing is repaired or changed. Safe while other processes write. The exit code is 1 if something is damaged.

    \b
    Examples:
      holdfast verify
      holdfast verify --store dir:/var/lib/runs --json
    """
    store = session.store()
    total = sum(store.stats().runs.values()) if sys.stderr.isatty() and not session.json else None
    with session.out.progress("verifying", total) as progress:
        report = verify_store(store.access.core, progress.advance)
    if session.json:
        session.out.give({"ok": report.ok, **as_data(report)})
        return exit_codes.OK if report.ok else exit_codes.ERROR
    for problem in report.problems:
        session.say(one_line(f"{problem.place}: {problem.reason}"))
    counted = f"{report.runs} runs, {report.checkpoints} checkpoints, {report.entries} entries, {report.chunks} chunks"
    said = "no problems found" if report.ok else f"{len(report.problems)} problems"
    session.say(f"{said}; checked {counted}")
    if report.unused_chunks:
        session.say(f"{report.unused_chunks} chunks are unused; the next prune of their runs frees them")
    return exit_codes.OK if report.ok else exit_codes.ERROR


@click.command()
@runs_argument
@click.option("--all", "every", is_flag=True, help="All runs.")
@click.option("--workflow", metavar="NAME", help="With --all: only runs of this workflow.")
@click.option(
    "--status", multiple=True, type=click.Choice(sorted(STATUSES)), help="Only runs of this status; may be repeated."
)
@click.pass_obj
def check_command(
    session: Session, runs: tuple[str, ...], every: bool, workflow: str | None, status: tuple[str, ...]
) -> int:
    """Replay stored runs with the present code.

    No step or effect is called, and nothing is written. A run has diverged if its code would make other calls than its
    journal records; the exit code is then 5. Runs of workflows that the app does not have are listed as skipped.

    \b
    Examples:
      holdfast check --all --app shop:app
      holdfast check order-17 --app shop:app
      holdfast check --all --status waiting --workflow refund --json
    """
    if session.app_named() is None:
        raise click.UsageError("check needs the app with the workflows: --app module:name")
    app = session.app()
    chosen = select_runs(session, runs, every=every, workflow=workflow, status=status or None)
    with session.out.progress("replaying", len(chosen)) as progress:
        found = []
        for info in chosen:
            adopt(session, info.run_id)
            found.append(_check_run(app, info))
            progress.advance()
    counts = {name: sum(each.outcome == name for each in found) for name in ("ok", "diverged", "skipped", "failed")}
    if session.json:
        session.out.give({"runs": [each._asdict() for each in found], **counts})
    else:
        _print_check(session, found, counts)
    if counts["diverged"]:
        return exit_codes.CONFLICT
    return exit_codes.ERROR if counts["failed"] else exit_codes.OK


class _Checked(NamedTuple):
    run_id: str
    workflow: str
    status: str
    outcome: str
    position: int | None
    detail: str | None


def _print_check(session: Session, found: list[_Checked], counts: dict[str, int]) -> None:
    rows = [(one.run_id, one.status, one.outcome, one.detail) for one in found if one.outcome in ("diverged", "failed")]
    if rows:
        session.out.table(("RUN", "STATUS", "OUTCOME", "DETAIL"), rows, status=1)
    for detail, number in Counter(each.detail for each in found if each.outcome == "skipped").items():
        session.say(f"skipped {number}: {detail}")
    session.say(", ".join(f"{number} {name}" for name, number in counts.items()))


def _check_run(app: App, info: RunInfo) -> _Checked:
    from holdfast.runtime.replay import replay

    outcome, detail, position = "ok", None, None
    try:
        if app.knows(info.workflow):
            replay(app, info.run_id)
        else:
            outcome, detail = "skipped", f"the app has no workflow {info.workflow!r}"
    except Diverged as error:
        outcome, detail, position = "diverged", str(error), error.position
    except DefinitionChanged as error:
        outcome, detail = "diverged", str(error)
    except StorageError:
        raise
    except HoldfastError as error:
        outcome, detail = "failed", str(error)
    return _Checked(info.run_id, info.workflow, info.status, outcome, position, detail)
