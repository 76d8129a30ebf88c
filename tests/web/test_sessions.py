"""Sessions: login, logout, expiry, renewal, and cookies that were not made here."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from holdfast.web import User
from holdfast.web.sessions import SESSION_S, SESSION_S_MAX
from holdfast.web.users import remove_user
from tests.web.clients import PORT, Served, csrf_of, served

COOKIE = f"holdfast_{PORT}"


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def page(tmp_path: Path, clock: Clock) -> Iterator[Served]:
    with served(tmp_path, clock=clock) as page:
        yield page


def is_logged_in(client: TestClient) -> bool:
    done = client.get("/")
    assert done.status_code in (200, 303)
    assert done.status_code == 200 or done.headers["location"].startswith("/login")
    return done.status_code == 200


# --- the printed address ---------------------------------------------------------------------------------------------


def test_the_printed_address_shows_a_button_and_only_the_button_logs_in(page: Served) -> None:
    client = page.browser()
    token = page.local.token
    for _ in range(3):  # a program that previews links uses nothing up
        form = client.get("/login", params={"token": token})
        assert form.status_code == 200
        assert "set-cookie" not in form.headers
        assert "Continue in this browser as <strong>root-user</strong>" in form.text
    client.head("/login", params={"token": token})
    assert not is_logged_in(client)
    done = client.post("/login", data={"token": token})
    assert (done.status_code, done.headers["location"]) == (303, "/")
    assert "root-user" in client.get("/").text


def test_the_printed_address_is_valid_once_and_the_next_one_is_reported(page: Served) -> None:
    reported: list[str] = []
    page.local.on_used = reported.append
    first = page.local.token
    assert page.browser().post("/login", data={"token": first}).status_code == 303
    assert reported == [page.local.token]
    assert page.local.token != first
    client = page.browser()
    assert client.post("/login", data={"token": first}).status_code == 403
    assert "was used before" in client.get("/login", params={"token": first}).text
    assert "root-user" not in client.get("/login", params={"token": first}).text
    assert client.post("/login", data={"token": page.local.token}).status_code == 303


def test_a_browser_that_is_logged_in_does_not_use_the_address_up(page: Served) -> None:
    client = page.browser("ana")
    token = page.local.token
    done = client.get("/login", params={"token": token, "next": "/runs"})
    assert (done.status_code, done.headers["location"]) == (303, "/runs")
    assert page.local.token == token


# --- cookies ---------------------------------------------------------------------------------------------------------


def test_the_cookie_is_hidden_from_scripts_and_named_by_the_port(page: Served) -> None:
    done = page.browser().post("/login", data={"token": page.tokens["ben"]})
    cookie = done.headers["set-cookie"]
    name, *attributes = cookie.split("; ")
    assert name.startswith(f"{COOKIE}=")
    assert {"HttpOnly", "SameSite=lax", "Path=/", f"Max-Age={SESSION_S}"} == set(attributes)
    assert page.tokens["ben"] not in cookie


def test_on_https_the_cookie_is_secure_and_bound_to_the_host(tmp_path: Path) -> None:
    with served(tmp_path, scheme="https") as page:
        client = page.browser("ben")
        done = page.browser().post("/login", data={"token": page.tokens["ben"]})
        assert done.headers["set-cookie"].startswith(f"__Host-{COOKIE}=")
        assert "; Secure" in done.headers["set-cookie"]
        assert "Domain" not in done.headers["set-cookie"]
        assert is_logged_in(client)
        plain = page.browser()
        plain.cookies.set(COOKIE, client.cookies[f"__Host-{COOKIE}"])  # without the prefix a subdomain could set it
        assert not is_logged_in(plain)


def test_a_cookie_that_was_changed_is_refused(page: Served) -> None:
    value = page.browser("vera").cookies[COOKIE]
    body, _, signature = value.partition(".")
    data = json.loads(base64.urlsafe_b64decode(body + "=="))
    data["name"] = "ana"
    forged = base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")
    for wrong in (
        f"{forged}.{signature}", f"{forged}.", forged, f"{body}.{signature[:-1]}", f"{body}.{'0' * 64}", f"{body}..",
        f"{body}=.{signature}", f".{signature}", "", "x.y", "\x7f.\x7f", f"{value}.{value}", "a" * 5000,
        f"{body} .{signature}",
    ):  # fmt: skip
        client = page.browser()
        done = client.get("/", headers={"Cookie": f"{COOKIE}={wrong}"})
        assert done.status_code == 303, wrong
    assert page.browser().get("/", headers={"Cookie": f"{COOKIE}={value}"}).status_code == 200


def test_a_cookie_of_another_server_or_port_is_refused(page: Served) -> None:
    client = page.browser("ana")
    value = client.cookies[COOKIE]
    page.restart(secret=b"another" * 8)
    other = page.browser()
    other.cookies.set(COOKIE, value)
    assert not is_logged_in(other)
    page.restart()
    page.access._cookie = "holdfast_9999"
    other = page.browser()
    other.cookies.set("holdfast_9999", value)
    assert not is_logged_in(other)


def test_a_session_that_was_prepared_by_another_is_not_continued(page: Served) -> None:
    client = page.browser("vera")
    prepared = client.cookies[COOKIE]
    csrf = csrf_of(client)
    client.post("/login", data={"token": page.tokens["ana"]})
    assert client.cookies[COOKIE] != prepared
    assert "ana" in client.get("/").text
    assert csrf_of(client) != csrf
    assert client.post("/logout", data={"csrf": csrf}).status_code == 403


# --- the end of a session --------------------------------------------------------------------------------------------


def test_a_session_ends_when_it_is_not_used_and_is_renewed_when_it_is(page: Served, clock: Clock) -> None:
    client = page.browser("ana")
    csrf = csrf_of(client)
    clock.now += SESSION_S * 0.4
    assert "set-cookie" not in client.get("/").headers
    clock.now += SESSION_S * 0.2
    assert "Max-Age" in client.get("/").headers["set-cookie"]
    clock.now += SESSION_S * 0.6
    assert is_logged_in(client)
    assert csrf_of(client) == csrf  # a form that is open all the time can still be sent
    clock.now += SESSION_S
    assert not is_logged_in(client)


def test_a_session_ends_after_a_week_even_if_it_is_used(page: Served, clock: Clock) -> None:
    client = page.browser("ana")
    begun = clock.now
    while clock.now < begun + SESSION_S_MAX - SESSION_S / 3:
        assert is_logged_in(client)
        clock.now += SESSION_S / 3
    clock.now = begun + SESSION_S_MAX + 1
    assert not is_logged_in(client)


def test_a_restart_keeps_sessions(page: Served) -> None:
    value = page.browser("ana").cookies[COOKIE]
    page.restart()
    client = page.browser()
    client.cookies.set(COOKIE, value)
    assert is_logged_in(client)


def test_after_a_logout_the_cookie_is_refused_also_by_the_next_server(page: Served) -> None:
    client, other = page.browser("ana"), page.browser("ana")
    stolen = client.cookies[COOKIE]
    done = client.post("/logout", data={"csrf": csrf_of(client)})
    assert (done.status_code, done.headers["location"]) == (303, "/login")
    assert COOKIE not in client.cookies
    for _ in range(2):
        thief = page.browser()
        thief.cookies.set(COOKIE, stolen)
        assert not is_logged_in(thief)
        page.restart()
    again = page.browser()
    again.cookies.set(COOKIE, other.cookies[COOKIE])
    assert is_logged_in(again)


def test_a_logout_needs_a_post_with_the_token_of_the_session(page: Served) -> None:
    client, other = page.browser("ana"), page.browser("ben")
    assert client.get("/logout").headers["location"] == "/", "a link does not log out"
    for csrf in ("", csrf_of(other), csrf_of(client)[:-1]):
        assert client.post("/logout", data={"csrf": csrf}).status_code == 403
    assert is_logged_in(client)


def test_removing_a_user_ends_its_sessions_and_its_bearer_token_at_the_next_request(page: Served) -> None:
    client = page.browser("ben")
    assert is_logged_in(client)
    remove_user(page.path, "ben")
    assert not is_logged_in(client)
    assert page.access.users is not None
    assert page.access.users.by_token(page.tokens["ben"]) is None


def test_a_change_of_the_role_takes_effect_at_the_next_request(page: Served) -> None:
    client = page.browser("vera")
    text = Path(page.path).read_text()
    Path(page.path).write_text(text.replace('role = "viewer"', 'role = "approver"'))
    assert "approver" in client.get("/").text


def test_replacing_a_token_ends_the_sessions_that_began_with_it(page: Served) -> None:
    client = page.browser("ben")
    page.put(User(name="ben", role="approver"))
    assert not is_logged_in(client)
    assert is_logged_in(page.browser("ben"))


def test_a_session_of_the_printed_address_is_refused_if_there_is_no_such_login(page: Served) -> None:
    client = page.browser()
    client.post("/login", data={"token": page.local.token})
    assert is_logged_in(client)
    page.access.local = None
    assert not is_logged_in(client)


def test_a_user_of_the_file_cannot_take_the_place_of_the_local_user(page: Served) -> None:
    page.put(User(name="root-user", role="viewer"))
    assert "viewer" in page.browser("root-user").get("/").text
