"""The page mounted in another application, which knows the users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from starlette.testclient import TestClient

import holdfast
from holdfast.errors import InvalidInput
from holdfast.web import User, asgi, routes, server
from tests.web.clients import Served, served
from tests.web.test_server import PAGES, post


@pytest.fixture(autouse=True)
def more_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "pages", lambda: [*routes.pages(), *PAGES])


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as page:
        yield page


@pytest.fixture
def app() -> Iterator[holdfast.App]:
    with holdfast.App("memory:") as app:
        yield app


def test_a_mounted_page_must_know_its_users(app: holdfast.App) -> None:
    with pytest.raises(InvalidInput, match="user="):
        asgi(app)


def test_forms_of_a_mounted_page_are_bound_to_the_user_and_to_the_secret(app: holdfast.App) -> None:
    async def user(request: Request) -> User | None:
        name = request.headers.get("x-test-user")
        return User(name=name, role="operator") if name else None

    def mounted(**more: Any) -> TestClient:
        return TestClient(Starlette(routes=[Mount("/in/side", asgi(app, user=user, **more))]), follow_redirects=False)

    one, two, three = mounted(secret="s" * 32), mounted(secret="s" * 32), mounted()
    tokens = [
        client.get("/in/side/token", headers={"X-Test-User": name}).text
        for client, name in ((one, "ana"), (two, "ana"), (three, "ana"), (one, "ben"))
    ]
    assert tokens[0] == tokens[1]
    assert len(set(tokens)) == 3
    assert post(two, "/in/side/form", f"csrf={tokens[0]}", **{"X-Test-User": "ana"}).status_code == 200
    assert post(one, "/in/side/form", f"csrf={tokens[3]}", **{"X-Test-User": "ana"}).status_code == 403
    assert one.get("/in/side/").status_code == 401
    assert one.get("/in/side/login").status_code == 404
    assert "Log out" not in one.get("/in/side/", headers={"X-Test-User": "ana"}).text
    with pytest.raises(InvalidInput, match="at least 32"):
        mounted(secret="short")


def test_links_notices_and_errors_of_a_mounted_page_stay_below_its_path(app: holdfast.App) -> None:
    inner = asgi(app, user=lambda _: User(name="ana", role="operator"))
    client = TestClient(Starlette(routes=[Mount("/in/side", inner)]), follow_redirects=False)
    done = post(client, "/in/side/notify", f"csrf={client.get('/in/side/token').text}")
    assert done.headers["location"] == "/in/side/"
    assert "Path=/in/side;" in done.headers["set-cookie"]
    text = client.get("/in/side/").text
    assert 'href="/in/side/static/app.css?v=' in text
    assert "Done:" in text
    assert client.get("/in/side/static/app.css").status_code == 200
    assert client.get("/in/side/api/v1/none").json()["error"]["code"] == "not_found"
    assert client.get("/in/side/here/a%2Fb").text == "/in/side/here/a%2Fb"


def test_a_mounted_page_accepts_tokens_of_a_users_file_besides_its_own_users(app: holdfast.App, page: Served) -> None:
    def user(request: Request) -> User | None:
        return User(name="own", role="operator") if request.headers.get("authorization") == "Bearer own" else None

    client = TestClient(asgi(app, user=user, users=page.path))
    assert client.get("/api/v1/things", headers=page.bearer("ben")).json()["by"] == "ben"
    assert client.get("/api/v1/things", headers={"Authorization": "Bearer own"}).json()["by"] == "own"
    assert client.post("/api/v1/things", json={}, headers={"Authorization": "Bearer own"}).json()["by"] == "own"
    assert client.get("/api/v1/things", headers={"Authorization": "Bearer hf_wrong"}).status_code == 401
    with pytest.raises(InvalidInput, match="cannot be read"):
        asgi(app, user=user, users="none.toml")


def test_a_user_function_that_fails_or_returns_something_else_is_500(
    app: holdfast.App, caplog: pytest.LogCaptureFixture
) -> None:
    odd = (lambda _: User(name="ana", workflows="refund*"), lambda _: {"name": "ana"}, lambda _: True)  # type: ignore
    for user in (lambda _: "ana", lambda _: 1 / 0, *odd):
        client = TestClient(asgi(app, user=user), raise_server_exceptions=False)  # type: ignore[arg-type]
        done = client.get("/")
        assert done.status_code == 500
        assert "Division" not in done.text
    assert "holdfast.web.User" in caplog.text
    assert "workflows of user 'ana'" in caplog.text


@pytest.mark.parametrize("wrong", [
    {"mask": "iban"}, {"mask": ("a[b",)}, {"mask": (".",)}, {"mask": (7,)}, {"mask": None},
    {"hosts": "x.org"}, {"hosts": ("http://x.org/",)}, {"hosts": (7,)},
])  # fmt: skip
def test_masks_and_hosts_that_cannot_be_read_are_refused_when_the_page_is_made(
    app: holdfast.App, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        asgi(app, user=lambda _: User(name="ana"), **wrong)
    asgi(app, user=lambda _: User(name="ana"), mask=["customer.iban"], hosts=["x.org"])  # type: ignore[arg-type]
