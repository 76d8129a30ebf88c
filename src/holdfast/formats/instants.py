"""Moments as the originals write them: RFC 3339 in UTC with up to nine digits behind the second.

Python's datetime keeps six, so moments stay the text they are; only their microseconds are taken out, where a date for
Holdfast is needed.
"""

from __future__ import annotations

import calendar
import re
import time
from typing import Final

from holdfast.errors import InvalidInput

_FORM: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_NS: Final = 1_000_000_000


def now_text() -> str:
    """This moment, with nanoseconds."""
    seconds, ns = divmod(time.time_ns(), _NS)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{ns:09}Z"


def microseconds(text: object) -> int | None:
    """Microseconds since 1970, or None if the text is no moment."""
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[group]) for group in range(1, 7))
    if not (1 <= month <= 12 and 1 <= day <= calendar.monthrange(max(year, 1), month)[1]):
        return None
    if hour > 23 or minute > 59 or second > 60 or year < 1:
        return None
    seconds = calendar.timegm((year, month, day, hour, minute, second))
    if found[8]:
        if int(found[9]) > 23 or int(found[10]) > 59:
            return None
        offset = 60 * (60 * int(found[9]) + int(found[10]))
        seconds -= offset if found[8] == "+" else -offset
    return seconds * 1_000_000 + int((found[7] or "0").ljust(9, "0")) // 1000


def check_instant(what: str, text: str) -> None:
    """InvalidInput if the originals could not read a moment: they need RFC 3339 with `T` and a zone."""
    if microseconds(text) is None or text[10] != "T":
        raise InvalidInput(
            f"{what} {text[:40]!r} is not a moment of RFC 3339 with a zone, such as 2026-08-18T09:41:07.123456Z; "
            "nothing was written"
        )
