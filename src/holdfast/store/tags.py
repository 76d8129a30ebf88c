"""Metadata as the stores keep it, and the tags by which runs are found.

Metadata is a MessagePack map of key to encoded value. For each key the store also keeps a tag: the key and the value's
encoding, or its hash if that is long. A filter is a set of tags, compared as bytes: keys and values are data, never
part of a statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from blake3 import blake3

_LONG: Final = 64
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def write_metadata(values: Iterable[tuple[str, bytes]]) -> bytes:
    """Metadata from keys and encoded values."""
    return _encode(dict(values))


def read_metadata(data: bytes) -> dict[str, bytes]:
    """Keys and encoded values."""
    return _decode(data) if data else {}


def tag_needle(key: str, value: bytes) -> bytes:
    """The bytes that all metadata with this key and encoded value has; other metadata may have them inside a value."""
    return _encode(key) + _encode(value)


def has_tags(data: bytes, tags: Sequence[tuple[str, bytes]]) -> bool:
    """Whether the metadata has all these keys with these encoded values. What cannot be read has none."""
    if not tags:
        return True
    if not all(tag_needle(key, value) in data for key, value in tags):
        return False
    try:
        values = read_metadata(data)
    except msgspec.MsgspecError:
        return False
    return all(values.get(key) == value for key, value in tags)


def tag(key: str, value: bytes) -> tuple[str, bytes]:
    """What is kept of one key and value. 0xC1 opens no MessagePack value, so a hash is never taken for one."""
    return key, value if len(value) <= _LONG else b"\xc1" + blake3(value).digest()


def merged_metadata(
    data: bytes, changes: Iterable[tuple[str, bytes]]
) -> tuple[bytes, list[tuple[str, bytes]], list[tuple[str, bytes]]]:
    """The metadata with the changes, the tags that no longer hold, and the ones that are new."""
    values = read_metadata(data)
    old, new = [], []
    for key, value in changes:
        before = values.get(key)
        if before == value:
            continue
        if before is not None:
            old.append(tag(key, before))
        new.append(tag(key, value))
        values[key] = value
    return _encode(values) if new else data, old, new
