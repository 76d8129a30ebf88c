"""Cutting: one serialised value as pieces that checkpoints can share.

LangGraph's serde turns a channel's value, say a conversation, into one string of MessagePack bytes. Stored whole, it
would be written anew at every step. Here it is taken apart along its own structure, without being decoded: a long
array becomes a list of its items' bytes, a long map a dict of them. The store then writes only the items that are new.
Joining the pieces gives the very same bytes, which is checked at every cut; what cannot be joined so stays whole.

    piece := bytes                     a value as it is
           | [piece, …]                an array
           | {"m": {key: piece, …}}    a map whose keys are text
           | {"x": code, "d": piece}   an extension, by what lies in it
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

Piece = bytes | list[Any] | dict[str, Any]

CUT_MIN: Final = 512
"""A container up to this size stays whole."""
EXT_CUT_MIN: Final = 8 * 1024
"""Likewise an extension: a message stays whole, a snapshot of a conversation does not."""
ITEM_MIN: Final = 64
"""An array whose items are smaller than this on average stays whole: a vector is one thing."""
DEPTH_MAX: Final = 32

_array = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_ext = msgspec.msgpack.Decoder(msgspec.msgpack.Ext).decode
_text = msgspec.msgpack.Encoder().encode


def cut(data: bytes) -> Piece:
    """`data`, which is one MessagePack value, in pieces."""
    if len(data) <= CUT_MIN:
        return data
    try:
        piece = _cut(data, 0)
    except msgspec.MsgspecError:  # keys that are not text, or no MessagePack at all
        return data
    return piece if type(piece) is bytes or joined(piece) == data else data


def joined(piece: Piece) -> bytes:
    """The bytes that were cut."""
    if isinstance(piece, bytes):
        return piece
    parts: list[bytes] = []
    _join(piece, parts)
    return b"".join(parts)


def _cut(data: bytes, depth: int) -> Piece:
    if len(data) <= CUT_MIN or depth == DEPTH_MAX:
        return data
    mark = data[0]
    if mark & 0xF0 == 0x90 or mark in (0xDC, 0xDD):
        items = _array(data)
        if len(items) * ITEM_MIN > len(data):
            return data
        return [_cut(bytes(item), depth + 1) for item in items]
    if mark & 0xF0 == 0x80 or mark in (0xDE, 0xDF):
        return {"m": {key: _cut(bytes(item), depth + 1) for key, item in _map(data).items()}}
    if mark in (0xC8, 0xC9) and len(data) > EXT_CUT_MIN:
        found = _ext(data)
        return {"x": found.code, "d": _cut(bytes(found.data), depth + 1)}
    return data


def _join(piece: Piece, parts: list[bytes]) -> None:
    if isinstance(piece, bytes):
        parts.append(piece)
    elif isinstance(piece, list):
        parts.append(_header(len(piece), 0x90, 0xDC))
        for item in piece:
            if type(item) is bytes:
                parts.append(item)
            else:
                _join(item, parts)
    elif "m" in piece:
        parts.append(_header(len(piece["m"]), 0x80, 0xDE))
        for key, item in piece["m"].items():
            parts.append(_text(key))
            _join(item, parts)
    else:
        inner: list[bytes] = []
        _join(piece["d"], inner)
        size, code = sum(map(len, inner)), (piece["x"] & 0xFF).to_bytes()
        parts.append(b"\xc8" + size.to_bytes(2) + code if size < 1 << 16 else b"\xc9" + size.to_bytes(4) + code)
        parts.extend(inner)


def _header(count: int, small: int, wide: int) -> bytes:
    if count < 16:
        return (small | count).to_bytes()
    return wide.to_bytes() + count.to_bytes(2) if count < 1 << 16 else (wide + 1).to_bytes() + count.to_bytes(4)
