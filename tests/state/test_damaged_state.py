"""States that are too large, damaged, foreign, or made to do harm."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import DamagedData, LimitExceeded, UnsupportedFormat
from holdfast.state import compression, encoder, rope
from holdfast.state.encoder import encode
from holdfast.state.rope import decode
from tests.state.test_rope import Chunks, conversation


def test_a_state_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "STATE_BYTES_MAX", 100_000)
    with pytest.raises(LimitExceeded):
        encode({"a": ["x" * 50_000] * 3})
    encode({"a": "x" * 90_000})


# --- damage ----------------------------------------------------------------------------------------------------------


def test_a_missing_chunk_is_an_error_and_never_an_empty_value() -> None:
    chunks = Chunks()
    root, _ = chunks.save({"messages": conversation(40)})
    for name in list(chunks.bodies):
        kept = chunks.bodies.pop(name)
        if name in reachable(root, chunks, kept, name):
            with pytest.raises(DamagedData, match=name.hex()):
                chunks.load(root)
        chunks.bodies[name] = kept


def reachable(root: bytes, chunks: Chunks, kept: bytes, name: bytes) -> set[bytes]:
    chunks.bodies[name] = kept
    chunks.fetched.clear()
    chunks.load(root)
    del chunks.bodies[name]
    return set(chunks.fetched)


def test_every_flipped_bit_and_every_cut_of_a_chunk_is_found() -> None:
    chunks = Chunks()
    root, _ = chunks.save({"a": conversation(3), "b": list(range(3000))})
    state = chunks.load(root)
    for name in set(chunks.fetched):
        kept = chunks.bodies[name]
        for at in range(len(kept)):
            chunks.bodies[name] = kept[:at] + bytes([kept[at] ^ (1 << at % 8)]) + kept[at + 1 :]
            assert found_or_same(chunks, root, state)
        for at in range(0, len(kept), 7):
            chunks.bodies[name] = kept[:at]
            assert found_or_same(chunks, root, state)
        chunks.bodies[name] = kept


def found_or_same(chunks: Chunks, root: bytes, state: Any) -> bool:
    """Either the damage is reported, or it is in a bit that does not matter (a zstd frame has such)."""
    try:
        return bool(chunks.load(root) == state)
    except DamagedData:
        return True


@settings(max_examples=300)
@given(st.binary(max_size=120))
def test_a_foreign_root_is_reported_and_nothing_else_happens(data: bytes) -> None:
    with contextlib.suppress(DamagedData):
        decode(b"\x02" + data, lambda names: {}, "it")


def test_newer_formats_are_said_to_be_newer() -> None:
    for root in (b"\x03rest", b"\x00"):
        with pytest.raises(UnsupportedFormat):
            decode(root, lambda names: {}, "it")
    for stored in (b"\x81key", b"\x03rest"):
        with pytest.raises(UnsupportedFormat):
            compression.plain(stored, 100, "it")
    with pytest.raises(DamagedData):
        decode(b"", lambda names: {}, "it")
    with pytest.raises(DamagedData):
        compression.plain(b"", 100, "it")


def test_a_compression_bomb_is_not_expanded() -> None:
    bomb = compression.Compressor().body(bytes(50_000_000))
    assert len(bomb) < 10_000
    with pytest.raises(DamagedData, match="expands"):
        compression.plain(bomb, 1_000_000, "it")


@pytest.mark.timeout(60)
def test_a_bomb_of_empty_pieces_or_of_depth_is_not_followed() -> None:
    def chain(length: int, links: int, plain: bytes) -> tuple[bytes, dict[bytes, bytes]]:
        bodies = {}
        for _ in range(length):
            name = rope.chunk_hash(plain)
            bodies[name] = b"\x00" + plain
            plain = rope.write([rope.link(name, 0, node=plain[:1] == b"\x02", pairs=False)] * links)
        return plain, bodies

    for length, links, first in ((60, 2, b"\x01"), (5000, 1, b"\x01\x01")):
        root, bodies = chain(length, links, first)
        chunks = Chunks()
        chunks.bodies = bodies
        with pytest.raises(DamagedData):
            chunks.load(root)


def test_a_repetition_bomb_is_not_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = Chunks()
    plain = b"\x01" + b"x" * 1000
    for _ in range(12):
        name = rope.chunk_hash(plain)
        chunks.bodies[name] = b"\x00" + plain
        node = plain[:1] == b"\x02"
        plain = rope.write([rope.link(name, 0, node=node, pairs=False)] * 16)
    with pytest.raises(DamagedData, match="expands"):
        decode(plain, chunks.fetch, "it")
