"""A visit: a page in a browser of its own, and everything that went wrong there."""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, Playwright, Request

CHROMIUM: Final = Path("/usr/bin/chromium")
NARROW, WIDE = 390, 1280
TIMEOUT_MS: Final = int(os.environ.get("HOLDFAST_BROWSER_MS", "240000"))
"""How long a test waits for a condition. Shorter times are for those who write tests."""
Scheme = Literal["light", "dark"]

_FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
_AXE: Final = importlib.resources.files("axe_playwright_python") / "axe.min.js"
_TAGS: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice"]

_WATCH: Final = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error("CSP: " + event.violatedDirective + " " + event.blockedURI + " " + event.sample));
"""

_RUN_AXE: Final = """
async ([tags, rules]) => {
  const only = rules.length ? {type: "rule", values: rules} : {type: "tag", values: tags};
  const found = await axe.run(document, {runOnly: only, resultTypes: ["violations"], preload: false});
  return found.violations.map((one) => one.id + ": " + one.nodes.slice(0, 3).map((node) => node.html).join(" | "));
}
"""


def launch(playwright: Playwright) -> Browser:
    """Start the browser of the machine."""
    return playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(_FLAGS), timeout=TIMEOUT_MS)


class Visit:
    """One person at one browser window."""

    def __init__(
        self,
        browser: Browser,
        origin: str,
        *,
        who: str = "",
        width: int = WIDE,
        scheme: Scheme = "light",
        javascript: bool = True,
    ) -> None:
        self.origin = origin
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": 844 if width == NARROW else 900},
            color_scheme=scheme,
            reduced_motion="reduce",  # else axe measures colours on their way
            java_script_enabled=javascript,
            base_url=origin,
        )
        if who:
            self.context.add_cookies([{"name": "who", "value": who, "url": origin}])
        self.context.set_default_timeout(TIMEOUT_MS)
        self.problems: list[str] = []
        """What a browser reports: console, failed requests, other origins, dialogs."""
        self.statuses: dict[str, int] = {}
        if javascript:
            self.context.add_init_script(_WATCH)
        self.page: Page = self.context.new_page()
        self._listen(self.page)

    def _listen(self, page: Page) -> None:
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", self._on_request)
        page.on("requestfailed", self._on_failure)
        page.on("response", lambda response: self.statuses.__setitem__(response.url, response.status))
        page.on("dialog", self._on_dialog)

    def _on_console(self, message: ConsoleMessage) -> None:
        self.problems.append(f"console: {message.text} {message.location.get('url', '')}")

    def _on_request(self, request: Request) -> None:
        at = urlsplit(request.url)
        if at.scheme != "data" and f"{at.scheme}://{at.netloc}" != self.origin:
            self.problems.append(f"other origin: {request.url}")

    def _on_failure(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # a stream, or a fetch, of a page that was left
            self.problems.append(f"failed: {request.url} {request.failure}")

    def _on_dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, path: str) -> Page:
        """Go to a page and wait until its scripts have run."""
        self.page.goto(path, wait_until="load")
        return self.page

    def wait(self, expression: str, argument: object = None) -> None:
        """Wait for a JavaScript expression to be true. The CSP forbids eval, so it is passed as a function."""
        self.page.wait_for_function(f"(argument) => {expression}", arg=argument, timeout=TIMEOUT_MS)

    def overflow(self) -> int:
        """How many pixels the page is wider than the window."""
        found: int = self.page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
        return max(0, found)

    def axe(self, *rules: str) -> list[str]:
        """What axe-core finds: WCAG 2.2 AA and its best practices, or only these rules."""
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.evaluate(_AXE.read_text("utf-8"))
        found: list[str] = self.page.evaluate(_RUN_AXE, [_TAGS, list(rules)])
        return found

    def close(self) -> None:
        """Close the window. Chromium ignores the request for a page whose navigation is being committed: it hangs."""
        for page in self.context.pages:
            with suppress(Error):  # another navigation came first, or the page is gone
                page.goto("about:blank")
        self.context.close()


@contextmanager
def visiting(browser: Browser, origin: str, **options: Any) -> Iterator[Visit]:
    """A visit that must end without problems."""
    visit = Visit(browser, origin, **options)
    try:
        yield visit
        problems, visit.problems = visit.problems, []
        assert not problems, (visit.page.url, *problems)
    finally:
        visit.close()
