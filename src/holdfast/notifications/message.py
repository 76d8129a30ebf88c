"""The content of a notification: what outsiders may see, as plain text, and a link to the page.

Prompts, names and ids are hostile: control characters and marks that change the direction of text are removed here,
and each target escapes the rest for its own format. A message contains a link, never an action.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from holdfast.errors import InvalidInput
from holdfast.ids import display_name
from holdfast.notifications.events import GATE_ESCALATED, GATE_EXPIRING, GATE_OPENED, RUN_FAILED

PROMPT_CHARS_MAX: Final = 500

_UNSAFE: Final = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff\\ud800-\\udfff]"
)
_TITLES: Final = {
    GATE_OPENED: "Answer needed",
    GATE_EXPIRING: "Answer needed soon",
    GATE_ESCALATED: "Escalated",
    RUN_FAILED: "Run failed",
}


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A notification, ready to be sent."""

    id: str
    event: str
    run_id: str
    workflow: str
    gate: str | None
    prompt: str
    who: tuple[str, ...]
    expires_at: dt.datetime | None
    url: str
    at: dt.datetime
    show: Any = None
    """What the gate shows, masked; only targets with `include_show` send it."""

    @property
    def title(self) -> str:
        """One line of text."""
        return line(f"{_TITLES.get(self.event, 'Test message')}: {self.workflow}", 150)

    @property
    def label(self) -> str:
        """The gate as people see it."""
        return "" if self.gate is None else line(display_name(self.gate), 150)

    def facts(self) -> list[tuple[str, str]]:
        """The lines below the prompt, each a name and a value."""
        found = [("Run", line(self.run_id, 200)), ("Workflow", line(self.workflow, 200)), ("Gate", self.label)]
        found.append(("For", line(", ".join(self.who), 300)))
        found.append(("Expires", self.expires_at.strftime("%Y-%m-%d %H:%M UTC") if self.expires_at else ""))
        return [(name, value) for name, value in found if value]

    def text(self, *, include_show: bool) -> str:
        """All of it as plain text, with the link at the end."""
        parts = [self.title, self.prompt, "\n".join(f"{name}: {value}" for name, value in self.facts())]
        parts.append(self.shown(2_000) if include_show else "")
        return "\n\n".join([part for part in parts if part] + [f"Open: {self.url}"]) + "\n"

    def shown(self, chars_max: int) -> str:
        """What the gate shows, as text; empty if there is nothing."""
        if self.show is None:
            return ""
        text = self.show if isinstance(self.show, str) else json.dumps(self.show, ensure_ascii=False, indent=2)
        return plain(text, chars_max)

    def payload(self, *, include_show: bool) -> dict[str, Any]:
        """The message as JSON."""
        found: dict[str, Any] = {
            "id": self.id,
            "event": self.event,
            "run_id": self.run_id,
            "workflow": self.workflow,
            "gate": self.gate,
            "prompt": self.prompt,
            "who": list(self.who),
            "expires_at": None if self.expires_at is None else self.expires_at.isoformat(),
            "url": self.url,
            "at": self.at.isoformat(),
        }
        return found | ({"show": self.show} if include_show else {})


def plain(text: str, chars_max: int) -> str:
    """Text without control characters and direction marks, shortened; lines are kept."""
    text = _UNSAFE.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).strip()
    return text if len(text) <= chars_max else text[: chars_max - 1].rstrip() + "…"


def line(text: str, chars_max: int) -> str:
    """Text as one line."""
    return " ".join(plain(text, chars_max).split())


def check_base_url(url: object) -> str:
    """The address of the page, without a slash at its end; InvalidInput if it is not an http address."""
    if isinstance(url, str) and url.isascii() and url.isprintable() and " " not in url:
        try:
            parts = urlsplit(url)
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
        except ValueError:
            is_usable = False
        if is_usable and not parts.fragment and "@" not in parts.netloc:
            return url.rstrip("/")
    raise InvalidInput(f"base_url must be the address of the page, as https://host/path, not {url!r}")


_DOTS: Final = (".", "..", "~")
"""Ids that are not written into a path: browsers resolve dots, even if they are encoded."""


def page_url(base_url: str, run_id: str, gate: str | None) -> str:
    """The address of a gate's page, or of a run's."""
    path, query = f"{base_url}/runs/{_path_part(run_id)}", {"run": run_id}
    if gate is not None:
        path, query["gate"] = f"{path}/gates/{_path_part(gate)}", gate
    named = {name: value for name, value in query.items() if value in _DOTS}
    return f"{path}?{urlencode(named)}" if named else path


def _path_part(text: str) -> str:
    return "~" if text in _DOTS else quote(text, safe="")
