"""The login of `holdfast web`: the address it prints, tokens, logout, and a user that is removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.harness import until
from tests.web.browser.seed import app_on
from tests.web.browser.server import in_thread
from tests.web.browser.visit import NARROW, TIMEOUT_MS, Visit, visiting
from tests.web.browser.web_process import WebProcess


def _start_run(url: str) -> None:
    with app_on(url) as app:
        app.start("refund", "1", run_id="refund-1")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[WebProcess]:
    folder: Path = tmp_path_factory.mktemp("login")
    url = f"sqlite:{folder / 'runs.db'}"
    in_thread(_start_run, url)
    web = WebProcess(folder, url)
    yield web
    web.stop()


def log_in_by_address(web: WebProcess, visit: Visit) -> None:
    """Open the newest address that was printed, and press the button."""
    visit.open(web.addresses()[-1].removeprefix(web.origin))
    visit.page.get_by_role("button", name="Log in").click()
    visit.page.wait_for_url(f"{web.origin}/")


def log_in(visit: Visit, token: str) -> None:
    visit.open("/")
    visit.page.get_by_label("Token").fill(token)
    visit.page.get_by_role("button", name="Log in").click()


def test_the_printed_address_logs_in_once(web: WebProcess, browser: Browser) -> None:
    address = web.addresses()[-1]
    with visiting(browser, web.origin, width=NARROW) as visit:
        log_in_by_address(web, visit)
        assert "token" not in visit.page.url
        expect(visit.page.get_by_role("button", name="Log out")).to_be_visible()
    until(lambda: web.addresses()[-1] != address, "the next address is printed")
    with visiting(browser, web.origin) as second:
        second.open(address.removeprefix(web.origin))
        expect(second.page.get_by_text("was used before")).to_be_visible()
        second.open("/")
        assert "/login" in second.page.url


def test_the_login_page_is_accessible_at_both_widths_and_works_without_javascript(
    web: WebProcess, browser: Browser
) -> None:
    for path in ("/login", web.addresses()[-1].removeprefix(web.origin)):
        with visiting(browser, web.origin, width=NARROW, scheme="dark") as visit:
            visit.open(path)
            assert visit.axe() == []
            assert visit.overflow() == 0
    with visiting(browser, web.origin, javascript=False) as visit:
        log_in_by_address(web, visit)
        expect(visit.page.get_by_role("button", name="Log out")).to_be_visible()


def test_a_wrong_token_is_refused_at_the_field(web: WebProcess, browser: Browser) -> None:
    visit = Visit(browser, web.origin)
    log_in(visit, "hf_wrong")
    expect(visit.page.get_by_role("alert")).to_have_text("This token is not valid.")
    expect(visit.page.get_by_label("Token")).to_have_attribute("aria-invalid", "true")
    assert visit.axe() == []
    visit.close()


def test_the_login_leads_to_the_page_that_was_wanted_and_logout_ends_the_session(
    web: WebProcess, browser: Browser
) -> None:
    token = web.command("token", "vera", "--role", "viewer").split()[0]
    with visiting(browser, web.origin) as visit:
        visit.open("/runs/refund-1")
        visit.page.get_by_label("Token").fill(token)
        visit.page.get_by_role("button", name="Log in").click()
        visit.page.wait_for_url(f"{web.origin}/runs/refund-1")
        cookies = visit.context.cookies()
        visit.page.get_by_role("button", name="Log out").click()
        visit.page.wait_for_url(f"{web.origin}/login")
        visit.context.add_cookies(cookies)  # type: ignore[arg-type]  # a copy that was kept is worthless, too
        visit.open("/")
        assert "/login" in visit.page.url


def test_the_page_reports_a_lost_connection_until_the_server_is_back(web: WebProcess, browser: Browser) -> None:
    with visiting(browser, web.origin) as visit:
        log_in_by_address(web, visit)
        lost = visit.page.get_by_text("Connection lost; updates may be late.")
        expect(visit.page.get_by_role("heading", name="Inbox")).to_be_visible()
        expect(lost).to_be_hidden()
        web.stop()
        expect(lost).to_be_visible()
        web.start()
        expect(lost).to_be_hidden()
        visit.problems.clear()


def test_a_page_whose_first_connection_failed_connects_later(web: WebProcess, browser: Browser) -> None:
    with visiting(browser, web.origin) as visit:
        log_in_by_address(web, visit)
        visit.page.route("**/live/**", lambda route: route.abort())
        visit.open("/")
        lost = visit.page.get_by_text("Connection lost; updates may be late.")
        expect(lost).to_be_visible()
        visit.page.unroute("**/live/**")
        expect(lost).to_be_hidden()
        visit.problems.clear()


def test_a_removed_user_is_out_at_the_next_request(web: WebProcess, browser: Browser) -> None:
    token = web.command("token", "ben", "--role", "approver").split()[0]
    visit = Visit(browser, web.origin)
    log_in(visit, token)
    visit.page.wait_for_url(f"{web.origin}/")
    web.command("token", "ben", "--remove")
    visit.page.goto("/", timeout=TIMEOUT_MS)
    assert "/login" in visit.page.url
    visit.close()


def test_a_foreign_name_for_this_machine_is_refused(web: WebProcess) -> None:
    for host in ("evil.example", f"evil.example:{web.port}", "127.0.0.1.evil.example", f"127.0.0.1:{web.port + 1}"):
        assert httpx.get(f"{web.origin}/login", headers={"Host": host}, timeout=240).status_code == 421, host
    assert httpx.get(f"{web.origin}/login", headers={"Host": f"localhost:{web.port}"}, timeout=240).status_code == 200
