"""Values that users type as text: JSON, or else the text itself; and lines of `name=value`."""

from __future__ import annotations

import json
from typing import Any


def json_or_text(text: str) -> Any:
    """The value that a text means: JSON, or else the text itself."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(text: str) -> Any:
    raise ValueError(text)


def parse_lines(text: str) -> tuple[dict[str, Any], str]:
    """The values of lines such as `team=a`, and what is wrong with them; empty if nothing is."""
    found: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals or not name:
            return {}, f"Line {number} is not name=value"
        if name in found:
            return {}, f"Line {number} repeats {name}"
        found[name] = json_or_text(value.strip())
    return found, ""
