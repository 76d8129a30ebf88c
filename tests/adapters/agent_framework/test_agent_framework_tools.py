"""The adapter for Microsoft Agent Framework: what the common story does not cover, part 2."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("agent_framework")
from agent_framework import (
    Agent,
    Content,
    FunctionInvocationContext,
    FunctionTool,
    Message,
    WorkflowBuilder,
    tool,
)

import holdfast
from holdfast.adapters.agent_framework import durable_middleware
from holdfast.errors import Diverged, InvalidInput
from tests.adapters.agent_framework.material import Calls, _text, answer_all, failure, paying, scripted, start
from tests.adapters.agent_framework.story_agent import FakeClient, call


def test_a_replay_with_another_question_is_refused() -> None:
    questions = iter(["What is 1 + 1?", "What is 2 + 2?"])

    async def workflow(run: holdfast.AsyncRun) -> str:
        agent = Agent(FakeClient(lambda _: [Content.from_text("2")]), middleware=durable_middleware())
        text = (await agent.run(next(questions))).text
        await run.ask("Go on?", bool)
        return str(text)

    app, handle = start(workflow)
    with pytest.raises(Diverged, match=r"What is 2 \+ 2"):
        app.answer("run", True)
    assert handle.status() == "paused"


@pytest.mark.parametrize("stream", [False, True])
def test_durable_agents_inside_a_workflow_of_the_framework_ask_and_repeat_nothing(stream: bool) -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        agents = [
            Agent(
                scripted([call("c", "pay", order=name)], calls=calls),
                name=name,
                tools=[paying(calls)],
                middleware=durable_middleware(),
            )
            for name in ("first", "second")
        ]
        built = WorkflowBuilder(start_executor=agents[0], name="both").add_edge(agents[0], agents[1]).build()
        if stream:
            found = await built.run("Pay.", stream=True).get_final_response()
        else:
            found = await built.run("Pay.")
        return str(found.get_outputs()[-1].text)

    app, handle = start(workflow)
    answer_all(app)
    assert handle.result() == "paid first"
    assert [each[0] for each in calls] == ["model", "pay", "model", "model"]  # the last is of the second agent


def test_a_client_without_an_agent_is_recorded_too() -> None:
    calls: Calls = []

    async def workflow(run: holdfast.AsyncRun) -> str:
        client = scripted([call("c", "pay", order="A")], calls=calls)
        _, model, tools = durable_middleware()
        response = await client.get_response(
            [Message("user", ["Pay."])],
            options={"tools": [paying(calls, "never_require")]},
            client_kwargs={"middleware": [model, tools]},
        )
        await run.ask("Go on?", bool)
        return str(response.text)

    app, handle = start(workflow)
    app.answer("run", True)
    assert handle.result().endswith("paid A")
    assert [each[0] for each in calls] == ["model", "pay", "model"]


def test_a_request_that_only_the_caller_can_serve_is_returned_to_the_caller() -> None:
    calls: Calls = []
    declared = FunctionTool(name="locate", description="Where the user is.", func=None, approval_mode="never_require")

    async def workflow(run: holdfast.AsyncRun) -> list[str]:
        client = scripted([call("l", "locate"), call("p", "pay", order="A")], calls=calls)
        agent = Agent(client, tools=[declared, paying(calls)], middleware=durable_middleware())
        return [request.type for request in (await agent.run("Pay.")).user_input_requests]

    _, handle = start(workflow)
    assert sorted(handle.result()) == ["function_approval_request", "function_call"]


def test_a_blocking_workflow_is_refused() -> None:
    app = holdfast.App("memory:")

    @app.workflow
    def blocking(run: holdfast.Run) -> str:
        agent = Agent(FakeClient(lambda _: [Content.from_text("hi")]), middleware=durable_middleware())
        return str(asyncio.run(_text(agent)))

    assert "async def" in failure(app.start("blocking", run_id="run"))


@pytest.mark.parametrize(
    ("policy", "problem"),
    [({"in_dout": "ask"}, "in_dout"), ("retry", "must be a dict"), ({"record": "never"}, "must be one of effect")],
)
def test_a_wrong_policy_is_refused_at_once(policy: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        durable_middleware({"pay": policy})


def test_the_extra_is_named_if_the_framework_is_missing() -> None:
    code = "import sys; sys.modules['agent_framework'] = None; import holdfast.adapters.agent_framework"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'pip install "holdfast[agent-framework]"' in ran.stderr


@pytest.mark.parametrize("was_closed", [True, False])
def test_a_payment_does_not_change_after_the_model_has_read_its_result(was_closed: bool) -> None:
    calls: Calls = []
    is_closed = [was_closed]

    @tool(approval_mode="always_require")
    def send(order: str) -> str:
        """Send an order."""
        calls.append(("send", order))
        return f"sent {order}"

    async def close(context: FunctionInvocationContext, call_next: Any) -> None:
        if is_closed[0] and context.function.name == "pay":
            context.result = "closed"
        else:
            await call_next()

    async def workflow(run: holdfast.AsyncRun) -> str:
        client = scripted([call("c", "pay", order="A")], [call("c", "send", order="B")], calls=calls)
        tools = [paying(calls, "never_require"), send]
        agent = Agent(client, tools=tools, middleware=[close, *durable_middleware()])
        return str((await agent.run("Pay.")).text)

    app, handle = start(workflow)
    made = [each[0] for each in calls]
    assert made == (["model", "model"] if was_closed else ["model", "pay", "model"])
    is_closed[0] = not was_closed
    with pytest.raises(Diverged, match="so it was not called"):
        answer_all(app)
    assert [each[0] for each in calls] == (made if was_closed else [*made, "send"])
    is_closed[0] = was_closed
    app.resume("run")
    handle.result()
    assert [each[0] for each in calls] == [*made, "send", "model"]


@pytest.mark.parametrize("record", ["effect", "step", "none"])
def test_a_call_whose_approval_was_removed_from_the_code_is_not_performed(record: str) -> None:
    calls: Calls = []
    modes = ["always_require"]

    async def workflow(run: holdfast.AsyncRun) -> str:
        client = scripted([call("c", "pay", order="A")], calls=calls)
        middleware = durable_middleware({"pay": {"record": record}})
        return str((await Agent(client, tools=[paying(calls, modes[0])], middleware=middleware).run("Pay.")).text)

    app, handle = start(workflow)
    modes[0] = "never_require"
    with pytest.raises(Diverged, match="so it was not called"):
        answer_all(app, approve=False)
    modes[0] = "always_require"
    app.resume("run")
    handle.result()
    assert "pay" not in [each[0] for each in calls]
