"""The ASGI application: identifies the user, checks what the route demands, and runs its function in a thread."""

from __future__ import annotations

import contextlib
import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import (
    Conflict,
    DamagedData,
    HoldfastError,
    InvalidInput,
    NotFound,
    RunError,
    StorageError,
)
from holdfast.open_store import open as open_store
from holdfast.web.api.failure import error_text
from holdfast.web.identity import ANONYMOUS
from holdfast.web.live import Live
from holdfast.web.mask import check_masks
from holdfast.web.render import renderer
from holdfast.web.routes import Page, pages
from holdfast.web.security import STATIC, Guard, Host, HostRules, RateLimit, failed, log_failure, refuse, safe_path
from holdfast.web.sessions import Access, Identity, TooManyTokens, UserOf
from holdfast.web.site import Context, Site
from holdfast.web.state_directory import make_secret, secret_from_environment
from holdfast.web.users import Users

if TYPE_CHECKING:
    from holdfast.runtime.app import App

BODY_BYTES_MAX: Final = 256 << 10
FIELDS_MAX: Final = 2_000
CHANGES_PER_MINUTE: Final = 1_200
_FORM: Final = "application/x-www-form-urlencoded"
_JSON: Final = "application/json"

_log = logging.getLogger("holdfast.web")


def asgi(
    app: App | str,
    *,
    user: UserOf | None = None,
    users: str | None = None,
    secret: str | bytes | None = None,
    hosts: Sequence[str] = (),
    mask: tuple[str, ...] = (),
    changes_per_minute: int = CHANGES_PER_MINUTE,
    access: Access | None = None,
) -> Starlette:
    """The page and the JSON API of an app's store, to be mounted in an application.

    `app` is an App or the URL of a store. `user` returns the user of a request, or None if it has none; it may be an
    async function. `users` is a users file whose tokens the JSON API accepts as well. `secret` signs the tokens of
    forms; without it HOLDFAST_WEB_SECRET is used, and without that a random one, which is valid in this process only.
    `hosts` are the names under which the page is reached; without them every name is accepted. `mask` are paths in
    states, inputs and results whose values are not shown.

    Example:
        fastapi_app.mount("/holdfast", holdfast.web.asgi(app, user=lambda request: holdfast.web.User(name="ana")))
    """
    from holdfast.runtime.app import App

    mask, rules = check_masks(mask), _host_rules(hosts)
    if access is None:
        if user is None:
            raise InvalidInput("a mounted page must know its users: asgi(app, user=function that takes the request)")
        key = make_secret(secret) if secret is not None else secret_from_environment() or secrets.token_bytes(32)
        tokens = Users(users) if users is not None else None
        if tokens is not None:
            tokens.check()
        access = Access(key, user=user, users=tokens)
    owns_app = isinstance(app, str)
    opened = App(open_store(app)) if isinstance(app, str) else app
    site = Site(opened, access, renderer(), Live(), mask=mask, owns_app=owns_app)
    return build(site, rules, changes_per_minute=changes_per_minute)


def _host_rules(hosts: object) -> HostRules:
    """The rules for these names; InvalidInput if they are one text, or if one of them is not a name."""
    if not isinstance(hosts, Sequence | set | frozenset) or isinstance(hosts, str | bytes):
        raise InvalidInput(f"hosts must be a sequence of names, as ['runs.example.com'], not {hosts!r}")
    for name in hosts:
        if not isinstance(name, str) or Host.parse(name) is None:
            raise InvalidInput(f"{name!r} in hosts is not a host name, such as runs.example.com")
    return HostRules(hosts, any_host=not hosts)


