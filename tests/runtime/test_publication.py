"""Published workflows: what other processes can list, show as a form, and start."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Any, Literal

import pytest

import holdfast
from holdfast import App, Run
from holdfast.errors import StorageFailed
from holdfast.store.capabilities import Catalog


@dataclasses.dataclass
class Order:
    number: int
    note: str = ""


GRAPH = {
    "id": "ship",
    "description": "Ship an order.\n\nMore.",
    "input": {"order": "text", "fast": {"type": "boolean", "default": False}},
    "stages": [{"id": "stop", "type": "end"}],
}


UNKNOWN = object()


def add_workflows(app: App) -> None:
    def pay(
        run: Run,
        order: Order,
        amount: float,
        kind: Literal["card", "cash"] = "card",
        *,
        urgent: bool = False,
        more: Any = None,
    ) -> None:
        """Pay an
        order.

        Only once.
        """

    def odd(run: Run, first: Any, second: Any = UNKNOWN, *rest: Any, third: Any = 3, **others: Any) -> None:
        pass

    odd.__annotations__["third"] = "Missing"
    app.workflow(version=3)(pay)
    app.workflow(odd)


def test_signatures_become_forms(app: App) -> None:
    add_workflows(app)
    assert app.publish_workflows() == ["odd", "pay"]
    odd, pay = app.store.workflows()
    assert (pay.name, pay.version, pay.doc, pay.declared) == ("pay", 3, "Pay an order.", False)
    assert [(field.name, field.kind, field.required, field.default) for field in pay.form.fields] == [
        ("order", "object", True, None),
        ("amount", "number", True, None),
        ("kind", "choice", False, "card"),
        ("urgent", "yes_no", False, False),
        ("more", "any", False, None),
    ]
    assert [(field.name, field.kind, field.required) for field in odd.form.fields] == [
        ("first", "any", True),
        ("second", "any", False),
        ("third", "any", False),
    ]
    assert app.store.verify().problems == []


def test_only_what_has_changed_is_published_again(app: App) -> None:
    add_workflows(app)
    app.publish_workflows()
    before = app.store.workflows()
    assert app.publish_workflows() == []
    assert app.store.workflows() == before
    port = app.store.port
    assert isinstance(port, Catalog)
    port.publish({"pay": b"damaged"})
    assert app.publish_workflows() == ["pay"]


def test_a_declared_workflow_has_the_form_of_its_input() -> None:
    with App("memory:") as app:
        app.graph(GRAPH)
        assert app.publish_workflows() == ["ship"]
        (ship,) = app.store.workflows()
        assert (ship.doc, ship.declared) == ("Ship an order.", True)
        assert [(field.name, field.kind) for field in ship.form.fields] == [("order", "text"), ("fast", "yes_no")]


def test_a_worker_publishes_and_another_process_starts_by_form() -> None:
    with holdfast.open("memory:") as store:
        app, other = App(store), App(store)

        @app.workflow
        def double(run: Run, number: int) -> int:
            """Double it."""
            return number * 2

        app.worker().run(until_idle=True)
        (found,) = other.store.workflows()
        checked = found.form.check({"number": 4})
        handle = other.start(found.name, **checked.value, enqueue=True)
        app.worker().run(until_idle=True)
        assert handle.result(60) == 8


def test_a_worker_works_on_a_store_that_cannot_publish(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with App("memory:") as app:

        @app.workflow
        def nothing(run: Run) -> str:
            return "done"

        def fail(*_: Any) -> None:
            raise StorageFailed("read only")

        monkeypatch.setattr(app.store.port, "publish", fail)
        handle = app.start(nothing, enqueue=True)
        with caplog.at_level(logging.WARNING, "holdfast"):
            app.worker().run(until_idle=True)
        assert "were not published" in caplog.text
        assert handle.result(60) == "done"


def test_counts_and_workflows_can_be_awaited() -> None:
    async def main(app: App) -> None:
        assert await app.aio.publish_workflows() == ["odd", "pay"]
        assert [one.name for one in await app.store.aio.workflows()] == ["odd", "pay"]
        assert (await app.store.aio.counts()).open_gates == 0

    with App("memory:") as app:
        add_workflows(app)
        asyncio.run(main(app))
