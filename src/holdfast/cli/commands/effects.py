"""`holdfast effects`: a run's ledger of side effects."""

from __future__ import annotations

import click

from holdfast.cli.acting import run_argument
from holdfast.cli.naming import run_named
from holdfast.cli.session import Session
from holdfast.cli.showing import value_text
from holdfast.inspect.plain import as_data
from holdfast.model.names import display_name


@click.command()
@run_argument
@click.option("--state", type=click.Choice(["in_doubt", "done", "failed", "undone"]), help="Only those in this state.")
@click.pass_obj
def command(session: Session, run: str, state: str | None) -> None:
    """List a run's side effects and what became of each.

    One that is in doubt was begun, and nobody knows whether it happened. The idempotency key is what its function was
    given, by which the other side may find it.

    \b
    Examples:
      holdfast effects order-17
      holdfast effects order-17 --state in_doubt --json
    """
    run_id = run_named(session, run)
    found = [line for line in session.store().effects(run_id) if state in (None, line.state)]
    if session.json:
        session.out.give({"run_id": run_id, "effects": as_data(found)})
        return
    if not found:
        session.out.note("no effects" if state is None else f"no effects that are {state}")
        return
    rows = [
        (display_name(line.key), line.state, line.tool or "-", line.target or "-", "yes" if line.reversible else "no",
         session.out.time(line.updated_at), line.idempotency_key or "-",
         value_text(line.result) if line.result is not None else "")
        for line in found
    ]  # fmt: skip
    session.out.table(("EFFECT", "STATE", "TOOL", "TARGET", "UNDO", "UPDATED", "IDEMPOTENCY KEY", "RESULT"), rows)
