"""Readable previews of stored bytes, as values that JSON can express.

Previews are never read back. A value that JSON cannot express becomes an object with one key that starts with a
dollar: `{"$tuple": […]}`, `{"$set": […]}` and `{"$frozenset": […]}` in order, `{"$bytes": "base64"}`,
`{"$datetime": "2026-01-01T00:00:00"}`, `{"$date": …}`, `{"$time": …}`, `{"$timedelta": "1 day, 0:00:10"}`,
`{"$uuid": …}`, `{"$decimal": …}`, and `{"$float": "NaN"}`, `{"$float": "Infinity"}` or `{"$float": "-Infinity"}`.
"""

from __future__ import annotations

import binascii
import datetime as dt
import decimal
import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.model.views import Change
from holdfast.state import compression as bodies
from holdfast.state.rope import decode
from holdfast.state.values import unpack

SMALL_BYTES_MAX: Final = 4096
"""Larger values have no preview."""
STATE_BYTES_MAX: Final = 1024 * 1024
"""Larger states, counted in stored bytes, have no preview."""

Fetch = Callable[[list[bytes]], Mapping[bytes, bytes]]


class _TooLarge(Exception):
    """The state is larger than STATE_BYTES_MAX."""


class Readable:
    """Previews of bodies, roots, metadata and states; None for data that is too large or cannot be read."""

    def body(self, body: bytes) -> object | None:
        if not body or len(body) > SMALL_BYTES_MAX:
            return None
        try:
            return to_jsonable(unpack(bodies.plain(body, SMALL_BYTES_MAX, "a value"), "a value"))
        except HoldfastError:
            return None

    def root(self, root: bytes) -> object | None:
        if root[:1] != b"\x01" or len(root) > SMALL_BYTES_MAX:
            return None
        return self.state(root, lambda _: {})

    def metadata(self, data: bytes) -> object | None:
        if not data or len(data) > SMALL_BYTES_MAX:
            return None
        try:
            pairs: dict[str, bytes] = unpack(data, "metadata")
            return {key: to_jsonable(unpack(value, "metadata")) for key, value in pairs.items()}
        except (HoldfastError, AttributeError, TypeError):
            return None

    def beginning(self, body: bytes, size: int) -> bytes:
        return bodies.beginning(body, size, "a pack")

    def state(self, root: bytes, fetch: Fetch) -> object | None:
        size = 0

        def limited(hashes: list[bytes]) -> Mapping[bytes, bytes]:
            nonlocal size
            found = fetch(hashes)
            size += sum(map(len, found.values()))
            if size > STATE_BYTES_MAX:
                raise _TooLarge
            return found

        try:
            return to_jsonable(decode(root, limited, "a state")[0])
        except (HoldfastError, _TooLarge):
            return None


def to_jsonable(value: object) -> object:
    """A value as JSON can express it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {key: to_jsonable(part) for key, part in value.items()}
    if isinstance(value, list):
        return [to_jsonable(part) for part in value]
    if isinstance(value, tuple):
        return {"$tuple": [to_jsonable(part) for part in value]}
    if isinstance(value, (set, frozenset)):
        return {f"${type(value).__name__}": [to_jsonable(part) for part in sorted(value, key=repr)]}
    if isinstance(value, bytes):
        return {"$bytes": binascii.b2a_base64(value, newline=False).decode()}
    if isinstance(value, dt.datetime):
        return {"$datetime": value.isoformat()}
    for kind in (dt.date, dt.time, dt.timedelta, uuid.UUID, decimal.Decimal):
        if isinstance(value, kind):
            return {f"${kind.__name__.lower()}": str(value)}
    return {"$value": repr(value)}


def json_patch(changes: Iterable[Change]) -> list[dict[str, object]]:
    """Convert changes to a JSON Patch (RFC 6902) of states as they are shown here.

    Example:
        json.dumps(json_patch(store.diff("order-17", 1, 2)))
    """
    return [
        {
            "op": change.op,
            "path": change.pointer,
            **({} if change.op == "remove" else {"value": to_jsonable(change.new)}),
        }
        for change in changes
    ]
