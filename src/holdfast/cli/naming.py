"""Runs as people name them: an id, the unique beginning of one, or @latest. `inspect.refs` says what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.inspect.refs import run_of

if TYPE_CHECKING:
    from holdfast.cli.session import Session


def run_adopted(session: Session, text: str) -> str:
    """The id of a run to act upon. A declared one can go on here by what it carries, if all it names is known."""
    run_id = run_named(session, text)
    app = session.app()
    workflow = app.handle(run_id).info().workflow
    if not app.knows(workflow) and not app.adopt(run_id) and workflow == "car":
        from holdfast.formats.moving.car_flow import adopt_car

        adopt_car(app, run_id)
    return run_id


def run_named(session: Session, text: str) -> str:
    """The id of the run that is meant; RunNotFound if there is none, AmbiguousId if there are several."""
    return run_of(session.store(), text)
