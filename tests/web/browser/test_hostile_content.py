"""Stored text is never markup: not in prompts, ids, names, states, metadata, errors, labels or answers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.web.browser.conftest import Enter
from tests.web.browser.crawl import Found, crawl
from tests.web.browser.hostile import ODD_IDS, RUN_IDS, seed_hostile
from tests.web.browser.server import Site, in_thread

_NEVER = {"img", "iframe", "object", "embed", "base", "applet", "frame", "video", "audio", "style", "template"}


@pytest.fixture(scope="module")
def hostile(folder: Path) -> Iterator[Site]:
    url = f"sqlite:{folder / 'hostile.db'}"
    in_thread(seed_hostile, url)
    site = Site(url)
    yield site
    site.close()


@functools.cache
def pages_of(origin: str) -> list[Found]:
    return crawl(origin, {"who": "ana"}, per_kind=2)


class Elements(HTMLParser):
    """Collects what stored text could have added to a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        names = [name for name in given if name.startswith("on") or name == "style" or '"' in name or "<" in name]
        self.found += [f"<{tag} {name}>" for name in names]
        if tag in _NEVER:
            self.found.append(f"<{tag}>")
        if tag == "script" and not given.get("src", "").startswith("/static/"):
            self.found.append(f"<script {given}>")
        if tag == "meta" and "http-equiv" in given:
            self.found.append(f"<meta {given}>")
        for name in ("href", "src", "action", "formaction", "hx-get", "hx-sse:connect", "data", "xlink:href"):
            value = given.get(name, "/").strip().lower()
            allowed = value.startswith(("/", "#", "?")) and not value.startswith("//")
            if not allowed and not (tag == "a" and value.startswith(("https://", "http://", "mailto:"))):
                self.found.append(f"<{tag} {name}={value}>")


def test_no_stored_text_becomes_an_element_or_an_attribute(hostile: Site) -> None:
    found = []
    for page in pages_of(hostile.origin):
        parser = Elements()
        parser.feed(page.text)
        found += [(page.path, finding) for finding in parser.found]
        assert "13393597" not in page.text, "a template was evaluated"
    assert found == []


def test_every_id_has_a_page(hostile: Site) -> None:
    pages = pages_of(hostile.origin)
    assert [(page.path, page.status) for page in pages if page.status != 200] == []
    titles = "\n".join(page.text for page in pages)
    assert all(name in titles for name in ("a/b", "a%2Fb", "100%"))
    assert len({page.path for page in pages if page.kind.partition("?")[0] == "/runs/RUN"}) >= len(RUN_IDS + ODD_IDS)


def test_hostile_text_executes_nothing_asks_no_other_server_and_fits_the_window(hostile: Site, enter: Enter) -> None:
    visit = enter(width=390, origin=hostile.origin)
    chosen: dict[str, str] = {}
    for page in pages_of(hostile.origin):
        if page.media == "text/html":
            chosen.setdefault(page.kind, page.path)
    for path in chosen.values():
        visit.open(path)
        assert visit.page.evaluate("() => window.owned") is None, path
        assert visit.problems == [], path
        assert visit.overflow() == 0, path
