"""Runs as people name them: an id, the unique beginning of one, or @latest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.errors import RunNotFound

if TYPE_CHECKING:
    from holdfast.cli.session import Session

LATEST: Final = "@latest"


def run_named(session: Session, text: str) -> str:
    """The id of the run that is meant; RunNotFound if there is none."""
    store = session.store()
    if text == LATEST:
        newest = store.runs(limit=1)
        if not newest:
            raise RunNotFound(text)
        return newest[0].run_id
    if store.port.run(text) is None:
        raise RunNotFound(text)
    return text
