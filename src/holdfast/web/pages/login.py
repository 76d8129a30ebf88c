"""Login by a token, and logout. A GET never uses a token up: programs that preview links send it, too."""

from __future__ import annotations

import logging

from starlette.responses import RedirectResponse, Response

from holdfast.errors import NotFound
from holdfast.web.identity import ANONYMOUS
from holdfast.web.routes import Page
from holdfast.web.security import safe_path
from holdfast.web.sessions import TooManyTokens
from holdfast.web.site import Context

_log = logging.getLogger("holdfast.web")


def login_form(c: Context) -> Response:
    """Show the form for a token; with the token of the printed address, one button."""
    _require_login_here(c)
    if c.user is not ANONYMOUS:
        return RedirectResponse(safe_path(c.query("next", "/")), 303)
    local = c.site.access.local
    token = c.query("token")
    is_link = local is not None and bool(token) and local.is_current(token)
    return c.page(
        "login.html",
        {
            "token": token if is_link else "",
            "name": local.user.name if local is not None else "",
            "is_old": bool(token) and not is_link,
            "is_local": local is not None,
            "next": safe_path(c.query("next", "/")),
            "problem": "",
        },
    )


def log_in(c: Context) -> Response:
    """Begin a session, if the token is valid."""
    _require_login_here(c)
    access = c.site.access
    goal = safe_path(c.value("next", "/"))
    problem, status, headers = "This token is not valid.", 403, {}
    try:
        found = access.log_in(c.request, c.value("token").strip())
    except TooManyTokens as error:
        found, status, headers = None, 429, {"Retry-After": str(error.wait_s)}
        problem = f"Too many wrong tokens. Wait {error.wait_s} s."
    if found is not None:
        user, proof = found
        _log.info("login of %a (%s) from %s", user.name, user.role, access.address(c.request))
        response: Response = RedirectResponse(goal, 303)
        access.begin(response, user, proof)
        return response
    data = {"token": "", "name": "", "is_old": False, "next": goal, "problem": problem}
    response = c.page("login.html", {**data, "is_local": access.local is not None}, status=status)
    response.headers.update(headers)
    return response


def log_out(c: Context) -> Response:
    """End the session."""
    _require_login_here(c)
    response = RedirectResponse(c.url("/login"), 303)
    c.site.access.end(response, c.session)
    _log.info("logout of %a", c.user.name)
    return response


def _require_login_here(c: Context) -> None:
    if not c.site.access.has_login:
        raise NotFound("users do not log in on this page, but in front of it")


PAGES = [
    Page("GET", "/login", login_form, role=""),
    Page("POST", "/login", log_in, role=""),
    Page("POST", "/logout", log_out),
]
