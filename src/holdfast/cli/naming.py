"""Runs and places in them as people name them. `inspect.refs` says what ids and their beginnings mean.

order-17     the run, or where it ends
order-17~2   its checkpoint two before the newest
order-17@42  position 42 of its journal
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.cli.output import one_line
from holdfast.errors import HoldfastError, RunNotFound
from holdfast.inspect.inbox import pending_cancel
from holdfast.inspect.refs import LATEST, checkpoint_of, run_of

if TYPE_CHECKING:
    import click

    from holdfast.cli.session import Session
    from holdfast.inspect.shapes import PendingCancel
    from holdfast.model.gates import GateInfo
    from holdfast.runtime.app import App

_INSIDE_MAX: Final = 100
_AT: Final = re.compile(r"(?P<run>.+)@(?P<position>[0-9]{1,18})", re.DOTALL)
_OFFERED_MAX: Final = 100


class Spot(NamedTuple):
    """A run and a place in it; without one, its end."""

    run_id: str
    at: int | None = None
    checkpoint_id: str | None = None


def run_adopted(session: Session, text: str) -> str:
    """The id of a run to act upon. A declared one can go on here by what it carries, if all it names is known."""
    run_id = run_named(session, text, whole=True)
    adopt(session, run_id)
    return run_id


def adopt(session: Session, run_id: str) -> None:
    """Let the app of this command know a declared workflow by what its run carries, if it has all that names."""
    app = session.app()
    workflow = app.handle(run_id).info().workflow
    if not app.knows(workflow) and not app.adopt(run_id) and workflow == "car":
        from holdfast.formats.moving.car_flow import adopt_car

        adopt_car(app, run_id)


def open_gates(app: App, run_id: str) -> list[GateInfo]:
    """The open questions of a run and of the runs inside it, its own first; none of a run that is to be cancelled."""
    own = app.gates(run_id)
    inside = app.runs(prefix=f"{run_id}/", status="waiting", limit=_INSIDE_MAX)
    found = own + [gate for info in inside for gate in app.gates(info.run_id)]
    if found and pending_cancel(app.store, run_id) is not None:
        return []
    return found


def cancel_note(session: Session, run_id: str, cancel: PendingCancel) -> str:
    """Say that a cancel is pending, who asked for it and when."""
    asked = f"a cancel was requested by {cancel.by} {session.out.when(cancel.at)}"
    return one_line(f"{run_id}: {asked} and is pending; the next worker that takes the run carries it out")


def note_cancel(session: Session, run_id: str, cancel: PendingCancel) -> None:
    """Say beside the result that a cancel is pending."""
    for line in session.out.wrapped(cancel_note(session, run_id, cancel)):
        session.out.note(line)


def run_named(session: Session, text: str, *, whole: bool = False) -> str:
    """The id of the run that is meant; RunNotFound if there is none, AmbiguousId if there are several.

    `whole`: for a command that changes the run, so an abbreviated id is refused.
    """
    return run_of(session.store(), text, whole=whole)


def spot_named(session: Session, text: str) -> Spot:
    """The run, by its whole id, and the place in it that are meant. An id that looks like a place is an id."""
    store = session.store()
    if text == LATEST or store.port.run(text) is not None:
        return Spot(run_of(store, text, whole=True))
    found = _AT.fullmatch(text)
    if found is not None:
        try:
            return Spot(run_of(store, found["run"], whole=True), at=int(found["position"]))
        except RunNotFound:
            pass
    located = checkpoint_of(store, text, whole=True)
    if located.checkpoint is None:
        return Spot(located.run.run_id)
    return Spot(located.run.run_id, checkpoint_id=located.checkpoint.checkpoint_id)


def offered_runs(context: click.Context, _: click.Parameter, incomplete: str) -> list[Any]:
    """Runs a shell may offer: those whose id begins with what was typed, newest first."""
    from click.shell_completion import CompletionItem

    from holdfast.cli.session import Session

    session = context.find_object(Session)
    if session is None:
        return []
    try:
        runs = session.store().runs(limit=_OFFERED_MAX, prefix=incomplete, damaged="skip")
    except HoldfastError:  # a shell is told nothing rather than of trouble
        return []
    finally:
        session.close()
    return [CompletionItem(info.run_id, help=f"{info.workflow} {info.status}".strip()) for info in runs]