def build(site: Site, rules: HostRules, *, changes_per_minute: int = CHANGES_PER_MINUTE) -> Starlette:
    """The application of a site."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        site.stop()
        if site.owns_app:
            site.app.close()
            site.app.store.close()

    routes: list[BaseRoute] = [Mount("/static", StaticFiles(directory=STATIC), name="static")]
    by_path: dict[str, dict[str, Page]] = {}
    for page in pages():
        by_path.setdefault(page.path, {})[page.method] = page
    changes = RateLimit(changes_per_minute)
    for path, methods in by_path.items():
        routes.append(Route(path, _endpoint(site, methods, changes), methods=list(methods)))
    application = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Guard, rules=rules), Middleware(EncodedPath)],
        exception_handlers={HTTPException: _http_error(site)},
    )
    application.router.redirect_slashes = False
    return application


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


# --- one request -----------------------------------------------------------------------------------------------------


def _endpoint(site: Site, methods: dict[str, Page], changes: RateLimit) -> Callable[[Request], object]:
    async def endpoint(request: Request) -> Response:
        page = methods["GET" if request.method == "HEAD" else request.method]
        try:
            identity = await site.access.identify(request, api=page.kind == "api")
        except TooManyTokens as error:
            return refuse(request.scope, 429, str(error), {"Retry-After": str(error.wait_s)})
        if identity is None and page.role:
            return _not_logged_in(site.access, request, page)
        context = _context(site, request, identity)
        refused = _refuse_user(context, page, identity)
        if refused is None and request.method not in ("GET", "HEAD"):
            refused = await _read_change(context, page)
            if refused is None and page.role and (wait_s := changes.wait_s(context.user.name)):
                refused = _failure(context, page, 429, f"too many changes in a minute; wait {wait_s} s")
                refused.headers["Retry-After"] = str(wait_s)
        response = await run_in_threadpool(_answer, context, page) if refused is None else refused
        if isinstance(response, StreamingResponse):
            if request.method == "HEAD":
                return Response(status_code=response.status_code, headers=dict(response.headers))
            response.body_iterator = _guarded(site, request, page, identity, response)
        if identity is not None and identity.session is not None and request.method == "GET":
            site.access.renew(response, identity.session)
        return response

    return endpoint


def _context(site: Site, request: Request, identity: Identity | None) -> Context:
    user, session = (identity.user, identity.session) if identity is not None else (ANONYMOUS, None)
    context = Context(site, request, user, csrf=site.access.csrf(session, user))
    context.session = session
    return context


def _refuse_user(context: Context, page: Page, identity: Identity | None) -> Response | None:
    """The response to a user that may not use the page; None if it may."""
    user, method = context.user, context.request.method
    if page.role and not user.has_role(page.role):
        _log.warning("refused %s %a to %a: it needs the role %s", method, page.path, user.name, page.role)
        return _failure(context, page, 403, f"this needs the role {page.role}, and {user.name!r} is {user.role}")
    is_change = method not in ("GET", "HEAD")
    if page.kind == "api" and page.role and is_change and not (identity is not None and identity.is_bearer):
        text = "changes need a bearer token: Authorization: Bearer …; `holdfast web token NAME` makes one"
        return refuse(context.request.scope, 401, text, {"WWW-Authenticate": "Bearer"})
    return None


async def _read_change(context: Context, page: Page) -> Response | None:
    """Read the body of a change into the context; the response to a body that is refused, else None."""
    request = context.request
    encoding = request.headers.get("content-encoding", "")
    if encoding.strip().lower() not in ("", "identity"):
        text = f"the content encoding {encoding[:100]!r} is not supported; send the body uncompressed"
        return _failure(context, page, 415, text)
    wanted = _FORM if page.kind == "page" else _JSON
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if page.kind == "page" and kind != wanted:
        return _failure(context, page, 415, f"a form must be sent as {wanted}, not {kind[:100] or 'nothing'!r}")
    body = await _body(request)
    if body is None:
        return _failure(context, page, 413, f"the request has more than {BODY_BYTES_MAX} bytes")
    if page.kind == "api":
        if body and kind != wanted:
            return _failure(context, page, 415, f"the body must be {wanted}, not {kind[:100] or 'nothing'!r}")
        context.body = body
        return None
    try:
        context.form = parse_qs(
            body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except UnicodeDecodeError:
        return _failure(context, page, 400, "the form is not UTF-8")
    except ValueError:
        return _failure(context, page, 400, f"the form has more than {FIELDS_MAX} fields")
    context.body = body
    if page.role and not hmac.compare_digest(context.value("csrf").encode(), context.csrf.encode()):
        _log.warning("refused %s %a to %a: wrong CSRF token", request.method, page.path, context.user.name)
        return _failure(context, page, 403, "the form is too old or was not made here; open the page again")
    return None


async def _body(request: Request) -> bytes | None:
    """The body of a request; None if it is larger than allowed. The length it claims is not trusted."""
    claimed = request.headers.get("content-length", "0")
    if not claimed.isascii() or not claimed.isdigit() or int(claimed[:20]) > BODY_BYTES_MAX:
        return None
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            return None
        parts.append(part)
    return b"".join(parts)


def _answer(context: Context, page: Page) -> Response:
    try:
        response = page.handler(context)
    except HoldfastError as error:
        if isinstance(error, StorageError):
            log_failure(context.request.scope, error, _values(context))
        response = _failure(context, page, _status(error), _text(error))
    except Exception as error:
        log_failure(context.request.scope, error, _values(context))
        return failed(context.request.scope)
    is_page = response.status_code == 200 and str(response.media_type).startswith("text/html")
    if is_page and context.request.method == "GET" and context.notice:
        context.site.access.clear_notice(context.request, response)
    return response


def _values(context: Context) -> list[str]:
    """The values that a request's body contains, which are not logged."""
    found = [value for values in context.form.values() for value in values]
    waiting: list[Any] = []
    if context.body and not context.form:
        with contextlib.suppress(msgspec.DecodeError):
            waiting.append(msgspec.json.decode(context.body))
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        else:
            found.append(str(value))
    return found


