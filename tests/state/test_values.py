"""Values to bytes and back."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import random
import re
import zoneinfo
from typing import Any, NamedTuple

import msgspec
import ormsgpack
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import DamagedData, Unstorable, UnsupportedFormat
from holdfast.limits import DEPTH_MAX, NESTING_MAX
from holdfast.state.values import pack, pack_sorted, unpack
from tests.strategies import exactly, values


@given(values)
def test_every_value_comes_back_exactly_as_it_was(value: Any) -> None:
    assert exactly(unpack(pack(value), "it")) == exactly(value)


@given(values)
def test_equal_values_have_equal_bytes(value: Any) -> None:
    assert pack(unpack(pack(value), "it")) == pack(value)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), values, max_size=6), st.randoms())
def test_sorted_encoding_does_not_depend_on_the_order_of_keys(value: dict[str, Any], rnd: random.Random) -> None:
    items = list(value.items())
    rnd.shuffle(items)
    assert pack_sorted(dict(items)) == pack_sorted(value)


@given(st.binary(max_size=200))
def test_foreign_bytes_are_reported_and_nothing_else_happens(data: bytes) -> None:
    with contextlib.suppress(DamagedData):
        unpack(data, "it")


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Name(enum.StrEnum):
    ANA = "ana"


class OldName(str, enum.Enum):  # noqa: UP042 - older code has these
    BOB = "bob"


class Pair(NamedTuple):
    a: int
    b: str


@dataclasses.dataclass
class Order:
    item: str
    color: Color
    parts: list[Pair]


class Struct(msgspec.Struct, tag="struct"):
    x: int
    when: dt.date


class Model(pydantic.BaseModel):
    x: int
    inner: dict[str, tuple[int, ...]]


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (Color.RED, "red"),
        ([Level.LOW, Name.ANA, OldName.BOB], [1, "ana", "bob"]),
        (Pair(1, "x"), (1, "x")),
        (Order("a", Color.RED, [Pair(1, "x")]), {"item": "a", "color": "red", "parts": [(1, "x")]}),
        (Struct(1, dt.date(2026, 1, 1)), {"type": "struct", "x": 1, "when": dt.date(2026, 1, 1)}),
        (Model(x=1, inner={"a": (1, 2)}), {"x": 1, "inner": {"a": (1, 2)}}),
        (Text("mine"), "mine"),
        ({Text("key"): 1, Name.ANA: 2, OldName.BOB: 3}, {"key": 1, "ana": 2, "bob": 3}),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (collections.defaultdict(int, a=1), {"a": 1}),
        (collections.Counter("aa"), {"a": 2}),
        (bytearray(b"x"), b"x"),
    ],
)
def test_what_stands_for_a_built_in_value_is_stored_as_that(value: Any, stored: Any) -> None:
    assert exactly(unpack(pack(value), "it")) == exactly(stored)


class Tagged(pydantic.BaseModel):
    paths: set[pathlib.Path]
    groups: frozenset[frozenset[str]] = frozenset()
    when: dt.date = dt.date(2026, 1, 2)


class Inner(pydantic.BaseModel, frozen=True):
    name: str


class Grouped(pydantic.BaseModel):
    members: set[Inner]


class Holder(msgspec.Struct):
    held: Any


class Loose(pydantic.BaseModel):
    x: Any


class Odd(pydantic.BaseModel):
    x: int

    @pydantic.field_serializer("x")
    def refuse(self, x: int) -> int:
        raise RuntimeError("not today")


JSON_DUMPS: list[tuple[Any, Any]] = [
    (
        Tagged(paths={pathlib.Path(name) for name in "dcba"}, groups=frozenset({frozenset("yx"), frozenset("z")})),
        {"paths": ["a", "b", "c", "d"], "groups": [["x", "y"], ["z"]], "when": "2026-01-02"},
    ),
    (Grouped(members={Inner(name=name) for name in "cba"}), {"members": [{"name": name} for name in "abc"]}),
]


@pytest.mark.parametrize(("value", "stored"), JSON_DUMPS)
def test_a_model_is_stored_as_json_only_if_that_is_lossless_with_its_sets_sorted(value: Any, stored: Any) -> None:
    assert exactly(unpack(pack(value), "it")) == exactly(stored)
    assert exactly(unpack(pack({"in": (Holder([value]),)}), "it")) == exactly({"in": ({"held": [stored]},)})
    assert type(value).model_validate(stored) == value


def test_times_in_zones_come_back_in_their_zone_with_their_fold() -> None:
    zone = zoneinfo.ZoneInfo("Europe/Berlin")
    for fold in (0, 1):
        value = dt.datetime(2026, 10, 25, 2, 30, tzinfo=zone, fold=fold)
        back = unpack(pack(value), "it")
        assert back.tzinfo is zone
        assert back.utcoffset() == value.utcoffset()


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (float("nan"), "state", "finite"),
        ({"a": [0, (1, float("inf"))]}, "state['a'][1][1]", "finite"),
        ({"a": {"b": {1: 2}}}, "state['a']['b']", "only text can be a key"),
        ({None: 1}, "state", "NoneType"),
        ({b"k": 1}, "state", "bytes"),
        ({"a": {"\ud800": 1}}, "state['a']", "surrogate"),
        (["ok", "\udfff"], "state[1]", "surrogate"),
        ({"a": decimal.Decimal("Infinity")}, "state['a']", "finite"),
        ({"a": object()}, "state['a']", "builtins.object"),
        ({"a": {1j}}, "state['a']{1j}", "complex"),
        (range(3), "state", "range"),
        ({"big": 1 << 40_000}, "state['big']", "integer"),
        (
            dt.datetime(2026, 1, 1, tzinfo=type("Zone", (dt.tzinfo,), {"utcoffset": lambda *_: dt.timedelta()})()),
            "state",
            "Zone",
        ),
        (Order("a", Color.RED, [float("nan")]), "state['parts'][0]", "finite"),  # type: ignore[list-item]
        ([Holder({"a": pathlib.PurePosixPath("b")})], "state[0]['held']['a']", "such as str"),
        ([Holder(Holder(1j))], "state[0]['held']['held']", "complex"),
        (Holder(Loose(x=pathlib.PurePosixPath("b"))), "state['held']['x']", "PurePosixPath"),
        ({"a": Odd(x=1)}, "state['a']", "Odd cannot be dumped: PydanticSerializationError: .*not today"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_path(value: Any, path: str, reason: str) -> None:
    with pytest.raises(Unstorable) as caught:
        pack(value)
    assert caught.value.path == path
    assert re.search(reason, str(caught.value))


def test_a_coroutine_is_refused_with_the_missing_await() -> None:
    async def ask() -> str:
        return "answer"

    forgotten = ask()
    with pytest.raises(Unstorable, match=r"builtins.coroutine .*; write `await` before the call"):
        pack([forgotten])
    forgotten.close()


def test_bytes_that_look_like_not_a_number_are_not_taken_for_it() -> None:
    for value in (
        b"\xcb\x7f\xf8\0\0\0\0\0\0",
        [203, 127, 248],
        "\u02ff\x7f",
        1.7e308,
        -1.7e308,
        {"ó\x7f": b"\xcb\xff"},
    ):
        assert unpack(pack(value), "it") == value


def nested(depth: int, make: Any) -> Any:
    value: Any = make([])
    for _ in range(depth - 1):
        value = make([value])
    return value


@pytest.mark.parametrize("make", [list, lambda inner: {"k": inner[0] if inner else 1}])
def test_containers_nest_as_deep_as_promised_and_no_deeper(make: Any) -> None:
    assert unpack(pack(nested(DEPTH_MAX, make)), "it") == nested(DEPTH_MAX, make)
    for depth in (DEPTH_MAX + 20, 1_000, 50_000):
        with pytest.raises(Unstorable):
            pack(nested(depth, make))


def test_tuples_nest_as_deep_as_promised_and_no_deeper() -> None:
    assert unpack(pack(nested(NESTING_MAX, tuple)), "it") == nested(NESTING_MAX, tuple)
    for depth in (NESTING_MAX + 1, 500, 5_000):
        with pytest.raises(Unstorable):
            pack(nested(depth, tuple))
    assert unpack(pack((1, 2)), "it") == (1, 2)


def test_an_unknown_extension_is_said_to_be_newer() -> None:
    with pytest.raises(UnsupportedFormat):
        unpack(ormsgpack.packb(ormsgpack.Ext(99, b"x")), "it")
    with pytest.raises(UnsupportedFormat):
        unpack(ormsgpack.packb([{"a": ormsgpack.Ext(1, ormsgpack.packb([ormsgpack.Ext(99, b"")]))}]), "it")


@pytest.mark.parametrize("code", range(1, 11))
@given(payload=st.binary(max_size=30))
def test_a_damaged_extension_is_reported(code: int, payload: bytes) -> None:
    with contextlib.suppress(DamagedData):
        unpack(ormsgpack.packb(ormsgpack.Ext(code, payload)), "it")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("before", [0, 1, 15, 16, 17, 100])
def test_a_number_that_is_not_finite_is_found_behind_any_number_of_others(bad: float, before: int) -> None:
    noise: list[Any] = [0.5, "\u00cb\u007f", b"\xcb\x00\xcb"] * before
    assert unpack(pack(noise), "x") == noise
    with pytest.raises(Unstorable, match=rf"state\[{len(noise)}\]"):
        pack([*noise, bad])
