"""Toolsets: MCP servers, dynamic ones, those of a single agent run, and those that cannot be recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import SetToolMetadata
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, FunctionToolset, ToolsetTool, WrapperToolset

import holdfast
from holdfast.adapters.pydantic_ai import idempotency_key
from tests.adapters.pydantic_ai.material import Script, make_agent, replay

_SERVER = Path(__file__).with_name("mcp_bank.py")


def _toolset(log: Path, **options: Any) -> AbstractToolset[None]:
    pytest.importorskip("fastmcp")
    pytest.importorskip("mcp.server")
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.mcp import MCPToolset

    transport = StdioTransport(sys.executable, [str(_SERVER), str(log)])
    return MCPToolset(transport, id="bank", include_instructions=True, init_timeout=120, **options)


def _lines(log: Path) -> list[str]:
    return log.read_text("utf-8").splitlines()


def _work(agent: Agent[None, Any]) -> Callable[[holdfast.AsyncRun], Any]:
    async def work(_: holdfast.AsyncRun) -> Any:
        return (await agent.run("go")).output

    return work


def test_a_server_is_asked_for_its_tools_and_called_once(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    script = Script([("pay", {"amount": 40}, "c1")], "done")
    agent = make_agent(script.model, toolsets=[_toolset(log)])
    assert replay(_work(agent)) == ("done", "done")
    assert _lines(log) == ["started", "pay 40 None"]
    assert script.told == ["paid 40"]
    assert "Pay only once." in str(script.seen[0][0])


def test_a_server_gets_the_idempotency_key_and_its_tools_have_policies(tmp_path: Path) -> None:
    log = tmp_path / "calls"

    async def process(_: RunContext[None], call: Any, name: str, arguments: dict[str, Any]) -> Any:
        await call(name, arguments, metadata={"key": idempotency_key()})
        raise TimeoutError("the answer was lost")

    script = Script([("pay", {"amount": 40}, "c1")], "done")
    policy = {"holdfast": {"check": lambda arguments: holdfast.Happened(f"found {arguments['amount']}")}}
    agent = make_agent(
        script.model,
        toolsets=[_toolset(log, process_tool_call=process)],
        capabilities=[SetToolMetadata(**policy)],
    )
    assert replay(_work(agent)) == ("done", "done")
    assert script.told == ["found 40"]
    paid = _lines(log)[1]
    assert paid.startswith("pay 40 ")
    assert paid != "pay 40 None"


@pytest.mark.parametrize("behaviour", ["retry", "error"])
def test_a_server_that_dies_leaves_the_call_in_doubt(tmp_path: Path, behaviour: str) -> None:
    log = tmp_path / "calls"
    script = Script([("crash", {}, "c1")], "done")
    agent = make_agent(script.model, toolsets=[_toolset(log, tool_error_behavior=behaviour)])
    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> str:
            return str((await agent.run("go")).output)

        handle = app.start(work, run_id="r")
        (gate,) = app.gates("r")
        assert "crash" in gate.prompt
        assert script.calls == 1
        app.answer("r", {"outcome": "happened", "result": "paid"})
        assert handle.result() == "done"
    assert _lines(log).count("crash") == 1
    assert script.told == ["paid"]


def test_a_dynamic_toolset_is_recorded() -> None:
    script, entered = Script([("pay", {"amount": 2}, "c1")], "done"), []

    def make(_: RunContext[None]) -> FunctionToolset[None]:
        toolset: FunctionToolset[None] = FunctionToolset(id="inner")

        @toolset.tool_plain(metadata={"holdfast": {"in_doubt": "retry"}})
        def pay(amount: int) -> str:
            entered.append(amount)
            return f"paid {amount}"

        return toolset

    agent = make_agent(script.model, toolsets=[DynamicToolset(make, id="dynamic")])
    assert replay(_work(agent)) == ("done", "done")
    assert entered == [2]
    assert script.told == ["paid 2"]


def test_a_prefixed_toolset_keeps_its_policy() -> None:
    script, entered = Script([("bank_pay", {}, "c1")], "done"), []
    toolset: FunctionToolset[None] = FunctionToolset(id="bank")

    @toolset.tool_plain(metadata={"holdfast": {"in_doubt": "retry"}})
    def pay() -> str:
        entered.append(idempotency_key())
        if len(entered) == 1:
            raise holdfast.InDoubt("no answer")
        return "paid"

    agent = make_agent(script.model, toolsets=[toolset.prefixed("bank")])
    assert replay(_work(agent)) == ("done", "done")
    assert len(entered) == 2
    assert len(set(entered)) == 1


def test_a_validator_of_arguments_is_recorded() -> None:
    script, validated = Script([("pay", {"amount": 3}, "c1")], "done"), []

    def validate(_: RunContext[None], amount: int) -> None:
        validated.append(amount)

    agent = make_agent(script.model)

    @agent.tool(args_validator=validate)
    def pay(_: RunContext[None], amount: int) -> str:
        return f"paid {amount}"

    assert replay(_work(agent)) == ("done", "done")
    assert validated == [3]


def test_toolsets_of_a_single_agent_run_are_refused_inside_a_run() -> None:
    script = Script([("pay", {}, "c1")], "done")
    agent = make_agent(script.model)
    toolset: FunctionToolset[None] = FunctionToolset(id="late")

    @toolset.tool_plain
    def pay() -> str:
        return "paid"

    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> str:
            return str((await agent.run("go", toolsets=[toolset])).output)

        with pytest.raises(holdfast.RunFailed, match="cannot be added at runtime"):
            app.start(work).result()
    assert agent.run_sync("go", toolsets=[toolset]).output == "done"


class Own(AbstractToolset[None]):
    """A toolset of the user's own kind."""

    def __init__(self, wrapped: FunctionToolset[None]) -> None:
        self.wrapped = wrapped

    @property
    def id(self) -> str:
        return "own"

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, ToolsetTool[None]]:
        return await self.wrapped.get_tools(ctx)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[None], tool: ToolsetTool[None]
    ) -> Any:
        return await self.wrapped.call_tool(name, tool_args, ctx, tool)


class Shouting(WrapperToolset[None]):
    """A wrapper of the user's own, which runs again in a replay."""


def _own(entered: list[int]) -> Own:
    inner: FunctionToolset[None] = FunctionToolset(id="inner")

    @inner.tool_plain
    def pay() -> str:
        entered.append(1)
        return "paid"

    return Own(inner)


def test_a_toolset_that_cannot_be_recorded_is_refused_and_can_be_wrapped() -> None:
    entered: list[int] = []
    script = Script([("pay", {}, "c1")], "done")
    bare = make_agent(script.model, toolsets=[Shouting(_own(entered))])
    with holdfast.App("memory:") as app:

        @app.workflow
        async def work(run: holdfast.AsyncRun) -> str:
            return str((await bare.run("go")).output)

        with pytest.raises(holdfast.RunFailed, match=r"'Own' cannot be recorded.*DynamicToolset"):
            app.start(work).result()
    assert entered == []
    wrapped = make_agent(
        script.model, toolsets=[Shouting(DynamicToolset(lambda _: _own(entered), per_run_step=False, id="own"))]
    )
    assert replay(_work(wrapped)) == ("done", "done")
    assert entered == [1]
