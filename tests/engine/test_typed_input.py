"""Typed input and results: what a workflow's annotations name arrives as such, in any process."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import ipaddress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

import holdfast
from holdfast import App, AsyncRun, InvalidInput, NotFinished, Run
from holdfast.errors import Unstorable
from holdfast.inspect.timeline import timeline
from holdfast.testing import replay

if TYPE_CHECKING:
    from nowhere import Ghost  # type: ignore[import-not-found]


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Item:
    name: str
    colour: Colour = Colour.RED


@dataclasses.dataclass
class Box:
    items: list[Item]


class Point(msgspec.Struct):
    x: int


class Order(pydantic.BaseModel):
    number: int
    placed: dt.date | None = None


class Pair(NamedTuple):
    left: int
    right: Item


class Note(TypedDict):
    text: str


@dataclasses.dataclass
class Cart:
    orders: list[Order]
    by_name: dict[str, Order] = dataclasses.field(default_factory=dict)
    last: Order | None = None


class Parcel(msgspec.Struct):
    order: Order
    carts: list[Cart] = []


class Mark(TypedDict):
    colour: Colour
    order: NotRequired[Order]
    inner: NotRequired[list[Mark]]


@dataclasses.dataclass
class Choice:
    what: Order | Item | int
    next: Choice | None = None
    count: int = dataclasses.field(init=False, default=0)


class Renamed(msgspec.Struct, rename="camel"):
    the_choice: Order | int


class Chosen(TypedDict):
    what: Order | int
    colour: NotRequired[Colour]


class Web(pydantic.BaseModel):
    url: pydantic.HttpUrl
    host: ipaddress.IPv4Address
    folder: Path
    names: dict[int, str]
    colours: dict[Colour, dt.timedelta]
    when: dt.datetime


class Sheet(pydantic.RootModel[dict[int, set[Path]]]):
    pass


@dataclasses.dataclass
class Site:
    webs: list[Web]


MOMENT = dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)
WEB_DATA: dict[str, Any] = {
    "url": "https://x.example/", "host": "10.0.0.1", "folder": "a/b", "names": {"1": "one"}, "colours": {"red": "PT3S"},
    "when": MOMENT.isoformat(),
}  # fmt: skip
WEB = Web.model_validate(WEB_DATA)
VALUES: list[tuple[Any, Any, Any]] = [
    (Item, Item("cup"), {"name": "cup", "colour": "red"}),
    (Point, Point(3), {"x": 3}),
    (Order, Order(number=7, placed=dt.date(2026, 1, 2)), {"number": 7, "placed": "2026-01-02"}),
    (Colour, Colour.RED, "red"),
    (Pair, Pair(1, Item("a")), [1, {"name": "a"}]),
    (dt.datetime, MOMENT, MOMENT.isoformat()),
    (dt.date, dt.date(2026, 1, 2), "2026-01-02"),
    (dt.timedelta, dt.timedelta(days=1), "P1D"),
    (UUID, UUID(int=5), str(UUID(int=5))),
    (Decimal, Decimal("1.10"), "1.10"),
    (list[Item], [Item("a"), Item("b")], [{"name": "a"}, {"name": "b"}]),
    (dict[str, Point], {"a": Point(1)}, {"a": {"x": 1}}),
    (Item | None, Item("a"), {"name": "a"}),
    (Item | None, None, None),
    (Item | Box, Box([Item("a")]), {"items": [{"name": "a"}]}),
    (list[Item | Box], [Box([]), Item("a")], [{"items": []}, {"name": "a"}]),
    (list[Order], [Order(number=1)], [{"number": 1}]),
    (tuple[int, Item], (1, Item("a")), [1, {"name": "a"}]),
    (Note, {"text": "a"}, {"text": "a"}),
    (
        Cart,
        Cart([Order(number=1)], {"a": Order(number=2)}, Order(number=3)),
        {"orders": [{"number": 1}], "by_name": {"a": {"number": 2}}, "last": {"number": 3}},
    ),
    (
        Parcel,
        Parcel(Order(number=1), [Cart([Order(number=2)])]),
        {"order": {"number": 1}, "carts": [{"orders": [{"number": 2}]}]},
    ),
    (list[Parcel | Order], [Parcel(Order(number=1)), Order(number=2)], [{"order": {"number": 1}}, {"number": 2}]),
    (tuple[Order, Parcel], (Order(number=1), Parcel(Order(number=2))), [{"number": 1}, {"order": {"number": 2}}]),
    (
        Mark,
        {"colour": Colour.RED, "order": Order(number=1), "inner": [{"colour": Colour.RED}]},
        {"colour": "red", "order": {"number": 1}, "inner": [{"colour": "red"}]},
    ),
    (
        Choice,
        Choice(Order(number=1), Choice(Item("a"), Choice(3))),
        {"what": {"number": 1}, "next": {"what": {"name": "a"}, "next": {"what": 3}}},
    ),
    (Renamed, Renamed(Order(number=1)), {"theChoice": {"number": 1}}),
    (Chosen, {"what": Order(number=1), "colour": Colour.RED}, {"what": {"number": 1}, "colour": "red"}),
    (Web, WEB, WEB_DATA),
    (list[Web], [WEB], [WEB_DATA]),
    (Site, Site([WEB]), {"webs": [WEB_DATA]}),
    (Sheet, Sheet({1: {Path("a"), Path("b")}}), {"1": ["a", "b"]}),
    (bool, True, True),
    (bytes, b"\0", b"\0"),
    (float, 1.5, 1.5),
    (Any, {"free": [1]}, {"free": [1]}),
]
IDS = [f"{annotation}-{number}" for number, (annotation, _, _) in enumerate(VALUES)]


def flows(app: App, annotation: Any, seen: list[Any]) -> None:
    """Two workflows with one annotated argument, which they return."""

    def plain(run, value):  # type: ignore[no-untyped-def]
        seen.append(value)
        run.ask("ok?", bool)
        return value

    async def waiting(run, value):  # type: ignore[no-untyped-def]
        seen.append(value)
        await run.ask("ok?", bool)
        return value

    for fn in (plain, waiting):
        fn.__annotations__ = {"value": annotation, "return": annotation}
        app.workflow(fn)


@pytest.mark.parametrize("name", ["plain", "waiting"])
@pytest.mark.parametrize(("annotation", "value", "data"), VALUES, ids=IDS)
def test_input_and_result_are_what_is_annotated_in_every_process(
    tmp_path: Path, annotation: Any, value: Any, data: Any, name: str
) -> None:
    seen: list[Any] = []
    url = f"sqlite:{tmp_path / 'runs.db'}"
    for run_id, given in (("object", value), ("data", data)):
        with App(url) as app:
            flows(app, annotation, seen)
            handle = app.start(name, given, run_id=run_id)
        with App(url) as app:
            flows(app, annotation, seen)
            replay(app, handle.run_id)
            app.answer(handle.run_id, True)
            result = app.handle(handle.run_id).result(240)
            assert result == value
            assert type(result) is type(value)
    assert all(one == value and type(one) is type(value) for one in seen)
    assert len(seen) == 6


def test_started_by_a_process_without_the_code_it_is_typed_by_the_worker(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    with App(url) as app:
        app.start("plain", {"name": "cup"}, run_id="r", enqueue=True)
    seen: list[Any] = []
    with App(url) as app:
        flows(app, Item, seen)
        app.worker().run(until_idle=True)
    assert seen == [Item("cup")]


REFUSED: list[tuple[Any, Any, str]] = [
    (Item, {"colour": "red"}, "name"),
    (Item, Point(3), "name"),
    (Colour, "green", "green"),
    (dt.datetime, "yesterday", "datetime"),
    (Order, {"number": "many"}, "number"),
    (list[Point], [{"x": 1}, {"x": "two"}], "int"),
    (int, "5", "int"),
    (Note, {"text": 3}, "str"),
    (bytes, "text", "bytes"),
    (Item | Box, {"neither": 1}, "none of the types"),
    (Cart, {"orders": [{"number": "many"}]}, "number.*orders"),
    (Choice, {"what": "text"}, "what"),
    (Chosen, {"colour": "red"}, "what"),
    (Mark, {"colour": "green"}, "green"),
]


@pytest.mark.parametrize(("annotation", "value", "text"), REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_written(annotation: Any, value: Any, text: str) -> None:
    with App("memory:") as app:
        flows(app, annotation, [])
        for name in ("plain", "waiting"):
            with pytest.raises(InvalidInput, match=rf"(?s)workflow '{name}': argument 'value' does not fit.*{text}"):
                app.start(name, value, run_id="r")
        assert list(app.runs()) == []


class Secret(pydantic.BaseModel):
    v: pydantic.SecretStr


class Number(pydantic.BaseModel):
    v: float


@dataclasses.dataclass
class Place:
    v: Path


class Spot(msgspec.Struct):
    v: Path
    order: Order = Order(number=1)


UNSTORABLE: list[tuple[Any, Any, str]] = [
    (Secret, Secret(v=pydantic.SecretStr("s")), "['v'] cannot be stored: pydantic.types.SecretStr"),
    (Number, Number(v=float("inf")), "['v'] cannot be stored: inf is not a finite number"),
    (dict[int, str], {1: "a"}, " cannot be stored: the key 1 is int, and only text can be a key; use str(key)"),
    (
        Place,
        Place(Path("a")),
        f"['v'] cannot be stored: {type(Path()).__module__}.{type(Path()).__name__} is not a type",
    ),
    (Spot, Spot(Path("a")), f"['v'] cannot be stored: {type(Path()).__module__}.{type(Path()).__name__} is not a type"),
]


@pytest.mark.parametrize(("annotation", "value", "text"), UNSTORABLE, ids=[case[0].__name__ for case in UNSTORABLE])
def test_what_would_not_come_back_equal_is_refused_with_its_path(annotation: Any, value: Any, text: str) -> None:
    with App("memory:") as app:
        flows(app, annotation, [])
        for name in ("plain", "waiting"):
            with pytest.raises(Unstorable) as caught:
                app.start(name, value, run_id="r")
            assert f"the value at args[0]{text}" in str(caught.value)
        assert list(app.runs()) == []


def test_a_state_is_loaded_as_a_type_with_models_in_it() -> None:
    cart = Cart([Order(number=1)], last=Order(number=2))
    with holdfast.open("memory:") as store:
        store.save("r", cart)
        found = store.load("r", as_type=Cart)
        assert found is not None
        assert found.state == cart


def test_the_same_input_as_data_is_the_same_run() -> None:
    with App("memory:") as app:
        flows(app, Item, [])
        app.start("plain", Item("cup"), run_id="r")
        assert app.start("plain", {"name": "cup"}, run_id="r").status() == "waiting"
        with pytest.raises(InvalidInput):
            app.start("plain", {"colour": "red"}, run_id="r")


def test_children_get_and_give_typed_values() -> None:
    with App("memory:") as app:
        seen: list[Any] = []

        @app.workflow
        def paint(run: Run, item: Item, *more: Item, **named: Item) -> Box:
            seen.extend([item, *more, *named.values()])
            return Box([item])

        @app.workflow
        async def parent(run: AsyncRun) -> list[Any]:
            first = await run.child(paint, Item("a"), Item("b"), c=Item("c"))
            again = await run.child("paint", {"name": "d"}, key="by-name")
            return [type(first).__name__, again.items[0].name]

        assert app.start(parent).result() == ["Box", "d"]
        assert seen == [Item("a"), Item("b"), Item("c"), Item("d")]


def test_an_annotation_that_cannot_be_resolved_leaves_the_others_as_they_are() -> None:
    with App("memory:") as app:
        seen: list[Any] = []

        @app.workflow
        def haunted(run: Run, ghost: Ghost, item: Item) -> None:
            seen.extend([ghost, item])

        app.start("haunted", {"boo": 1}, {"name": "cup"}).result()
        assert seen == [{"boo": 1}, Item("cup")]


def test_a_run_whose_input_no_longer_fits_the_code_is_paused(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    with App(url) as app:
        flows(app, Item, [])
        app.start("plain", Item("cup"), run_id="r")
    with App(url) as app:
        flows(app, Point, [])
        with pytest.raises(InvalidInput, match="does not fit"):
            app.answer("r", True)
        assert app.handle("r").status() == "paused"
    with App(url) as app:
        flows(app, Item, [])
        assert app.resume("r").result(240) == Item("cup")


@pytest.mark.parametrize("name", ["plain", "waiting"])
def test_enqueued_input_that_does_not_fit_pauses_the_run_and_says_why(tmp_path: Path, name: str) -> None:
    url = f"sqlite:{tmp_path / 'runs.db'}"
    with App(url) as client, App(url) as server:
        flows(server, Item, [])
        handle = client.start(name, {"colour": "x"}, run_id="r", enqueue=True)
        worker = server.worker()
        worker.run(until_idle=True)
        assert (handle.status(), worker.failed) == ("paused", 1)
        assert "does not fit" in client.store.journal("r")[-1].data["message"]
        assert "argument 'value' does not fit" in timeline(client.store, "r").standing.sentence
        with pytest.raises(NotFinished, match=r"cannot continue: .* argument 'value' does not fit"):
            handle.result(0)
