"""The bytes that open a MessagePack array, map, text or extension."""

from __future__ import annotations


def array_header(count: int) -> bytes:
    """The bytes that open an array of `count` items."""
    if count < 16:
        return bytes([0x90 | count])
    return b"\xdc" + count.to_bytes(2, "big") if count < 65536 else b"\xdd" + count.to_bytes(4, "big")


def map_header(count: int) -> bytes:
    """The bytes that open a map of `count` pairs."""
    if count < 16:
        return bytes([0x80 | count])
    return b"\xde" + count.to_bytes(2, "big") if count < 65536 else b"\xdf" + count.to_bytes(4, "big")


def header_size(count: int) -> int:
    """The number of bytes that open an array or map of up to 65,535 parts."""
    return 1 if count < 16 else 3


def blob_header(mark: int) -> int:
    """The number of bytes before the content of a long text, bytes or extension."""
    return {0xDA: 3, 0xDB: 5, 0xC5: 3, 0xC6: 5, 0xC8: 4, 0xC9: 6}[mark]
