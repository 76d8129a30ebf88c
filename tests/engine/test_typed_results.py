"""Typed results: what the annotation of a function promises, live and after replay."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import pathlib
from decimal import Decimal
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pydantic

from holdfast import AsyncRun
from tests.harness import Stage


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Item:
    name: str
    colour: Colour = Colour.RED


class Point(msgspec.Struct):
    x: int
    items: list[Item] = []


class Order(pydantic.BaseModel):
    number: int
    tags: list[str] = []


@dataclasses.dataclass
class Cart:
    orders: list[Order]


class Parcel(msgspec.Struct):
    carts: dict[str, Cart]
    order: Order | None = None


class Mark(TypedDict):
    colour: Colour


class Folder(pydantic.BaseModel):
    path: pathlib.Path
    pages: dict[int, set[Colour]]


def cart() -> Cart:
    return Cart([Order(number=1)])


def parcel() -> Parcel:
    return Parcel({"a": cart()}, Order(number=2))


def mark() -> Mark:
    return {"colour": Colour.BLUE}


def folder() -> Folder:
    return Folder(path=pathlib.Path("a/b"), pages={1: {Colour.RED, Colour.BLUE}})


def item() -> Item:
    return Item("cup", Colour.BLUE)


def point() -> Point:
    return Point(3, [Item("a")])


def order() -> Order:
    return Order(number=7, tags=["new"])


def orders() -> list[Order]:
    return [Order(number=1), Order(number=2)]


def perhaps(found: bool) -> Item | None:
    return Item("found") if found else None


def colour() -> Colour:
    return Colour.BLUE


def by_name() -> dict[str, Item]:
    return {"a": Item("a")}


async def later() -> Order:
    return Order(number=9)


def plain() -> dict[str, Any]:
    return {
        "tuple": (1, 2), "set": {1, 2}, "time": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "id": UUID(int=5),
        "money": Decimal("1.10"), "big": 2**90, "bytes": b"\0\xff", "none": None,
    }  # fmt: skip


def untyped():  # type: ignore[no-untyped-def]
    return Item("plain")


EXPECTED = [
    item(), point(), order(), orders(), perhaps(True), None, colour(), by_name(), Order(number=9), plain(),
    {"name": "plain", "colour": "red"},
]  # fmt: skip


def test_results_have_the_annotated_type_live_and_after_replay(stage: Stage) -> None:
    seen: list[Any] = []

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        found: list[Any] = [await run.step(fn) for fn in (item, point, order, orders)]
        found += [await run.step(perhaps, True), await run.step(perhaps, False)]
        found += [await run.step(fn) for fn in (colour, by_name, later, plain, untyped)]
        seen.append(found)
        await run.ask("more?", bool)

    stage.start(flow)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) is None
    live, replayed = seen
    assert live == EXPECTED
    assert replayed == EXPECTED
    assert [type(value) for value in live] == [type(value) for value in replayed]
    assert type(live[9]["tuple"]) is tuple


def test_models_within_other_types_are_typed_live_and_after_replay(stage: Stage) -> None:
    seen: list[Any] = []
    made = (cart, parcel, mark, folder)

    def nth(number: int) -> Parcel:
        return Parcel({}, Order(number=number))

    nth.__annotations__["return"] = Parcel

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        found = [await run.step(fn) for fn in made] + [await run.effect(fn) for fn in made]
        seen.append([*found, *await run.map(nth, [1, 2])])
        await run.ask("more?", bool)

    stage.start(flow)
    stage.restart()
    stage.app.answer(stage.run_id, True)
    expected = [fn() for fn in made] * 2 + [nth(1), nth(2)]
    assert seen == [expected] * 2


def test_an_effect_and_a_mapped_function_have_their_types_too(stage: Stage) -> None:
    seen: list[Any] = []

    def named(name: str) -> Item:
        return Item(name)

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        seen.append([await run.effect(order), await run.map(named, ["a", "b"])])
        await run.ask("more?", bool)

    named.__annotations__["return"] = Item
    stage.start(flow)
    stage.restart()
    stage.app.answer(stage.run_id, True)
    assert seen == [[order(), [Item("a"), Item("b")]]] * 2


def test_a_result_that_does_not_fit_its_annotation_is_told(local: Stage) -> None:
    def wrong() -> Item:
        return "no item"  # type: ignore[return-value]

    wrong.__annotations__["return"] = Item

    @local.flow
    async def flow(run: AsyncRun) -> str:
        try:
            await run.step(wrong)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    assert "InvalidInput: the result of 'wrong#1' does not fit" in local.start(flow).result(240)
