"""States of every type and size that a store keeps, for the golden stores."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

_UTC_MOMENT: Final = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)

TYPES: Final[dict[str, Any]] = {
    "none": None, "yes": True, "no": False, "zero": 0, "small": -7, "int64": -(2**63), "uint64": 2**64 - 1,
    "big": 2**200 + 1, "negative": -(2**200), "float": 0.1, "minus zero": -0.0, "huge": 1.7976931348623157e308,
    "text": "Ünïcode № 7 \U0001f600\n", "empty": "", "bytes": bytes(range(256)), "no bytes": b"",
    "list": [1, [2, [3, []]]], "dict": {"b": 1, "a": {"": None}}, "tuple": (1, ("two", (3.0, ()))),
    "set": {1, "one", (1, 2)}, "frozenset": frozenset({b"x", frozenset({1})}), "no set": set(),
    "moment": _UTC_MOMENT, "naive": _UTC_MOMENT.replace(tzinfo=None), "offset": _UTC_MOMENT.astimezone(
        dt.timezone(dt.timedelta(hours=5, minutes=30))), "zone": dt.datetime(2026, 10, 25, 2, 30, fold=1,
        tzinfo=ZoneInfo("Europe/Berlin")), "date": dt.date(2026, 2, 28), "time": dt.time(23, 59, 59, 1, fold=1),
    "span": dt.timedelta(days=-1, microseconds=1), "uuid": uuid.UUID(int=7), "decimal": Decimal("-1234.5600E+5"),
}  # fmt: skip


LONG: Final = {"text": "all work and no play " * 3500, "bytes": bytes(70_000)}
"""Values that are cut into leaves of 64 KiB."""


def growing(items: int) -> dict[str, Any]:
    """A state of many chunks: its larger versions share most of them with its smaller ones."""
    return {
        "messages": [{"role": "user" if n % 2 else "agent", "text": f"message {n}: " + "words " * (n % 30)}
                     for n in range(items)],
        "index": {f"key {n:04}": [n, str(n) * 3, (n, n + 1)] for n in range(items)},
        "wide tuple": tuple(range(items)),
        "wide set": {f"item {n}" for n in range(items // 4)},
        "large item": [{"rows": [{"cell": n, "text": "x" * 50} for n in range(200)]}, items],
        "types": TYPES,
    }  # fmt: skip
