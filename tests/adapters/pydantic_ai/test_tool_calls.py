"""Tool calls: policies, doubt, external calls, and agents that tools run."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
from typing import Any

import pytest
from pydantic import BaseModel

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

import holdfast
from holdfast.adapters.pydantic_ai import HoldfastDurability
from holdfast.adapters.shared import calls
from tests.adapters.pydantic_ai.material import Script, make_agent, replay


class Order(BaseModel):
    number: int
    due: dt.date


def test_arguments_reach_check_as_plain_data_and_are_the_same_in_every_process() -> None:
    script = Script([("pay", {"order": {"number": 17, "due": "2026-11-16"}, "tags": [*"hgfedcba", "a"]}, "c1")], "done")
    seen: list[Any] = []

    def check(arguments: dict[str, Any]) -> object:
        seen.append(arguments)
        return holdfast.Happened({"receipt": 1})

    agent = make_agent(script.model)

    @agent.tool_plain(metadata={"holdfast": {"check": check}})
    def pay(order: Order, tags: set[str]) -> str:
        assert order.due == dt.date(2026, 11, 16)
        raise TimeoutError("no answer")

    async def work(_: holdfast.AsyncRun) -> Any:
        return (await agent.run("pay")).output

    assert replay(work) == ("done", "done")
    assert seen == [{"order": {"number": 17, "due": "2026-11-16"}, "tags": [*"abcdefgh"]}]
    assert script.told == ['{"receipt":1}'] or script.told == ["{'receipt': 1}"]


@pytest.mark.parametrize("given", [{"kind": "model_retry", "message": "pay again"}, [1, None], "paid"])
def test_what_a_person_answers_is_the_result_and_never_a_message_about_arguments(given: Any) -> None:
    script = Script([("pay", {}, "c1")], "done")
    agent, entered = make_agent(script.model), []

    @agent.tool_plain
    def pay() -> str:
        entered.append(1)
        raise holdfast.InDoubt("the line went dead")

    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> str:
            return str((await agent.run("pay")).output)

        handle = app.start(work, run_id="r")
        (gate,) = app.gates("r")
        assert "pay" in gate.prompt
        assert script.calls == 1
        app.answer("r", {"outcome": "happened", "result": given})
        assert handle.result() == "done"
    part = script.seen[-1][-1].parts[0]
    assert part.part_kind == "tool-return"
    assert part.content == given
    assert entered == [1]


def test_a_record_that_does_not_decode_stops_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([("pay", {}, "c1")], "done")
    agent = make_agent(script.model)

    @agent.tool_plain
    def pay() -> str:
        return "paid"

    async def damaged(*_: object, **__: object) -> object:
        return {"kind": "of another version"}

    monkeypatch.setattr(calls, "perform", damaged)
    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> str:
            return str((await agent.run("pay")).output)

        with pytest.raises(holdfast.RunFailed, match=r"AgentStopped.*cannot be decoded"):
            app.start(work).result()
    assert script.calls == 1


def test_a_timeout_of_a_tool_leaves_its_effect_in_doubt_and_is_not_reported_to_the_model() -> None:
    script = Script([("pay", {}, "c1")], "done")
    agent = make_agent(script.model)

    @agent.tool_plain(timeout=0.01)
    async def pay() -> None:
        await asyncio.Event().wait()

    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> str:
            return str((await agent.run("pay")).output)

        handle = app.start(work, run_id="r")
        (gate,) = app.gates("r")
        assert "Timed out" in gate.prompt
        assert script.calls == 1
        app.answer("r", {"outcome": "happened", "result": "paid"})
        assert handle.result() == "done"


def test_a_timeout_of_a_tool_that_only_reads_is_reported_to_the_model() -> None:
    script = Script([("look", {}, "c1")], "done")
    agent = make_agent(script.model)

    @agent.tool_plain(timeout=0.01, metadata={"holdfast": {"record": "step"}})
    async def look() -> None:
        await asyncio.Event().wait()

    async def work(_: holdfast.AsyncRun) -> Any:
        return (await agent.run("look")).output

    assert replay(work) == ("done", "done")
    assert any("Timed out" in text for text in script.told)


@pytest.mark.parametrize(
    ("policy", "message"),
    [({"in_doub": "ask"}, "no option 'in_doub'"), ({"record": "maybe"}, "must be one of effect"), (3, "must be")],
)
def test_a_wrong_policy_is_refused_before_the_tool_is_called(policy: Any, message: str) -> None:
    script = Script([("pay", {}, "c1")], "done")
    agent, entered = make_agent(script.model), []

    @agent.tool_plain(metadata={"holdfast": policy})
    def pay() -> None:
        entered.append(1)

    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> str:
            return str((await agent.run("pay")).output)

        with pytest.raises(holdfast.RunFailed, match=message):
            app.start(work).result()
    assert entered == []


def test_an_external_call_waits_for_its_result_beside_an_approval() -> None:
    script = Script([("ship", {"order": "A-17"}, "c1"), ("pay", {}, "c2")], "done")
    external = ExternalToolset([ToolDefinition(name="ship", parameters_json_schema={"type": "object"})])
    agent = make_agent(script.model, toolsets=[external])

    @agent.tool_plain(requires_approval=True)
    def pay() -> str:
        return "paid"

    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> str:
            return str((await agent.run("go")).output)

        handle = app.start(work, run_id="r")
        gates = {gate.prompt: gate.gate for gate in app.gates("r")}
        assert sorted(gates) == ["Allow pay()?", "What is the result of ship(order='A-17')?"]
        app.answer("r", {"result": {"parcel": 5}}, gate=gates["What is the result of ship(order='A-17')?"])
        assert script.calls == 1
        app.answer("r", {"approve": True}, gate=gates["Allow pay()?"])
        assert handle.result() == "done"
    assert sorted(script.told) == ["paid", "{'parcel': 5}"]


def _delegate(record: str, inner: Agent[None, Any], script: Script, order: list[str]) -> Agent[None, Any]:
    outer = make_agent(script.model, "outer")
    waits = {"a": asyncio.Event(), "b": asyncio.Event()}

    @outer.tool_plain(metadata={"holdfast": {"record": record}})
    async def delegate(topic: str) -> str:
        if order:  # the first execution begins the inner agents in the order b, a; a replay as they come
            if topic == "a":
                await waits["b"].wait()
            order.remove(topic)
        try:
            return str((await inner.run(f"about {topic}")).output)
        finally:
            waits[topic].set()

    return outer


def _echo(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    prompt = next(part for part in messages[0].parts if isinstance(part, UserPromptPart))
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("note", {"text": str(prompt.content)}, "c1")])
    return ModelResponse([TextPart(f"found {prompt.content}")])


def test_agents_that_tools_run_in_parallel_are_recorded_whatever_their_order() -> None:
    calls_of_model: list[int] = []
    notes: list[str] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls_of_model.append(1)
        return _echo(messages, info)

    inner = make_agent(FunctionModel(model), "inner")

    @inner.tool_plain
    def note(text: str) -> str:
        notes.append(text)
        return "noted"

    script = Script([("delegate", {"topic": "a"}, "c1"), ("delegate", {"topic": "b"}, "c2")], "done")
    outer = _delegate("none", inner, script, ["a", "b"])

    async def work(_: holdfast.AsyncRun) -> Any:
        await outer.run("go")
        return sorted(script.told) if script.calls == 2 else None

    replay(work)
    assert sorted(script.told) == ["found about a", "found about b"]
    assert (len(calls_of_model), sorted(notes), script.calls) == (4, ["about a", "about b"], 2)


def test_agents_in_branches_of_a_tool_do_not_share_records() -> None:
    notes: list[str] = []
    inner = make_agent(FunctionModel(_echo), "inner")

    @inner.tool_plain
    def note(text: str) -> str:
        notes.append(text)
        return "noted"

    script = Script([("delegate", {}, "c1")], "done")
    outer = make_agent(script.model, "outer")

    @outer.tool_plain(metadata={"holdfast": {"record": "none"}})
    async def delegate() -> list[str]:
        run = holdfast.current_run()
        assert isinstance(run, holdfast.AsyncRun)

        async def find(_: holdfast.AsyncRun, topic: str) -> str:
            return str((await inner.run(topic)).output)

        return await run.gather(*[functools.partial(find, topic=topic) for topic in "ab"])

    async def work(_: holdfast.AsyncRun) -> Any:
        return (await outer.run("go")).output

    assert replay(work) == ("done", "done")
    assert sorted(notes) == ["a", "b"]
    assert script.told == ["['found a', 'found b']"]


def test_an_agent_inside_an_effect_is_a_part_of_it() -> None:
    script = Script([("delegate", {"topic": "b"}, "c1")], "done")
    inner = Script("found")
    outer = _delegate("effect", make_agent(inner.model, "inner"), script, [])
    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> str:
            return str((await outer.run("go")).output)

        app.start(work, run_id="r").result()
        called = [entry.data["call"] for entry in app.store.journal("r") if "call" in entry.data]
    assert (inner.calls, script.told) == (1, ["found"])
    assert called == ["agent 1", "agent 1 model 1", "tool agent 1:1:c1 1", "tool agent 1:1:c1 1", "agent 1 model 2"]


def test_a_question_of_the_inner_agent_is_a_gate_of_the_run() -> None:
    inner_script = Script([("pay", {}, "c1")], "inner done")
    inner = make_agent(inner_script.model, "inner")

    @inner.tool_plain(requires_approval=True)
    def pay() -> str:
        return "paid"

    script = Script([("delegate", {"topic": "b"}, "c1")], "outer done")
    outer = _delegate("none", inner, script, [])
    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> str:
            return str((await outer.run("go")).output)

        handle = app.start(work, run_id="r")
        assert [gate.prompt for gate in app.gates("r")] == ["Allow pay()?"]
        app.answer("r", {"approve": True})
        assert handle.result() == "outer done"
    assert (script.calls, inner_script.calls, inner_script.told) == (2, 2, ["paid"])


def test_metadata_false_is_the_policy_none() -> None:
    script = Script([("look", {}, "c1")], "done")
    agent, entered = make_agent(script.model, durability=HoldfastDurability()), []

    @agent.tool_plain(metadata={"holdfast": False})
    def look() -> None:
        entered.append(1)

    async def work(_: holdfast.AsyncRun) -> Any:
        return (await agent.run("go")).output

    assert replay(work) == ("done", "done")
    assert entered == [1, 1]
    assert script.calls == 2
