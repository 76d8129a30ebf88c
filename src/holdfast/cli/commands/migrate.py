"""`migrate` and `langgraph`: migrate the schema of a store, and LangGraph threads."""

from __future__ import annotations

import datetime as dt

import click
import msgspec

from holdfast.cli import exit_codes
from holdfast.cli.format import age
from holdfast.cli.output import size
from holdfast.cli.session import Session, langgraph_adapter
from holdfast.errors import InvalidInput
from holdfast.open_store import POSTGRESQL, Schema, schema_at


@click.command()
@click.option("--sql", is_flag=True, help="Only print the SQL; PostgreSQL only.")
@click.option("--dry-run", is_flag=True, help="Only print the version and the pending migrations.")
@click.pass_obj
def migrate_command(session: Session, sql: bool, dry_run: bool) -> int:
    """Migrate a store's schema, or print the SQL that does it.

    A store that does not exist is created. Opening a store migrates it as well; use this command to see what is
    pending, or, if the program has no right to create tables, to print the SQL and run it under a role that has it.

    \b
    Examples:
      holdfast migrate --dry-run
      holdfast migrate --store postgresql://localhost/agents --sql | psql agents
    """
    where = session.location()
    found = schema_at(where.url)
    text = sql_of(where.url, found) if sql else None
    done = not sql and not dry_run
    if done:
        session.store(create=True)  # opening a store migrates it
    if session.json:
        session.out.give(
            {
                "store": where.shown,
                "source": where.source,
                "kind": found.kind,
                "version": found.found,
                "newest": found.newest,
                "pending": found.pending,
                "migrated": done and bool(found.pending),
                "sql": text,
            }
        )
    elif text is not None:
        session.say(text)
    else:
        has = f"has version {found.found}" if found.found else "does not exist yet"
        now = f"; migrated to version {found.newest}" if done and found.pending else ""
        pending = f"; pending: {', '.join(map(str, found.pending))}" if found.pending and dry_run else ""
        session.say(f"{where.shown} {has}, the newest is {found.newest}{now}{pending}")
    return exit_codes.OK


def sql_of(url: str, found: Schema) -> str:
    """Return the SQL that migrates a PostgreSQL schema to the newest version."""
    if found.kind != POSTGRESQL:
        raise InvalidInput("--sql is only for PostgreSQL; the other stores are migrated when they are opened")
    from holdfast.store.postgres.migrations import sql_text
    from holdfast.store.postgres.settings import read_url

    return sql_text(read_url(url).schema, found.found)


# --- langgraph -------------------------------------------------------------------------------------------------------


@click.group()
def langgraph_command() -> None:
    """Import, list and prune LangGraph threads.

    \b
    Examples:
      holdfast langgraph import checkpoints.sqlite
      holdfast langgraph threads
      holdfast langgraph retain --last 20 --idle 90d
    """


@langgraph_command.command("import")
@click.argument("source", metavar="SOURCE")
@click.option("--thread", "threads", multiple=True, metavar="ID", help="Only this thread; may be repeated.")
@click.option("--no-verify", is_flag=True, help="Do not read back and compare what was imported.")
@click.option("--dry-run", is_flag=True, help="Write nothing, only print what would be done.")
@click.pass_obj
def import_threads(session: Session, source: str, threads: tuple[str, ...], no_verify: bool, dry_run: bool) -> int:
    """Import the threads of a database of LangGraph's own checkpointers.

    SOURCE is sqlite:PATH, a path, or postgresql://… and is only read. The import may be repeated, also after a crash.

    \b
    Examples:
      holdfast langgraph import checkpoints.sqlite --dry-run
      holdfast langgraph import postgresql://localhost/agents --store sqlite:agent.db
    """
    url = session.location().url
    session.how_to_continue = "Repeat the command to import the rest."
    with session.out.progress("importing", None) as progress:
        report = langgraph_adapter().migrate(
            source,
            url,
            thread_ids=list(threads) or None,
            progress=progress.reach,
            verify=not no_verify,
            dry_run=dry_run,
        )
    if session.json:
        session.out.give(report)
    else:
        session.say(str(report))
    return exit_codes.ERROR if report.problems else exit_codes.OK


@langgraph_command.command("threads")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="The maximum number of threads."
)
@click.option("--after", metavar="CURSOR", help="Start after this cursor, from an earlier page.")
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
        return exit_codes.OK
    rows = [(info.run_id, info.status, session.out.time(info.updated_at), info.owner or "") for info in page]
    session.out.table(("THREAD", "STATUS", "UPDATED", "OWNER"), rows, status=1)
    if page.cursor is not None:
        session.out.note(f"more: holdfast langgraph threads --after {page.cursor}")
    return exit_codes.OK


@langgraph_command.command("retain")
@click.option(
    "--last", type=click.IntRange(min=1), metavar="N", help="Keep the newest N checkpoints of each namespace."
)
@click.option("--newer-than", type=age, metavar="AGE", help="Keep checkpoints newer than this: 7d, 12h.")
@click.option("--idle", type=age, metavar="AGE", help="Remove threads unused for this long.")
@click.option("--thread", "threads", multiple=True, metavar="ID", help="Only this thread; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_obj
def retain(
    session: Session,
    last: int | None,
    newer_than: dt.timedelta | None,
    idle: dt.timedelta | None,
    threads: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> int:
    """Remove old checkpoints of threads, and unused threads.

    \b
    Examples:
      holdfast langgraph retain --last 20 --newer-than 7d --idle 90d --dry-run
    """
    saver = langgraph_adapter().HoldfastSaver(session.store())
    rules = {"last": last, "newer_than": newer_than, "idle": idle, "thread_ids": list(threads) or None}
    plan = saver.retain(**rules, dry_run=True)
    done = plan
    if not dry_run and (plan.checkpoints or plan.threads_removed):
        question = f"Remove {plan.checkpoints} checkpoints and {plan.threads_removed} whole threads?"
        if not session.out.confirm(question, yes=yes):
            session.say("nothing was done")
            return exit_codes.OK
        done = saver.retain(**rules)
    elif not dry_run:
        done = msgspec.structs.replace(plan, dry_run=False)
    if session.json:
        session.out.give(done)
        return exit_codes.OK
    would = "would remove" if done.dry_run else "removed"
    session.say(f"{would} {done.checkpoints} checkpoints and {done.threads_removed} whole threads of {done.threads}")
    if not done.dry_run:
        session.say(f"freed {size(done.bytes_freed)}")
    for reason in done.skipped:
        session.out.note(reason)
    return exit_codes.OK
