"""Forms as a browser gets them."""

from __future__ import annotations

from holdfast.web.forms import FormView
from holdfast.web.render import Renderer
from tests.web.html_page import HtmlPage

RENDERER = Renderer()
PAGE = RENDERER._environment.from_string(
    '{% from "_field.html" import form_fields, form_problems %}'
    '<form method="post" action="/x">{{ form_problems(view) }}{{ form_fields(view) }}<button>Answer</button></form>'
)


def shown(view: FormView) -> HtmlPage:
    """A page with the form, checked for what all pages must have."""
    page = HtmlPage(PAGE.render(view=view))
    assert len(page.ids) == len(set(page.ids))
    assert page.described <= set(page.ids)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    for control in page.forms[0].controls:
        if control.type not in ("hidden", "submit"):
            assert control.id in page.labels or control.id.endswith("-given"), control.name
    return page
