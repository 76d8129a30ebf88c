"""What the engine must know of values, made of `holdfast.state`."""

from __future__ import annotations

from typing import Any, Final

from blake3 import blake3

from holdfast.errors import Unstorable
from holdfast.limits import KIB, VALUE_BYTES_MAX
from holdfast.state.values import likeness, pack, pack_sorted, unpack
from holdfast.verbs.values import value_too_large

_NOTHING: Final = blake3(pack_sorted([[], {}])).hexdigest(8)
_SMALL: Final = 2**62
_VALUE_BYTES_MAX: Final = VALUE_BYTES_MAX - 256 * KIB
"""Beside its value an entry says what it is about, perhaps with an error and its traceback."""


class ValueCodec:
    """Digests and settled values."""

    def digest(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        if not args and not kwargs:
            return _NOTHING
        try:
            return blake3(likeness([list(args), kwargs])).hexdigest(8)
        except (Unstorable, TypeError):
            return None

    def settled(self, value: Any) -> Any:
        if value is None or value is True or value is False or (type(value) is int and -_SMALL < value < _SMALL):
            return value
        try:
            packed = pack([[[value]]])  # it will lie that deep in an entry, and must still fit
        except Unstorable:
            pack(value)  # says what is wrong, and where
            raise Unstorable("the value cannot be stored: it is nested too deep", "state") from None
        if len(packed) > _VALUE_BYTES_MAX:
            raise value_too_large("a value", len(packed), _VALUE_BYTES_MAX)
        return value if type(value) in (str, bytes) else unpack(packed, "a result")[0][0][0]

    def effect_token(self, incarnation: bytes, key: str, epoch: int) -> str:
        return blake3(incarnation + pack([key, epoch])).hexdigest(16)


CODEC: Final = ValueCodec()
