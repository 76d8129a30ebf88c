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
from tests.adapters.openai_agents.material import HELLO, Log, fail_with, failing_tool, pay_tool, run_tool, with_app


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
            with pytest.raises(Diverged, match="before it calls 'pay'"):
                app.answer("r", {"approve": False, "note": "too late"})
        else:  # the saved state of the SDK still has the question
            assert app.answer("r", {"approve": False, "note": "too late"}).result() == "too late"
    assert log == []


def test_an_error_after_the_payment_is_not_told_to_the_model(url: str) -> None:
    log: Log = []
    models: list[str] = []

    @agents.function_tool
    def pay(order: str) -> str:
        log.append(order)
        return {"ok": "R-1"}["receipt"]

    model = FakeModel(script([("1", "pay", {"order": "A"})], [("2", "pay", {"order": "A"})], "given up"), models)
    agent = agents.Agent(name="a", model=model, tools=[pay])

    async def work(run: holdfast.AsyncRun) -> str:
        return str((await run_agent(run, agent, "go")).final_output)

    with with_app(url, work) as app:
        with pytest.raises(holdfast.RunFailed, match=r"EffectFailed.*KeyError"):
            app.start("work", run_id="r").result()
        assert app.retry("r").status() == "waiting"
        assert "Did pay happen?" in app.gates("r")[0].prompt
    assert log == ["A"]
    assert len(models) == 1


def test_an_error_that_proves_that_nothing_happened_is_told_to_the_model(url: str) -> None:
    tool = failing_tool(ValueError("no such order"), [])
    with run_tool(url, tool, {"order": "A"}, policies={"pay": {"not_done": ValueError}}) as app:
        app.start("work", run_id="r")
        assert "error occurred" in app.answer("r", {"ok": True}).result()


@pytest.mark.parametrize("arguments", [{"order": 5}, {}])
def test_arguments_that_do_not_fit_are_told_to_the_model(url: str, arguments: dict[str, Any]) -> None:
    log: Log = []
    with run_tool(url, pay_tool(log), arguments) as app:
        app.start("work", run_id="r")
        assert "error occurred" in app.answer("r", {"ok": True}).result()
    assert log == []


def test_bad_arguments_of_an_agent_inside_the_tool_prove_nothing(url: str) -> None:
    log: Log = []

    @agents.function_tool
    def pay(order: str) -> str:
        log.append(order)
        raise agents.ModelBehaviorError("Invalid JSON input for tool pay")

    with run_tool(url, pay, {"order": "A"}) as app, pytest.raises(holdfast.RunFailed, match="EffectFailed"):
        app.start("work", run_id="r").result()
    assert log == ["A"]


def test_rules_of_an_approval_that_the_tool_does_not_need_are_refused(url: str) -> None:
    log: Log = []
    policies = {"pay": {"who": ["ana"], "approvals": 2}}
    app, refused = run_tool(url, pay_tool(log), {"order": "A"}, policies=policies), r"has who, .*needs_approval=True"
    with app, pytest.raises(holdfast.RunFailed, match=refused):
        app.start("work", run_id="r").result()
    assert log == []


@pytest.mark.parametrize("is_needed", [True, False])
def test_rules_of_an_approval_are_allowed_if_a_function_decides(url: str, is_needed: bool) -> None:
    async def needs_approval(context: Any, parameters: dict[str, Any], call_id: str) -> bool:
        return is_needed

    tool = pay_tool([], needs_approval=needs_approval)
    with run_tool(url, tool, {"order": "A"}, policies={"pay": {"who": ["ana"]}}) as app:
        app.start("work", run_id="r")
        assert (app.gates("r")[0].who == ("ana",)) == is_needed


def test_an_agent_that_is_not_awaited_fails_the_run(url: str) -> None:
    async def work(run: holdfast.AsyncRun) -> str:
        run_agent(run, HELLO, "1")
        return "done"

    assert "await is missing before run_agent('a')" in fail_with(url, work)


@pytest.mark.parametrize(("run", "agent"), [("run", HELLO), (None, "agent")])
def test_arguments_of_the_wrong_type_are_refused(url: str, run: Any, agent: Any) -> None:
    async def work(own: holdfast.AsyncRun) -> None:
        await run_agent(run or own, agent, "1")

    assert "InvalidInput: run_agent needs" in fail_with(url, work)


@pytest.mark.parametrize("answer", [True, False])
def test_a_model_is_not_called_if_an_earlier_approval_was_removed(url: str, answer: bool) -> None:
    log: Log = []
    models: list[str] = []

    def make(**options: Any) -> holdfast.App:
        said = script([("p", "pay", {"order": "A"})], [("s", "send", {"order": "B"})], "done")

        @agents.function_tool(needs_approval=True)
        def send(order: str) -> str:
            log.append(f"send {order}")
            return "sent"

        agent = agents.Agent(name="a", model=FakeModel(said, models), tools=[pay_tool(log, **options), send])

        async def branch(run: holdfast.AsyncRun) -> str:
            return str((await run_agent(run, agent, "go")).final_output)

        async def work(run: holdfast.AsyncRun) -> str:
            return (await run.gather(branch))[0]

        return with_app(url, work)

    with make(needs_approval=True) as app:
        app.start("work", run_id="r")
        app.answer("r", {"approve": answer})
        assert (len(log), len(models)) == (int(answer), 2)
    with make() as app, pytest.raises(Diverged, match="so it was not called"):
        app.answer("r", {"approve": True})
    assert len(models) == 2
    with make(needs_approval=True) as app:
        assert app.resume("r").result() == "done"
    assert (len(log), len(models)) == (1 + int(answer), 3)


@pytest.mark.parametrize("answer", [True, False])
def test_a_tool_without_a_record_is_not_called_if_its_approval_was_removed(url: str, answer: bool) -> None:
    log: Log = []

    def make(**options: Any) -> holdfast.App:
        model = FakeModel(script([("p", "pay", {"order": "A"})], "done"))
        agent = agents.Agent(name="a", model=model, tools=[pay_tool(log, **options)])

        async def branch(run: holdfast.AsyncRun) -> str:
            return str((await run_agent(run, agent, "go", policies={"pay": {"record": "none"}})).final_output)

        async def work(run: holdfast.AsyncRun) -> str:
            return (await run.gather(branch))[0]

        return with_app(url, work)

    with make(needs_approval=True) as app:
        app.start("work", run_id="r")
    with make() as app, pytest.raises(Diverged, match="so it was not called"):
        app.answer("r", {"approve": answer})
    assert log == []
    with make(needs_approval=True) as app:
        assert app.resume("r").result() == "done"
    assert len(log) == int(answer)
