"""Bodies: the compressed form in which the store keeps plain bytes.

    body := codec [key_id nonce] payload

    codec    one byte. The low four bits name the compression: 0 none, 1 zstd, 2 raw deflate with the dictionary
             PHRASES, for short chunks: smaller than zstd's, and read three times as fast. Bit 0x80 means that the
             payload is encrypted; one byte length, the key's id and a 12-byte nonce follow. The other bits are 0.
    payload  the plain bytes, compressed, then encrypted

Encryption is not implemented: a body with that bit raises UnsupportedFormat. The hash or the checksum of the row
that holds a body covers the plain bytes.
"""

from __future__ import annotations

import io
import sys
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from holdfast import fork_safety
from holdfast.errors import DamagedData, UnsupportedFormat
from holdfast.limits import PACK_BYTES_MAX

RAW: Final = 0
ZSTD: Final = 1
DEFLATE_DICT: Final = 2
_ENCRYPTED: Final = 0x80
_LEVEL: Final = 3
_COMPRESS_MIN: Final = 256
_SHORT_MAX: Final = 4096
_PIECE: Final = 1024 * 1024
"""Larger bodies are compressed and decompressed in pieces of this size, to hold only one copy in memory."""


@cache
def _zstd() -> Any:
    """The module of zstd, loaded on first use: many commands read only small bodies."""
    with fork_safety.loading:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    return zstd


class Compressor:
    """Makes bodies. Reuses one zstd context, so only one thread at a time may use it."""

    def __init__(self) -> None:
        self._zstd = _zstd().ZstdCompressor(level=_LEVEL)

    def body(self, plain: bytes) -> bytes:
        """The body for `plain`, compressed if that makes it at least an eighth smaller."""
        if len(plain) > _PIECE:
            return _large_body(plain)
        if len(plain) >= _COMPRESS_MIN:
            packed: bytes = self._zstd.compress(plain, self._zstd.FLUSH_FRAME)
            if len(packed) < len(plain) - len(plain) // 8:
                return b"\x01" + packed
        return b"\x00" + plain

    def short_body(self, plain: bytes) -> bytes:
        """The body for short data, such as one or two messages; slower, and smaller."""
        if not _COMPRESS_MIN <= len(plain) <= _SHORT_MAX:
            return self.body(plain)
        deflate = zlib.compressobj(3, zlib.DEFLATED, -12, 5, zdict=PHRASES)
        packed = deflate.compress(plain) + deflate.flush()
        return b"\x02" + packed if len(packed) < len(plain) - len(plain) // 8 else b"\x00" + plain


def _large_body(plain: bytes) -> bytes:
    """The body for many bytes, with its own zstd context: several threads may compress at the same time."""
    packer, size_max = _zstd().ZstdCompressor(level=_LEVEL), len(plain) - len(plain) // 8
    packed = io.BytesIO()  # grows in place and returns its bytes without a copy
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
        return _decompress(body, size_max, place)
    if codec == DEFLATE_DICT:
        return _inflate(body[1:], size_max, place)
    raise UnsupportedFormat(place, "it is encrypted" if codec & _ENCRYPTED else f"it has the unknown codec {codec}")


def beginning(body: bytes, size: int, place: str) -> bytes:
    """The first `size` plain bytes of a pack. Raises DamagedData naming `place` if it has fewer."""
    if not 0 <= size <= PACK_BYTES_MAX:
        raise DamagedData(place, f"a chunk is expected up to byte {size}, packs have at most {PACK_BYTES_MAX}")
    if body[:1] != b"\x01":
        found = plain(body, PACK_BYTES_MAX, place)[:size]
    else:
        zstd = _zstd()
        frame, pieces = zstd.ZstdDecompressor(), _pieces(body, 1)
        try:
            found = frame.decompress(next(pieces, b""), size)
            if len(found) < size and not frame.eof:
                found = _expand(frame, pieces, found, size)[:size]
        except zstd.ZstdError as error:
            raise DamagedData(place, f"it cannot be decompressed ({error})") from error
    if len(found) < size:
        raise DamagedData(place, f"it has {len(found)} bytes, at least {size} were expected")
    return found


def _decompress(body: bytes, size_max: int, place: str) -> bytes:
    zstd = _zstd()
    frame, pieces = zstd.ZstdDecompressor(), _pieces(body, 1)
    try:
        found: bytes = frame.decompress(next(pieces, b""), min(_PIECE, size_max + 1))
        if not frame.eof:
            found = _expand(frame, pieces, found, size_max)
    except zstd.ZstdError as error:
        raise DamagedData(place, f"it cannot be decompressed ({error})") from error
    if len(found) > size_max:
        raise DamagedData(place, f"it expands to more than {size_max} bytes")
    if not frame.eof or frame.unused_data or next(pieces, None) is not None:
        raise DamagedData(place, "its compressed form is cut off or followed by other bytes")
    return found


