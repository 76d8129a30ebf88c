"""The JSON API: requests that are refused, errors, events, and an API that is mounted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.web import User
from holdfast.web.api.operation_table import OPERATIONS
from holdfast.web.security import HEADER_BYTES_MAX
from tests.web.acting import STORES, Api, World, world
from tests.web.clients import Served

JSON = {"Content-Type": "application/json"}


@pytest.fixture(params=STORES)
def w(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def ana(w: World) -> Api:
    return w.api("ana")


def test_changes_need_a_bearer_token_and_a_cookie_suffices_for_reading(w: World) -> None:
    w.start("order", "A", run_id="a")
    browser = w.served.browser("ana")
    assert browser.get("/api/v1/runs/a").status_code == 200
    done = browser.post("/api/v1/runs/a/pause", headers=JSON, content=b"{}")
    assert done.status_code == 401
    assert done.headers["www-authenticate"] == "Bearer"
    stranger = w.served.browser()
    assert stranger.get("/api/v1/runs").status_code == 401
    assert stranger.get("/api/v1/runs").json()["error"]["code"] == "not_authenticated"
    assert w.status("a") == "waiting"


def test_the_role_decides_what_a_token_may_change(w: World) -> None:
    w.start("order", "A", run_id="a")
    for operation in OPERATIONS:
        if operation.changes:
            path = operation.path.replace("{run_id}", "a").replace("{gate}", "approve")
            error = w.api("vera").post(path, operation.example, 403)["error"]
            assert error["code"] == "forbidden"
            if operation.role == "operator":
                w.api("ben").post(path, operation.example, 403)
    assert w.did == [("pay", "A")]
    assert w.status("a") == "waiting"


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (b"{", "application/json", 400, "invalid_json"),
        (b"\xff", "application/json", 400, "invalid_json"),
        (b"[" * 100_000, "application/json", 400, "invalid_json"),
        (b"", "application/json", 400, "invalid_json"),
        (b"answer=1", "application/x-www-form-urlencoded", 415, "not_json"),
        (b"{}", "text/plain", 415, "not_json"),
        (b"[]", "application/json", 422, "invalid_body"),
        (b"{}", "application/json; charset=utf-8", 422, "invalid_body"),
        (b'{"answer": {"ok": true}, "by": "root"}', "application/json", 422, "invalid_body"),
        (b'{"answer": "' + b"x" * 300_000 + b'"}', "application/json", 413, "too_large"),
    ],
)
def test_a_body_that_is_not_right_is_refused(w: World, body: bytes, kind: str, status: int, code: str) -> None:
    w.start("order", "A", run_id="a")
    headers = {**w.served.bearer("ana"), "Content-Type": kind}
    done = w.served.browser().post("/api/v1/runs/a/answer", content=body, headers=headers)
    assert done.status_code == status, done.text
    assert done.json()["error"]["code"] == code
    assert w.status("a") == "waiting"


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "status=odd", "after=x", "unknown=1", "limit=1&limit=2", "metadata=x"]
)
def test_a_query_that_is_not_right_is_refused(w: World, query: str) -> None:
    done = w.served.browser().get(f"/api/v1/runs?{query}", headers=w.served.bearer("ana"))
    assert done.status_code == 400, done.text
    assert done.json()["error"]["message"]


def test_too_many_changes_are_refused_with_the_time_to_wait(tmp_path: Path) -> None:
    with holdfast.App("memory:") as app:
        app.workflow(name="wait")(lambda run: run.wait_for("x"))
        api = Api(Served(tmp_path, app, changes_per_minute=2), "ana")
        for number in range(2):
            api.post("/runs", {"workflow": "wait", "run_id": f"r{number}"}, 201)
        assert api.post("/runs", {"workflow": "wait"}, 429)["error"]["code"] == "too_many_requests"
        assert len(app.runs()) == 2
        api.get("/runs")


def test_unknown_paths_and_methods_are_errors_in_json(w: World) -> None:
    browser, headers = w.served.browser(), w.served.bearer("ana")
    assert browser.get("/api/v1/none", headers=headers).json()["error"]["code"] == "not_found"
    done = browser.delete("/api/v1/runs", headers=headers)
    assert done.status_code == 405
    assert done.json()["error"]["code"] == "method_not_allowed"
    assert "POST" in done.headers["allow"]


@pytest.mark.parametrize("text", [r"\ud800", r"\udc00", r"\ud800A", r"x\ud83dx"])
def test_half_of_a_surrogate_pair_is_reported_as_such(w: World, ana: Api, text: str) -> None:
    w.start("order", "A", run_id="a")
    headers = {**w.served.bearer("ana"), **JSON}
    for body in (f'{{"answer": "{text}"}}', f'{{"{text}": 1}}'):
        done = w.served.browser().post("/api/v1/runs/a/answer", content=body, headers=headers)
        assert done.status_code == 400
        assert done.json()["error"]["code"] == "invalid_json"
        assert "not valid Unicode" in done.json()["error"]["message"]


def test_headers_that_are_too_large_and_unknown_hosts_have_codes_of_their_own(w: World) -> None:
    browser, headers = w.served.browser(), w.served.bearer("ana")
    large = browser.get("/api/v1/me", headers={**headers, "X-Large": "x" * HEADER_BYTES_MAX})
    assert (large.status_code, large.json()["error"]["code"]) == (431, "headers_too_large")
    other = browser.get("/api/v1/me", headers={**headers, "Host": "other.example"})
    assert (other.status_code, other.json()["error"]["code"]) == (421, "unknown_host")


def test_damaged_data_is_reported_as_such(w: World, ana: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    w.start("order", "A", run_id="a")

    def damaged(*_: object, **__: object) -> Any:
        raise holdfast.errors.DamagedData("entry 3 of run 'a'", "it does not match its checksum")

    monkeypatch.setattr(type(w.store), "journal", damaged)
    assert ana.get("/runs/a/journal", 500)["error"]["code"] == "damaged_data"


def test_a_store_that_fails_is_a_503_without_its_details(w: World, ana: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    w.start("order", "A", run_id="a")

    def broken(*_: object, **__: object) -> Any:
        raise holdfast.errors.StorageFailed("/var/lib/runs.db is broken")

    monkeypatch.setattr(type(w.store), "journal", broken)
    error = ana.get("/runs/a/journal", 503)["error"]
    assert error["code"] == "unavailable"
    assert "/var/lib" not in error["message"]


# --- events ----------------------------------------------------------------------------------------------------------


class Stream:
    """A stream of events, read by an ASGI client in a loop of its own."""

    def __init__(self, w: World, query: str) -> None:
        self.w = w
        self.query = query

    def read(self, change: Any, count: int) -> list[str]:
        """Connect, call `change` after the first event, and return the marks of `count` events."""
        return asyncio.run(asyncio.wait_for(self._read(change, count), 240))

    async def _read(self, change: Any, count: int) -> list[str]:
        sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        headers = [(b"host", b"127.0.0.1:8484")]
        headers += [(k.lower().encode(), v.encode()) for k, v in self.w.served.bearer("ana").items()]
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/v1/events",
            "raw_path": b"/api/v1/events",
            "query_string": self.query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "scheme": "http",
            "root_path": "",
            "http_version": "1.1",
        }
        waiting = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if not waiting.is_set():
                waiting.set()
                return {"type": "http.request", "body": b"", "more_body": False}
            await asyncio.Event().wait()
            raise AssertionError

        task = asyncio.create_task(self.w.served.application(scope, receive, sent.put))  # type: ignore[arg-type]
        marks: list[str] = []
        start = await sent.get()
        assert start["status"] == 200
        assert (b"content-type", b"text/event-stream; charset=utf-8") in start["headers"]
        while len(marks) < count:
            text = (await sent.get())["body"].decode()
            if text.startswith("event: changed"):
                marks.append(text.split("data: ")[1].strip())
                if len(marks) == 1:
                    await asyncio.to_thread(change)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return marks


@pytest.mark.parametrize("query", ["view=run&run=a", "view=runs", "view=gates"])
def test_an_event_is_sent_for_each_change_and_from_the_mark_that_is_known(w: World, query: str) -> None:
    w.start("order", "A", run_id="a")

    def change() -> None:
        w.app.answer("a", {"ok": False})

    first, second = Stream(w, query).read(change, 2)
    assert first != second
    [missed] = Stream(w, f"{query}&mark={first}").read(lambda: None, 1)
    assert missed == second


def test_events_of_runs_that_do_not_exist_are_refused(w: World, ana: Api) -> None:
    ana.get("/events", 404, view="run", run="none")
    ana.get("/events", 400, view="run")
    ana.get("/events", 400, view="other")


def test_a_mounted_api_accepts_the_applications_own_bearer_tokens(tmp_path: Path) -> None:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.routing import Mount
    from starlette.testclient import TestClient

    def user(request: Request) -> User | None:
        token = request.headers.get("authorization", "")
        return User(name="ana", role="operator") if token == "Bearer secret" or "session" in request.cookies else None

    with holdfast.App("memory:") as app:
        app.workflow(name="wait")(lambda run: run.wait_for("x"))
        outer = Starlette(routes=[Mount("/in/side", holdfast.web.asgi(app, user=user))])
        client = TestClient(outer)
        client.cookies.set("session", "1")
        body = {"workflow": "wait", "run_id": "a/b"}
        assert client.post("/in/side/api/v1/runs", json=body).status_code == 401
        done = client.post("/in/side/api/v1/runs", json=body, headers={"Authorization": "Bearer secret"})
        assert done.status_code == 201, done.text
        assert done.headers["location"] == "/in/side/api/v1/runs/a%2Fb"
        assert client.get(done.headers["location"]).json()["run"]["run_id"] == "a/b"
        assert client.get("/in/side/api/v1/openapi.json").json()["servers"] == [{"url": "/in/side"}]
