"""A browser without a window: the fields of a form in HTML, and what it submits."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import parse_qs, urlencode

Submitted = list[tuple[str, str]]
VOID = frozenset(("input", "br", "hr", "meta", "link", "img"))


class Control:
    """A field or a button of a form."""

    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag = tag
        self.name = attributes.get("name") or ""
        self.type = (attributes.get("type") or ("submit" if tag == "button" else "text")).lower()
        self.value = attributes.get("value") or ""
        self.checked = "checked" in attributes
        self.disabled = "disabled" in attributes
        self.id = attributes.get("id") or ""
        self.attributes = attributes
        self.options: list[tuple[str, bool]] = []
        self.text = ""


class HtmlForm:
    """A `<form>`."""

    def __init__(self, attributes: dict[str, str | None]) -> None:
        self.action = attributes.get("action") or ""
        self.method = (attributes.get("method") or "get").lower()
        self.id = attributes.get("id") or ""
        self.controls: list[Control] = []

    def fill(self, **values: str) -> None:
        """Type into fields, by the last part of their names; choose radio buttons and options by their values."""
        for name, value in values.items():
            self.set(next(c.name for c in self.controls if c.name.rpartition("/")[2] == name), value)

    def set(self, name: str, value: str) -> None:
        """Type into the field of a name, or choose a value."""
        found = [control for control in self.controls if control.name == name]
        assert found, f"no field {name!r}"
        for control in found:
            if control.type in ("radio", "checkbox"):
                control.checked = control.value == value or (control.checked and control.type == "checkbox")
            elif control.tag == "select":
                control.options = [(text, text == value) for text, _ in control.options]
            else:
                control.value = value
        if found[0].type in ("radio", "checkbox"):
            assert any(control.value == value for control in found), f"{name!r} has no option {value!r}"

    def submit(self, button: str = "", value: str = "") -> dict[str, list[str]]:
        """What the server gets: line breaks have two signs, boxes that are not checked are left out."""
        pairs: Submitted = []
        for control in self.controls:
            if control.disabled or not control.name:
                continue
            if control.tag == "button":
                if control.name == button and control.value in (value, ""):
                    pairs.append((control.name, control.value))
            elif control.tag == "select":
                chosen = [text for text, is_chosen in control.options if is_chosen] or [
                    t for t, _ in control.options[:1]
                ]
                pairs += [(control.name, text) for text in chosen[-1:]]
            elif control.type in ("radio", "checkbox"):
                pairs += [(control.name, control.value)] if control.checked else []
            else:
                pairs.append((control.name, self._sanitized(control)))
        body = urlencode(pairs, encoding="utf-8", errors="surrogatepass")
        return parse_qs(body, keep_blank_values=True)

    def _sanitized(self, control: Control) -> str:
        text = control.value.replace("\r\n", "\n").replace("\r", "\n")
        if control.tag == "textarea" or control.type == "hidden":
            return text.replace("\n", "\r\n")
        text = text.replace("\n", "")
        return text.strip(" \t\f") if control.type == "url" else text


class HtmlPage(HTMLParser):
    """The forms, ids, links and text of a page, read as a browser reads them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: list[HtmlForm] = []
        self.outside = HtmlForm({})
        self.ids: list[str] = []
        self.links: list[str] = []
        self.labels: set[str] = set()
        self.described: set[str] = set()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._form: HtmlForm | None = None
        self._textarea: Control | None = None
        self._disabled: list[bool] = []
        # A browser reads line breaks as one sign before it parses, and replaces signs that are not text.
        self.feed(str(html).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [found["href"] or ""] if tag == "a" and "href" in found else []
        self.labels |= {found["for"] or ""} if tag == "label" and "for" in found else set()
        self.described |= set((found.get("aria-describedby") or "").split())
        if tag == "form":
            self._form = HtmlForm(found)
            self.forms.append(self._form)
        if tag == "fieldset":
            self._disabled.append("disabled" in found)
        if tag in ("input", "textarea", "select", "button"):
            control = Control(tag, found)
            control.disabled = control.disabled or any(self._disabled)
            (self._form or self.outside).controls.append(control)
            if tag == "textarea":
                self._textarea = control
        if tag == "option":
            (self._form or self.outside).controls[-1].options.append((found.get("value") or "", "selected" in found))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        if tag == "fieldset":
            self._disabled.pop()
        if tag == "textarea" and self._textarea is not None:
            self._textarea.value = self._textarea.text.removeprefix("\n")
            self._textarea = None

    def handle_data(self, data: str) -> None:
        if self._textarea is not None:
            self._textarea.text += data
        else:
            self.text += data

    @property
    def controls(self) -> list[Control]:
        """All fields and buttons, also those outside of forms."""
        return [*self.outside.controls, *(control for form in self.forms for control in form.controls)]

    def form(self, part: str) -> HtmlForm:
        """The form whose action contains this."""
        return next(form for form in self.forms if part in form.action)
