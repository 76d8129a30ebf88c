"""The table of routes: path, method, who may use it, and which function answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from starlette.responses import Response

from holdfast.web.site import Context

Handler = Callable[[Context], Response]


class Page(NamedTuple):
    """A route. POST routes of kind `page` need the CSRF token of the session."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handler: Handler
    role: str = "viewer"
    """The least role that may use it; empty: no login is needed."""
    kind: Literal["page", "api"] = "page"
    """`api`: GET with a cookie or a bearer token; everything else only with a bearer token."""


def pages() -> list[Page]:
    """All routes. Ids in paths are percent-encoded, a slash too."""
    from holdfast.web.api import operation_table
    from holdfast.web.pages import (
        act,
        batch,
        fork_dialog,
        gate,
        inbox,
        login,
        rollback_dialog,
        run,
        run_family,
        run_journal,
        run_state,
        runs,
        start,
    )

    acting = [*act.PAGES, *rollback_dialog.PAGES, *fork_dialog.PAGES, *start.PAGES]
    looking = [*runs.PAGES, *run.PAGES, *run_journal.PAGES, *run_state.PAGES, *run_family.PAGES]
    return [*login.PAGES, *inbox.PAGES, *gate.PAGES, *batch.PAGES, *looking, *acting, *operation_table.PAGES]
