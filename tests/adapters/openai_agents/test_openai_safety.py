"""Mistakes with agents of the OpenAI Agents SDK that must not cost money: each is refused before a tool acts."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("agents")
import agents

import holdfast
from holdfast.adapters.openai_agents import run_agent
from holdfast.errors import Diverged
from tests.adapters.openai_agents.fakes import FakeModel, script
from tests.adapters.openai_agents.material import Log, pay_tool, with_app


@pytest.mark.parametrize("is_branch", [False, True])
def test_a_call_whose_approval_was_removed_from_the_code_is_not_performed(url: str, is_branch: bool) -> None:
    log: Log = []

    def make(**options: Any) -> holdfast.App:
        model = FakeModel(script([("p", "pay", {"order": "A"})], "{0}"))
        agent = agents.Agent(name="a", model=model, tools=[pay_tool(log, **options)])

        async def branch(run: holdfast.AsyncRun) -> str:
            return str((await run_agent(run, agent, "go")).final_output)

        async def work(run: holdfast.AsyncRun) -> str:
            return (await run.gather(branch))[0] if is_branch else await branch(run)

        return with_app(url, work)

    with make(needs_approval=True) as app:
        app.start("work", run_id="r")
    with make() as app:
        if is_branch:
            with pytest.raises(Diverged, match="no longer asks before it calls 'pay'"):
                app.answer("r", {"approve": False, "note": "too late"})
        else:  # the saved state of the SDK still has the question
            assert app.answer("r", {"approve": False, "note": "too late"}).result() == "too late"
    assert log == []
