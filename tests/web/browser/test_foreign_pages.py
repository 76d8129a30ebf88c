"""Pages of other servers attack a browser that is logged in: none of them reads or changes anything.

A page on another port of the same address is the stronger attacker: browsers send it the cookies, because cookies do
not know ports. A page on another host gets no cookies with SameSite=Lax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tests.web.browser.form_parser import HtmlForm, forms_in
from tests.web.browser.server import Served, Site
from tests.web.browser.visit import TIMEOUT_MS, Visit

Attack = Callable[[str], Page]

_SUBMIT = """([action, fields]) => {
  const form = document.createElement("form");
  form.method = "post";
  form.action = action;
  for (const [name, values] of Object.entries(fields)) {
    for (const value of values) {
      const field = document.createElement("textarea");
      field.name = name;
      field.value = value;
      form.append(field);
    }
  }
  document.body.append(form);
  form.submit();
}"""
_FETCH = """async ([url, options]) => {
  try {
    const response = await fetch(url, options);
    return response.type + " " + (await response.text());
  } catch (error) { return error.name; }
}"""
_EVENTS = """(url) => new Promise((done) => {
  const events = new EventSource(url, {withCredentials: true});
  events.onopen = () => done("open");
  events.onmessage = () => done("message");
  events.onerror = () => done(events.readyState === EventSource.CLOSED ? "closed" : "error");
})"""
_FRAME = """(url) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.onload = () => done();
  frame.src = url;
  document.body.append(frame);
})"""


@pytest.fixture(scope="module")
def evil() -> Iterator[Served]:
    async def page(_: Request) -> Response:
        return HTMLResponse("<!doctype html><title>evil</title><body>")

    served = Served(Starlette(routes=[Route("/", page)]))
    yield served
    served.stop()


@pytest.fixture(params=["127.0.0.1", "localhost"])
def attacker(request: pytest.FixtureRequest, browser: Browser, site: Site, evil: Served) -> Iterator[Page]:
    """A page of the other server, in a browser that is logged in here."""
    visit = Visit(browser, site.origin, who="ana")
    visit.open("/")
    page = visit.page
    page.goto(f"http://{request.param}:{evil.port}/", timeout=TIMEOUT_MS)
    yield page
    visit.close()


@pytest.fixture
def gate(site: Site, run_id: str) -> tuple[str, HtmlForm]:
    """A gate that nobody has answered, and the form that would answer it, with a valid token."""
    site.do(site.app.start, "refund", "1", run_id=run_id)
    text = httpx.get(f"{site.origin}/runs/{run_id}/gates/ask%231", cookies={"who": "ana"}, timeout=240).text
    form = next(form for form in forms_in(text) if form.method == "post" and "answer" in form.action)
    for name, choices in form.radios.items():
        form.fields[name] = choices[:1]
    return run_id, form


def test_a_form_of_another_page_changes_nothing_even_with_a_valid_token(
    site: Site, attacker: Page, gate: tuple[str, HtmlForm]
) -> None:
    run_id, form = gate
    with attacker.expect_response(lambda response: response.request.method == "POST", timeout=TIMEOUT_MS) as posted:
        attacker.evaluate(_SUBMIT, [site.origin + form.action, form.fields])
    assert posted.value.status == 403
    assert site.status(run_id) == "waiting"
    # The same form of our own page is accepted: what was refused is where it came from.
    body = httpx.post(
        site.origin + form.action,
        data=form.fields,
        cookies={"who": "ana"},
        headers={"Origin": site.origin},
        timeout=240,
    )
    assert body.status_code == 303, body.text


def test_a_script_of_another_page_cannot_post_or_read(site: Site, attacker: Page, gate: tuple[str, HtmlForm]) -> None:
    run_id, form = gate
    for path in ("/", "/runs", "/api/v1/runs", f"/runs/{run_id}", "/static/app.js"):
        assert attacker.evaluate(_FETCH, [site.origin + path, {"credentials": "include"}]) == "TypeError", path
        hidden = attacker.evaluate(_FETCH, [site.origin + path, {"credentials": "include", "mode": "no-cors"}])
        assert hidden in ("opaque ", "TypeError"), path
    statuses: list[int] = []
    attacker.on("response", lambda response: statuses.append(response.status))
    for media, body in (("application/x-www-form-urlencoded", "a=b"), ("text/plain", "{}"), ("application/json", "{}")):
        headers = {"Content-Type": media}
        for mode in ("cors", "no-cors"):
            options = {"method": "POST", "credentials": "include", "mode": mode, "body": body, "headers": headers}
            attacker.evaluate(_FETCH, [site.origin + form.action, options])
    assert all(status >= 400 for status in statuses)
    assert site.status(run_id) == "waiting"


def test_another_page_cannot_follow_live_updates(site: Site, attacker: Page) -> None:
    text = httpx.get(site.origin, cookies={"who": "ana"}, timeout=240).text
    stream = text.partition('hx-sse:connect="')[2].partition('"')[0].replace("&amp;", "&")
    assert stream
    assert attacker.evaluate(_EVENTS, site.origin + stream) in ("closed", "error")


def test_another_page_cannot_frame_this_one(site: Site, attacker: Page) -> None:
    attacker.evaluate(_FRAME, f"{site.origin}/")
    while not (url := attacker.frames[1].url):  # the driver learns it a moment after the page
        attacker.wait_for_timeout(20)
    assert url.startswith("chrome-error:")


def test_another_page_loses_the_window_it_opened(site: Site, attacker: Page) -> None:
    attacker.evaluate("(url) => { window.opened = window.open(url); }", f"{site.origin}/")
    attacker.wait_for_function("() => window.opened.closed", timeout=TIMEOUT_MS)
