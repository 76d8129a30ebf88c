"""The rules of every route, those of new routes included: logins, roles, origins, CSRF tokens, visibility."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient

import holdfast
from holdfast.web import User, asgi, routes, server
from holdfast.web.identity import ROLES
from holdfast.web.routes import Page
from holdfast.web.sessions import Access
from holdfast.web.site import Context
from tests.web.clients import ORIGIN, PORT, SECRET, Served, served

TABLE = routes.pages()
CHANGES = [page for page in TABLE if page.method != "GET"]
PUBLIC = {("GET", "/login"), ("POST", "/login")}
"""The routes that need no login. Adding one is a decision."""


def name_of(page: Page) -> str:
    return f"{page.method} {page.path}"


def path_of(page: Page, run_id: str = "run-1") -> str:
    """A path of the route."""
    named = page.path.replace("{run_id}", run_id)
    return re.sub(r"\{\w+(:\w+)?\}", lambda found: "1" if found[1] in (None, ":int") else "x", named)


class Recorder:
    """The page with the real table of routes, whose handlers only note that they were called."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.served: Served

    def pages(self) -> list[Page]:
        return [page._replace(handler=self._note(page)) if page.role else page for page in TABLE]

    def _note(self, page: Page) -> routes.Handler:
        def handler(c: Context) -> Response:
            self.called.append(name_of(page))
            return PlainTextResponse(c.csrf)

        return handler

    def send(self, page: Page, client: TestClient, *, csrf: str = "", **headers: str) -> Any:
        """Send a request to a route, as a form or as JSON."""
        if page.method == "GET":
            return client.get(path_of(page), headers=headers)
        if page.kind == "api":
            return client.request(page.method, path_of(page), json={}, headers=headers)
        return client.request(page.method, path_of(page), data={"csrf": csrf}, headers=headers)


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    found = Recorder()
    monkeypatch.setattr(server, "pages", found.pages)
    with served(tmp_path) as found.served:
        yield found


def csrf_in(recorder: Recorder, client: TestClient) -> str:
    return str(client.get("/").text)


def browser_or_program(recorder: Recorder, page: Page, user: str) -> tuple[TestClient, str, dict[str, str]]:
    """A client that may use this route, its CSRF token and its headers."""
    if page.kind == "api":
        return recorder.served.browser(), "", recorder.served.bearer(user)
    client = recorder.served.browser(user)
    csrf = csrf_in(recorder, client)
    recorder.called.clear()
    return client, csrf, {}


# --- the rules of every route -----------------------------------------------------------------------------------------


def test_the_routes_without_a_login_are_those_that_were_decided() -> None:
    assert {(page.method, page.path) for page in TABLE if not page.role} == PUBLIC
    assert {page.role for page in TABLE} <= {*ROLES, ""}


@pytest.mark.parametrize("page", [page for page in TABLE if page.role], ids=name_of)
def test_every_route_is_closed_to_strangers(recorder: Recorder, page: Page) -> None:
    done = recorder.send(page, recorder.served.browser())
    if page.kind == "api":
        assert done.status_code == 401
    else:
        assert done.status_code == 303
        assert done.headers["location"].startswith("/login")
    script = recorder.send(page, recorder.served.browser(), **{"HX-Request": "true"})
    assert script.status_code == 401  # a login page must not replace what somebody is typing into
    assert recorder.called == []


@pytest.mark.parametrize("page", [page for page in TABLE if page.role], ids=name_of)
def test_every_route_is_open_to_its_role_and_to_no_lower_one(recorder: Recorder, page: Page) -> None:
    for user, role in (("vera", "viewer"), ("ben", "approver"), ("ana", "operator")):
        client, csrf, headers = browser_or_program(recorder, page, user)
        done = recorder.send(page, client, csrf=csrf, **headers)
        if ROLES.index(role) < ROLES.index(page.role):
            assert done.status_code == 403
            assert recorder.called == []
        else:
            assert done.status_code == 200
            assert recorder.called == [name_of(page)]
        recorder.called.clear()


@pytest.mark.parametrize("page", [page for page in CHANGES if page.kind == "page" and page.role], ids=name_of)
def test_every_form_needs_the_csrf_token_of_its_own_session(recorder: Recorder, page: Page) -> None:
    client, other = recorder.served.browser("ana"), recorder.served.browser("ana")
    own, others = csrf_in(recorder, client), csrf_in(recorder, other)
    recorder.called.clear()
    for wrong in ("", others, own[:-1], own.upper(), f"{own} ", "ü"):
        assert recorder.send(page, client, csrf=wrong).status_code == 403, wrong
    in_query = client.post(path_of(page), params={"csrf": own}, data={})
    assert in_query.status_code in (403, 415)
    assert recorder.called == []


FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": f"https://127.0.0.1:{PORT}"},
    {"Origin": "http://127.0.0.1:9999"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": f"http://127.0.0.1:{PORT}.evil.example"},
    {"Origin": f"http://evil.example@127.0.0.1:{PORT}"},
    {"Origin": f"http://127.0.0.1:{PORT}/path"},
    {"Origin": ""},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": ORIGIN},  # another port of this machine
    {"Sec-Fetch-Site": "", "Origin": ORIGIN},
    {"Sec-Fetch-Site": "same-origin", "Origin": "http://evil.example"},
]


@pytest.mark.parametrize("page", CHANGES, ids=name_of)
def test_every_change_from_another_origin_is_refused(recorder: Recorder, page: Page) -> None:
    client, csrf, own = browser_or_program(recorder, page, "ana")
    for headers in FOREIGN:
        assert recorder.send(page, client, csrf=csrf, **own, **headers).status_code == 403, headers
    assert recorder.called == []
    if page.role:
        ours = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}
        assert recorder.send(page, client, csrf=csrf, **own, **ours).status_code == 200


@pytest.mark.parametrize("page", CHANGES, ids=name_of)
def test_no_get_reaches_a_change(recorder: Recorder, page: Page) -> None:
    client = recorder.served.browser("ana")
    csrf = csrf_in(recorder, client)
    recorder.called.clear()
    for method in ("GET", "HEAD"):
        done = client.request(method, path_of(page), params={"csrf": csrf}, headers=recorder.served.bearer("ana"))
        assert done.status_code != 405 or page.method in done.headers["allow"]
        for override in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
            client.request(method, path_of(page), headers={override: page.method})
        client.request(method, path_of(page), params={"_method": page.method})
    assert name_of(page) not in recorder.called


@pytest.mark.parametrize("page", [page for page in CHANGES if page.kind == "api"], ids=name_of)
def test_no_session_changes_anything_by_the_api(recorder: Recorder, page: Page) -> None:
    client = recorder.served.browser("ana")
    csrf = csrf_in(recorder, client)
    recorder.called.clear()
    for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
        body = {"content": b"{}", "headers": {"Content-Type": kind, "X-CSRF-Token": csrf}}
        assert client.request(page.method, path_of(page), **body).status_code == 401  # type: ignore[arg-type]
    assert recorder.called == []


@pytest.mark.parametrize("page", [page for page in TABLE if "{run_id}" in page.path], ids=name_of)
def test_a_run_that_the_user_may_not_see_does_not_exist(page: Page) -> None:
    rita = User(name="rita", role="operator", workflows=("refund*",))
    access = Access(SECRET, user=lambda _: rita)
    with holdfast.App("memory:") as app:

        @app.workflow
        def secret(run: holdfast.Run) -> None:
            run.ask("Launch?", bool)

        app.start("secret", run_id="run-1")
        before = app.handle("run-1").info()
        client = TestClient(asgi(app, access=access), follow_redirects=False)
        sent: dict[str, Any] = {"headers": {"Authorization": "Bearer x"}}
        if page.method != "GET":
            sent |= {"json": {}} if page.kind == "api" else {"data": {"csrf": access.csrf(None, rita)}}
        hidden, missing = (client.request(page.method, path_of(page, run), **sent) for run in ("run-1", "run-9"))
        assert hidden.status_code in ((404,) if page.kind == "page" else (404, 400, 422)), hidden.text
        assert hidden.status_code == missing.status_code
        assert hidden.text.replace("run-1", "ID") == missing.text.replace("run-9", "ID")
        assert app.handle("run-1").info() == before


@pytest.mark.parametrize("page", [page for page in CHANGES if page.kind == "page"], ids=name_of)
def test_the_address_of_every_form_leads_to_a_page(recorder: Recorder, page: Page) -> None:
    client = recorder.served.browser("ana")
    done = client.get(path_of(page))
    assert done.status_code in (200, 303)
    place = done.headers.get("location", path_of(page))
    assert path_of(page).startswith(place)
    assert client.get(place).status_code == 200
