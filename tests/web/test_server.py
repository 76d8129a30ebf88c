"""The application: the methods, bodies, errors and streams of its routes, and mounting it in another application."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.testclient import TestClient
from starlette.types import Message

from holdfast.errors import Conflict, DamagedData, InvalidInput, NotFound, RunNotFound, StorageFailed
from holdfast.web import routes, server
from holdfast.web.routes import Page
from holdfast.web.server import BODY_BYTES_MAX, FIELDS_MAX
from holdfast.web.site import Context
from holdfast.web.streams import Streams
from holdfast.web.users import remove_user
from tests.web.clients import Served, served

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def token(c: Context) -> Response:
    return PlainTextResponse(c.csrf)


def form(c: Context) -> Response:
    return JSONResponse({"form": c.form, "by": c.user.name})


def change(c: Context) -> Response:
    return JSONResponse({"body": c.body.decode(), "by": c.user.name})


def fail(c: Context) -> Response:
    raise KeyError(c.value("secret"), c.request.headers.get("authorization"), c.request.headers.get("cookie"))


def refuse(c: Context) -> Response:
    errors = {
        "none": RunNotFound("x"),
        "other": NotFound("gone"),
        "conflict": Conflict("taken"),
        "input": InvalidInput("wrong"),
        "damage": DamagedData("run x", "torn"),
        "disk": StorageFailed("/var/lib/runs.db is broken"),
    }
    raise errors[c.query("error")]


def stream(c: Context) -> Response:
    async def lines() -> AsyncIterator[str]:
        yield "data: first\n\n"
        await asyncio.Event().wait()

    return StreamingResponse(lines(), media_type="text/event-stream")


def notify(c: Context) -> Response:
    return c.redirect("/", "Done: <b>ü</b>" + "€" * 600)


def here(c: Context) -> Response:
    return PlainTextResponse(c.here)


PAGES = [
    Page("GET", "/token", token),
    Page("GET", "/here/{run_id}", here),
    Page("POST", "/form", form),
    Page("POST", "/notify", notify),
    Page("POST", "/fail", fail),
    Page("GET", "/refuse", refuse),
    Page("GET", "/stream", stream),
    Page("GET", "/api/v1/things", change, kind="api"),
    Page("POST", "/api/v1/things", change, "operator", kind="api"),
    Page("POST", "/api/v1/fail", fail, kind="api"),
]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """The page, with the routes of this test added."""
    monkeypatch.setattr(server, "pages", lambda: [*routes.pages(), *PAGES])
    with served(tmp_path) as page:
        yield page


@pytest.fixture
def ana(page: Served) -> TestClient:
    return page.browser("ana")


def post(client: TestClient, path: str, body: str | bytes, **headers: str) -> Any:
    return client.post(path, content=body, headers={**FORM, **headers})


# --- forms ------------------------------------------------------------------------------------------------------------


def test_a_form_is_read_in_its_order_and_by_is_the_user_of_the_session(ana: TestClient) -> None:
    csrf = ana.get("/token").text
    done = post(ana, "/form", f"csrf={csrf}&x=1&x=2&empty=&by=mallory&text=%C3%BC+%26")
    assert done.json() == {
        "form": {"csrf": [csrf], "x": ["1", "2"], "empty": [""], "by": ["mallory"], "text": ["ü &"]},
        "by": "ana",
    }


@pytest.mark.parametrize(
    "kind",
    ["application/json", "multipart/form-data; boundary=x", "text/plain", "", "application/x-www-form-urlencodedx"],
)
def test_a_form_of_another_content_type_is_415(ana: TestClient, kind: str) -> None:
    csrf = ana.get("/token").text
    assert ana.post("/form", content=f"csrf={csrf}", headers={"Content-Type": kind}).status_code == 415


def test_a_body_that_is_too_large_is_413_with_and_without_its_length(ana: TestClient) -> None:
    csrf = ana.get("/token").text
    large = f"csrf={csrf}&x=".encode() + b"x" * BODY_BYTES_MAX

    def parts() -> Iterator[bytes]:
        for at in range(0, len(large), 1000):
            yield large[at : at + 1000]

    assert post(ana, "/form", large).status_code == 413
    chunked = ana.post("/form", content=parts(), headers=FORM)
    assert "content-length" not in chunked.request.headers
    assert chunked.status_code == 413
    fits = f"csrf={csrf}&x=".encode()
    assert post(ana, "/form", fits + b"x" * (BODY_BYTES_MAX - len(fits))).status_code == 200
    assert post(ana, "/form", b"", **{"Content-Length": "99999999999999999999999999"}).status_code == 413


def test_a_form_with_too_many_fields_or_that_is_not_utf8_is_400(ana: TestClient) -> None:
    csrf = ana.get("/token").text
    assert post(ana, "/form", f"csrf={csrf}" + "&a=1" * FIELDS_MAX).status_code == 400
    assert post(ana, "/form", f"csrf={csrf}" + "&a=1" * (FIELDS_MAX - 1)).status_code == 200
    assert post(ana, "/form", f"csrf={csrf}&x=%ff").status_code == 400
    assert post(ana, "/form", f"csrf={csrf}&x=".encode() + b"\xff").status_code == 400


def test_too_many_changes_of_a_user_are_429_and_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "pages", lambda: [*routes.pages(), *PAGES])
    with served(tmp_path, changes_per_minute=3) as page:
        clients = {name: page.browser(name) for name in ("ana", "ben")}
        tokens = {name: client.get("/token").text for name, client in clients.items()}
        for _ in range(5):  # refused forms do not count
            assert post(clients["ana"], "/form", "csrf=wrong").status_code == 403
        codes = [post(clients["ana"], "/form", f"csrf={tokens['ana']}").status_code for _ in range(4)]
        assert codes == [200, 200, 200, 429]
        assert 1 <= int(post(clients["ana"], "/form", f"csrf={tokens['ana']}").headers["retry-after"]) <= 61
        assert post(clients["ben"], "/form", f"csrf={tokens['ben']}").status_code == 200


# --- the JSON API -----------------------------------------------------------------------------------------------------


def test_the_api_is_read_with_a_cookie_or_a_bearer_token(page: Served, ana: TestClient) -> None:
    assert ana.get("/api/v1/things").json()["by"] == "ana"
    program = page.browser()
    assert program.get("/api/v1/things", headers=page.bearer("ben")).json()["by"] == "ben"
    stranger = program.get("/api/v1/things")
    assert stranger.status_code == 401
    assert stranger.headers["www-authenticate"] == "Bearer"
    assert stranger.json()["error"]["code"] == "not_authenticated"


def test_a_change_by_the_api_needs_a_bearer_token(page: Served, ana: TestClient) -> None:
    csrf = ana.get("/token").text
    assert ana.post("/api/v1/things", json={"csrf": csrf}).status_code == 401
    program = page.browser()
    done = program.post("/api/v1/things", json={"a": 1}, headers=page.bearer("ana"))
    assert done.json() == {"body": '{"a":1}', "by": "ana"}
    assert program.post("/api/v1/things", json={}, headers=page.bearer("vera")).status_code == 403
    assert program.post("/api/v1/things", headers=page.bearer("ana")).status_code == 200
    text = program.post("/api/v1/things", content="a=1", headers=page.bearer("ana") | FORM)
    assert text.status_code == 415


@pytest.mark.parametrize("value", ["Bearer wrong", "Bearer", "Bearer ", "bearer hf_x", "Bearer hf_x hf_y"])
def test_a_wrong_bearer_token_is_401_even_with_a_session(ana: TestClient, value: str) -> None:
    done = ana.get("/api/v1/things", headers={"Authorization": value})
    assert done.status_code == 401
    assert "ana" not in done.text


def test_other_schemes_of_authorization_are_not_a_login(page: Served) -> None:
    basic = page.browser().get("/api/v1/things", headers={"Authorization": f"Basic {page.tokens['ana']}"})
    assert basic.status_code == 401


def test_a_bearer_token_opens_no_page(page: Served) -> None:
    assert page.browser().get("/", headers=page.bearer("ana")).status_code == 303


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [("none", 404), ("other", 404), ("conflict", 409), ("input", 400), ("damage", 500), ("disk", 503)],
)
def test_errors_of_the_library_become_pages(ana: TestClient, error: str, status: int) -> None:
    done = ana.get("/refuse", params={"error": error})
    assert done.status_code == status
    assert "<h1>Not possible</h1>" in done.text
    assert "/var/lib" not in done.text
    assert "store.runs()" not in done.text


def test_an_unexpected_error_shows_no_details_and_the_log_has_no_secrets(
    page: Served, ana: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    csrf = ana.get("/token").text
    with caplog.at_level(logging.ERROR, "holdfast.web"):
        done = post(ana, "/fail?token=hf_in_query", f"csrf={csrf}&secret=hunter2", Authorization="Bearer hf_other")
        sent = {"secret": ["deep-secret", {"x": "deeper"}]}
        api = page.browser().post("/api/v1/fail", json=sent, headers=page.bearer("ana"))
    for response in (done, api):
        assert response.status_code == 500
        assert "KeyError" not in response.text
        assert "Traceback" not in response.text
    assert api.json()["error"]["code"] == "server_error"
    assert "KeyError" in caplog.text
    assert "in fail" in caplog.text
    cookie = ana.cookies["holdfast_8484"]
    for secret in (
        "hunter2",
        "hf_other",
        "hf_in_query",
        "deep",
        csrf,
        cookie,
        cookie.partition(".")[2],
        page.tokens["ana"],
    ):
        assert secret not in caplog.text


def test_a_client_that_breaks_off_its_body_is_not_an_error(page: Served, caplog: pytest.LogCaptureFixture) -> None:
    headers = {**page.bearer("ana"), "Host": "127.0.0.1:8484", "Content-Type": "application/json"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/things",
        "raw_path": b"/api/v1/things",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "root_path": "",
        "http_version": "1.1",
    }
    parts: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return parts.pop(0)

    async def send(message: Message) -> None:
        raise AssertionError("the client has gone")

    with caplog.at_level(logging.DEBUG, "holdfast.web"):
        asyncio.run(page.application(scope, receive, send))
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]
    assert caplog.messages == ["POST '/api/v1/things': the client has disconnected"]


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip"])
def test_a_compressed_body_is_415(page: Served, ana: TestClient, encoding: str) -> None:
    csrf = ana.get("/token").text
    assert post(ana, "/form", f"csrf={csrf}", **{"Content-Encoding": encoding}).status_code == 415
    assert post(ana, "/form", f"csrf={csrf}", **{"Content-Encoding": "Identity"}).status_code == 200
    headers = {**page.bearer("ana"), "Content-Encoding": encoding, "Content-Type": "application/json"}
    done = page.browser().post("/api/v1/things", content=b"\x1f\x8b", headers=headers)
    assert done.status_code == 415
    assert done.json()["error"]["code"] == "not_json"
    assert "send the body uncompressed" in done.json()["error"]["message"]


def test_a_page_there_is_not_is_404_and_a_method_there_is_not_is_405_with_those_there_are(
    page: Served, ana: TestClient
) -> None:
    for client in (ana, page.browser()):
        assert client.get("/no/such/page").status_code == 404
        assert client.get("/static/none.css").status_code == 404
        assert client.get("/api/v1/none").json()["error"]["code"] == "not_found"
        wrong = client.delete("/token")
        assert wrong.status_code == 405
        assert {method.strip() for method in wrong.headers["allow"].split(",")} == {"GET", "HEAD"}
        assert client.delete("/form").headers["allow"] == "POST"
        assert client.get("/form").headers["location"] == "/", "the address of a form leads to the page above it"
        assert client.request("TRACE", "/").status_code == 405
        assert client.get("/token/").status_code == 404


def test_head_is_answered_like_get_without_opening_a_stream(page: Served, ana: TestClient) -> None:
    done = ana.head("/token")
    assert done.status_code == 200
    assert done.headers["cache-control"] == "no-store"
    stream = ana.head("/stream")
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert len(page.site.streams) == 0


# --- notices, addresses -----------------------------------------------------------------------------------------------


def test_a_notice_is_shown_once_and_only_if_it_was_made_here(ana: TestClient) -> None:
    done = post(ana, "/notify", f"csrf={ana.get('/token').text}")
    assert len(done.headers["set-cookie"]) < 4096
    ana.get("/token")  # not a page
    shown = ana.get("/").text
    assert "Done: &lt;b&gt;ü&lt;/b&gt;€" in shown
    assert "Done:" not in ana.get("/").text
    ana.cookies.set("holdfast_8484_notice", "WW91IHdvbg.00")
    assert "You won" not in ana.get("/").text


def test_the_address_of_a_page_keeps_the_encoding_of_ids(ana: TestClient) -> None:
    for path in ("/here/a%2Fb", "/here/a%3Fb%23c", "/here/a%20b%25", "/here/%C3%BC", "/here/a%0D%0Ab"):
        assert ana.get(f"{path}?x=%26&y=1").text == f"{path}?x=%26&y=1"


# --- the end of a session ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "referer", "back"),
    [
        ("/runs/a%2Fb/gates/ask%231/answer", "", "/runs/a%2Fb/gates/ask%231"),
        ("/runs/a%2Fb/gates/ask%231/answer", "http://127.0.0.1:8484/?workflow=refund", "/?workflow=refund"),
        ("/runs/a/gates/ask%231/answer", "http://127.0.0.1:8484/runs/a/gates/ask%231/answer", "/runs/a/gates/ask%231"),
        ("/runs/~/gates/ask%231/answer?run=..", "", "/runs/~/gates/ask%231?run=.."),
        ("/runs/a/rollback?to=1", "https://evil.example/runs/b", "/runs/a/rollback?to=1"),
        ("/runs/a/rollback", "http://127.0.0.1:8485/runs/b", "/runs/a/rollback"),
        ("/runs/a/rollback", "javascript:x", "/runs/a/rollback"),
        ("/runs/a/rollback", "http://127.0.0.1:8484//evil.example", "/"),
        ("/runs/a/rollback", "http://127.0.0.1:8484/api/v1/runs", "/"),
        ("/runs/a/rollback", "http://[", "/runs/a/rollback"),
        ("/logout", "", "/"),
        ("/runs/bulk", "", "/runs"),
        ("/batch/confirm", "http://127.0.0.1:8484/batch", "/"),
    ],
)
def test_a_form_that_is_sent_after_the_session_has_ended_leads_back_to_its_page(
    page: Served, path: str, referer: str, back: str
) -> None:
    browser = page.browser()
    done = post(browser, path, "csrf=old&answer=lost", **({"Referer": referer} if referer else {}))
    assert done.status_code == 303
    place = urlsplit(done.headers["location"])
    assert place.path == "/login"
    assert parse_qs(place.query) == {"next": [back]}
    login = browser.post("/login", data={"token": page.tokens["ana"], "next": back})
    assert login.headers["location"] == back


def test_the_first_field_of_the_login_page_that_can_be_typed_into_is_the_token(page: Served) -> None:
    found = re.findall(r"<input ([^>]*)>", page.browser().get("/login").text)
    shown = [one for one in found if 'type="hidden"' not in one and "readonly" not in one]
    assert ["token" in re.findall(r'name="(\w+)"', one) for one in shown] == [True]


# --- streams ----------------------------------------------------------------------------------------------------------


def test_the_stream_of_a_removed_user_ends(page: Served, ana: TestClient) -> None:
    page.site.streams = Streams(0.01)
    remove_user(page.path, "ana")  # checked when the stream is already open, so identify once before
    assert ana.get("/stream", headers={"Accept": "text/event-stream"}).status_code == 401
    ben = page.browser("ben")
    with ben.stream("GET", "/stream") as open_stream:
        lines = open_stream.iter_lines()
        assert next(lines) == "data: first"
        remove_user(page.path, "ben")
        assert not [line for line in lines if line]
