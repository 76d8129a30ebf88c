"""Writes the pictures of the page in docs/images, from the runs that the browser tests use.

Run it with `.venv/bin/python -m scripts.screenshots`; it needs /usr/bin/chromium.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from playwright.sync_api import sync_playwright
from tests.web.browser.seed import seed
from tests.web.browser.server import Site, in_thread
from tests.web.browser.visit import NARROW, WIDE, Scheme, Visit, launch

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"


class Picture(NamedTuple):
    """A page, and how it is photographed."""

    name: str
    path: str
    width: int = WIDE
    height: int = 800
    scheme: Scheme = "light"


PICTURES: Final = (
    Picture("web-inbox", "/?text=refund-471", height=1060),
    Picture("web-inbox-phone", "/", NARROW, 844, "dark"),
    Picture("web-run", "/runs/refund-4700", height=970),
    Picture("web-rollback", "/runs/refund-4701/rollback?to=ask%231#plan", height=900),
)


def main() -> None:
    """Photograph all pages."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        url = f"sqlite:{Path(folder) / 'runs.db'}"
        in_thread(seed, url)
        site, browser = Site(url), launch(playwright)
        try:
            for picture in PICTURES:
                visit = Visit(browser, site.origin, who="ana", width=picture.width, scheme=picture.scheme)
                visit.page.set_viewport_size({"width": picture.width, "height": picture.height})
                visit.open(picture.path)
                visit.page.screenshot(path=IMAGES / f"{picture.name}.png")
                visit.close()
                print(f"{picture.name}.png")
        finally:
            browser.close()
            site.close()


if __name__ == "__main__":
    main()
