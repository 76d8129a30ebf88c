"""Ids and errors with which a model or a tool could mislead the approver or repeat a payment."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("strands")
from strands import tool
from strands.hooks import BeforeToolCallEvent

import holdfast
from tests.adapters.strands.material import Calls, agent_of, answer_all, failure, kinds, paying, scripted, start
from tests.adapters.strands.story_agent import call


@pytest.mark.parametrize("ids", [("before_tool_call", "c2"), ("a", "z:a:y")])
def test_the_gate_shows_the_call_that_is_executed_whatever_its_id(ids: tuple[str, str]) -> None:
    calls: Calls = []

    @tool
    def transfer(order: str, amount: int, reason: str = "") -> str:
        """Transfer money."""
        calls.append((order, amount, reason))
        return "done"

    def approve(event: BeforeToolCallEvent) -> None:
        if event.tool_use["input"]["amount"] > 100 and event.interrupt("ok", reason="large") != "y":
            event.cancel_tool = "refused"

    small, large = ({"order": "A", "amount": 1}, {"order": "EVIL", "amount": 4000, "reason": "rent"})
    turn = [call(ids[0], "transfer", **small), call(ids[1], "transfer", **large)]

    async def work(run: holdfast.AsyncRun) -> str:
        return str(await agent_of(scripted(turn, calls=[]), [transfer], hook=approve).invoke_async("go"))

    app, _ = start(work)
    (gate,) = app.gates("run")
    assert gate.show == large
    answer_all(app)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_that_ends_with_a_base_exception_stops_the_run(is_async: bool) -> None:
    class Ended(BaseException):
        pass

    calls: Calls = []
    plain: Any = paying(calls, Ended("the interpreter ends"))  # type: ignore[arg-type]

    @tool(name="pay")
    async def awaited(order: str) -> str:
        """Pay an order."""
        calls.append(("pay", order, ""))
        raise Ended("the interpreter ends")

    model = scripted([call("c1", "pay", order="A")], calls=calls)

    async def work(run: holdfast.AsyncRun) -> str:
        return str(await agent_of(model, [awaited if is_async else plain]).invoke_async("go"))

    _, handle = start(work)
    assert failure(handle)
    assert kinds(calls) == ["model", "pay"]
