"""The first page leads to the inbox."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.web.routes import Page
from holdfast.web.site import Context


def home(c: Context) -> Response:
    """Show the inbox."""
    return c.page("base.html", {"title": "Inbox"})


PAGES = [Page("GET", "/", home)]
