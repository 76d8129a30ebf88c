"""`holdfast fork`: start a new run from where another stood."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import exits
from holdfast.cli.acting import enqueue_option, run_argument, tell
from holdfast.cli.naming import Spot, adopt, spot_named
from holdfast.cli.session import Session
from holdfast.inspect.refs import checkpoint_of
from holdfast.runtime.reads import first_entry
from holdfast.store.seal import check_run

if TYPE_CHECKING:
    from holdfast.runtime.app import Effects


@click.command()
@run_argument
@click.argument("new", metavar="[NEW]", required=False)
@click.option(
    "--at", metavar="PLACE", help="A journal position, a checkpoint's id, or a call: the fork begins before it."
)
@click.option(
    "--effects", type=click.Choice(["reuse", "perform", "ask"]), default="reuse", show_default=True,
    help="What becomes of side effects that were performed since.",
)  # fmt: skip
@click.option(
    "--set", "changes", metavar="PATH=VALUE", multiple=True,
    help="Change the state the fork goes on with. VALUE is JSON, or text. May be given more than once.",
)  # fmt: skip
@enqueue_option
@click.pass_obj
def command(
    session: Session,
    run: str,
    new: str | None,
    at: str | None,
    effects: Effects,
    changes: tuple[str, ...],
    enqueue: bool,
) -> int:
    """Start a new run from where another stood.

    RUN~2 forks from two checkpoints before the newest, RUN@42 from position 42 of the journal, RUN alone from its end.
    Nothing is repeated or undone: when the fork comes to a side effect that was performed since, it takes the recorded
    outcome, performs it anew, or asks.

    \b
    Examples:
      holdfast fork order-17
      holdfast fork order-17@12 order-17b --effects ask
      holdfast fork order-17 --at pay#1 --app shop:app
      holdfast fork order-17 --at pay --set order.amount=30
    """
    update = dict(_assignment(change) for change in changes)
    app = session.app()
    spot = spot_named(session, run)
    if at is not None and (spot.at is not None or spot.checkpoint_id is not None):
        raise click.UsageError(f"{run} names a place already; leave out --at")
    if not _is_workflow(session, spot.run_id):
        if update:
            raise click.UsageError(f"{spot.run_id} is not a workflow's run, so nothing goes on with a changed state")
        made = _forked_states(session, spot, at, new)
    else:
        adopt(session, spot.run_id)
        place: int | str | None = spot.at if at is None else place_of(session, spot.run_id, at)
        handle = app.fork(
            spot.run_id, new, at=place, checkpoint_id=spot.checkpoint_id, effects=effects, update=update or None,
            enqueue=enqueue,
        )  # fmt: skip
        made = handle.run_id
    session.how_to_go_on = f"The fork {made} was made."
    tell(session, made, forked_from=app.handle(made).info().forked_from)
    return exits.OK


def _assignment(text: str) -> tuple[str, Any]:
    """PATH=VALUE as it is typed; a value that is not JSON is text."""
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise click.UsageError(f"--set takes PATH=VALUE, as order.amount=30, not {text}")
    try:
        return path, json.loads(value)
    except ValueError:
        return path, value


def place_of(session: Session, run_id: str, text: str) -> int | str:
    """A place in a run as it is typed: a position, `~2` or a checkpoint's id, the name of a stage or call."""
    if text.isascii() and text.isdigit():
        return int(text)
    if text.startswith("~"):
        found = checkpoint_of(session.store(), f"{run_id}{text}").checkpoint
        assert found is not None, "a checkpoint that is not there is an error"
        return found.checkpoint_id
    return text


def _is_workflow(session: Session, run_id: str) -> bool:
    """Whether the engine moves it on; else it is a history of states that somebody saves."""
    store = session.store()
    row = store.port.run(run_id)
    return row is not None and bool(first_entry(store._place.core, check_run(row)).get("workflow"))


def _forked_states(session: Session, spot: Spot, at: str | None, new: str | None) -> str:
    place = spot.at if at is None else place_of(session, spot.run_id, at)
    is_position = isinstance(place, int)
    made = session.store().fork(
        spot.run_id,
        new if new is not None else f"{spot.run_id}-{secrets.token_hex(4)}",
        at=place if is_position else None,
        checkpoint_id=spot.checkpoint_id if place is None or is_position else str(place),
    )
    return made.run_id
