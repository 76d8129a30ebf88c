"""The adapter for Strands: what the common story does not cover, part 2."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("strands")
import mcp
from strands import ToolContext, tool
from strands.multiagent import GraphBuilder
from strands.tools.mcp import MCPAgentTool, MCPClient
from strands.types.content import ContentBlock, Messages

import holdfast
from holdfast.adapters.strands import HoldfastPlugin
from holdfast.errors import Diverged, InvalidInput
from tests.adapters.strands.material import (
    Calls,
    agent_of,
    answer_all,
    failure,
    kinds,
    paying,
    scripted,
    start,
    two_payments,
)
from tests.adapters.strands.story_agent import FakeModel, approve, call


def test_what_a_tool_stores_in_the_agent_is_there_after_a_resume() -> None:
    calls: Calls = []

    @tool(context=True)
    def remember(order: str, tool_context: ToolContext) -> str:
        """Remember an order."""
        calls.append(("remember", order))
        tool_context.agent.state.set("order", order)
        return "remembered"

    async def workflow(run: holdfast.AsyncRun) -> Any:
        agent = agent_of(scripted([call("c", "remember", order="A")], calls=calls), [remember])
        await agent.invoke_async("Remember.")
        await run.ask("Go on?", bool)
        return agent.state.get("order")

    app, handle = start(workflow)
    app.answer("run", True)
    assert handle.result() == "A"
    assert kinds(calls).count("remember") == 1


def test_parallel_agents_and_several_questions_find_their_own_records() -> None:
    calls: Calls = []

    def answer(messages: Messages) -> list[ContentBlock]:
        text = messages[-1]["content"][0]["text"]
        calls.append((text,))
        return [{"text": f"re {text}"}]

    async def workflow(run: holdfast.AsyncRun) -> list[str]:
        agents = [agent_of(FakeModel(answer), [], name="same") for _ in range(3)]
        found = await asyncio.gather(*[agent.invoke_async(str(number)) for number, agent in enumerate(agents)])
        found.append(await agents[0].invoke_async("again"))
        await run.ask("Go on?", bool)
        return [str(each).strip() for each in found]

    app, handle = start(workflow)
    app.answer("run", True)
    assert handle.result() == ["re 0", "re 1", "re 2", "re again"]
    assert sorted(kinds(calls)) == ["0", "1", "2", "again"]


def test_agents_of_a_graph_ask_and_repeat_nothing() -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        builder = GraphBuilder()
        for name in ("first", "second"):
            model = scripted([call("c", "pay", order=name)], calls=calls)
            builder.add_node(agent_of(model, [paying(calls)], name=name, hook=approve), name)
        builder.add_edge("first", "second")
        builder.set_entry_point("first")
        builder.set_max_node_executions(5)
        result = await builder.build().invoke_async("Pay.")
        return str(result.results["second"].result).strip()

    app, handle = start(workflow)
    for _ in range(2):
        answer_all(app)
    assert handle.result() == "paid second"
    assert [each[1] for each in calls if each[0] == "pay"] == ["first", "second"]
    assert kinds(calls).count("model") == 4


def test_a_graph_cannot_go_on_after_a_payment_of_unknown_outcome() -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        builder = GraphBuilder()
        for name in ("first", "second"):
            model = scripted([call("c", "pay", order=name)], calls=calls)
            pay = paying(calls, TimeoutError("the bank did not answer"))
            builder.add_node(agent_of(model, [pay], {"pay": {"in_doubt": "fail"}}, name=name), name)
        builder.add_edge("first", "second")
        builder.set_entry_point("first")
        builder.set_max_node_executions(5)
        await builder.build().invoke_async("Pay.")
        return "done"

    _, handle = start(workflow)
    assert "the bank did not answer" in failure(handle)
    assert kinds(calls) == ["model", "pay"]


def test_an_agent_from_outside_the_workflow_is_refused_on_the_resume() -> None:
    calls: Calls = []
    agent = agent_of(scripted(calls=calls), [])

    async def workflow(run: holdfast.AsyncRun) -> str:
        await agent.invoke_async("Hi.")
        await run.ask("Go on?", bool)
        return "done"

    app, handle = start(workflow)
    with pytest.raises(Diverged):
        app.answer("run", True)
    assert handle.status() == "paused"
    assert kinds(calls) == ["model"]


def test_an_agent_that_was_stopped_in_a_run_works_outside_of_it() -> None:
    calls: Calls = []
    agent = agent_of(two_payments(calls), [paying(calls, ValueError("?"))], {"pay": {"doubtful": (ValueError,)}})

    async def workflow(run: holdfast.AsyncRun) -> str:
        return str(await agent.invoke_async("Pay."))

    _, handle = start(workflow)
    assert handle.status() == "waiting"
    agent.messages.clear()
    assert "Error: ?; Error: ?" in str(agent("Pay."))


def test_a_model_that_keeps_the_conversation_itself_is_refused() -> None:
    class Stateful(FakeModel):
        @property
        def stateful(self) -> bool:
            return True

    async def workflow(run: holdfast.AsyncRun) -> str:
        return str(await agent_of(Stateful(lambda _: [{"text": "hi"}]), []).invoke_async("Hi."))

    _, handle = start(workflow)
    assert "Stateful" in failure(handle)


def test_a_tool_in_the_background_is_refused_before_it_is_called() -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        model = scripted([call("c", "pay", order="A", _background_execution=True)], calls=calls)
        return str(await agent_of(model, [paying(calls)], background_tasks=True).invoke_async("Pay."))

    _, handle = start(workflow)
    assert "background" in failure(handle)
    assert "pay" not in kinds(calls)


def test_a_blocking_workflow_is_refused() -> None:
    app = holdfast.App("memory:")

    @app.workflow
    def blocking(run: holdfast.Run) -> str:
        return str(agent_of(FakeModel(lambda _: [{"text": "hi"}]), [])("Hi."))

    assert "async def" in failure(app.start("blocking", run_id="run"))


@pytest.mark.parametrize(
    ("policy", "problem"),
    [({"in_dout": "ask"}, "in_dout"), ("retry", "must be a dict"), ({"record": "never"}, "must be one of effect")],
)
def test_a_wrong_policy_is_refused_at_once(policy: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        HoldfastPlugin({"pay": policy})


def test_the_extra_is_named_if_the_framework_is_missing() -> None:
    code = "import sys; sys.modules['strands'] = None; import holdfast.adapters.strands"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'pip install "holdfast[strands]"' in ran.stderr


def test_a_call_whose_approval_was_removed_from_the_code_is_not_performed() -> None:
    calls: Calls = []
    hooks: list[Any] = [approve]

    async def workflow(run: holdfast.AsyncRun) -> str:
        model = scripted([call("c", "pay", order="A")], calls=calls)
        return str(await agent_of(model, [paying(calls)], hook=hooks[0]).invoke_async("Pay.")).strip()

    app, _ = start(workflow)
    hooks[0] = None
    with pytest.raises(Diverged, match="before it calls 'pay'"):
        answer_all(app, approve=False)
    assert "pay" not in kinds(calls)


def test_a_lost_answer_of_an_mcp_server_is_in_doubt() -> None:
    """Strands makes a result of it that says that the call failed; the model might pay again."""
    calls: Calls = []

    class Lost(MCPClient):
        async def call_tool_async(self, tool_use_id: str, *args: Any, **kwargs: Any) -> Any:
            calls.append(("pay", kwargs["arguments"]["order"]))
            return self._handle_tool_execution_error(tool_use_id, TimeoutError("Timed out"))

    client = Lost(url="http://localhost")  # never connected
    schema = {"type": "object", "properties": {"order": {"type": "string"}}}
    tool = MCPAgentTool(mcp.types.Tool(name="pay", inputSchema=schema), client)

    async def workflow(run: holdfast.AsyncRun) -> str:
        agent = agent_of(scripted([call("c1", "pay", order="A")], calls=calls), [tool])
        return str(await agent.invoke_async("Pay."))

    app, handle = start(workflow)
    (gate,) = app.gates("run")
    assert gate.prompt.startswith("Did pay happen?")
    assert kinds(calls) == ["model", "pay"]
    app.answer("run", {"outcome": "happened", "result": "paid A"})
    assert "paid A" in handle.result()
    assert kinds(calls).count("pay") == 1
