"""The adapter for Microsoft Agent Framework: what the common story does not cover."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("agent_framework")
import pydantic
from agent_framework import (
    Agent,
    ChatContext,
    Content,
    FunctionInvocationContext,
    Message,
    MiddlewareTermination,
    chat_middleware,
    function_middleware,
    tool,
)

import holdfast
from holdfast.adapters.agent_framework import durable_middleware
from holdfast.errors import StepFailed
from tests.adapters.agent_framework.material import (
    Calls,
    answer_all,
    failure,
    paying,
    scripted,
    start,
    two_payments,
)
from tests.adapters.agent_framework.story_agent import FakeClient, call, results


def test_a_streamed_agent_asks_its_approvals_and_repeats_nothing() -> None:
    calls: Calls = []
    seen: list[str] = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        agent = Agent(two_payments(calls), tools=[paying(calls)], middleware=durable_middleware())
        stream = agent.run("Pay.", stream=True)
        seen.extend([update.text async for update in stream])
        return (await stream.get_final_response()).text

    app, handle = start(workflow)
    assert handle.status() == "waiting"
    (first, second) = app.gates("run")
    assert (first.show, second.show) == ({"order": "A"}, {"order": "B"})
    app.answer("run", {"approve": True}, gate=first.gate)
    app.answer("run", {"approve": False, "note": "too dear"}, gate=second.gate)
    text = handle.result()
    assert text.startswith("paid A; Error")
    assert text.endswith("too dear")
    assert [each[0] for each in calls] == ["model", "pay", "model"]
    assert text in seen


def test_the_note_of_a_refusal_stays_in_the_session() -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> list[str]:
        agent = Agent(two_payments(calls), tools=[paying(calls)], middleware=durable_middleware())
        session = agent.create_session()
        await agent.run("Pay.", session=session)
        return [(await agent.run("Why?", session=session)).text]

    app, handle = start(workflow)
    answer_all(app, approve=False, note="no budget")
    assert "no budget" in handle.result()[0]
    assert [each[0] for each in calls] == ["model", "model", "model"]


def test_structured_output_is_parsed_again_from_the_record() -> None:
    class Order(pydantic.BaseModel):
        number: int

    calls: Calls = []

    def model(messages: Sequence[Message]) -> Sequence[Content]:
        calls.append("model")
        return [Content.from_text('{"number": 17}')]

    async def workflow(run: holdfast.AsyncRun) -> list[Any]:
        agent = Agent(FakeClient(model), middleware=durable_middleware())
        found = await agent.run("Which?", options={"response_format": Order})
        streamed = await agent.run("Which?", stream=True, options={"response_format": Order}).get_final_response()
        await run.ask("Go on?", bool)
        return [found.value == Order(number=17), streamed.value == Order(number=17)]

    app, handle = start(workflow)
    app.answer("run", True)
    assert handle.result() == [True, True]
    assert calls == ["model"] * 2


def test_an_agent_used_as_a_tool_asks_for_itself() -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        inner = Agent(
            scripted([call("same-id", "pay", order="A")], calls=calls),
            name="cashier",
            tools=[paying(calls)],
            middleware=durable_middleware(),
        )
        outer = Agent(
            scripted([call("o1", "cashier", task="A"), call("o2", "cashier", task="B")], calls=calls),
            name="clerk",
            tools=[inner.as_tool()],
            middleware=durable_middleware({"cashier": {"record": "none"}}),
        )
        return str((await outer.run("Pay.")).text)

    app, handle = start(workflow)
    while app.gates("run"):
        app.answer("run", {"approve": True}, gate=app.gates("run")[0].gate)
    assert handle.result() == "paid A; paid A"
    assert calls.count(("pay", "A")) == 2
    assert [each[0] for each in calls].count("model") == 6


@pytest.mark.parametrize("record", ["effect", "step"])
def test_an_agent_that_asks_inside_a_recorded_tool_call_stops_the_run(record: str) -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        inner = Agent(two_payments(calls), name="cashier", tools=[paying(calls)], middleware=durable_middleware())
        outer = Agent(
            scripted([call("o1", "cashier", task="A")], calls=calls),
            tools=[inner.as_tool()],
            middleware=durable_middleware({"cashier": {"record": record}}),
        )
        return str((await outer.run("Pay.")).text)

    _, handle = start(workflow)
    assert "{'record': 'none'}" in failure(handle)
    assert [each[0] for each in calls] == ["model", "model"]


def test_a_model_may_use_the_same_ids_in_every_response() -> None:
    calls: Calls = []
    turns = [[call("0", "pay", order="A"), call("0", "pay", order="B")], [call("0", "pay", order="A")]]

    async def workflow(run: holdfast.AsyncRun) -> str:
        agent = Agent(scripted(*turns, calls=calls), tools=[paying(calls)], middleware=durable_middleware())
        return str((await agent.run("Pay.")).text)

    app, handle = start(workflow)
    assert len(app.gates("run")) == 2
    answer_all(app)
    answer_all(app)
    assert handle.result() == "paid A; paid B; paid A"
    assert [each for each in calls if each[0] == "pay"] == [("pay", "A"), ("pay", "B"), ("pay", "A")]


@pytest.mark.parametrize("call_id", ["pay[1]", "pay#1", "x" * 600, "é 1", ""])
def test_any_id_of_a_tool_call_serves(call_id: str) -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        client = scripted([call(call_id, "pay", order="A")], calls=calls)
        agent = Agent(client, tools=[paying(calls)], middleware=durable_middleware())
        return str((await agent.run("Pay.")).text)

    app, handle = start(workflow)
    answer_all(app)
    assert handle.result() == "paid A"


def test_a_batch_of_which_one_call_needs_an_approval_asks_once() -> None:
    calls: Calls = []

    @tool(approval_mode="never_require")
    def look(order: str) -> str:
        """Look an order up."""
        calls.append(("look", order))
        return f"{order} is open"

    async def workflow(run: holdfast.AsyncRun) -> str:
        client = scripted([call("l", "look", order="A"), call("p", "pay", order="A")], calls=calls)
        agent = Agent(client, tools=[look, paying(calls)], middleware=durable_middleware())
        return str((await agent.run("Pay.")).text)

    app, handle = start(workflow)
    (gate,) = app.gates("run")
    assert "pay" in gate.prompt
    answer_all(app)
    assert handle.result() == "A is open; paid A"
    assert calls.count(("look", "A")) == 1


def test_an_error_of_a_tool_is_told_to_the_model_and_recorded_once() -> None:
    calls: Calls = []

    @tool(approval_mode="never_require")
    def pay(order: str) -> str:
        """Pay an order."""
        calls.append(("pay", order))
        raise ValueError("card declined")

    async def workflow(run: holdfast.AsyncRun) -> str:
        middleware = durable_middleware({"pay": {"not_done": ValueError}})
        agent = Agent(scripted([call("c", "pay", order="A")], calls=calls), tools=[pay], middleware=middleware)
        text = (await agent.run("Pay.")).text
        await run.ask("Go on?", bool)
        return str(text)

    app, handle = start(workflow)
    app.answer("run", True)
    assert "Function failed" in handle.result()
    assert calls.count(("pay", "A")) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_payment_whose_outcome_is_unknown_is_not_told_to_the_model(stream: bool) -> None:
    calls: Calls = []

    @tool(approval_mode="never_require")
    def pay(order: str) -> str:
        """Pay an order."""
        calls.append(("pay", order))
        raise TimeoutError("the bank did not answer")

    async def workflow(run: holdfast.AsyncRun) -> str:
        agent = Agent(
            scripted([call("c", "pay", order="A")], calls=calls),
            tools=[pay],
            middleware=durable_middleware({"pay": {"in_doubt": "fail"}}),
        )
        response = await agent.run("Pay.", stream=True).get_final_response() if stream else await agent.run("Pay.")
        return str(response.text)

    _, handle = start(workflow)
    assert "EffectInDoubt" in failure(handle)
    assert [each[0] for each in calls] == ["model", "pay"]


def test_a_middleware_that_ends_the_loop_ends_it_on_a_replay_too() -> None:
    calls: Calls = []

    @function_middleware
    async def stop(context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        await call_next()
        raise MiddlewareTermination

    async def workflow(run: holdfast.AsyncRun) -> list[str]:
        agent = Agent(
            scripted([call("c", "pay", order="A")], calls=calls),
            tools=[paying(calls, "never_require")],
            middleware=[*durable_middleware(), stop],
        )
        response = await agent.run("Pay.")
        await run.ask("Go on?", bool)
        return results(response.messages)

    app, handle = start(workflow)
    app.answer("run", True)
    assert handle.result() == ["paid A"]
    assert [each[0] for each in calls] == ["model", "pay"]


def test_what_a_tool_stores_in_the_session_is_there_after_a_resume() -> None:
    calls: Calls = []

    @tool(approval_mode="never_require")
    def remember(order: str, ctx: FunctionInvocationContext) -> str:
        """Remember an order."""
        calls.append(("remember", order))
        assert ctx.session is not None
        ctx.session.state.setdefault("orders", []).append(order)
        return "remembered"

    async def workflow(run: holdfast.AsyncRun) -> Any:
        agent = Agent(
            scripted([call("c", "remember", order="A")], calls=calls),
            tools=[remember],
            middleware=durable_middleware(),
        )
        session = agent.create_session()
        await agent.run("Remember.", session=session)
        await run.ask("Go on?", bool)
        return session.state["orders"]

    app, handle = start(workflow)
    app.answer("run", True)
    assert handle.result() == ["A"]
    assert calls.count(("remember", "A")) == 1


def test_a_retry_of_the_model_is_a_call_of_its_own() -> None:
    calls: Calls = []

    def model(messages: Sequence[Message]) -> Sequence[Content]:
        calls.append("model")
        if len(calls) == 1:
            raise ConnectionError("reset")
        return [Content.from_text("hello")]

    @chat_middleware
    async def retry(context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        try:
            await call_next()
        except StepFailed:
            await call_next()

    async def workflow(run: holdfast.AsyncRun) -> str:
        agent = Agent(FakeClient(model), middleware=[retry, *durable_middleware()])
        text = (await agent.run("Hi.")).text
        await run.ask("Go on?", bool)
        return str(text)

    app, handle = start(workflow)
    app.answer("run", True)
    assert handle.result() == "hello"
    assert calls == ["model", "model"]


def test_a_model_that_fails_fails_the_run_and_is_called_again_by_a_retry() -> None:
    calls: Calls = []

    def model(messages: Sequence[Message]) -> Sequence[Content]:
        calls.append("model")
        if len(calls) == 1:
            raise ConnectionError("reset")
        return [Content.from_text("hello")]

    async def workflow(run: holdfast.AsyncRun) -> str:
        return str((await Agent(FakeClient(model), middleware=durable_middleware()).run("Hi.")).text)

    app, handle = start(workflow)
    assert "ConnectionError" in failure(handle)
    assert app.retry("run").result() == "hello"


def test_parallel_agents_of_one_name_each_find_their_own_records() -> None:
    calls: Calls = []

    def model(messages: Sequence[Message]) -> Sequence[Content]:
        calls.append(messages[0].text)
        return [Content.from_text(f"re {messages[0].text}")]

    async def workflow(run: holdfast.AsyncRun) -> list[str]:
        agent = Agent(FakeClient(model), name="same", middleware=durable_middleware())
        found = await asyncio.gather(*[agent.run(text) for text in ("one", "two", "three")])
        await run.ask("Go on?", bool)
        return [each.text for each in found]

    app, handle = start(workflow)
    app.answer("run", True)
    assert handle.result() == ["re one", "re two", "re three"]
    assert sorted(calls) == ["one", "three", "two"]
