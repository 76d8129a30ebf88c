"""Mistakes with agents of Pydantic AI that must not cost money: each is refused before a tool acts."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent

import holdfast
from holdfast.errors import Diverged
from tests.adapters.pydantic_ai.material import Script, make_agent

PAY = [("pay", {"order": "A"}, "c1")]


def work_with(agents: list[Agent[None, Any]], app: holdfast.App) -> holdfast.Handle[Any]:
    """Start the run of a workflow that calls the first agent of a list, which a test may replace."""

    async def work(_: holdfast.AsyncRun) -> Any:
        return (await agents[0].run("pay")).output

    app.workflow(name="work")(work)
    return app.start("work", run_id="r")


def paying_agent(paid: list[str], **options: Any) -> Agent[None, Any]:
    agent = make_agent(Script(PAY, "done").model)

    def pay(order: str) -> str:
        paid.append(order)
        return f"paid {order}"

    agent.tool_plain(**options)(pay)
    return agent


def test_a_call_whose_approval_was_removed_from_the_code_is_not_performed() -> None:
    paid: list[str] = []
    agents = [paying_agent(paid, requires_approval=True)]
    with holdfast.App("memory:") as app:
        work_with(agents, app)
        agents[0] = paying_agent(paid)
        with pytest.raises(Diverged, match="no longer asks before it calls 'pay'"):
            app.answer("r", {"approve": False, "note": "no"})
    assert paid == []
