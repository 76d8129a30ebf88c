"""Values on their way in and out: metadata, entries, results, and the types callers ask for."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from holdfast.errors import InvalidInput, LimitExceeded, Unstorable
from holdfast.limits import ID_BYTES_MAX, METADATA_BYTES_MAX, VALUE_BYTES_MAX, VALUE_READ_BYTES_MAX
from holdfast.state import body as bodies
from holdfast.state.values import pack, pack_sorted, unpack
from holdfast.store.tags import read_metadata, tag
from holdfast.verbs.core import Core

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def moment(us: int) -> dt.datetime:
    """Microseconds since 1970 as a time."""
    return _EPOCH + dt.timedelta(microseconds=us)


def metadata_pairs(metadata: object) -> tuple[tuple[str, bytes], ...]:
    """Metadata given by a caller as keys and encoded values. Keys and values are data: any text, any storable value."""
    if type(metadata) is not dict:
        raise InvalidInput(f"metadata must be a dict, not {type(metadata).__name__}")
    pairs, size = [], 0
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise InvalidInput(f"metadata keys must be text; {key!r} is {type(key).__name__}")
        try:
            name = key.encode()
        except UnicodeEncodeError:
            raise InvalidInput(f"the metadata key {key!r} has a lone surrogate") from None
        if len(name) > ID_BYTES_MAX:
            raise LimitExceeded(f"a metadata key has {len(name)} bytes, at most {ID_BYTES_MAX} are allowed")
        try:
            pairs.append((str.__str__(key), pack_sorted(value)))
        except Unstorable as error:
            path = error.path.replace("state", f"metadata[{key!r}]", 1)
            raise Unstorable(str(error).replace(error.path, path, 1), path) from None
        size += len(name) + len(pairs[-1][1])
    if size > METADATA_BYTES_MAX:
        raise LimitExceeded(f"the metadata has {size} bytes when encoded, at most {METADATA_BYTES_MAX} are allowed")
    return tuple(pairs)


def metadata_tags(metadata: dict[str, Any] | None) -> tuple[tuple[str, bytes], ...]:
    """A metadata filter as tags."""
    return tuple(tag(key, value) for key, value in metadata_pairs(metadata)) if metadata else ()


def metadata_dict(data: bytes, place: str) -> dict[str, Any]:
    """Stored metadata as callers gave it."""
    return {key: unpack(value, place) for key, value in read_metadata(data).items()} if data else {}


def value_body(core: Core, value: object, what: str) -> bytes:
    """A value that is kept whole, as a stored body."""
    plain = pack(value)
    if len(plain) > VALUE_BYTES_MAX:
        raise value_too_large(what, len(plain), VALUE_BYTES_MAX)
    return core.body(plain)


def value_too_large(what: str, size: int, size_max: int) -> LimitExceeded:
    """The error for a value above its limit: what it is, how large, and what to do instead."""
    return LimitExceeded(
        f"{what} has {size} bytes when encoded, at most {size_max} are allowed: keep the data outside (a file, an "
        "object store) and record where it is, or split it into several steps or entries"
    )


def body_value(body: bytes, place: str) -> Any:
    """The value of a stored body."""
    return unpack(bodies.plain(body, VALUE_READ_BYTES_MAX, place), place) if body else None


def converted(value: Any, as_type: Any, place: str) -> Any:
    """`value` as the type the caller asked for: a dataclass, msgspec struct, TypedDict, Pydantic model, …"""
    from holdfast.engine.results import decode_model  # loaded by callers that ask for a type

    try:
        if hasattr(as_type, "__pydantic_fields__"):
            return as_type.model_validate(value)
        return msgspec.convert(value, as_type, dec_hook=decode_model)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        name = getattr(as_type, "__name__", str(as_type))
        raise InvalidInput(f"{place} does not fit {name}: {error}") from error
