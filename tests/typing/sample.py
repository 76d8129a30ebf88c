"""What a user writes, for type checkers to read. It is never run. Each `reveal_type` is followed by what it must be.

A line that ends in `# error` must be refused.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, reveal_type

import pydantic

import holdfast
from holdfast.formats import brainwires, mur

app = holdfast.App("memory:")


@dataclasses.dataclass
class Order:
    number: int


class Refund(pydantic.BaseModel):
    approve: bool


def price(order: Order) -> float:
    return order.number * 2.0


async def price_later(order: Order) -> float:
    return order.number * 2.0


@app.workflow
def plain(run: holdfast.Run, order: Order, note: str = "") -> list[Order]:
    reveal_type(run.step(price, order))  # float
    reveal_type(run.step(price_later, order))  # float
    reveal_type(run.effect(price, order, key="pay"))  # float
    reveal_type(run.ask("ok?", bool))  # bool
    reveal_type(run.ask("ok?", Refund, expires=60))  # Refund
    reveal_type(run.ask("ok?", Order))  # Order
    reveal_type(run.ask("ok?", {"approve": bool}))  # dict[str, Any]
    reveal_type(run.map(price, [order]))  # list[float]
    reveal_type(run.map(price_later, [order], limit=2))  # list[float]
    reveal_type(run.map(price, [order], return_exceptions=True))  # list[float | Exception]
    reveal_type(run.gather(lambda r: r.step(price, order), lambda r: r.step(price, order)))  # list[float]
    reveal_type(run.child(waiting, 3))  # str
    reveal_type(run.child(waiting, 3, key="k"))  # str
    reveal_type(run.child(waiting, 3, enqueue=True))  # str
    reveal_type(run.child(waiting, 3, detached=True))  # str
    reveal_type(run.child("waiting", 3))  # Any
    run.map(price, ["a"])  # error
    run.child(waiting, "three")  # error
    return [order]


@app.workflow(name="later", retry=3)
async def waiting(run: holdfast.AsyncRun, number: int) -> str:
    order = Order(number)
    reveal_type(await run.step(price, order))  # float
    reveal_type(await run.step(price_later, order))  # float
    reveal_type(await run.effect(price_later, order, key="pay"))  # float
    reveal_type(await run.ask("ok?", bool))  # bool
    reveal_type(await run.ask("ok?", Refund))  # Refund
    reveal_type(await run.ask("ok?", {"approve": bool}))  # dict[str, Any]
    reveal_type(await run.map(price_later, [order]))  # list[float]
    reveal_type(await run.map(price, [order], return_exceptions=True))  # list[float | Exception]
    reveal_type(await run.gather(lambda r: r.step(price, order)))  # list[float]
    reveal_type(await asyncio.create_task(run.step(price, order)))  # float
    reveal_type(await run.child(plain, order, note="n"))  # list[Order]
    reveal_type(await run.child(plain, order, key="k"))  # list[Order]
    reveal_type(await run.child(plain, order, enqueue=True))  # list[Order]
    run.ask("ok?", bool)  # error
    if await run.step(price, order):
        return "paid"
    return ""


@app.workflow
def untyped(run, value):  # type: ignore[no-untyped-def]
    return value


@app.workflow
def many(run: holdfast.Run, *orders: Order, **named: Order) -> int:
    return len(orders) + len(named)


@app.workflow  # error
def mixed_up(run: holdfast.AsyncRun) -> int:
    return 3


def outside() -> None:
    order = Order(1)
    reveal_type(plain)  # Workflow[order: Order, note: str, list[Order]]
    reveal_type(waiting)  # Workflow[number: int, str]
    reveal_type(app.start(plain, order).result())  # list[Order]
    reveal_type(app.start(plain, order, note="n"))  # Handle[list[Order]]
    reveal_type(app.start(plain, order, run_id="r", metadata={"a": 1}))  # Handle[list[Order]]
    reveal_type(app.start(plain, order, metadata={"a": 1}).result(240))  # list[Order]
    reveal_type(app.start(waiting, 3).result())  # str
    reveal_type(app.start("plain", order).result())  # Any
    reveal_type(app.handle("r").result())  # Any
    app.start(plain, "A-17")  # error
    app.start(waiting)  # error
    app.start(untyped, 1)
    reveal_type(app.start(many, order, a=order).result())  # int


async def outside_awaiting() -> None:
    handle = await app.aio.start(waiting, 3)
    reveal_type(handle)  # AsyncHandle[str]
    reveal_type(await handle.result())  # str
    reveal_type(await app.aio.start(waiting, 3, run_id="r"))  # AsyncHandle[str]
    await app.aio.start(waiting, "three")  # error


async def on_files_of_others(tasks: brainwires.Directory, executions: mur.Directory) -> None:
    reveal_type(await tasks.aio.mark_step_complete("t", "u", {}, result=1))  # bool
    reveal_type(await tasks.aio.load_checkpoint("t"))  # dict[str, Any] | None
    reveal_type(await brainwires.Memory().aio.load_checkpoint("t"))  # dict[str, Any] | None
    reveal_type(await executions.aio.steps("e"))  # list[int]
    await tasks.aio.load_checkpoint(5)  # error


def passed_on(handle: holdfast.Handle, workflow: holdfast.Workflow) -> Any:
    """Without parameters they are of anything."""
    found = holdfast.current_run()
    reveal_type(found)  # Run | AsyncRun | None
    return handle.result(), workflow
