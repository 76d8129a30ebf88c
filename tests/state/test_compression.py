"""Bodies of short chunks: smaller, and as safe as the others."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import DamagedData
from holdfast.state import compression
from holdfast.state.compression import PHRASES, Compressor


@given(st.binary(max_size=6000) | st.text(max_size=3000).map(str.encode))
def test_short_bodies_come_back(plain: bytes) -> None:
    assert compression.plain(Compressor().short_body(plain), 6000, "it") == plain


def test_short_bodies_of_messages_are_smaller() -> None:
    said = (
        b"\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content"
        + " ".join(map(str, range(200))).encode()
    )
    packed = Compressor().short_body(said)
    assert packed[0] == compression.DEFLATE_DICT
    assert len(packed) < 0.9 * len(Compressor().body(said))


def test_the_phrases_are_part_of_the_format() -> None:
    """If this fails, stored threads can no longer be read. Better phrases need a codec of their own."""
    assert blake3(PHRASES).hexdigest() == "6bb3b2fbe9351f690631a43151eaa0dde3277368b508e75370ddd1550d048885"


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-3], lambda b: b + b"x", lambda b: b[:1], lambda b: b"\x02\xff" + b[2:]]
)
def test_a_damaged_short_body_is_said_to_be_damaged(damage: Callable[[bytes], bytes]) -> None:
    good = Compressor().short_body(b"the user wants to find the file with the error " * 20)
    assert good[0] == compression.DEFLATE_DICT
    with pytest.raises(DamagedData, match="here"):
        compression.plain(damage(good), 10_000, "here")
    with pytest.raises(DamagedData, match="more than"):
        compression.plain(good, 100, "here")


_LARGE = 3 * 1024 * 1024
_NOISE = os.urandom(_LARGE)


@pytest.mark.parametrize(
    ("plain", "codec"),
    [(b"ab" * _LARGE, compression.ZSTD), (_NOISE, compression.RAW), (_NOISE + bytes(2 * _LARGE), compression.ZSTD)],
    ids=["text", "noise", "both"],
)
def test_large_bodies_are_made_and_read_in_pieces_and_come_back(plain: bytes, codec: int) -> None:
    stored = Compressor().body(plain)
    assert stored[0] == codec
    assert compression.plain(stored, len(plain), "it") == plain
    if codec == compression.RAW:
        return
    with pytest.raises(DamagedData, match="expands to more than"):
        compression.plain(stored, len(plain) - 1, "it")
    for damaged in (stored[:-1], stored[: len(stored) // 2], stored[:1], stored + b"x", stored + bytes(2 * _LARGE)):
        with pytest.raises(DamagedData):
            compression.plain(damaged, len(plain), "it")


def test_several_threads_make_large_bodies_at_once() -> None:
    compressor = Compressor()
    texts = [bytes([number]) * _LARGE + _NOISE[:1000] for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        bodies = list(pool.map(compressor.body, texts))
    assert [compression.plain(stored, 2 * _LARGE, "it") for stored in bodies] == texts
