"""Every page that a link leads to: at a phone's and a screen's width, light and dark."""

from __future__ import annotations

import functools
import re
from collections import Counter

import httpx
import pytest

from tests.web.browser.conftest import Enter
from tests.web.browser.crawl import Found, choose_pages, crawl
from tests.web.browser.form_parser import forms_in
from tests.web.browser.server import Site
from tests.web.browser.visit import NARROW, WIDE, Scheme, Visit

PARTS = 2
"""The pages are divided among so many tests, for workers that share them."""


@functools.cache
def pages_of(origin: str) -> list[Found]:
    return crawl(origin, {"who": "ana"})


def findings(visit: Visit, path: str) -> list[str]:
    """What is wrong with a page."""
    visit.open(path)
    found = [f"{path}: {finding}" for finding in visit.axe()]
    if visit.overflow():
        found.append(f"{path}: {visit.overflow()} px wider than the window")
    found += [f"{path}: {problem}" for problem in visit.problems]
    visit.problems.clear()
    return found


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("width", "scheme"), [(NARROW, "light"), (WIDE, "dark")])
def test_every_page_fits_the_window_is_accessible_and_reports_nothing(
    site: Site, enter: Enter, width: int, scheme: Scheme, part: int
) -> None:
    visit = enter(width=width, scheme=scheme)
    found: list[str] = []
    for path in choose_pages(pages_of(site.origin))[part::PARTS]:
        found += findings(visit, path)
    assert found == []


def test_every_link_leads_to_a_page(site: Site) -> None:
    broken = [(page.path, page.status) for page in pages_of(site.origin) if page.status != 200]
    assert broken == []


def test_the_pages_of_a_run_are_linked_from_the_first_page(site: Site) -> None:
    kinds = {page.kind for page in pages_of(site.origin)}
    assert {"/", "/runs", "/runs/RUN"} <= kinds


def test_titles_tell_pages_apart(site: Site) -> None:
    titles = Counter(page.title for page in pages_of(site.origin) if page.media == "text/html" and "?" not in page.path)
    assert [title for title, count in titles.items() if count > 1] == []
    assert all(titles), "a page has no title"


def test_no_page_has_inline_script_or_style_or_another_origin(site: Site) -> None:
    for page in pages_of(site.origin):
        assert not re.search(r"<script(?![^>]*\bsrc=)", page.text), page.path
        assert not re.search(r"<style|<[^>]*\s(style|on[a-z]+)=", page.text), page.path
        for source in re.findall(r'<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)="([^"]*)"', page.text):
            assert source.startswith(("/", "data:")), (page.path, source)


def test_every_form_that_changes_something_carries_the_token_of_the_session(site: Site) -> None:
    seen = 0
    for page in pages_of(site.origin):
        for form in re.findall(r"<form\b.*?</form>", page.text, re.DOTALL):
            opening = form[: form.index(">")]
            if re.search(r'method="post"', opening, re.IGNORECASE):
                seen += 1
                assert 'name="csrf"' in form, (page.path, opening)
    assert seen > 0


def test_what_a_user_may_not_see_does_not_exist_for_them(site: Site) -> None:
    pages = crawl(site.origin, {"who": "ria"})
    assert [page.path for page in pages if page.status != 200] == []
    text = "\n".join(page.text for page in pages)
    assert "refund-4711" in text
    for hidden in ("payroll-11", "supplier-31", "letter-9", "night-import", "agent-long"):
        assert hidden not in text, hidden
    with httpx.Client(base_url=site.origin, cookies={"who": "ria"}, timeout=240) as client:
        assert client.get("/runs/payroll-11").status_code == 404


def test_every_form_that_a_viewer_could_send_is_refused(site: Site) -> None:
    forms = {
        form.action: form
        for page in crawl(site.origin, {"who": "vera"}, per_kind=1)
        for form in forms_in(page.text)
        if form.method == "post"
    }
    with httpx.Client(base_url=site.origin, cookies={"who": "vera"}, timeout=240) as client:
        for action, form in forms.items():
            assert client.post(action, data=form.fields).status_code == 403, action
