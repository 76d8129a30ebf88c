"""Lengths of time as people write them: 30d, 12h, 90min, 45s, 2w."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

import click

_UNITS: Final = {"s": 1, "min": 60, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_AGE: Final = re.compile(r"([0-9]{1,6}(?:[.][0-9]{1,6})?)\s*(s|min|m|h|d|w)")


def age(text: str) -> dt.timedelta:
    """The length of time that is meant; wrong usage if it is none."""
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise click.BadParameter(f"{text!r} is no length of time; write 30d, 12h, 90min or 45s")
    return dt.timedelta(seconds=float(found[1]) * _UNITS[found[2]])
