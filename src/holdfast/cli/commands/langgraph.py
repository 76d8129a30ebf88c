"""`holdfast langgraph`: move LangGraph threads here, list them, thin them out."""

from __future__ import annotations

import datetime as dt
from typing import Any

import click
import msgspec

from holdfast.cli import exits
from holdfast.cli.ages import age
from holdfast.cli.loading import langgraph_adapter
from holdfast.cli.output import size
from holdfast.cli.session import Session


@click.group()
def command() -> None:
    """Move LangGraph threads here, list them, thin them out.

    \b
    Examples:
      holdfast langgraph import checkpoints.sqlite
      holdfast langgraph threads
      holdfast langgraph retain --last 20 --idle 90d
    """


@command.command("import")
@click.argument("source", metavar="SOURCE")
@click.option("--thread", "threads", multiple=True, metavar="ID", help="Only this thread; may be repeated.")
@click.option("--no-verify", is_flag=True, help="Do not read back and compare what was moved.")
@click.option("--dry-run", is_flag=True, help="Write nothing, only say what would be done.")
@click.pass_obj
def import_threads(session: Session, source: str, threads: tuple[str, ...], no_verify: bool, dry_run: bool) -> int:
    """Move the threads of LangGraph's own database into the store.

    SOURCE is sqlite:PATH, a path, or postgresql://… and is only read. May be repeated, also after it was killed.

    \b
    Examples:
      holdfast langgraph import checkpoints.sqlite --dry-run
      holdfast langgraph import postgresql://localhost/agents --store sqlite:agent.db
    """
    url = session.location().url
    session.how_to_go_on = "The same command goes on with what is not moved yet."
    with session.out.progress("moving", None) as progress:
        report = langgraph_adapter().migrate(
            source, url, thread_ids=list(threads) or None, progress=progress.reach, verify=not no_verify,
            dry_run=dry_run,
        )  # fmt: skip
    if session.json:
        session.out.give(report)
    else:
        session.say(str(report))
    return exits.ERROR if report.problems else exits.OK


@command.command("threads")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="Go on behind this cursor.")
@click.pass_obj
def list_threads(session: Session, limit: int, after: str | None) -> int:
    """List the threads of the store, newest first.

    \b
    Examples:
      holdfast langgraph threads --limit 10
    """
    page = session.store().runs(workflow="langgraph", limit=limit, after=after)
    if session.json:
        names = ("run_id", "status", "checkpoint_id", "step", "created_at", "updated_at", "owner")
        threads = [{name: getattr(info, name) for name in names} for info in page]
        session.out.give({"threads": threads, "cursor": page.cursor})
        return exits.OK
    rows = [(info.run_id, info.status, session.out.time(info.updated_at), info.owner or "") for info in page]
    session.out.table(("THREAD", "STATUS", "UPDATED", "HELD BY"), rows, status=1)
    if page.cursor is not None:
        session.out.note(f"more: holdfast langgraph threads --after {page.cursor}")
    return exits.OK


@command.command("retain")
@click.option(
    "--last", type=click.IntRange(min=1), metavar="N", help="Keep the newest N checkpoints of each namespace."
)
@click.option("--newer-than", type=age, metavar="AGE", help="Keep checkpoints newer than this: 7d, 12h.")
@click.option("--idle", type=age, metavar="AGE", help="Remove threads that nobody used for so long.")
@click.option("--thread", "threads", multiple=True, metavar="ID", help="Only this thread; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def retain(
    session: Session, last: int | None, newer_than: dt.timedelta | None, idle: dt.timedelta | None,
    threads: tuple[str, ...], dry_run: bool, yes: bool,
) -> int:  # fmt: skip
    """Remove old checkpoints of threads, and threads that nobody uses.

    \b
    Examples:
      holdfast langgraph retain --last 20 --newer-than 7d --idle 90d --dry-run
    """
    rules: dict[str, Any] = {
        "last": last, "newer_than": newer_than, "idle": idle, "thread_ids": list(threads) or None
    }  # fmt: skip
    saver = langgraph_adapter().HoldfastSaver(session.store())
    plan = saver.retain(**rules, dry_run=True)
    done = plan
    if not dry_run and (plan.checkpoints or plan.threads_removed):
        question = f"Remove {plan.checkpoints} checkpoints and {plan.threads_removed} whole threads?"
        if not session.out.confirm(question, yes=yes):
            session.say("nothing was done")
            return exits.OK
        done = saver.retain(**rules)
    elif not dry_run:
        done = msgspec.structs.replace(plan, dry_run=False)
    if session.json:
        session.out.give(done)
        return exits.OK
    would = "would remove" if done.dry_run else "removed"
    session.say(f"{would} {done.checkpoints} checkpoints and {done.threads_removed} whole threads of {done.threads}")
    if not done.dry_run:
        session.say(f"freed {size(done.bytes_freed)}")
    for reason in done.skipped:
        session.out.note(reason)
    return exits.OK
