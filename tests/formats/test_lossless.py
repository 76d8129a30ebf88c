"""JSON comes back as it was, and what the originals could not read again is refused before it is written."""

from __future__ import annotations

import decimal
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import DamagedFile, Unstorable
from holdfast.formats.schema import NESTING_MAX, microseconds, now_text, read_json, write_json

TEXT = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_what_is_written_is_read_again_with_its_types_and_the_order_of_keys(value: Any, compact: bool) -> None:
    data = write_json(value, compact=compact)
    found = read_json(data, "here")
    assert found == value
    assert repr(found) == repr(value)
    assert json.loads(data) == value


def test_it_is_written_as_the_originals_write_it() -> None:
    value = {"a": [], "b": {}, "c": [1, {"d": 'héllo ✓ / " \\ \n'}], "e": 1.0, "f": None, "g": True}
    assert write_json(value).decode() == json.dumps(value, indent=2, ensure_ascii=False)
    assert write_json(value, compact=True).decode() == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def test_numbers_no_float_can_hold_are_kept() -> None:
    data = b'{"big":123456789012345678901234567890,"fine":0.12345678901234567890123,"near":1e-400}'
    found = read_json(data, "here")
    assert found["big"] == 123456789012345678901234567890
    assert found["fine"] == decimal.Decimal("0.12345678901234567890123")
    again = read_json(write_json(found), "here")
    assert again == found
    assert type(read_json(b"12.5", "here")) is float
    assert type(read_json(b"1e16", "here")) is float


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"nul", b'{"a": NaN}', b"[Infinity]", b'"\xff"', b'["\\ud800"]', b"\xef\xbb\xbf{}", b"[" * 100_000],
)
def test_what_is_no_json_is_damage_and_says_where(data: bytes) -> None:
    with pytest.raises(DamagedFile, match=r"^/place cannot be used: "):
        read_json(data, "/place")


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        decimal.Decimal("NaN"),
        "\ud800",
        {1: 2},
        {"a": {1, 2}},
        b"bytes",
        10**5000,
        -(10**309),
        decimal.Decimal("1e309"),
        decimal.Decimal("Infinity"),
    ],
    ids=range(11),
)
def test_what_json_has_no_form_for_is_refused(value: Any) -> None:
    with pytest.raises(Unstorable):
        write_json({"deep": [value]})


def test_what_the_originals_could_not_read_again_is_not_written() -> None:
    value: Any = []
    for _ in range(NESTING_MAX - 1):
        value = [value]
    assert read_json(write_json(value), "here") == value
    with pytest.raises(Unstorable, match="127"):
        write_json([value])


def test_moments_keep_nanoseconds_as_text_and_give_microseconds() -> None:
    assert microseconds("2026-08-18T09:41:07.123456789Z") == microseconds("2026-08-18T09:41:07.123456Z")
    assert microseconds("1970-01-01T00:00:01Z") == 1_000_000
    assert microseconds("1970-01-01T02:00:01.5+02:00") == 1_500_000
    assert microseconds("1969-12-31T22:30:01-01:30") == 1_000_000
    for bad in ("", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-01-01", "2026-01-01T25:00:00Z", 5, None):
        assert microseconds(bad) is None
    assert len(now_text()) == len("2026-08-18T09:41:07.123456789Z")
    assert microseconds(now_text())
