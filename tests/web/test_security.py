"""Attacks on the page, each of which is refused."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

import holdfast
from holdfast.web.security import HEADERS, HostRules, Networks, RateLimit, client_address, safe_path, static_version
from holdfast.web.server import build
from holdfast.web.sessions import Access, Proxy
from holdfast.web.site import Site
from tests.web.clients import PORT, SECRET, Served, csrf_of, served


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as page:
        yield page


@pytest.mark.parametrize("path", ["/", "/login", "/static/app.css", "/none", "/api/v1/none"])
def test_a_foreign_host_name_is_421_also_if_it_resolves_to_this_machine(page: Served, path: str) -> None:
    client = page.browser("ana")
    for host in (
        "evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:9999", f"localhost.evil.example:{PORT}",
        f"127.0.0.1:{PORT}@evil.example", f"127.0.0.1:{PORT}, evil.example", "", "[::1]", f"[::1:{PORT}",
        f"127.0.0.1:{PORT}/",
    ):  # fmt: skip
        done = client.get(path, headers={"Host": host, "X-Forwarded-Host": f"127.0.0.1:{PORT}"})
        assert done.status_code == 421, host
        assert done.headers["cache-control"] == "no-store"
    for host in (f"LOCALHOST:{PORT}", f"[::1]:{PORT}", f"localhost.:{PORT}", f"127.0.0.1:{PORT}"):
        assert client.get(path, headers={"Host": host}).status_code != 421, host


def test_every_response_has_the_headers_that_protect_it(page: Served) -> None:
    client = page.browser("ana")
    for done in (
        client.get("/"), client.get("/login"), client.get("/none"), client.post("/logout"),
        client.get("/static/app.css"),
        client.get("/", headers={"Host": "evil.example"}), client.post("/", headers={"Origin": "http://evil.example"}),
        client.get("/api/v1/none"), client.head("/"), page.browser().get("/"),
    ):  # fmt: skip
        for name, value in HEADERS.items():
            assert done.headers[name] == value, (name, done.request.url)
        assert "server" not in done.headers
        assert "x-powered-by" not in done.headers
        assert "access-control-allow-origin" not in done.headers
        assert "strict-transport-security" not in done.headers
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert HEADERS["Referrer-Policy"] == "same-origin"


def test_private_pages_are_not_cached_and_static_files_are_as_long_as_they_do_not_change(page: Served) -> None:
    client = page.browser("ana")
    for path in ("/", "/login", "/none", "/static/none.css"):
        assert client.get(path).headers["cache-control"] == "no-store"
    version = static_version("app.css")
    assert f'/static/app.css?v={version}"' in client.get("/").text
    assert "immutable" in client.get("/static/app.css", params={"v": version}).headers["cache-control"]
    for query in ({}, {"v": "old"}, {"v": version, "x": "1"}):
        assert client.get("/static/app.css", params=query).headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "path",
    [
        "../server.py", "%2e%2e/server.py", "..%2fserver.py", "%2e%2e%2fserver.py", "..%5cserver.py", "/etc/passwd",
        "%2fetc%2fpasswd", "....//server.py", "", "%00", "app.css%00.js", "..", ".", "%252e%252e%252fserver.py",
    ],
)  # fmt: skip
def test_no_file_outside_the_static_ones_is_served(page: Served, path: str) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    raw = f"/static/{path}"  # as it is sent; a client would resolve the dots
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": unquote(raw), "raw_path": raw.encode()}
    scope |= {
        "query_string": b"",
        "headers": [(b"host", f"127.0.0.1:{PORT}".encode())],
        "root_path": "",
        "scheme": "http",
        "client": None,
    }
    asyncio.run(page.application(scope, receive, send))
    assert sent[0]["status"] == 404
    assert static_version(unquote(path)) == ""


@pytest.mark.parametrize(
    "goal",
    ["https://evil.example", "//evil.example", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)", "", "runs",
     "/\r\nSet-Cookie: a=b", "/\t/evil.example", "\x00/", "/x\\..\\..//evil.example", "/" + "a" * 3000,
     " //evil.example"],
)  # fmt: skip
def test_a_login_leads_to_no_other_site(page: Served, goal: str) -> None:
    assert safe_path(goal) == "/"
    form = page.browser().get("/login", params={"next": goal})
    assert 'name="next" value="/"' in form.text
    done = page.browser().post("/login", data={"token": page.tokens["ana"], "next": goal})
    assert done.headers["location"] == "/"
    assert page.browser("ana").get("/login", params={"next": goal}).headers["location"] == "/"
    assert "a" not in done.cookies


def test_a_login_leads_back_to_the_page_that_was_wanted(page: Served) -> None:
    wanted = "/runs/a%2Fb?filter=%26x&y=ü"
    first = page.browser().get(wanted.replace("ü", "%C3%BC"))
    if first.status_code == 303:
        form = page.browser().get(first.headers["location"])
        assert "/runs/a%2Fb?filter=%26amp;x" in form.text or "/runs/a%2Fb?filter=%26x&amp;y=%C3%BC" in form.text
    done = page.browser().post("/login", data={"token": page.tokens["ana"], "next": "/runs/a%2Fb?filter=%26x"})
    assert done.headers["location"] == "/runs/a%2Fb?filter=%26x"


def test_the_eleventh_wrong_token_of_an_address_is_429_and_a_right_one_still_works(page: Served) -> None:
    client = page.browser()
    for _ in range(10):
        assert client.post("/login", data={"token": "hf_guess"}).status_code == 403
    refused = client.post("/login", data={"token": "hf_guess"})
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 61
    assert client.get("/api/v1/runs", headers={"Authorization": "Bearer hf_guess"}).status_code == 429
    assert client.post("/login", data={"token": page.tokens["ana"]}).status_code == 303


def test_a_login_does_not_reveal_which_users_there_are(page: Served) -> None:
    texts = set()
    for token in ("", "hf_guess", "ana", page.tokens["ana"][:-1], page.local.token[:-1], "x" * 600, "\x00"):
        done = page.browser().post("/login", data={"token": token})
        assert done.status_code == 403
        texts.add(done.text)
    assert len(texts) == 1
    text = texts.pop()
    assert not any(f">{name}<" in text or f"{name} " in text for name in ("ana", "ben", "root-user"))


def test_neither_the_log_nor_the_next_address_contains_a_token(page: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        token = page.local.token
        client = page.browser()
        client.get("/login", params={"token": token})
        done = client.post("/login", data={"token": token})
        client.post("/login", data={"token": "hf_guess"})
        client.post("/logout", data={"csrf": csrf_of(client)})
        page.browser().post("/login", data={"token": page.tokens["ben"]})
    assert "token" not in done.headers["location"]
    holdfast_lines = [record.getMessage() for record in caplog.records if record.name.startswith("holdfast")]
    assert any("login of 'root-user'" in line for line in holdfast_lines)
    assert any("a wrong token from" in line for line in holdfast_lines)
    for secret in (token, "hf_guess", page.tokens["ben"]):
        assert not any(secret in line for line in holdfast_lines)


def test_the_log_has_no_lines_that_a_request_made_up(page: Served, caplog: pytest.LogCaptureFixture) -> None:
    client = page.browser("ana")
    with caplog.at_level(logging.DEBUG, "holdfast.web"):
        client.post("/a%0d%0aERROR%20forged%1b[2J", headers={"Origin": "http://evil.example"})
    lines = [record.getMessage() for record in caplog.records if record.name == "holdfast.web"]
    assert lines
    assert not any(sign in line for line in lines for sign in ("\n", "\r", "\x1b"))


def test_ids_with_line_breaks_make_no_headers(page: Served) -> None:
    client = page.browser("ana")
    for path in ("/runs/a%0d%0aSet-Cookie:%20x=y", "/%0d%0aX-Evil:%201", "/login?next=%2F%0d%0aX-Evil:%201"):
        done = client.get(path)
        assert "x-evil" not in done.headers
        assert "x" not in done.cookies
        stranger = page.browser().get(path)
        assert "x-evil" not in stranger.headers
        assert "\n" not in stranger.headers.get("location", "")


def test_the_login_page_loads_nothing_from_elsewhere_and_has_no_links_that_carry_its_address(page: Served) -> None:
    text = page.browser().get("/login", params={"token": page.local.token}).text
    assert re.findall(r'(?:href|src|action)="([^"]*)"', text)
    assert all(link.startswith("/") for link in re.findall(r'(?:href|src|action)="([^"]*)"', text))
    assert "<a " not in text


def test_another_site_may_link_to_a_page_but_not_load_it(page: Served) -> None:
    client = page.browser("ana")
    for site in ("cross-site", "same-site"):
        assert client.get("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}).status_code == 200
        for mode in ("no-cors", "cors", "websocket"):
            assert client.get("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}).status_code == 403
    assert client.get("/", headers={"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}).status_code == 200


def test_a_preflight_allows_nothing(page: Served) -> None:
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    done = page.browser().options("/", headers=headers)
    assert done.status_code in (403, 405)
    assert not any(name.startswith("access-control") for name in done.headers)


def test_on_https_browsers_are_told_to_stay_there(tmp_path: Path) -> None:
    with holdfast.App("memory:") as app:
        site = Served(tmp_path, app, scheme="https").site
        rules = HostRules(["runs.example.com", "localhost"], scheme="https")
        application = build(site, rules)
        for host, expected in (("runs.example.com", "max-age=31536000"), ("localhost", None)):
            client = TestClient(application, base_url=f"https://{host}", follow_redirects=False)
            assert client.get("/login").headers.get("strict-transport-security") == expected
        ours = {"Origin": "https://runs.example.com"}
        client = TestClient(application, base_url="http://runs.example.com", follow_redirects=False)
        assert client.post("/login", data={"token": "x"}, headers=ours).status_code == 403
        theirs = {"Origin": "http://runs.example.com"}
        assert "https" in client.post("/login", data={"token": "x"}, headers=theirs).text


# --- proxies, addresses, limits ---------------------------------------------------------------------------------------


def proxied(tmp_path: Path, app: holdfast.App, address: str, **more: Any) -> TestClient:
    page = Served(tmp_path, app)
    proxy = Proxy("X-Forwarded-User", Networks(["10.0.0.0/8", "fd00::/8"]), "X-Forwarded-Groups", **more)
    access = Access(SECRET, proxy=proxy, users=page.access.users if more.pop("listed", True) else None)
    site = Site(app, access, page.site.renderer, page.site.live, owns_app=False)
    return TestClient(build(site, HostRules(any_host=True)), client=(address, 5), follow_redirects=False)


def test_only_a_trusted_proxy_names_the_user(tmp_path: Path) -> None:
    with holdfast.App("memory:") as app:
        inside = proxied(tmp_path, app, "10.1.2.3", role="")
        assert "ben" in inside.get("/", headers={"X-Forwarded-User": "ben"}).text
        assert "approver" in inside.get("/", headers={"X-Forwarded-User": "ben"}).text
        for wrong in ("mallory", "", " ", "a\x7f", "ben, ana"):
            assert inside.get("/", headers={"X-Forwarded-User": wrong}).status_code == 401, wrong
        twice = [("X-Forwarded-User", "ben"), ("X-Forwarded-User", "ana")]
        assert inside.get("/", headers=twice).status_code == 401
        assert inside.get("/").status_code == 401
        assert inside.get("/login").status_code == 404
        for address in ("192.168.0.1", "127.0.0.1", "11.0.0.1", "testclient", "::1"):
            outside = proxied(tmp_path, app, address, role="operator")
            headers = {"X-Forwarded-User": "ana", "X-Forwarded-For": "10.1.2.3", "Forwarded": "for=10.1.2.3"}
            assert outside.get("/", headers=headers).status_code == 401
        mapped = proxied(tmp_path, app, "::ffff:10.1.2.3", role="viewer")
        assert "zoë" in mapped.get("/", headers={b"X-Forwarded-User": "zoë".encode()}).text


def test_the_role_of_the_proxy_is_only_for_users_that_a_valid_users_file_does_not_have(tmp_path: Path) -> None:
    ben = {"X-Forwarded-User": "ben"}
    with holdfast.App("memory:") as app:
        client, path = proxied(tmp_path, app, "10.1.2.3", role="operator"), tmp_path / "users.toml"
        text = path.read_text()
        assert "operator" in client.get("/", headers={"X-Forwarded-User": "new"}).text
        assert "approver" in client.get("/", headers=ben).text
        path.write_text(text + '[[user]]\nname = "old"\nrole = "viewer"\nexpires = 2020-01-01\n')
        assert client.get("/", headers={"X-Forwarded-User": "old"}).status_code == 401
        assert client.get("/", headers=ben).status_code == 200
        path.write_text(text + "[[user]")
        assert [client.get("/", headers={"X-Forwarded-User": name}).status_code for name in ("ben", "new")] == [
            401,
            401,
        ]
        path.write_text(text)
        path.chmod(0o644)
        assert [client.get("/", headers={"X-Forwarded-User": name}).status_code for name in ("ben", "new")] == [
            401,
            401,
        ]
        path.unlink()
        assert client.get("/", headers=ben).status_code == 401


def test_groups_that_are_named_by_two_headers_are_refused(tmp_path: Path) -> None:
    with holdfast.App("memory:") as app:
        client = proxied(tmp_path, app, "10.1.2.3", role="viewer")
        one = [("X-Forwarded-User", "new"), ("X-Forwarded-Groups", "staff, finance")]
        assert client.get("/api/v1/me", headers=one).json()["groups"] == ["staff", "finance"]
        for name in ("new", "ben"):
            twice = [("X-Forwarded-User", name), ("X-Forwarded-Groups", "staff"), ("X-Forwarded-Groups", "finance")]
            assert client.get("/", headers=twice).status_code == 401


def test_a_name_from_a_proxy_is_the_same_in_every_spelling_of_unicode_and_differs_by_case(tmp_path: Path) -> None:
    with holdfast.App("memory:") as app:
        client = proxied(tmp_path, app, "10.1.2.3", role="viewer")

        def me(name: str) -> Any:
            headers = {b"X-Forwarded-User": name.encode(), b"X-Forwarded-Groups": "gru\u0308n".encode()}
            done = client.get("/api/v1/me", headers=headers)
            return done.json() if done.status_code == 200 else done.status_code

        assert [me(name)["name"] for name in ("zo\xeb", "zoe\u0308", " zo\xeb ")] == ["zo\xeb"] * 3
        assert me("zo\xeb")["groups"] == ["gr\xfcn"]
        assert [me("ben")["role"], me("Ben")["role"]] == ["approver", "viewer"]
        assert [me(name) for name in ("ana\u200b", "a\u202ena", "\u2060ana", "ana\u3164")] == [401] * 4


def test_an_address_is_that_of_the_connection_unless_a_trusted_proxy_reports_another() -> None:
    def address(peer: str, *forwarded: str) -> str:
        headers = [(b"x-forwarded-for", text.encode()) for text in forwarded]
        request = Request({"type": "http", "client": (peer, 1), "headers": headers})
        return client_address(request.scope, Networks(["10.0.0.0/8"]))

    assert address("1.2.3.4", "5.6.7.8") == "1.2.3.4"
    assert address("10.0.0.1", "9.9.9.9, 5.6.7.8") == "5.6.7.8"
    assert address("10.0.0.1", "9.9.9.9", "5.6.7.8") == "5.6.7.8"
    assert address("10.0.0.1", "evil\r\n") == "10.0.0.1"
    assert address("10.0.0.1") == "10.0.0.1"
    assert address("2001:db8::1:2:3:4") == address("2001:db8::5:6:7:8") == "2001:db8::/64"


def test_a_rate_limit_forgets_what_is_past_and_keys_that_are_many() -> None:
    now = 0.0
    limit = RateLimit(2, 60.0, keys_max=3, clock=lambda: now)
    assert [limit.wait_s("a") for _ in range(3)] == [0, 0, 61]
    now = 59.0
    assert limit.wait_s("a") == 2
    now = 61.0
    assert limit.wait_s("a") == 0
    for key in "bcdefgh":
        limit.wait_s(key)
    assert len(limit._times) == 3
