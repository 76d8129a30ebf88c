"""What `make_durable` does beside the common story."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("ag2")
from ag2 import Agent, Context, ImageInput, MemoryStream, ToolResult, tool
from ag2.events import (
    BuiltinToolCallEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallEvent,
    ToolCallsEvent,
    ToolResultEvent,
    ToolResultsEvent,
)
from ag2.middleware import RetryMiddleware, approval_required
from ag2.testing import TestConfig

import holdfast
from holdfast.adapters.ag2 import make_durable
from holdfast.operations.store import Store
from holdfast.store.memory import MemoryStore
from tests.adapters.ag2.conversation import Bank, Model, gates, start
from tests.adapters.ag2.material import Receipt
from tests.adapters.ag2.story_agent import FakeClient, FakeConfig, call
from tests.harness import ShiftedClock


def test_variables_that_a_tool_writes_are_recorded_with_its_result(app: holdfast.App) -> None:
    bank, written, seen = Bank(), [], []

    @tool
    def remember(context: Context) -> str:
        """Write."""
        written.append(1)
        context.variables |= {"price": 40, "odd": object()}
        context.variables["items"].append("x")
        del context.variables["gone"]
        return "ok"

    @tool
    def read(context: Context) -> str:
        """Read."""
        seen.append({name: context.variables.get(name) for name in ("price", "items", "gone")})
        return "read"

    model = Model([("remember", {})], [("pay", {"order": "A"})], [("read", {})], "done")
    agent = make_durable(Agent("payer", config=model, tools=[remember, bank.ask(), read]))

    async def work(run: holdfast.AsyncRun) -> str:
        return (await agent.ask("go", variables={"items": [], "gone": 1})).body or ""

    app.workflow(name="work")(work)
    app.start("work", run_id="r")
    assert app.answer("r", {"approve": True}).result() == "done"
    assert (written, seen, bank.paid) == ([1], [{"price": 40, "items": ["x"], "gone": None}], ["A"])
    assert model.calls == [0, 1, 2, 3]


def test_a_tool_that_asks_by_itself_gets_the_answer(app: holdfast.App) -> None:
    granted: list[str] = []

    @tool
    async def book(order: str, context: Context) -> str:
        """Book."""
        first = await context.input(f"Which day for {order}?")
        second = await context.input("Which hour?")
        granted.append(f"{order} on {first} at {second}")
        return "booked"

    model = Model([("book", {"order": "A"}), ("book", {"order": "B"})], "done")
    agent = make_durable(Agent("clerk", config=model, tools=[book]), tools={"book": {"record": "none"}})
    start(app, agent)
    assert {gate.prompt for gate in app.gates("r")} == {"Which day for A?", "Which day for B?"}
    while app.handle("r").status() == "waiting":
        for gate in app.gates("r"):
            answer = "12" if gate.prompt == "Which hour?" else f"day {gate.show['order']}"
            app.answer("r", {"answer": answer}, gate=gate.gate)
    assert app.handle("r").result() == "done"
    assert set(granted) == {"A on day A at 12", "B on day B at 12"}


def test_a_tool_that_asks_inside_its_effect_stops_the_agent(app: holdfast.App) -> None:
    @tool
    async def book(context: Context) -> str:
        """Book."""
        return await context.input("Which day?")

    model = Model([("book", {})], "done")
    handle = start(app, make_durable(Agent("clerk", config=model, tools=[book])))
    with pytest.raises(holdfast.RunFailed, match="inside a recorded call"):
        handle.result()
    assert model.calls == [0]


def test_an_approval_of_a_tool_that_only_the_agent_records_stops_the_agent(app: holdfast.App) -> None:
    bank, model = Bank(), Model([("pay", {"order": "A"})], "done")
    handle = start(app, make_durable(Agent("payer", config=model)), tools=[bank.ask()])
    with pytest.raises(holdfast.RunFailed, match="belongs in the middleware of its tool"):
        handle.result()
    assert (bank.paid, model.calls) == ([], [0])


def test_the_time_limit_of_a_request_is_the_expiry_of_its_gate() -> None:
    clock = ShiftedClock()
    model = Model([("pay", {"order": "A"})], "done")
    bank = Bank()
    limited = tool(bank.pay, middleware=[approval_required(timeout=60)])

    @tool
    async def book(context: Context) -> str:
        """Book."""
        return await context.input("Which day?", timeout=90)

    other = Model([("book", {})], "done")
    with holdfast.App(Store(MemoryStore(clock), clock=clock)) as app:
        agents = {
            "approve": make_durable(Agent("payer", config=model, tools=[limited])),
            "input": make_durable(Agent("clerk", config=other, tools=[book]), tools={"book": {"record": "none"}}),
        }

        @app.workflow(name="work")
        async def work(run: holdfast.AsyncRun, name: str) -> str:
            return (await agents[name].ask("go")).body or ""

        for name in agents:
            app.start("work", name, run_id=name)
        clock.advance(100)
        app.worker().run(until_idle=True)
        assert app.handle("approve").result() == "done"
        assert "denied" in model.seen[-1][0][0]
        with pytest.raises(holdfast.RunFailed, match="Nobody answered the human-input request within 90"):
            app.handle("input").result()
    assert bank.paid == []


def test_two_parallel_calls_of_one_nested_agent_are_told_apart(app: holdfast.App) -> None:
    bank = Bank()

    inner = FakeConfig(lambda _: "")
    inner_calls = []

    class Inner(FakeClient):
        async def __call__(self, messages: Any, context: Context, **options: Any) -> ModelResponse:
            inner_calls.append(len(messages))
            text = next(event for event in messages if isinstance(event, ModelRequest)).parts[0].content
            if any(isinstance(event, ToolResultsEvent) for event in messages):
                return ModelResponse(ModelMessage(f"inner {text}"))
            same = ToolCallEvent("pay", id="call_0", arguments=json.dumps({"order": text}))
            return ModelResponse(tool_calls=ToolCallsEvent([same]))

    inner.client = Inner(lambda _: "")
    nested = Agent("inner", config=inner, tools=[bank.ask()])
    outer = Model([("task_inner", {"objective": "A"}), ("task_inner", {"objective": "B"})], "done")
    agent = make_durable(Agent("outer", config=outer, tools=[nested.as_tool(description="pays")]))
    start(app, agent)
    found = gates(app)
    assert sorted(found) == ["A", "B"]
    app.answer("r", {"approve": True}, gate=found["B"])
    assert app.answer("r", {"approve": True}, gate=found["A"]).result() == "done"
    assert outer.seen[-1] == [["inner A", "inner B"]]
    assert sorted(bank.paid) == ["A", "B"]
    assert (len(inner_calls), len(outer.calls)) == (4, 2)


def test_agents_in_branches_of_a_run_are_told_apart(app: holdfast.App) -> None:
    bank = Bank()
    models = {order: Model([("pay", {"order": order})], f"done {order}") for order in ("A", "B")}

    @app.workflow(name="work")
    async def work(run: holdfast.AsyncRun) -> list[str]:
        async def one(order: str) -> str:
            agent = make_durable(Agent("payer", config=models[order], tools=[bank.ask()]))
            return (await agent.ask("go")).body or ""

        return await run.gather(*[lambda _, order=order: one(order) for order in models])

    app.start("work", run_id="r")
    found = gates(app)
    app.answer("r", {"approve": True}, gate=found["B"])
    assert app.answer("r", {"approve": True}, gate=found["A"]).result() == ["done A", "done B"]
    assert sorted(bank.paid) == ["A", "B"]
    assert all(model.calls == [0, 1] for model in models.values())


def test_turns_of_a_durable_loop_and_of_a_conversation_are_told_apart(app: holdfast.App) -> None:
    bank = Bank()
    same = ToolCallEvent("pay", id="call_0", arguments='{"order": "A"}')
    config = TestConfig([same], "one", [same], "two")

    @app.workflow(name="work")
    async def work(run: holdfast.AsyncRun) -> str:
        agent = make_durable(Agent("payer", config=config, tools=[bank.plain()]))
        async for turn in run.loop():
            reply = await agent.ask("pay")
            reply = await reply.ask("again")
            if turn == 2:
                break
        return reply.body or ""

    assert app.start("work", run_id="r").result() == "two"
    assert bank.paid == ["A"] * 4
    assert len(set(bank.keys)) == 4


def test_what_a_provider_executes_is_part_of_the_conversation_after_a_resume(app: holdfast.App) -> None:
    bank, histories = Bank(), []

    class Searching(FakeClient):
        async def __call__(self, messages: Any, context: Context, **options: Any) -> ModelResponse:
            histories.append([type(event).__name__ for event in messages])
            if len(histories) == 1:
                await context.send(BuiltinToolCallEvent("web_search", arguments='{"q": "x"}'))
                await context.send(ModelMessage("transient"))
            return await super().__call__(messages, context, **options)

    model = Model([("pay", {"order": "A"})], "done")
    model.client = Searching(model.reply)
    agent = make_durable(Agent("payer", config=model, tools=[bank.ask()]))
    start(app, agent)
    assert app.answer("r", {"approve": True}).result() == "done"
    assert histories[-1].count("BuiltinToolCallEvent") == 1


def test_the_retry_of_a_model_call_is_another_step(app: holdfast.App) -> None:
    bank, model = Bank(), Model(ValueError("too busy"), "done")
    agent = Agent("payer", config=model, tools=[bank.ask()], middleware=[RetryMiddleware(max_retries=1)])
    seen = []

    def reply(turns: list[list[str]]) -> str | list[ToolCallEvent]:
        seen.append(len(turns))
        if len(seen) == 1:
            raise ValueError("too busy")
        return "done" if turns else [call("pay", order="A")]

    agent.config = FakeConfig(reply)
    start(app, make_durable(agent))
    assert app.answer("r", {"approve": True}).result() == "done"
    assert (seen, bank.paid) == ([0, 0, 1], ["A"])


def test_a_run_that_failed_with_its_model_can_be_retried(app: holdfast.App) -> None:
    model = Model(ValueError("too busy"))
    assert start(app, make_durable(Agent("payer", config=model))).status() == "failed"
    model.replies = ["done"]
    assert app.retry("r").result() == "done"
    assert model.calls == [0, 0]


def test_an_error_of_a_tool_is_told_to_the_model_once(app: holdfast.App) -> None:
    bank, tried = Bank(), []

    @tool
    def decline(order: str) -> str:
        """Fail."""
        tried.append(order)
        raise ValueError("card declined")

    model = Model([("decline", {"order": "A"})], [("pay", {"order": "A"})], "done")
    agent = Agent("payer", config=model, tools=[decline, bank.ask()])
    start(app, make_durable(agent, tools={"decline": {"not_done": ValueError}}))
    assert app.answer("r", {"approve": True}).result() == "done"
    assert tried == ["A"]
    assert "card declined" in model.seen[-1][0][0]
    assert "Traceback" not in model.seen[-1][0][0]


def test_a_tool_whose_outcome_is_unknown_is_not_told_to_the_model(app: holdfast.App) -> None:
    @tool
    def pay(order: str) -> str:
        """Fail after the request was sent."""
        raise TimeoutError("no answer from the bank")

    model = Model([("pay", {"order": "A"})], "done")
    agent = make_durable(Agent("payer", config=model, tools=[pay]), tools={"pay": {"in_doubt": "fail"}})
    handle = start(app, agent)
    with pytest.raises(holdfast.RunFailed, match="EffectInDoubt"):
        handle.result()
    assert model.calls == [0]


def test_a_result_that_cannot_be_stored_stops_the_agent(app: holdfast.App) -> None:
    paid = []

    @tool
    def pay(order: str) -> Any:
        """Return something that contains itself."""
        paid.append(order)
        found: list[Any] = []
        found.append(found)
        return found

    model = Model([("pay", {"order": "A"})], "done")
    assert start(app, make_durable(Agent("payer", config=model, tools=[pay]))).status() == "failed"
    assert (paid, model.calls) == (["A"], [0])


def test_results_and_structured_output_are_the_same_after_a_resume(app: holdfast.App) -> None:
    bank, made = Bank(), []

    @tool
    def draw() -> ToolResult:
        """Return several parts."""
        made.append(1)
        return ToolResult("text", Receipt(order="A", amount=40), ImageInput("https://x.test/a.png"), metadata={"k": 1})

    model = Model([("draw", {})], [("pay", {"order": "A"})], '{"order": "A", "amount": 40}')
    agent = make_durable(Agent("payer", config=model, tools=[draw, bank.ask()], response_schema=Receipt))

    @app.workflow(name="work")
    async def work(run: holdfast.AsyncRun) -> list[Any]:
        stream = MemoryStream()
        reply = await agent.ask("go", stream=stream)
        events = [event for event in await stream.history.get_events() if isinstance(event, ToolResultEvent)]
        drawn = events[0].result
        found = await reply.content()
        assert found is not None
        return [found.amount, drawn.metadata, [type(part).__name__ for part in drawn.parts], drawn.parts[1].data]

    app.start("work", run_id="r")
    amount, metadata, kinds, data = app.answer("r", {"approve": True}).result()
    assert (amount, metadata, data, made) == (40, {"k": 1}, {"order": "A", "amount": 40}, [1])
    assert kinds[:2] == ["TextInput", "DataInput"]


def test_a_final_result_ends_the_turn(app: holdfast.App) -> None:
    @tool
    def finish() -> ToolResult:
        """End."""
        return ToolResult("the end", final=True)

    model = Model([("finish", {})], "unused")
    assert start(app, make_durable(Agent("payer", config=model, tools=[finish]))).result() == "the end"
    assert model.calls == [0]


def test_a_type_that_is_not_of_ag2_is_not_loaded_from_a_record(app: holdfast.App) -> None:
    class Odd(FakeClient):
        async def __call__(self, messages: Any, context: Context, **options: Any) -> ModelResponse:
            return ModelResponse(ModelMessage("x", metadata={"a": {"__dataclass__": "subprocess.Popen", "data": {}}}))

    model = Model()
    model.client = Odd(model.reply)
    handle = start(app, make_durable(Agent("payer", config=model)))
    with pytest.raises(holdfast.RunFailed, match="not one of AG2"):
        handle.result()
