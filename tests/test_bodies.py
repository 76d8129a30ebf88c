"""Bodies of short chunks: smaller, and as safe as the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import DamagedData
from holdfast.state import body
from holdfast.state.body import Compressor
from holdfast.state.phrases import PHRASES


@given(st.binary(max_size=6000) | st.text(max_size=3000).map(str.encode))
def test_short_bodies_come_back(plain: bytes) -> None:
    assert body.plain(Compressor().short_body(plain), 6000, "it") == plain


def test_short_bodies_of_messages_are_smaller() -> None:
    said = (
        b"\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content"
        + " ".join(map(str, range(200))).encode()
    )
    packed = Compressor().short_body(said)
    assert packed[0] == body.PHRASED
    assert len(packed) < 0.9 * len(Compressor().body(said))


def test_the_phrases_are_part_of_the_format() -> None:
    """If this fails, stored threads can no longer be read. Better phrases need a codec of their own."""
    assert blake3(PHRASES).hexdigest() == "6bb3b2fbe9351f690631a43151eaa0dde3277368b508e75370ddd1550d048885"


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-3], lambda b: b + b"x", lambda b: b[:1], lambda b: b"\x02\xff" + b[2:]]
)
def test_a_damaged_short_body_is_said_to_be_damaged(damage: Callable[[bytes], bytes]) -> None:
    good = Compressor().short_body(b"the user wants to find the file with the error " * 20)
    assert good[0] == body.PHRASED
    with pytest.raises(DamagedData, match="here"):
        body.plain(damage(good), 10_000, "here")
    with pytest.raises(DamagedData, match="more than"):
        body.plain(good, 100, "here")
