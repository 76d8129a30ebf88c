"""The site: what all requests share. And the context: what one request has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.errors import RunNotFound
from holdfast.web.identity import User
from holdfast.web.security import static_version
from holdfast.web.streams import Streams

if TYPE_CHECKING:
    from holdfast.operations.store import Store
    from holdfast.runtime.app import App
    from holdfast.web.live import Live
    from holdfast.web.render import Renderer
    from holdfast.web.sessions import Access, Session

Values = dict[str, list[str]]
"""The fields of a submitted form or of a query, in their order."""


class Site:
    """The app whose runs are shown, the users, the templates and the live updates."""

    def __init__(
        self, app: App, access: Access, renderer: Renderer, live: Live, *, mask: tuple[str, ...] = (), owns_app: bool
    ) -> None:
        self.app = app
        self.access = access
        self.renderer = renderer
        self.live = live
        self.mask = mask
        """Paths in states, inputs and results whose values are not shown, such as `customer.iban`."""
        self.owns_app = owns_app
        self.streams = Streams()

    @property
    def store(self) -> Store:
        return self.app.store

    def stop(self) -> None:
        """End all open streams; to be called in the event loop."""
        self.live.close()
        self.streams.close()


class Context:
    """One request: its user and values, and the answers it can have."""

    def __init__(self, site: Site, request: Request, user: User, body: bytes = b"", csrf: str = "") -> None:
        self.site = site
        self.request = request
        self.user = user
        self.body = body
        self.csrf = csrf
        """The token that every form of this session carries."""
        self.form: Values = {}
        """The fields of a submitted form."""
        self.session: Session | None = None
        """The session, if the user has logged in on this page."""

    section = ""
    """The entry of the menu that is marked."""

    @property
    def app(self) -> App:
        return self.site.app

    @property
    def store(self) -> Store:
        return self.site.app.store

    @property
    def notice(self) -> str:
        """What the action before has done, shown once."""
        return self.site.access.notice(self.request)

    @property
    def here(self) -> str:
        """The address of this page, with its query."""
        return self.address_of(self.request)

    @staticmethod
    def address_of(request: Request) -> str:
        """The path and the query of a request, encoded as they came: a decoded id could end the path."""
        raw = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
        query = request.scope.get("query_string", b"")
        return str((raw.partition(b"?")[0] + (b"?" + query if query else b"")).decode("ascii", "replace"))

    @property
    def root(self) -> str:
        """The path at which the page is mounted, without a slash at its end."""
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    def url(self, path: str, /, **query: object) -> str:
        """A link: `path` below the mount point, with the query values that are not None or empty."""
        given = {name: value for name, value in query.items() if value not in (None, "", ())}
        if path.startswith("/static/") and (version := static_version(path.removeprefix("/static/"))):
            given["v"] = version
        text = urlencode(given, doseq=True)
        return f"{self.root}{path}" + (f"?{text}" if text else "")

    def run_url(self, run_id: str, *parts: str, **query: object) -> str:
        """A link to a run's page, or to a part of it. Ids may contain any sign, also a slash."""
        tail = "".join(f"/{part}" for part in parts)
        if run_id in (".", "..", "~"):  # browsers resolve dots, even if they are encoded
            return self.url(f"/runs/~{tail}", run=run_id, **query)
        return self.url(f"/runs/{quote(run_id, safe='')}{tail}", **query)

    def query(self, name: str, default: str = "") -> str:
        """The last value of a name in the query."""
        found = self.request.query_params.getlist(name)
        return found[-1] if found else default

    def value(self, name: str, default: str = "") -> str:
        """The last value of a field of the submitted form."""
        found = self.form.get(name)
        return found[-1] if found else default

    def run_id(self) -> str:
        """The run of the path; RunNotFound if the user may not see its workflow."""
        run_id = unquote(str(self.request.path_params["run_id"]))
        if run_id == "~":
            run_id = self.query("run", run_id)
        self.visible(run_id)
        return run_id

    def visible(self, run_id: str) -> None:
        """Raise RunNotFound if there is no such run, or the user may not see its workflow."""
        if not self.user.can_see(self.app.handle(run_id).info().workflow):
            raise RunNotFound(run_id)

    def page(self, template: str, data: Mapping[str, Any] | None = None, *, status: int = 200) -> Response:
        """A page, rendered from a template."""
        text = self.site.renderer.render(template, self, data or {})
        return HTMLResponse(text, status)

    def redirect(self, path: str, notice: str = "", **query: object) -> Response:
        """Go to another page after a change; it shows `notice` once."""
        response = RedirectResponse(self.url(path, **query), 303)
        if notice:
            self.site.access.set_notice(self.request, response, notice)
        return response
