"""The ASGI application: identifies the user, checks what the route demands, and runs its function in a thread."""

from __future__ import annotations

import contextlib
import getpass
import hmac
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import Conflict, HoldfastError, NotFound, RunNotFound
from holdfast.open_store import open as open_store
from holdfast.web.identity import User
from holdfast.web.live import Live
from holdfast.web.render import renderer
from holdfast.web.routes import Page, pages
from holdfast.web.sessions import Access
from holdfast.web.site import Context, Site

if TYPE_CHECKING:
    from holdfast.runtime.app import App

STATIC: Final = Path(__file__).parent / "static"
BODY_BYTES_MAX: Final = 256 << 10


def asgi(
    app: App | str,
    *,
    user: Callable[[Request], User | None] | None = None,
    access: Access | None = None,
    mask: tuple[str, ...] = (),
) -> Starlette:
    """The page and the JSON API of an app's store, to be mounted in an application.

    `app` is an App or the URL of a store. `user` returns the user of a request, or None if nobody is logged in.

    Example:
        fastapi_app.mount("/holdfast", holdfast.web.asgi(app, user=lambda request: holdfast.web.User(name="ana")))
    """
    from holdfast.runtime.app import App

    owns_app = isinstance(app, str)
    opened = App(open_store(app)) if isinstance(app, str) else app
    if access is None:
        access = Access(secrets.token_bytes(32), find_user=lambda _: None, user=user)
    site = Site(opened, access, renderer(), Live(), mask=mask, owns_app=owns_app)
    return build(site)


def local_user() -> User:
    """The user of this process, who may do everything."""
    return User(name=getpass.getuser(), role="operator")


def build(site: Site) -> Starlette:
    """The application of a site."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        if site.owns_app:
            site.app.close()
            site.app.store.close()

    routes: list[BaseRoute] = [Mount("/static", StaticFiles(directory=STATIC), name="static")]
    by_path: dict[str, dict[str, Page]] = {}
    for page in pages():
        by_path.setdefault(page.path, {})[page.method] = page
    for path, methods in by_path.items():
        routes.append(Route(path, _endpoint(site, methods), methods=list(methods)))
    return Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(EncodedPath)])


class EncodedPath:
    """Keeps encoded slashes in paths apart from real ones: ids may contain slashes.

    Servers decode `scope["path"]`. Here `%2F` and `%25` stay encoded, and `Context.run_id` decodes them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and b"%" in (scope.get("raw_path") or b""):
            raw = scope["raw_path"].partition(b"?")[0].decode("ascii", "replace")
            kept = raw.replace("%25", "%2525").replace("%2F", "%252F").replace("%2f", "%252F")
            scope = {**scope, "path": unquote(kept)}
        await self._app(scope, receive, send)


def _endpoint(site: Site, methods: dict[str, Page]) -> Callable[[Request], object]:
    async def endpoint(request: Request) -> Response:
        page = methods["GET" if request.method == "HEAD" else request.method]
        user = await run_in_threadpool(site.access.identify, request)
        if user is None:
            return _not_logged_in(request, page)
        context = Context(site, request, user, csrf=site.access.csrf(request, user))
        if not user.has_role(page.role):
            return _failure(context, page, 403, f"this needs the role {page.role}, and {user.name!r} is {user.role}")
        if request.method == "POST":
            context.body = await _body(request)
            if page.kind == "page":
                context.form = parse_qs(context.body.decode("utf-8", "replace"), keep_blank_values=True)
                if not hmac.compare_digest(context.value("csrf").encode(), context.csrf.encode()):
                    return _failure(context, page, 403, "the form is too old or was not made here; open the page again")
        return await run_in_threadpool(_answer, context, page)

    return endpoint


async def _body(request: Request) -> bytes:
    """The body of a request, up to a limit."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            break
        parts.append(part)
    return b"".join(parts)


def _answer(context: Context, page: Page) -> Response:
    try:
        response = page.handler(context)
    except HoldfastError as error:
        response = _failure(context, page, _status(error), str(error))
    if context.site.access.notice(context.request) and response.status_code == 200:
        context.site.access.clear_notice(context.request, response)
    return response


def _status(error: HoldfastError) -> int:
    if isinstance(error, (NotFound, RunNotFound)):
        return 404
    return 409 if isinstance(error, Conflict) else 400


def _failure(context: Context, page: Page, status: int, text: str) -> Response:
    if page.kind == "api":
        return JSONResponse({"error": {"status": status, "message": text}}, status)
    return context.page("error.html", {"title": "Not possible", "text": text}, status=status)


def _not_logged_in(request: Request, page: Page) -> Response:
    if page.kind == "api":
        return JSONResponse({"error": {"status": 401, "message": "a bearer token is needed"}}, 401)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/login", 303)
