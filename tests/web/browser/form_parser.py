"""Reads the forms of a page, as a browser without JavaScript would submit them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class HtmlForm:
    """A form: where it goes, and the values its fields begin with."""

    action: str
    method: str
    fields: dict[str, list[str]] = field(default_factory=dict)
    radios: dict[str, list[str]] = field(default_factory=dict)
    """The choices of radio buttons and of submit buttons with a name."""


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[HtmlForm] = []
        self._by_id: dict[str, HtmlForm] = {}
        self._open: HtmlForm | None = None
        self._area = self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._open = HtmlForm(given.get("action", ""), given.get("method", "get").lower())
            self.forms.append(self._open)
            self._by_id[given.get("id", "")] = self._open
        form = self._by_id.get(given.get("form", ""), self._open) if "form" in given else self._open
        name = given.get("name", "")
        if form is None or not (name or tag == "option"):
            return
        if tag == "input":
            self._input(form, name, given)
        elif tag == "button":
            form.radios.setdefault(name, []).append(given.get("value", ""))
        elif tag == "textarea":
            self._area = name
            form.fields.setdefault(name, [""])
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select and "selected" in given:
            form.fields[self._select] = [given.get("value", "")]

    def _input(self, form: HtmlForm, name: str, given: dict[str, str]) -> None:
        kind, value = given.get("type", "text"), given.get("value", "")
        if kind in ("radio", "checkbox"):
            form.radios.setdefault(name, []).append(value)
            if "checked" in given:
                form.fields.setdefault(name, []).append(value)
        elif kind != "submit":
            form.fields.setdefault(name, []).append(value)

    def handle_data(self, data: str) -> None:
        if self._area and self._open is not None:
            self._open.fields[self._area] = [self._open.fields[self._area][0] + data]

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None
        elif tag == "textarea":
            self._area = ""
        elif tag == "select":
            self._select = ""


def forms_in(text: str) -> list[HtmlForm]:
    """The forms of a page."""
    parser = _Parser()
    parser.feed(text)
    return parser.forms
