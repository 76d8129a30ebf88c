"""Bodies: how plain bytes lie in the store.

    body := codec [key_id nonce] payload

    codec    one byte: the low four bits say how the payload was compressed (0 not at all, 1 zstd, 2 raw deflate
             that knows the phrases of phrases.py, for short chunks: smaller than zstd's, and read three times as fast);
             bit 0x80 says that it is encrypted, and then one byte length and the key's id follow, and a 12-byte nonce.
             The other bits are 0.
    payload  the plain bytes, compressed, then encrypted

Nothing is encrypted yet; a body with the bit set is refused as written by a newer version. What a body means is named
by the hash or the seal of its row, both taken over plain bytes.
"""

from __future__ import annotations

import io
import sys
import zlib
from collections.abc import Iterator
from typing import Final

from holdfast.errors import DamagedData, UnsupportedFormat
from holdfast.state.phrases import PHRASES

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

RAW: Final = 0
ZSTD: Final = 1
PHRASED: Final = 2
_ENCRYPTED: Final = 0x80
_LEVEL: Final = 3
_COMPRESS_MIN: Final = 256
_SHORT_MAX: Final = 4096
_PIECE: Final = 1024 * 1024
"""Larger bodies are compressed and decompressed in pieces of this size, so that nothing is held twice."""


class Compressor:
    """Makes bodies. Reuses one zstd context, so it belongs to one thread at a time."""

    def __init__(self) -> None:
        self._zstd = zstd.ZstdCompressor(level=_LEVEL)

    def body(self, plain: bytes) -> bytes:
        """The body for `plain`, compressed if that makes it at least an eighth smaller."""
        if len(plain) > _PIECE:
            return _large_body(plain)
        if len(plain) >= _COMPRESS_MIN:
            packed = self._zstd.compress(plain, self._zstd.FLUSH_FRAME)
            if len(packed) < len(plain) - len(plain) // 8:
                return b"\x01" + packed
        return b"\x00" + plain

    def short_body(self, plain: bytes) -> bytes:
        """The body for what is probably a message or two; takes longer to make."""
        if not _COMPRESS_MIN <= len(plain) <= _SHORT_MAX:
            return self.body(plain)
        deflate = zlib.compressobj(3, zlib.DEFLATED, -12, 5, zdict=PHRASES)
        packed = deflate.compress(plain) + deflate.flush()
        return b"\x02" + packed if len(packed) < len(plain) - len(plain) // 8 else b"\x00" + plain


def _large_body(plain: bytes) -> bytes:
    """The body for many bytes. Its context is its own: several threads may compress at the same time."""
    packer, size_max = zstd.ZstdCompressor(level=_LEVEL), len(plain) - len(plain) // 8
    packed = io.BytesIO()  # grows in place and gives its bytes without a copy
    packed.write(b"\x01")
    for piece in _pieces(plain):
        packed.write(packer.compress(piece))
        if packed.tell() > size_max:
            break
    else:
        packed.write(packer.flush())
        if packed.tell() <= size_max:
            return packed.getvalue()
    packed.close()
    return b"\x00" + plain


def _pieces(data: bytes, start: int = 0) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[at : at + _PIECE] for at in range(start, len(view), _PIECE))


def plain(body: bytes, size_max: int, place: str) -> bytes:
    """The plain bytes of a body, at most `size_max`. Raises DamagedData naming `place`."""
    if not body:
        raise DamagedData(place, "it is empty")
    codec = body[0]
    if codec == RAW:
        return body[1:]
    if codec == ZSTD:
        return _decompressed(body, size_max, place)
    if codec == PHRASED:
        return _inflated(body[1:], size_max, place)
    raise UnsupportedFormat(place, "it is encrypted" if codec & _ENCRYPTED else f"it has the unknown codec {codec}")


def _decompressed(body: bytes, size_max: int, place: str) -> bytes:
    frame, pieces = zstd.ZstdDecompressor(), _pieces(body, 1)
    try:
        found = frame.decompress(next(pieces, b""), min(_PIECE, size_max + 1))
        if not frame.eof:
            found = _expanded(frame, pieces, found, size_max)
    except zstd.ZstdError as error:
        raise DamagedData(place, f"it cannot be decompressed ({error})") from error
    if len(found) > size_max:
        raise DamagedData(place, f"it expands to more than {size_max} bytes")
    if not frame.eof or frame.unused_data or next(pieces, None) is not None:
        raise DamagedData(place, "its compressed form is cut off or has something behind it")
    return found


def _expanded(frame: zstd.ZstdDecompressor, pieces: Iterator[memoryview], first: bytes, size_max: int) -> bytes:
    """`first` and what else a frame holds, made piece by piece; at most one byte more than `size_max`."""
    found = io.BytesIO()
    found.write(first)
    while not frame.eof and found.tell() <= size_max:
        piece = next(pieces, None) if frame.needs_input else b""
        if piece is None:
            break
        found.write(frame.decompress(piece, min(_PIECE, size_max + 1 - found.tell())))
    return found.getvalue()


def _inflated(packed: bytes, size_max: int, place: str) -> bytes:
    inflate = zlib.decompressobj(-15, zdict=PHRASES)
    try:
        data = inflate.decompress(packed, size_max + 1)
    except zlib.error as error:
        raise DamagedData(place, f"it cannot be decompressed ({error})") from error
    if len(data) > size_max:
        raise DamagedData(place, f"it expands to more than {size_max} bytes")
    if not inflate.eof or inflate.unused_data:
        raise DamagedData(place, "its compressed form is cut off or has something behind it")
    return data
