"""What the tests of this adapter share."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

pytest.importorskip("workflows")
from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed

import holdfast
from holdfast.adapters.llama_index import HoldfastRuntime, idempotency_key, perform_tool, run_workflow

calls: list[str] = []


def _start(app: holdfast.App, kind: type[Workflow], run_id: str = "r", **given: Any) -> holdfast.Handle[Any]:
    """Start a run that executes one workflow. Every execution makes it again, as another process would."""

    async def execute(run: holdfast.AsyncRun, start: dict[str, Any]) -> Any:
        options = {name: given[name] for name in ("gates",) if name in given}
        return await run_workflow(run, kind(timeout=None, runtime=HoldfastRuntime()), **options, **start)

    app.workflow(name=f"execute {run_id}")(execute)
    return app.start(f"execute {run_id}", given.get("start", {}), run_id=run_id)


def question(**data: Any) -> InputRequiredEvent:
    """A question with fields that its class does not declare."""
    return cast("Any", InputRequiredEvent)(**data)  # type: ignore[no-any-return]


class Greet(Workflow):
    """Asks by returning an event, as the documentation of LlamaIndex does."""

    @step
    async def ask(self, ev: StartEvent) -> InputRequiredEvent:
        calls.append("ask")
        return question(prefix="What is your name? ")

    @step
    async def greet(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=f"Hello {ev.response}")


class Stream(Greet):
    """Asks by writing to the stream."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> InputRequiredEvent | None:  # type: ignore[override]
        ctx.write_event_to_stream(question(prefix="Name?"))
        return None


class Confirm(HumanResponseEvent):
    """Another answer."""

    yes: bool


class TwoAnswers(Greet):
    """Accepts two kinds of answers."""

    @step
    async def confirm(self, ev: Confirm) -> StopEvent:
        return StopEvent(result=f"confirmed {ev.yes}")


class Item(Event):
    """One of several that wait side by side."""

    name: str


class Waits(Workflow):
    """Two steps wait side by side."""

    requires: tuple[str, ...] = ()

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Item | None:
        for name in ("a", "b"):
            ctx.send_event(Item(name=name))
        return None

    @step(num_workers=2)
    async def wait(self, ctx: Context, ev: Item) -> StopEvent | None:
        answer = await ctx.wait_for_event(
            HumanResponseEvent,
            waiter_event=question(prompt=f"And {ev.name}?"),
            waiter_id=ev.name,
            requirements={"item": ev.name} if ev.name in self.requires else {},
        )
        calls.append(f"{ev.name} {answer.response}")
        return StopEvent(result=sorted(calls)) if len(calls) == 2 else None


class WaitsForItems(Waits):
    """The same, and each answer is for one of them."""

    requires = ("a", "b")


class WaitsForOne(Waits):
    """One of them takes every answer."""

    requires = ("a",)


class Deaf(Workflow):
    """Waits for an event that only a caller could send."""

    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        item = await ctx.wait_for_event(Item)
        return StopEvent(result=item.name)


class Chat(Workflow):
    """Changes what is in the state store in place, as many programs do."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> InputRequiredEvent:
        await ctx.store.set("messages", [{"text": "hi", "tags": ["x~/y"]}])
        await ctx.store.set("gone", 1)
        messages = await ctx.store.get("messages")
        messages.append({"text": "there"})
        messages[0]["tags"].append("z")
        await ctx.store.set("messages", messages)
        return question(prompt="And?")

    @step
    async def end(self, ctx: Context, ev: HumanResponseEvent) -> StopEvent:
        messages = await ctx.store.get("messages")
        return StopEvent(result=[*messages, {"text": ev.response}])


class Price(StopEvent):
    """A typed result."""

    amount: int


class Fails(Workflow):
    """Fails in its second step, as long as `broken` is true."""

    broken = True

    @step
    async def look(self, ev: StartEvent) -> Item:
        calls.append("look")
        await perform_tool("look-1", _note, {"text": "looked"})
        return Item(name="A-17")

    @step
    async def price(self, ev: Item) -> Price:
        calls.append("price")
        await perform_tool("price-1", _note, {"text": "priced"})
        if type(self).broken:
            raise ValueError("no price")
        return Price(amount=40)


def _note(text: str) -> str:
    calls.append(text)
    return text


class Flaky(Workflow):
    """LlamaIndex repeats a step that raises."""

    @step(retry_policy=retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(3)))
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        calls.append(f"attempt {ctx.retry_info().retry_number}")
        await perform_tool("pay-1", _note, {"text": "paid"})
        if ctx.retry_info().retry_number < 2:
            raise ConnectionError("again")
        return StopEvent(result="done")


class Hasty(Workflow):
    """Sends an event, and goes on working."""

    @step
    async def think(self, ctx: Context, ev: StartEvent) -> Item | None:
        ctx.send_event(Item(name="a"))
        for _ in range(50):
            await asyncio.sleep(0)
        calls.append("thought")
        return None

    @step
    async def act(self, ev: Item) -> StopEvent:
        calls.append("acted")
        return StopEvent()


class Pays(Workflow):
    """Asks, pays, and reports."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Item | None:
        await ctx.store.set("seen", ["begin"])
        for name in ("a", "b"):
            ctx.send_event(Item(name=name))
        return None

    @step(num_workers=2)
    async def pay(self, ctx: Context, ev: Item) -> Item | StopEvent | None:
        answer = await ctx.wait_for_event(
            HumanResponseEvent, waiter_event=question(prompt=ev.name), requirements={"item": ev.name}
        )
        paid = await perform_tool(f"pay-{ev.name}", _note, {"text": f"{ev.name} {answer.response}"})
        async with ctx.store.edit_state() as state:
            state.seen = sorted({*state.seen, paid})
            seen = state.seen
        return StopEvent(result=seen) if len(seen) == 3 else None


class Declined(Exception):
    """The card."""


class Tools(Workflow):
    """Calls tools that fail, that read, and under the same ids as another workflow."""

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        def decline() -> None:
            raise Declined("no money")

        async def read() -> str:
            calls.append("read")
            return f"key {idempotency_key()}"

        try:
            await perform_tool("call-1", decline, {}, policy={"not_done": (Declined,)})
        except holdfast.EffectFailed as error:
            declined = error.failure["message"]
        found = await perform_tool("call-2", read, {}, policy={"record": "step"})
        return StopEvent(result=[declined, found])
