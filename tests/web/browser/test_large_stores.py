"""10,000 open gates and a run with 10,000 entries: pages stay small, whatever the store holds.

Times are measured by `make bench-web`. Here the size of the HTML and the number of its elements are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.web.browser.conftest import Enter
from tests.web.browser.large_seed import LONG_RUN, MANY, seed_gates, seed_long_run
from tests.web.browser.server import Site, in_thread
from tests.web.browser.visit import NARROW

BYTES_MAX = 600_000
NODES_MAX = 12_000


@pytest.fixture(scope="module")
def large(folder: Path) -> Iterator[Site]:
    url = f"sqlite:{folder / 'large.db'}"
    in_thread(seed_gates, url)
    in_thread(seed_long_run, url)
    site = Site(url)
    yield site
    site.close()


PATHS = (
    "/",
    "/?text=many-9",
    "/?mine=1",
    "/runs",
    "/runs?q=many-77",
    *(f"/runs/{LONG_RUN}{part}" for part in ("", "/journal", "/state", "/ledger", "/logs", "/rollback", "/fork")),
)


def test_pages_of_a_large_store_are_bounded(large: Site, enter: Enter) -> None:
    visit = enter(origin=large.origin, width=NARROW)
    for path in PATHS:
        response = visit.page.goto(path)
        assert response is not None
        assert response.status == 200, path
        assert len(response.body()) < BYTES_MAX, path
        assert visit.page.evaluate("() => document.querySelectorAll('*').length") < NODES_MAX, path
        assert visit.overflow() == 0, path


def test_all_gates_are_counted_and_the_next_page_has_others(large: Site, enter: Enter) -> None:
    page = enter(origin=large.origin).open("/")
    expect(page.locator("#summary")).to_contain_text(f"{MANY:,}")
    first = page.locator("article.gate").first.get_attribute("id")
    page.get_by_role("link", name="Next page").click()
    page.wait_for_url("**after=**")
    assert page.locator("article.gate").first.get_attribute("id") != first


def test_a_gate_among_ten_thousand_is_found_and_answered(large: Site, enter: Enter) -> None:
    page = enter(origin=large.origin).open("/?text=many-4711")
    card = page.locator("article.gate").first
    card.get_by_label("No", exact=True).check()
    card.get_by_role("button", name="Answer").click()
    expect(page.get_by_role("status").first).to_be_visible()
    gate = large.do(large.app.gates, "many-4711", state=None)[0]
    assert (gate.state, gate.answered_by) == ("answered", "ana")


def test_the_timeline_of_a_long_loop_is_opened_in_parts(large: Site, enter: Enter) -> None:
    page = enter(origin=large.origin).open(f"/runs/{LONG_RUN}")
    page.locator("main a[href*='from=']").first.click()
    page.wait_for_url("**from=**")
    assert page.evaluate("() => document.querySelectorAll('*').length") < NODES_MAX
