"""First paint of the page: the inbox with no and with 10,000 open gates, a run with few and with 10,000 entries.

The pages take turns, in a browser of this machine, in a new window each time. Times are those of the browser:
first contentful paint after the request began.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from playwright.sync_api import Browser, sync_playwright
from tests.web.browser.large_seed import LONG_RUN, seed_gates, seed_long_run
from tests.web.browser.seed import app_on
from tests.web.browser.server import Site, in_thread
from tests.web.browser.visit import Visit, launch

from bench.results import Spread

_PAINT: Final = """() => {
  const found = performance.getEntriesByName("first-contentful-paint");
  return found.length > 0 && found[0].startTime;
}"""


class Painted(NamedTuple):
    """A page, as often as it was opened."""

    name: str
    small: list[float]
    large: list[float]
    small_bytes: int
    large_bytes: int

    @property
    def times(self) -> Spread:
        """How much longer the large one takes, pair by pair."""
        return Spread.of([large / small for small, large in zip(self.small, self.large, strict=True)])


@contextmanager
def _site(folder: Path, name: str, *, large: bool) -> Iterator[Site]:
    url = f"sqlite:{folder / name}"
    in_thread(_seed, url, large=large)
    site = Site(url)
    try:
        yield site
    finally:
        site.close()


def _seed(url: str, *, large: bool) -> None:
    with app_on(url) as app:
        app.start("agent", "Where is my parcel?", 5, run_id="agent-5")
    if large:
        seed_gates(url)
        seed_long_run(url)


def _paint(browser: Browser, site: Site, path: str) -> tuple[float, int]:
    visit = Visit(browser, site.origin)
    try:
        visit.open(path)
        visit.page.wait_for_function(_PAINT)
        size = len(visit.page.content())
        return float(visit.page.evaluate(_PAINT)), size
    finally:
        visit.close()


def measure(rounds: int) -> list[Painted]:
    """Open each pair of pages `rounds` times, after a first time that does not count."""
    pages = (("inbox", "/", "/"), ("runs", "/runs", "/runs"), ("run", "/runs/agent-5", f"/runs/{LONG_RUN}"))
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder, browser = Path(name), launch(playwright)
        found = []
        with _site(folder, "small.db", large=False) as small, _site(folder, "large.db", large=True) as large:
            for title, path, large_path in pages:
                sizes = [_paint(browser, site, at)[1] for site, at in ((small, path), (large, large_path))]
                pairs = [
                    (_paint(browser, small, path)[0], _paint(browser, large, large_path)[0]) for _ in range(rounds)
                ]
                found.append(Painted(title, [one for one, _ in pairs], [two for _, two in pairs], *sizes))
        browser.close()
    return found
