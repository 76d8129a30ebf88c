"""LlamaIndex workflows: `Context.to_dict()` in files, and `run_workflow`."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

import holdfast
from bench.adapters.material import Turns, approve, start
from bench.adapters.material import pay as pay_at
from holdfast.adapters.llama_index import HoldfastRuntime, perform_tool, run_workflow


class Turn(Event):
    """The number of the next turn."""

    number: int


class ApprovePayment(InputRequiredEvent):
    """May this be paid?"""


class PaymentAnswer(HumanResponseEvent):
    """Yes or no."""

    approve: bool


class Chat(Workflow):
    """A turn in each step; then, if there is a bank, a payment that needs an approval."""

    def __init__(self, turns: Turns, bank: Path | None, **options: Any) -> None:
        super().__init__(timeout=None, **options)
        self.turns, self.bank = turns, bank

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Turn:
        await ctx.store.set("messages", [])
        return Turn(number=0)

    @step
    async def turn(self, ctx: Context, ev: Turn) -> Turn | ApprovePayment | StopEvent:
        if ev.number == len(self.turns):
            return ApprovePayment() if self.bank else StopEvent(result="done")
        await ctx.store.set("messages", [*await ctx.store.get("messages"), *self.turns[ev.number]])
        ctx.write_event_to_stream(ev)
        return Turn(number=ev.number + 1)

    @step
    async def settle(self, ev: PaymentAnswer) -> StopEvent:
        assert self.bank is not None
        return StopEvent(result=await perform_tool("pay", pay_at, {"place": self.bank}))


def _work(turns: Turns, bank: Path | None) -> Any:
    async def work(run: holdfast.AsyncRun) -> str:
        return str(await run_workflow(run, Chat(turns, bank, runtime=HoldfastRuntime())))

    return work


def _save(handler: Any, file: Path) -> None:
    new = file.with_suffix(".new")
    new.write_text(json.dumps(handler.ctx.to_dict()), "utf-8")
    os.replace(new, file)


async def _begin(way: str, place: Path, turns: Turns, bank: Path | None) -> None:
    handler = Chat(turns, bank).run()
    async for event in handler.stream_events():
        if isinstance(event, ApprovePayment):
            _save(handler, place / "context.json")
            await handler.cancel_run()
            return
        if isinstance(event, Turn):
            _save(handler, place / (f"{event.number}.json" if "a file per step" in way else "context.json"))
    await handler


def grow(way: str, place: Path, turns: Turns) -> None:
    if way == "run_workflow":
        start(place, _work(turns, None))
    else:
        asyncio.run(_begin(way, place, turns, None))


def pause(way: str, place: Path, turns: Turns) -> None:
    if way == "run_workflow":
        start(place, _work(turns, place))
    else:
        asyncio.run(_begin(way, place, turns, place))


def resume(way: str, place: Path, turns: Turns) -> None:
    if way == "run_workflow":
        approve(place, _work(turns, place))
        return

    async def main() -> None:
        chat = Chat(turns, place)
        context = Context.from_dict(chat, json.loads((place / "context.json").read_text("utf-8")))
        handler = chat.run(ctx=context)
        handler.ctx.send_event(PaymentAnswer(approve=True))
        await handler

    asyncio.run(main())
