"""Runs as people name them: an id, the unique beginning of one, or @latest. `inspect.refs` says what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.inspect.refs import run_of

if TYPE_CHECKING:
    from holdfast.cli.session import Session


def run_named(session: Session, text: str) -> str:
    """The id of the run that is meant; RunNotFound if there is none, AmbiguousId if there are several."""
    return run_of(session.store(), text)
