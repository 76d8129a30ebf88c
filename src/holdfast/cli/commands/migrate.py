"""`holdfast migrate`: bring a store's schema up to date, or print how."""

from __future__ import annotations

import click

from holdfast.cli import exits
from holdfast.cli.session import Session
from holdfast.cli.versions import schema_at, sql_of


@click.command()
@click.option("--sql", is_flag=True, help="Only print the SQL that would do it; PostgreSQL only.")
@click.option("--dry-run", is_flag=True, help="Only say which version it has and what is pending.")
@click.pass_obj
def command(session: Session, sql: bool, dry_run: bool) -> int:
    """Bring a store's schema up to date, or print how.

    A store that is not there is made. Opening a store does the same; this is for those who want to know first, and for
    databases in which the program itself may create nothing: print the SQL and run it as somebody who may.

    \b
    Examples:
      holdfast migrate --dry-run
      holdfast migrate --store postgresql://localhost/agents --sql | psql agents
    """
    where = session.location()
    found = schema_at(where.url)
    text = sql_of(where.url, found.found) if sql else None
    if not sql and not dry_run:
        session.store(create=True)  # opening it does the work
    done = not sql and not dry_run
    if session.json:
        session.out.give(
            {
                "store": where.shown, "source": where.source, "kind": found.kind, "version": found.found,
                "newest": found.newest, "pending": found.pending, "migrated": done and bool(found.pending), "sql": text,
            }
        )  # fmt: skip
    elif text is not None:
        session.say(text)
    else:
        has = f"has version {found.found}" if found.found else "is not there yet"
        now = f"; brought to version {found.newest}" if done and found.pending else ""
        pending = f"; pending: {', '.join(map(str, found.pending))}" if found.pending and dry_run else ""
        session.say(f"{where.shown} {has}, the newest is {found.newest}{now}{pending}")
    return exits.OK
