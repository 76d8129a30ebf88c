"""The adapter for Strands: what the common story does not cover."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("strands")
import pydantic
from strands import tool
from strands.hooks import AfterModelCallEvent, AfterToolCallEvent, BeforeToolCallEvent
from strands.middleware import ExecuteToolStage
from strands.tools.executors import SequentialToolExecutor
from strands.types.content import ContentBlock, Messages
from strands.vended_interventions.hitl import HumanInTheLoop

import holdfast
from holdfast.adapters.strands import idempotency_key
from tests.adapters.strands.material import (
    Calls,
    agent_of,
    answer_all,
    ask_user,
    failure,
    kinds,
    paying,
    scripted,
    start,
    two_payments,
)
from tests.adapters.strands.story_agent import FakeModel, approve, call


@pytest.mark.parametrize("sequential", [False, True])
def test_a_streamed_agent_asks_its_interrupts_and_repeats_nothing(sequential: bool) -> None:
    calls: Calls = []
    seen: list[str] = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        executor = SequentialToolExecutor() if sequential else None
        agent = agent_of(two_payments(calls), [paying(calls)], hook=approve, tool_executor=executor)
        result: Any = None
        async for event in agent.stream_async("Pay."):
            seen.extend([event["data"]] if "data" in event else [])
            result = event.get("result", result)
        return str(result).strip()

    app, handle = start(workflow)
    assert len(app.gates("run")) == (1 if sequential else 2)  # a sequential executor stops at the first interrupt
    app.answer("run", {"approve": True}, gate=app.gates("run")[0].gate)
    (second,) = app.gates("run")
    assert second.show == {"order": "B"}
    app.answer("run", {"approve": False, "note": "yes"}, gate=second.gate)
    assert handle.result() == "paid A; refused: n: yes"
    assert kinds(calls) == ["model", "pay", "model"]
    assert seen[-1] == "paid A; refused: n: yes"


def test_the_intervention_of_strands_is_a_gate_too() -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        agent = agent_of(two_payments(calls), [paying(calls)], interventions=[HumanInTheLoop()])
        return str(await agent.invoke_async("Pay.")).strip()

    app, handle = start(workflow)
    first, second = app.gates("run")
    assert "pay" in first.prompt
    app.answer("run", {"approve": True}, gate=first.gate)
    app.answer("run", {"approve": False, "note": "y"}, gate=second.gate)
    assert handle.result().startswith("paid A")
    assert [each[1] for each in calls if each[0] == "pay"] == ["A"]


def test_respond_chooses_what_a_hook_gets() -> None:
    calls: Calls = []

    def ask(event: BeforeToolCallEvent) -> None:
        answer = event.interrupt("ask", reason="a large payment")
        calls.append(("answer", answer))
        event.cancel_tool = False if answer["ok"] else "no"

    async def workflow(run: holdfast.AsyncRun) -> str:
        agent = agent_of(
            scripted([call("c", "pay", order="A")], calls=calls),
            [paying(calls)],
            hook=ask,
            plugin={"respond": lambda approved, note: {"ok": approved, "why": note}},
        )
        return str(await agent.invoke_async("Pay.")).strip()

    app, handle = start(workflow)
    (gate,) = app.gates("run")
    assert gate.show == {"order": "A", "reason": "a large payment"}
    answer_all(app, note="fine")
    assert handle.result() == "paid A"
    assert ("answer", {"ok": True, "why": "fine"}) in calls


@pytest.mark.parametrize("policy", [{"who": "ana"}, {"approvals": 2}])
def test_the_policy_of_a_tool_says_who_approves(policy: dict[str, Any]) -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        model = scripted([call("c", "pay", order="A")], calls=calls)
        return str(await agent_of(model, [paying(calls)], {"pay": policy}, hook=approve).invoke_async("Pay."))

    app, handle = start(workflow)
    (gate,) = app.gates("run")
    assert (gate.who, gate.approvals) == ((("ana",), 1) if "who" in policy else ((), 2))
    assert handle.status() == "waiting"


def test_structured_output_is_there_after_a_resume() -> None:
    class Order(pydantic.BaseModel):
        number: int

    calls: Calls = []

    def answer(messages: Messages) -> list[ContentBlock]:
        calls.append(("model",))
        return [call("o", "Order", number=17)]

    async def workflow(run: holdfast.AsyncRun) -> bool:
        agent = agent_of(FakeModel(answer), [])
        result = await agent.invoke_async("Which?", structured_output_model=Order)
        await run.ask("Go on?", bool)
        return result.structured_output == Order(number=17)

    app, handle = start(workflow)
    app.answer("run", True)
    assert handle.result() is True
    assert kinds(calls) == ["model"]


def test_an_agent_used_as_a_tool_asks_for_itself() -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        inner = agent_of(
            scripted([call("same-id", "pay", order="A")], calls=calls), [paying(calls)], name="cashier", hook=approve
        )
        outer = agent_of(
            scripted([call("o1", "cashier", input="A")], [call("o2", "cashier", input="B")], calls=calls),
            [inner.as_tool(name="cashier", description="Pays.")],
            {"cashier": {"record": "none"}},
            name="clerk",
        )
        return str(await outer.invoke_async("Pay.")).strip()

    app, handle = start(workflow)
    while app.gates("run"):
        answer_all(app)
    assert [text.strip() for text in handle.result().split(";")] == ["paid A", "paid A"]
    assert kinds(calls).count("pay") == 2
    assert kinds(calls).count("model") == 7


@pytest.mark.parametrize("record", ["effect", "step"])
def test_an_agent_that_asks_inside_a_recorded_tool_call_stops_the_run(record: str) -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        inner = agent_of(two_payments(calls), [paying(calls)], name="cashier", hook=approve)
        outer = agent_of(
            scripted([call("o1", "cashier", input="A")], calls=calls),
            [inner.as_tool(name="cashier", description="Pays.")],
            {"cashier": {"record": record}},
        )
        return str(await outer.invoke_async("Pay."))

    _, handle = start(workflow)
    assert "{'record': 'none'}" in failure(handle)
    assert kinds(calls) == ["model", "model"]


def test_a_tool_that_asks_needs_the_policy_that_records_nothing() -> None:
    calls: Calls = []

    def workflow_with(policies: Any) -> Any:
        async def workflow(run: holdfast.AsyncRun) -> str:
            model = scripted([call("q", "ask_user", question="Sure?")], calls=calls)
            return str(await agent_of(model, [ask_user], policies).invoke_async("Ask.")).strip()

        return workflow

    _, handle = start(workflow_with(None))
    assert "ask_user" in failure(handle)
    app, handle = start(workflow_with({"ask_user": {"record": "none"}}))
    answer_all(app, approve=False, note="not yet")
    assert handle.result() == "the user says n: not yet"


def test_a_middleware_that_asks_inside_a_recorded_call_stops_the_run() -> None:
    calls: Calls = []

    async def ask(context: Any, call_next: Any) -> Any:
        context.interrupt("ask")
        async for event in call_next(context):
            yield event

    async def workflow(run: holdfast.AsyncRun) -> str:
        agent = agent_of(two_payments(calls), [paying(calls)])
        agent.add_middleware(ExecuteToolStage, ask)
        return str(await agent.invoke_async("Pay."))

    _, handle = start(workflow)
    assert "BeforeToolCallEvent" in failure(handle)
    assert kinds(calls) == ["model"]


def test_a_model_may_use_the_same_ids_in_every_response() -> None:
    calls: Calls = []
    turns = [[call("0", "pay", order="A"), call("0", "pay", order="B")], [call("0", "pay", order="A")]]

    async def workflow(run: holdfast.AsyncRun) -> str:
        agent = agent_of(scripted(*turns, calls=calls), [paying(calls)], hook=approve)
        return str(await agent.invoke_async("Pay.")).strip()

    app, handle = start(workflow)
    assert len(app.gates("run")) == 2
    answer_all(app)
    answer_all(app)
    assert handle.result() == "paid A; paid B; paid A"
    assert kinds(calls).count("pay") == 3


@pytest.mark.parametrize("call_id", ["pay[1]", "pay#1", "x" * 600, "é 1"])
def test_any_id_of_a_tool_call_serves(call_id: str) -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        model = scripted([call(call_id, "pay", order="A")], calls=calls)
        return str(await agent_of(model, [paying(calls)], hook=approve).invoke_async("Pay.")).strip()

    app, handle = start(workflow)
    answer_all(app)
    assert handle.result() == "paid A"


def test_an_error_of_a_tool_is_told_to_the_model_and_recorded_once() -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        model = scripted([call("c", "pay", order="A")], calls=calls)
        policies = {"pay": {"not_done": ValueError}}
        agent = agent_of(model, [paying(calls, ValueError("card declined"))], policies)
        result = await agent.invoke_async("Pay.")
        await run.ask("Go on?", bool)
        return str(result).strip()

    app, handle = start(workflow)
    app.answer("run", True)
    assert handle.result() == "Error: ValueError - card declined"
    assert kinds(calls).count("pay") == 1


@pytest.mark.parametrize("sequential", [False, True])
def test_a_payment_whose_outcome_is_unknown_is_not_told_to_the_model(sequential: bool) -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        agent = agent_of(
            scripted([call("c", "pay", order="A")], calls=calls),
            [paying(calls, TimeoutError("the bank did not answer"))],
            {"pay": {"in_doubt": "fail"}},
            tool_executor=SequentialToolExecutor() if sequential else None,
        )
        return str(await agent.invoke_async("Pay."))

    app, handle = start(workflow)
    assert "the bank did not answer" in failure(handle)
    assert kinds(calls).count("model") == 1
    app.retry("run")
    (gate,) = app.gates("run")
    assert gate.purpose != "ask"
    app.answer("run", {"outcome": "happened", "result": "receipt"}, gate=gate.gate)
    assert handle.result().strip() == "receipt"
    assert kinds(calls) == ["model", "pay", "model"]


def test_a_payment_in_doubt_waits_for_a_person_and_its_sibling_is_recorded() -> None:
    calls: Calls = []

    @tool
    def pay(order: str) -> str:
        """Pay an order."""
        calls.append(("pay", order))
        if order == "A":
            raise TimeoutError("the bank did not answer")
        return f"paid {order}"

    async def workflow(run: holdfast.AsyncRun) -> str:
        return str(await agent_of(two_payments(calls), [pay]).invoke_async("Pay.")).strip()

    app, handle = start(workflow)
    assert handle.status() == "waiting"
    (gate,) = app.gates("run")
    app.answer("run", {"outcome": "happened", "result": "receipt 1"}, gate=gate.gate)
    assert handle.result() == "receipt 1; paid B"
    assert sorted(calls[1:3]) == [("pay", "A"), ("pay", "B")]
    assert kinds(calls).count("pay") == 2


def test_a_retry_by_a_hook_is_a_call_of_its_own() -> None:
    calls: Calls = []

    @tool
    def pay(order: str) -> str:
        """Pay an order."""
        calls.append(("pay", order, idempotency_key()))
        if kinds(calls).count("pay") == 1:
            raise ConnectionRefusedError("closed")
        return f"paid {order}"

    def again(event: AfterToolCallEvent) -> None:
        event.retry = event.exception is not None

    async def workflow(run: holdfast.AsyncRun) -> str:
        agent = agent_of(scripted([call("c", "pay", order="A")], calls=calls), [pay])
        agent.add_hook(again, AfterToolCallEvent)
        text = str(await agent.invoke_async("Pay.")).strip()
        await run.ask("Go on?", bool)
        return text

    app, handle = start(workflow)
    app.answer("run", True)
    assert handle.result() == "paid A"
    keys = [each[2] for each in calls if each[0] == "pay"]
    assert len(set(keys)) == 2


def test_a_retry_of_the_model_is_a_call_of_its_own() -> None:
    calls: Calls = []

    def answer(messages: Messages) -> list[ContentBlock]:
        calls.append(("model",))
        if len(calls) == 1:
            raise ConnectionError("reset")
        return [{"text": "hello"}]

    def again(event: AfterModelCallEvent) -> None:
        event.retry = event.exception is not None

    async def workflow(run: holdfast.AsyncRun) -> str:
        agent = agent_of(FakeModel(answer), [])
        agent.add_hook(again, AfterModelCallEvent)
        text = str(await agent.invoke_async("Hi.")).strip()
        await run.ask("Go on?", bool)
        return text

    app, handle = start(workflow)
    app.answer("run", True)
    assert handle.result() == "hello"
    assert len(calls) == 2
