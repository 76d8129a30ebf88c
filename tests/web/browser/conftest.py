"""One browser and one seeded store for the tests of this package. A test that changes runs starts its own.

The browser ends with the package: Playwright's event loop runs on the thread of the tests, and tests of other packages
use apps that must not block a loop.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.folders import quick_folder
from tests.web.browser.seed import seed
from tests.web.browser.server import Site, in_thread
from tests.web.browser.visit import CHROMIUM, TIMEOUT_MS, Visit, launch, visiting

Enter = Callable[..., Visit]
_count = itertools.count(1)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"the browser tests need {CHROMIUM}: apt-get install -y --no-install-recommends chromium")
    with sync_playwright() as playwright:
        expect.set_options(timeout=TIMEOUT_MS)
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def folder() -> Iterator[Path]:
    with quick_folder("browser") as found:
        yield found


@pytest.fixture(scope="package")
def site(folder: Path) -> Iterator[Site]:
    """The page on a store with runs of all kinds. Tests share it: they answer only gates of runs that they start."""
    url = f"sqlite:{folder / 'runs.db'}"
    in_thread(seed, url, langgraph=True)
    site = Site(url)
    yield site
    site.close()


@pytest.fixture
def enter(browser: Browser, site: Site) -> Iterator[Enter]:
    """Open windows of the page. At the end none may have had a problem."""
    with ExitStack() as stack:

        def begin(who: str = "ana", **options: Any) -> Visit:
            return stack.enter_context(visiting(browser, options.pop("origin", site.origin), who=who, **options))

        yield begin


@pytest.fixture
def run_id() -> str:
    """An id that no other test has."""
    return f"test-{os.getpid()}-{next(_count)}"
