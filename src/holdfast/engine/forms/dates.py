"""Dates and times as ISO text: what web pages, JavaScript and Python write, and nothing looser."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATETIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?(Z|[+-][0-9]{2}:[0-9]{2})?"
)


def read_date(text: str) -> dt.date | None:
    """The date of `2026-03-31`, else None."""
    try:
        return dt.date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def read_datetime(text: str) -> dt.datetime | None:
    """The time of `2026-03-31T10:15`, with or without seconds and zone, else None."""
    upper = text.upper()
    try:
        return dt.datetime.fromisoformat(upper) if _DATETIME.fullmatch(upper) else None
    except ValueError:
        return None