def _guarded(
    site: Site, request: Request, page: Page, identity: Identity | None, response: StreamingResponse
) -> AsyncIterator[str | bytes | memoryview]:
    """The items of a stream, as long as its user keeps its role, groups and workflows."""

    async def is_allowed() -> bool:
        try:
            now = await site.access.identify(request, api=page.kind == "api")
        except Exception:
            return False
        return (now.user if now else None) == (identity.user if identity else None)

    return site.streams.guard(response.body_iterator, is_allowed)


# --- failures --------------------------------------------------------------------------------------------------------


def _status(error: HoldfastError) -> int:
    match error:
        case NotFound():
            return 404
        case Conflict() | RunError():
            return 409
        case StorageError():
            return 503
        case DamagedData():
            return 500
        case _:
            return 400


def _text(error: HoldfastError) -> str:
    """What an error says, without paths of a store."""
    if isinstance(error, StorageError):
        return "the store cannot be used at the moment; try again later"
    return error_text(error)


def _failure(context: Context, page: Page, status: int, text: str) -> Response:
    if page.kind == "api" or context.user is ANONYMOUS:
        return refuse(context.request.scope, status, text)
    return context.page("error.html", {"title": "Not possible", "text": text}, status=status)


def _not_logged_in(access: Access, request: Request, page: Page) -> Response:
    scope = request.scope
    if page.kind == "api":
        return refuse(scope, 401, "a valid bearer token is needed", {"WWW-Authenticate": "Bearer"})
    is_script = "hx-request" in request.headers or "text/event-stream" in request.headers.get("accept", "")
    if not access.has_login or is_script:  # a login page must not replace what is on the screen
        return refuse(scope, 401, "you are not logged in")
    root = str(scope.get("root_path", "")).rstrip("/")
    is_read = request.method in ("GET", "HEAD")
    back = Context.address_of(request) if is_read else _page_of_form(request, root)
    return RedirectResponse(f"{root}/login?{urlencode({'next': back})}", 303)


def _page_of_form(request: Request, root: str) -> str:
    """The page from which a form was sent, as the browser reports it; else the page next above the form's address."""
    path, _, query = Context.address_of(request).partition("?")
    with contextlib.suppress(ValueError):
        referer = urlsplit(request.headers.get("referer", ""))
        if referer.netloc == request.headers["host"] and referer.path.startswith(f"{root}/"):
            path, query = referer.path, referer.query
    return _page_above(request, root, path, query)


def _page_above(request: Request, root: str, path: str, query: str) -> str:
    """The page of a path, or the page next above it."""
    path = path.removeprefix(root)
    while path and not _is_page(request, path):
        path = path.rpartition("/")[0]
    return safe_path(f"{root}{path or '/'}" + (f"?{query}" if query and path else ""))


def _is_page(request: Request, path: str) -> bool:
    routes = [route for route in request.app.routes if isinstance(route, Route) and route.path_regex.match(path)]
    if not routes or path.startswith("/api/"):
        return False
    return "GET" in (min(routes, key=lambda route: len(route.param_convertors)).methods or ())  # not the run `bulk`


def _http_error(site: Site) -> Callable[[Request, Exception], Any]:
    """Answers requests that no route handles: unknown paths, and methods that a path does not have."""

    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException), "registered for this class"
        text = {404: "there is no such page", 405: "the page does not have this method"}.get(error.status_code)
        headers = dict(error.headers or {})
        path, _, query = Context.address_of(request).partition("?")
        root = str(request.scope.get("root_path", "")).rstrip("/")
        is_form = error.status_code == 405 and not path.startswith(f"{root}/api/")
        if is_form and request.method in ("GET", "HEAD"):  # the address of a form, which was reloaded or bookmarked
            return RedirectResponse(_page_above(request, root, path, query), 303)
        try:
            identity = await site.access.identify(request)
        except TooManyTokens:
            identity = None
        response = refuse(request.scope, error.status_code, text or error.detail, headers)
        if identity is None or response.media_type == _JSON:
            return response
        data = {"title": "Not possible", "text": text or error.detail}
        page = await run_in_threadpool(
            _context(site, request, identity).page, "error.html", data, status=error.status_code
        )
        page.headers.update(headers)
        return page

    return answer
