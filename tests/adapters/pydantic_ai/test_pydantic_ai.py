"""What the common story does not tell about agents of Pydantic AI."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from pydantic import BaseModel

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, ApprovalRequired, ModelHTTPError, ModelRetry, RunContext, capabilities
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests

import holdfast
from holdfast.adapters import pydantic_ai as adapter
from holdfast.adapters.pydantic_ai import HoldfastDurability, idempotency_key
from tests.adapters.pydantic_ai.material import Script, make_agent, replay


class Receipt(BaseModel):
    order: str
    amount: int


def test_structured_output_is_the_same_after_a_replay() -> None:
    script = Script([("final_result", {"order": "A-17", "amount": 40}, "c1")])
    agent = make_agent(script.model, output_type=Receipt)

    async def work(_: holdfast.AsyncRun) -> Any:
        return (await agent.run("receipt?")).output

    assert replay(work) == (Receipt(order="A-17", amount=40),) * 2
    assert script.calls == 1


def test_a_stream_is_buffered_and_the_model_is_called_once() -> None:
    script = Script("one two")
    seen: list[str] = []

    async def handle(_: RunContext[None], events: Any) -> None:
        seen.extend([type(event).__name__ async for event in events])

    agent = make_agent(script.model, durability=HoldfastDurability(event_stream_handler=handle))

    async def work(_: holdfast.AsyncRun) -> Any:
        async with agent.run_stream("count") as stream:
            return [part async for part in stream.stream_text(debounce_by=None)][-1]

    assert replay(work) == ("one two ", "one two ")
    assert script.calls == 1
    assert seen.count("PartDeltaEvent") == 1


def test_the_handler_of_events_is_not_called_again() -> None:
    script = Script([("look", {}, "c1")], "done")
    seen: list[str] = []

    async def handle(_: RunContext[None], events: Any) -> None:
        seen.extend([event.event_kind async for event in events])

    agent = make_agent(script.model, durability=HoldfastDurability(event_stream_handler=handle))

    @agent.tool_plain
    def look() -> int:
        return 1

    async def work(_: holdfast.AsyncRun) -> Any:
        await agent.run("look")
        return len(seen)

    live, replayed = replay(work)
    assert live == replayed
    assert seen.count("function_tool_result") == 1


def test_a_model_retry_is_recorded_and_reported_to_the_model() -> None:
    script = Script([("pay", {"amount": -1}, "c1")], [("pay", {"amount": 1}, "c2")], "done")
    agent, paid = make_agent(script.model), []

    @agent.tool_plain
    def pay(amount: int) -> str:
        paid.append(amount)
        if amount < 0:
            raise ModelRetry("the amount must be positive")
        return f"paid {amount}"

    async def work(_: holdfast.AsyncRun) -> Any:
        return (await agent.run("pay")).output

    assert replay(work) == ("done", "done")
    assert paid == [-1, 1]
    assert script.calls == 3
    assert any("must be positive" in text for text in script.told)


def test_an_error_of_a_tool_fails_the_run_and_a_retry_asks_before_it_is_called_again() -> None:
    script = Script([("look", {}, "c1")], "done")
    agent, errors = make_agent(script.model), [ValueError("no such table")]

    @agent.tool_plain
    def look() -> int:
        if errors:
            raise errors.pop()
        return 7

    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> str:
            return str((await agent.run("look")).output)

        handle = app.start(work, run_id="r")
        with pytest.raises(holdfast.RunFailed, match="no such table"):
            handle.result()
        assert app.retry("r").status() == "waiting"
        assert app.answer("r", {"outcome": "did not happen"}).result() == "done"
    assert script.calls == 2


def _failing(times: int, script: Script) -> FunctionModel:
    left = [None] * times

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if left:
            left.pop()
            script.calls += 1
            raise ModelHTTPError(503, "fake", {"error": "overloaded"})
        return script.answer(messages, info)

    return FunctionModel(answer)


def test_an_error_of_the_model_keeps_its_type_and_is_not_repeated_by_a_replay() -> None:
    script = Script("done")
    agent = make_agent(_failing(1, script))

    async def work(_: holdfast.AsyncRun) -> Any:
        try:
            await agent.run("hi")
        except ModelHTTPError as error:
            return error.status_code, (await agent.run("hi")).output
        raise AssertionError

    assert replay(work) == ((503, "done"), (503, "done"))
    assert script.calls == 2


def test_a_failed_model_call_is_repeated_by_a_retry_of_the_run() -> None:
    script = Script("done")
    agent = make_agent(_failing(1, script))
    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> str:
            return str((await agent.run("hi")).output)

        handle = app.start(work, run_id="r")
        with pytest.raises(holdfast.RunFailed, match="ModelHTTPError"):
            handle.result()
        assert app.retry("r").result() == "done"


def test_a_fallback_sees_the_error_and_its_model_is_recorded_too() -> None:
    fallback: Any = getattr(capabilities, "ModelFallback", None)
    if fallback is None:
        pytest.skip("this version of Pydantic AI has no ModelFallback")
    first, second = Script("never"), Script("from the second")
    spare = second.model
    agent = make_agent(
        _failing(9, first),
        capabilities=[fallback(spare)],
        durability=HoldfastDurability(models={"spare": spare}),
    )

    async def work(_: holdfast.AsyncRun) -> Any:
        return (await agent.run("hi")).output

    assert replay(work) == ("from the second", "from the second")
    assert (first.calls, second.calls) == (1, 1)


def test_agents_in_one_run_have_separate_records_though_their_calls_have_equal_ids() -> None:
    paid: list[str] = []

    def payer(name: str) -> Agent[None, Any]:
        agent = make_agent(Script([("pay", {}, "c1")], f"{name} done").model, name)

        @agent.tool_plain
        def pay() -> str:
            paid.append(name)
            return name

        return agent

    one, two = payer("one"), payer("two")

    async def work(_: holdfast.AsyncRun) -> Any:
        found = [(await agent.run("pay")).output for agent in (one, two, one)]
        both = await asyncio.gather(one.run("pay"), two.run("pay"), one.run("again"))
        return [*found, *(result.output for result in both)]

    live, replayed = replay(work)
    assert live == replayed == ["one done", "two done", "one done"] * 2
    assert sorted(paid) == ["one"] * 4 + ["two"] * 2


def test_an_id_that_the_model_uses_again_is_another_call() -> None:
    script = Script([("pay", {"to": "a"}, "c")], [("pay", {"to": "b"}, "c")], "done")
    agent, paid = make_agent(script.model), []

    @agent.tool_plain
    def pay(to: str) -> str:
        paid.append(to)
        return to

    async def work(_: holdfast.AsyncRun) -> Any:
        return (await agent.run("pay")).output

    assert replay(work) == ("done", "done")
    assert paid == ["a", "b"]


def test_a_replay_with_another_prompt_is_refused() -> None:
    script = Script("done")
    agent, prompts = make_agent(script.model), iter("ab")

    async def work(_: holdfast.AsyncRun) -> Any:
        return (await agent.run(next(prompts))).output

    with pytest.raises(holdfast.errors.Diverged, match="'prompt': 'b'"):
        replay(work)
    assert script.calls == 1


def test_a_random_run_id_of_the_caller_does_not_repeat_calls() -> None:
    script = Script([("pay", {}, "c1")], "done")
    agent, paid = make_agent(script.model), []

    @agent.tool_plain
    def pay() -> None:
        paid.append(1)

    async def work(_: holdfast.AsyncRun) -> Any:
        return (await agent.run("pay", run_id=str(uuid.uuid4()))).output

    assert replay(work) == ("done", "done")
    assert (script.calls, paid) == (2, [1])


def test_default_ids_are_the_same_in_a_replay_and_different_for_each_agent_run() -> None:
    agent = make_agent(Script("done").model)

    async def work(_: holdfast.AsyncRun) -> Any:
        results = [await agent.run("hi", timeout=60) for _ in range(2)]
        return [(result.run_id, result.conversation_id) for result in results]

    live, replayed = replay(work)
    assert live == replayed
    assert len(set(live)) == 2


def test_sync_and_async_tools_know_their_idempotency_key() -> None:
    script = Script([("slow", {}, "c1"), ("fast", {}, "c2")], "done")
    agent, keys = make_agent(script.model), []

    @agent.tool_plain
    def slow() -> None:
        keys.append(idempotency_key())

    @agent.tool_plain
    async def fast() -> None:
        keys.append(idempotency_key())

    async def work(_: holdfast.AsyncRun) -> Any:
        return (await agent.run("go")).output

    replay(work)
    assert len(set(keys)) == 2
    assert None not in keys
    asyncio.run(agent.run("go"))
    assert keys[2:] == [None, None]


def test_turns_of_a_loop_do_not_share_records() -> None:
    paid: list[int] = []
    script = Script([("pay", {}, "c1")], "done")
    agent = make_agent(script.model)

    @agent.tool_plain
    def pay() -> None:
        paid.append(1)

    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> int:
            async for turn in run.loop():
                await agent.run("pay")
                await run.ask("Go on?", {"ok": bool})
                if turn == 3:
                    break
            return len(paid)

        handle = app.start(work, run_id="r")
        for turn in (1, 2, 3):
            assert (len(paid), script.calls) == (turn, 2 * turn)
            app.answer("r", {"ok": True})
        assert handle.result() == 3


def test_an_unregistered_model_is_refused_and_a_registered_one_is_used() -> None:
    usual, other = Script("usual"), Script("other")
    registered = other.model
    agent = make_agent(usual.model, durability=HoldfastDurability(models={"other": registered}))

    async def work(_: holdfast.AsyncRun) -> Any:
        with agent.override(model=registered, instructions="be brief"):
            first = (await agent.run("hi")).output
        second = (await agent.run("hi", model="other")).output
        try:
            await agent.run("hi", model=Script("third").model)
        except UserError as error:
            return first, second, "models=" in str(error)

    assert replay(work) == (("other", "other", True),) * 2
    assert (usual.calls, other.calls) == (0, 2)


def test_a_workflow_that_is_not_async_is_refused() -> None:
    agent = make_agent(Script("done").model)
    with holdfast.App("memory:") as app:

        @app.workflow
        def work(run: holdfast.Run) -> str:
            return str(agent.run_sync("hi").output)

        with pytest.raises(holdfast.RunFailed, match="async def"):
            app.start(work).result()


def test_gates_can_be_left_to_the_agent() -> None:
    script = Script([("pay", {}, "c1")], "done")
    agent = make_agent(
        script.model, output_type=[str, DeferredToolRequests], durability=HoldfastDurability(gates=False)
    )

    @agent.tool_plain(requires_approval=True)
    def pay() -> str:
        return "paid"

    async def work(_: holdfast.AsyncRun) -> Any:
        return [call.tool_name for call in (await agent.run("pay")).output.approvals]

    assert replay(work) == (["pay"], ["pay"])


def test_an_approval_that_the_body_asks_for_is_a_gate_and_then_the_body_runs_again() -> None:
    script = Script([("pay", {"amount": 900}, "c1")], "done")
    agent, entered = make_agent(script.model), []

    @agent.tool(metadata={"holdfast": {"who": ["ana"]}})
    def pay(ctx: RunContext[None], amount: int) -> str:
        entered.append(ctx.tool_call_approved)
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"paid {amount}"

    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> str:
            return str((await agent.run("pay")).output)

        handle = app.start(work, run_id="r")
        (gate,) = app.gates("r")
        assert (gate.show, list(gate.who or ())) == ({"amount": 900}, ["ana"])
        app.answer("r", {"approve": True}, by="ana")
        assert handle.result() == "done"
    assert entered == [False, True]
    assert script.told == ["paid 900"]


def test_the_extra_is_named_when_the_framework_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    monkeypatch.delitem(sys.modules, adapter.__name__)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(ImportError, match=r"holdfast\[pydantic-ai\]"):
        importlib.import_module(adapter.__name__)
