"""Finds the pages of a site by their links, and sorts them into kinds."""

from __future__ import annotations

import html
import re
from collections import deque
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx

_NOT_PAGES: Final = ("/static/", "/api/", "/logout", "/live")
_LINK: Final = re.compile(r'<a\b[^>]*?\bhref="([^"]*)"')
_RUN: Final = re.compile(r"^/runs/[^/]+")
_NUMBER: Final = re.compile(r"\d+")


class Found(NamedTuple):
    """A page that a link leads to."""

    path: str
    kind: str
    title: str
    text: str
    status: int
    media: str


def kind_of(path: str) -> str:
    """The kind of a page: its path without ids, and the names in its query."""
    at = urlsplit(path)
    names = ",".join(sorted(parse_qs(at.query, keep_blank_values=True)))
    bare = _NUMBER.sub("0", _RUN.sub("/runs/RUN", at.path))
    return f"{bare}?{names}" if names else bare


def links_in(text: str, base: str) -> list[str]:
    """The links of a page to pages of the same site, without fragments."""
    found = []
    for href in _LINK.findall(text):
        at = urlsplit(urljoin(base, html.unescape(href)))
        if at.netloc == urlsplit(base).netloc and not any(part in at.path for part in _NOT_PAGES):
            found.append(at.path + (f"?{at.query}" if at.query else ""))
    return found


def crawl(origin: str, cookies: dict[str, str], start: str = "/", per_kind: int = 3) -> list[Found]:
    """Follow all links from a page; of a kind with a query at most `per_kind` pages are read."""
    found: dict[str, Found] = {}
    kinds: dict[str, int] = {}
    queue = deque([start])
    with httpx.Client(base_url=origin, cookies=cookies, timeout=240) as client:
        while queue:
            path = queue.popleft()
            kind = kind_of(path)
            limit = per_kind if "?" in kind else 40
            if path in found or kinds.get(kind, 0) >= limit:
                continue
            kinds[kind] = kinds.get(kind, 0) + 1
            answer = client.get(path)
            media = answer.headers.get("content-type", "").partition(";")[0]
            text = answer.text if media == "text/html" else ""
            titles = re.findall(r"<title>(.*?)</title>", text, re.DOTALL)
            found[path] = Found(path, kind, titles[0] if titles else "", text, answer.status_code, media)
            queue.extend(links_in(text, f"{origin}{path}"))
    return list(found.values())


_CHOSEN: Final = {"/runs/RUN": 6, "/runs/RUN/gates/GATE": 3, "/start/WORKFLOW": 2}
"""Of these pages, so many are looked at in a browser; of others one with a query and one without."""


_LARGE: Final = 40_000
"""axe takes long for larger pages."""


def choose_pages(pages: list[Found]) -> list[str]:
    """Pages of each kind: those with the most content, except for the very large ones."""
    chosen: dict[str, list[Found]] = {}
    for page in sorted(pages, key=lambda page: (len(page.text) > _LARGE, -len(page.text))):
        if page.media == "text/html" and page.status == 200:
            bare, has_query, _ = page.kind.partition("?")
            bare = re.sub(r"/gates/.*", "/gates/GATE", re.sub(r"^/start/.+", "/start/WORKFLOW", bare))
            chosen.setdefault(bare + has_query, []).append(page)
    return [page.path for kind, found in chosen.items() for page in found[: _CHOSEN.get(kind, 1)]]