def _expand(frame: Any, pieces: Iterator[memoryview], first: bytes, size_max: int) -> bytes:
    """`first` and the rest of a frame, decompressed in pieces; at most one byte more than `size_max`."""
    found = io.BytesIO()
    found.write(first)
    while not frame.eof and found.tell() <= size_max:
        piece = next(pieces, None) if frame.needs_input else b""
        if piece is None:
            break
        found.write(frame.decompress(piece, min(_PIECE, size_max + 1 - found.tell())))
    return found.getvalue()


def _inflate(packed: bytes, size_max: int, place: str) -> bytes:
    inflate = zlib.decompressobj(-15, zdict=PHRASES)
    try:
        data = inflate.decompress(packed, size_max + 1)
    except zlib.error as error:
        raise DamagedData(place, f"it cannot be decompressed ({error})") from error
    if len(data) > size_max:
        raise DamagedData(place, f"it expands to more than {size_max} bytes")
    if not inflate.eof or inflate.unused_data:
        raise DamagedData(place, "its compressed form is cut off or followed by other bytes")
    return data


PHRASES: Final = (
    b" the of and to a in that is it for you on with as are be this was have not or at from by will can what whic"
    b"h if your all there when has we one more about their would so also then them other time these new any out u"
    b"p how may like first some only its into two who could no make than over such should use after because betwe"
    b"en where while before through each here see need want please help using user find found set get call run fi"
    b"le data line list code error value name number order result test message question answer information exampl"
    b"e following work change check first read write open add show create update delete return returned failed su"
    b"ccess "
    b'{"role": "assistant", "content": "", "tool_calls": [{"id": "call_", "type": "function", "function": {"name"'
    b': "", "arguments": "{\\"query\\": \\""}, "role": "user", "tool_use", "tool_result", "tool_use_id": "toolu_"'
    b', "is_error": false, "text", "image_url", "https://www.'
    b"\xc7\xad\x05\x94\xbelangchain_core.messages.system\xadSystemMessage\x86\xa7content\xa0\xb1additional_kwargs"
    b"\x80\xb1response_metadata\x80\xa4type\xa6system\xa4name\xc0\xa2id\xd9$00000000-0000-0000-0000-000000000000"
    b"\xb3model_validate_json"
    b"\xc7\xd9\x05\x94\xbclangchain_core.messages.tool\xabToolMessage\x89\xa7content\xa0\xb1additional_kwargs\x80"
    b"\xb1response_metadata\x80\xa4type\xa4tool\xa4name\xa6search\xa2id\xd9$00000000-0000-0000-0000-000000000000"
    b"\xactool_call_id\xa5call_\xa8artifact\xc0\xa6status\xa7success\xb3model_validate_json"
    b"\xc8\x023\x05\x94\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xa0\xb1additional_kwargs\x80"
    b"\xb1response_metadata\x88\xabtoken_usage\x83\xb1completion_tokens\x01\xadprompt_tokens\x02\xactotal_tokens"
    b"\x03\xaemodel_provider\xa6openai\xaamodel_name\xa3gpt\xb2system_fingerprint\xc0\xa2id\xa9chatcmpl-\xadfinis"
    b"h_reason\xaatool_calls\xa8logprobs\xc0\xabstop_reason\xa8end_turn\xa4type\xa2ai\xa4name\xc0\xa2id\xd9,lc_ru"
    b"n--00000000-0000-0000-0000-000000000000\xaatool_calls\x91\x84\xa4name\xa6search\xa4args\x81\xa5query\xa0"
    b"\xa2id\xa5call_\xa4type\xa9tool_call\xb2invalid_tool_calls\x90\xaeusage_metadata\x85\xacinput_tokens\x01"
    b"\xadoutput_tokens\x02\xactotal_tokens\x03\xb3input_token_details\x81\xaacache_read\x00\xb4output_token_deta"
    b"ils\x81\xa9reasoning\x00\xb3model_validate_json"
    b"\xc7\xd1\x05\x94\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xa0\xb1additional_kwargs\x80\xb1"
    b"response_metadata\x80\xa4type\xa2ai\xa4name\xc0\xa2id\xd9$00000000-0000-0000-0000-000000000000\xaatool_call"
    b"s\x90\xb2invalid_tool_calls\x90\xaeusage_metadata\xc0\xb3model_validate_json"
    b"\xc7\x85\x05\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content\xa0\xb1additional_kwargs"
    b"\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2id\xc0\xb3model_validate_json"
    b"\xc7\xaa\x05\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content\xa0\xb1additional_kwargs"
    b"\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2id\xd9$00000000-0000-0000-0000-000000000000"
    b"\xb3model_validate_json"
)
