"""What `HoldfastPlugin` does beside the common story."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, ToolThreadPoolConfig
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import BaseModel

import holdfast
from holdfast.adapters.adk import HoldfastPlugin, ToolPolicy
from holdfast.errors import InvalidInput
from tests.adapters.adk.conversation import Bank, content_of, gates, script, start, talk, texts

# ADK warns of its own calls, as when AgentTool makes a Runner.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture
def app() -> Iterator[holdfast.App]:
    with holdfast.App("memory:") as made:
        yield made


def test_callbacks_of_the_agent_run_and_can_refuse_a_call(app: holdfast.App) -> None:
    bank, seen = Bank(), []

    def guard(tool: Any, args: dict[str, Any], tool_context: ToolContext) -> dict[str, str] | None:
        return {"error": "never B"} if args["order"] == "B" else None

    def after_tool(tool: Any, args: Any, tool_context: ToolContext, tool_response: Any) -> dict[str, Any]:
        return {"changed": tool_response}

    def after_model(callback_context: Any, llm_response: LlmResponse) -> None:
        seen.append("after model")

    agent = LlmAgent(
        name="payer",
        model=script([("pay", {"order": "A"}), ("pay", {"order": "B"})], "done"),
        tools=[bank.ask()],
        before_tool_callback=guard,
        after_tool_callback=after_tool,
        after_model_callback=after_model,
    )
    assert start(app, agent).status() == "waiting"
    assert list(gates(app)) == ["A"]
    handle = app.answer("r", {"approve": True})
    assert handle.result() == [[{"changed": "paid A"}, {"changed": {"error": "never B"}}], "done"]
    assert bank.paid == ["A"]
    assert "after model" in seen


def test_a_callback_that_answers_for_the_model_is_heard(app: holdfast.App) -> None:
    model = script("from the model")

    def guard(callback_context: Any, llm_request: LlmRequest) -> LlmResponse:
        return LlmResponse(content=types.ModelContent("refused"))

    agent = LlmAgent(name="payer", model=model, before_model_callback=guard)
    assert start(app, agent).result() == [[], "refused"]
    assert model.calls == []


def test_the_state_that_a_tool_writes_is_recorded_with_its_result(app: holdfast.App) -> None:
    bank, written, seen = Bank(), [], []

    def remember(tool_context: ToolContext) -> str:
        """Write to the state."""
        written.append(1)
        tool_context.state["price"] = 40
        tool_context.state["temp:tried"] = ["x"]
        tool_context.actions.skip_summarization = False
        return "ok"

    def read(tool_context: ToolContext) -> str:
        """Read the state."""
        seen.append([tool_context.state.get("price"), tool_context.state.get("temp:tried")])
        return "read"

    model = script([("remember", {})], [("pay", {"order": "A"})], [("read", {})], "done")
    agent = LlmAgent(name="payer", model=model, tools=[remember, bank.ask(), read], instruction="price: {price?}")
    start(app, agent)
    assert app.answer("r", {"approve": True}).result()[1] == "done"
    assert (written, seen, bank.paid) == ([1], [[40, ["x"]]], ["A"])
    assert model.calls == [0, 1, 2, 3]


def test_a_tool_asks_by_itself_and_gets_the_edited_payload(app: holdfast.App) -> None:
    asked, granted = [], []

    def leave(order: str, tool_context: ToolContext) -> dict[str, Any]:
        """Ask for days off."""
        said = tool_context.tool_confirmation
        if said is None:
            asked.append(order)
            tool_context.request_confirmation(hint="How many days?", payload={"days": 3, "tags": ["x"]})
            return {"status": "pending"}
        assert said.payload is not None
        granted.append((order, said.payload))
        return {"days": said.payload["days"]}

    agent = LlmAgent(
        name="hr", model=script([("leave", {"order": "A"}), ("leave", {"order": "B"})], "done"), tools=[leave]
    )
    start(app, agent)
    found = gates(app)
    assert sorted(found) == ["A", "B"]
    assert {gate.prompt for gate in app.gates("r")} == {"How many days?"}
    app.answer("r", {"approve": True, "days": 5}, gate=found["A"])
    handle = app.answer("r", {"approve": False, "note": "no one left"}, gate=found["B"])
    assert handle.result() == [[{"days": 5}, {"error": "This tool call is rejected. no one left"}], "done"]
    assert sorted(asked) == ["A", "B"]
    assert granted == [("A", {"days": 5, "tags": ["x"]})]


def test_ids_that_a_model_uses_again_are_other_calls(app: holdfast.App) -> None:
    bank = Bank()
    model = script([("pay", {"order": "A"})], [("pay", {"order": "A"})], "done", ids=True)
    handle = start(app, LlmAgent(name="payer", model=model, tools=[bank.pay]))
    assert handle.result()[1] == "done"
    assert bank.paid == ["A", "A"]
    assert len(set(bank.keys)) == 2


def test_a_streamed_response_is_recorded(app: holdfast.App) -> None:
    bank, model = Bank(), script([("pay", {"order": "A"})], "done")
    agent = LlmAgent(name="payer", model=model, tools=[bank.ask()])
    start(app, agent, config=RunConfig.model_validate({"streaming_mode": "sse"}))
    assert app.answer("r", {"approve": True}).result()[1] == "par par done"
    assert model.calls == [0, 1]


class Receipt(BaseModel):
    order: str
    amount: int


def test_structured_output_is_the_same_after_a_resume(app: holdfast.App) -> None:
    bank = Bank()
    model = script([("pay", {"order": "A"})], '{"order": "A", "amount": 40}')
    agent = LlmAgent(name="payer", model=model, tools=[bank.ask()], output_schema=Receipt, output_key="receipt")

    @app.workflow(name="work")
    async def work(run: holdfast.AsyncRun) -> Any:
        events = await talk(agent)
        return next(event.actions.state_delta["receipt"] for event in events if "receipt" in event.actions.state_delta)

    app.start("work", run_id="r")
    assert app.answer("r", {"approve": True}).result() == {"order": "A", "amount": 40}
    assert bank.paid == ["A"]


def test_an_error_of_the_model_is_recorded_and_a_callback_can_recover(app: holdfast.App) -> None:
    bank, model, errors = Bank(), script(ValueError("too busy"), "unused"), []

    def recover(callback_context: Any, llm_request: LlmRequest, error: Exception) -> LlmResponse:
        errors.append(str(error))
        return LlmResponse(content=content_of([("pay", {"order": "A"})], ids=True))

    model.replies = [ValueError("too busy"), "done"]
    agent = LlmAgent(name="payer", model=model, tools=[bank.ask()], on_model_error_callback=recover)
    start(app, agent)
    assert app.answer("r", {"approve": True}).result()[1] == "done"
    assert model.calls == [0, 1]
    assert all("too busy" in error for error in errors)
    assert bank.paid == ["A"]


def test_a_run_that_failed_with_its_model_can_be_retried(app: holdfast.App) -> None:
    model = script(ValueError("too busy"))
    handle = start(app, LlmAgent(name="payer", model=model))
    assert handle.status() == "failed"
    model.replies = ["done"]
    assert app.retry("r").result() == [[], "done"]
    assert model.calls == [0, 0]


def test_an_error_of_a_tool_reaches_its_callback_once(app: holdfast.App) -> None:
    bank, tried = Bank(), []

    def decline(order: str) -> str:
        """Fail."""
        tried.append(order)
        raise ValueError("card declined")

    def tell(tool: Any, args: Any, tool_context: ToolContext, error: Exception) -> dict[str, str]:
        return {"error": str(error)}

    model = script([("decline", {"order": "A"})], [("pay", {"order": "A"})], "done")
    agent = LlmAgent(name="payer", model=model, tools=[decline, bank.ask()], on_tool_error_callback=tell)
    start(app, agent)
    (first, _), text = app.answer("r", {"approve": True}).result()
    assert "card declined" in first["error"]
    assert (tried, text) == (["A"], "done")


def test_a_tool_whose_outcome_is_unknown_is_not_told_to_the_model(app: holdfast.App) -> None:
    def pay(order: str) -> str:
        """Fail after the request was sent."""
        raise TimeoutError("no answer from the bank")

    def tell(tool: Any, args: Any, tool_context: ToolContext, error: Exception) -> dict[str, str]:
        return {"error": str(error)}

    model = script([("pay", {"order": "A"})], "done")
    agent = LlmAgent(name="payer", model=model, tools=[pay], on_tool_error_callback=tell)
    handle = start(app, agent, HoldfastPlugin(tools={"pay": {"in_doubt": "fail"}}))
    assert handle.status() == "failed"
    assert model.calls == [0]
    with pytest.raises(holdfast.RunFailed, match="EffectInDoubt"):
        handle.result()


def test_a_result_that_cannot_be_stored_stops_the_agent(app: holdfast.App) -> None:
    bank: list[str] = []

    def pay(order: str) -> Any:
        """Return something that contains itself."""
        bank.append(order)
        found: list[Any] = []
        found.append(found)
        return found

    model = script([("pay", {"order": "A"})], "done")
    handle = start(app, LlmAgent(name="payer", model=model, tools=[pay]))
    assert handle.status() == "failed"
    assert (bank, model.calls) == (["A"], [0])


def test_media_in_a_result_survives_the_record(app: holdfast.App) -> None:
    bank, made = Bank(), []

    def draw() -> dict[str, Any]:
        """Return a picture."""
        made.append(1)
        return {"title": "x", "image": types.Part.from_bytes(data=b"\x00\xff", mime_type="image/png"), "odd": {1, 2}}

    model = script([("draw", {})], [("pay", {"order": "A"})], "done")
    agent = LlmAgent(name="painter", model=model, tools=[draw, bank.ask()])

    @app.workflow(name="work")
    async def work(run: holdfast.AsyncRun) -> Any:
        events = await talk(agent)
        (reply,) = [reply for event in events for reply in event.get_function_responses() if reply.name == "draw"]
        blob = reply.parts[0].inline_data
        return [reply.response, blob.data, blob.mime_type]

    app.start("work", run_id="r")
    found = app.answer("r", {"approve": True}).result()
    assert found == [{"title": "x", "odd": [1, 2]}, b"\x00\xff", "image/png"]
    assert made == [1]


def test_a_tool_in_a_thread_has_its_idempotency_key(app: holdfast.App) -> None:
    bank = Bank()
    model = script([("pay", {"order": "A"}), ("pay", {"order": "B"})], "done")
    agent = LlmAgent(name="payer", model=model, tools=[bank.pay])
    start(app, agent, config=RunConfig(tool_thread_pool_config=ToolThreadPoolConfig(max_workers=2))).result()
    assert len(set(bank.keys)) == 2
    assert None not in bank.keys


def test_a_tool_that_only_reads_is_a_step_and_one_without_a_record_is_called_again(app: holdfast.App) -> None:
    bank, calls = Bank(), []

    def look(order: str) -> int:
        """Look up."""
        calls.append("look")
        return 40

    def clock() -> int:
        """Read the time."""
        calls.append("clock")
        return 12

    model = script([("look", {"order": "A"}), ("clock", {})], [("pay", {"order": "A"})], "done")
    agent = LlmAgent(name="payer", model=model, tools=[look, clock, bank.ask()])
    start(app, agent, HoldfastPlugin(tools={"look": {"record": "step"}, "clock": ToolPolicy(record="none")}))
    app.answer("r", {"approve": True}).result()
    assert (calls.count("look"), calls.count("clock")) == (1, 2)
    assert [effect.tool for effect in app.store.effects("r")] == ["pay"]


def test_who_may_approve_is_part_of_the_policy(app: holdfast.App) -> None:
    bank = Bank()
    agent = LlmAgent(name="payer", model=script([("pay", {"order": "A"})], "done"), tools=[bank.ask()])
    start(app, agent, HoldfastPlugin(tools={"pay": {"who": "cfo"}}))
    with pytest.raises(holdfast.InvalidAnswer):
        app.answer("r", {"approve": True}, by="ana")
    assert app.answer("r", {"approve": True}, by="cfo").result()[1] == "done"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "tools must be a dict"),
        ({"pay": "retry"}, "must be a dict, not str"),
        ({"pay": {"in_dout": "retry"}}, "no option 'in_dout'"),
        ({"pay": {"record": "maybe"}}, "must be one of effect, step, none"),
    ],
)
def test_a_wrong_policy_is_refused_at_once(given: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        HoldfastPlugin(tools=given)


def test_a_call_whose_id_is_not_recorded_is_refused(app: holdfast.App) -> None:
    bank = Bank()

    def invent(callback_context: Any, llm_request: LlmRequest) -> LlmResponse:
        return LlmResponse(content=content_of([("pay", {"order": "A"})]))

    handle = start(app, LlmAgent(name="payer", model=script(), tools=[bank.pay], before_model_callback=invent))
    with pytest.raises(holdfast.RunFailed, match="has no recorded id"):
        handle.result()
    assert bank.paid == []


def test_another_plugin_that_answers_for_the_model_must_come_later(app: holdfast.App) -> None:
    bank = Bank()

    class Cache(BasePlugin):
        async def before_model_callback(self, *, callback_context: Any, llm_request: LlmRequest) -> LlmResponse:
            return LlmResponse(content=content_of([("pay", {"order": "A"})], ids=True))

    agent = LlmAgent(name="payer", model=script(), tools=[bank.pay])
    handle = start(app, agent, before=(Cache(name="cache"),))
    with pytest.raises(holdfast.RunFailed, match="put HoldfastPlugin before"):
        handle.result()
    assert bank.paid == []


def test_a_def_workflow_is_refused(app: holdfast.App) -> None:
    @app.workflow(name="work")
    def work(run: holdfast.Run) -> None:
        asyncio.run(talk(LlmAgent(name="payer", model=script("x"))))

    with pytest.raises(holdfast.RunFailed, match="async def"):
        app.start("work").result()


def test_an_agent_of_a_run_can_be_used_without_one_afterwards(app: holdfast.App) -> None:
    bank = Bank()
    model = script([("pay", {"order": "A"})], "done")
    agent = LlmAgent(name="payer", model=model, tools=[bank.pay])
    start(app, agent).result()
    assert texts(asyncio.run(talk(agent))) == "done"
    assert bank.keys[1] is None
    assert bank.paid == ["A", "A"]
