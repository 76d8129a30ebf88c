"""Mistakes with agents of Pydantic AI that must not cost money: each is refused before a tool acts."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic import BaseModel
from pydantic_ai import Agent, ApprovalRequired, FunctionToolset, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability

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
        with pytest.raises(Diverged, match="before it calls 'pay'"):
            app.answer("r", {"approve": False, "note": "no"})
    assert paid == []


@pytest.mark.parametrize("options", [{"who": ["ana"]}, {"approvals": 2}, {"expires": 60}, {"not_by": "bob"}])
def test_rules_of_an_approval_that_the_tool_does_not_need_are_refused(options: dict[str, Any]) -> None:
    paid: list[str] = []
    with holdfast.App("memory:") as app, pytest.raises(holdfast.RunFailed, match="requires_approval=True") as failed:
        work_with([paying_agent(paid, metadata={"holdfast": options})], app).result()
    assert next(iter(options)) in str(failed.value)
    assert paid == []


@pytest.mark.parametrize("way", ["flag", "raises", "toolset"])
def test_rules_of_an_approval_are_allowed_if_the_tool_may_ask(way: str) -> None:
    paid: list[str] = []
    agent = make_agent(Script(PAY, "done").model)

    def pay(ctx: RunContext[None], order: str) -> str:
        paid.append(order)
        return "paid"

    def pay_if_approved(ctx: RunContext[None], order: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return pay(ctx, order)

    policy = {"holdfast": {"who": ["ana"]}}
    if way == "toolset":
        tools = FunctionToolset([Tool(pay, metadata=policy)], id="bank")
        agent = make_agent(Script(PAY, "done").model, toolsets=[tools.approval_required()])
    elif way == "flag":
        agent.tool(requires_approval=True, metadata=policy)(pay)
    else:
        agent.tool(name="pay", metadata=policy)(pay_if_approved)
    with holdfast.App("memory:") as app:
        handle = work_with([agent], app)
        (gate,) = app.gates("r")
        assert gate.who == ("ana",)
        assert paid == []
        app.answer("r", {"approve": True}, by="ana")
        assert handle.result() == "done"
    assert paid == ["A"]


def test_a_performed_call_whose_result_cannot_be_stored_is_not_a_failed_one() -> None:
    paid: list[str] = []
    agent = make_agent(Script(PAY, "done").model)

    @agent.tool_plain
    def pay(order: str) -> Any:
        paid.append(order)
        return object()

    with holdfast.App("memory:") as app, pytest.raises(holdfast.RunFailed) as failed:
        work_with([agent], app).result()
    assert failed.value.failure["type"] == "ResultLost"
    assert paid == ["A"]


def test_a_receipt_that_does_not_validate_is_not_told_to_the_model() -> None:
    script, paid = Script(PAY, PAY, "done"), []
    agent = make_agent(script.model)

    class Receipt(BaseModel):
        number: int

    @agent.tool_plain
    def pay(order: str) -> int:
        paid.append(order)
        return Receipt.model_validate({"number": "none"}).number

    with holdfast.App("memory:") as app, pytest.raises(holdfast.RunFailed, match="raise ModelRetry to tell the model"):
        work_with([agent], app).result()
    assert (paid, script.calls) == (["A"], 1)


def test_a_tool_that_only_asked_is_not_an_effect_and_its_reason_is_shown() -> None:
    paid: list[str] = []
    agent = make_agent(Script(PAY, "done").model)

    @agent.tool
    def pay(ctx: RunContext[None], order: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"why": "above 10 EUR"})
        paid.append(order)
        return "paid"

    with holdfast.App("memory:") as app:
        handle = work_with([agent], app)
        (gate,) = app.gates("r")
        assert gate.show == {"metadata": {"why": "above 10 EUR"}, "order": "A"}
        assert [effect.state for effect in app.store.effects("r")] == ["failed"]
        app.rollback("r", to="agent 1 model 1")
        app.answer("r", {"approve": True})
        assert handle.result() == "done"
    assert paid == ["A"]


@pytest.mark.parametrize("name", ["Holdfast", "hold_fast", "HOLDFAST"])
def test_metadata_under_a_name_that_only_resembles_the_right_one_is_refused(name: str) -> None:
    paid: list[str] = []
    with holdfast.App("memory:") as app, pytest.raises(holdfast.RunFailed, match=f"metadata '{name}' of tool 'pay'"):
        work_with([paying_agent(paid, metadata={name: {"in_doubt": "fail"}})], app).result()
    assert paid == []


class Closing(AbstractCapability[None]):
    """Refuses payments without calling the tool, as long as it is closed."""

    is_closed = False

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        del ctx, tool_def, args
        return "closed" if self.is_closed and call.tool_name == "pay" else await handler(call.args_as_dict())


def sending_agent(paid: list[str], script: Script, **options: Any) -> Agent[None, Any]:
    agent = make_agent(script.model, capabilities=options.pop("capabilities", []))

    @agent.tool_plain(**options)
    def pay(order: str) -> str:
        paid.append(order)
        return f"paid {order}"

    @agent.tool_plain(requires_approval=True)
    def send(order: str) -> str:
        paid.append(f"send {order}")
        return f"sent {order}"

    return agent


SEND = [("send", {"order": "B"}, "c1")]


@pytest.mark.parametrize("was_closed", [True, False])
def test_a_payment_does_not_change_after_the_model_has_read_its_result(was_closed: bool) -> None:
    paid: list[str] = []
    closing, script = Closing(), Script(PAY, SEND, "done")
    closing.is_closed = was_closed
    agent = sending_agent(paid, script, capabilities=[closing])
    with holdfast.App("memory:") as app:
        handle = work_with([agent], app)
        before = list(paid)
        closing.is_closed = not was_closed
        with pytest.raises(Diverged, match="so it was not called"):
            app.answer("r", {"approve": True})
        assert paid == (before if was_closed else [*before, "send B"])
        assert script.calls == 2
        closing.is_closed = was_closed
        app.resume("r")
        assert handle.result() == "done"
    assert paid == [*before, "send B"]


def test_a_payment_is_not_repeated_if_it_needs_an_approval_since() -> None:
    paid: list[str] = []
    agents = [sending_agent(paid, Script(PAY, SEND, "done"))]
    with holdfast.App("memory:") as app:
        handle = work_with(agents, app)
        assert paid == ["A"]
        agents[0] = sending_agent(paid, Script(PAY, SEND, "done"), requires_approval=True)
        while app.gates("r"):
            app.answer("r", {"approve": True}, gate=app.gates("r")[0].gate)
        assert handle.result() == "done"
    assert paid == ["A", "send B"]


@pytest.mark.parametrize("answer", [True, False])
def test_a_tool_without_a_record_is_not_called_if_its_approval_was_removed(answer: bool) -> None:
    paid: list[str] = []
    policy = {"holdfast": {"record": "none"}}
    agents = [paying_agent(paid, requires_approval=True, metadata=policy)]
    with holdfast.App("memory:") as app:
        work_with(agents, app)
        agents.append(agents[0])
        agents[0] = paying_agent(paid, metadata=policy)
        with pytest.raises(Diverged, match="so it was not called"):
            app.answer("r", {"approve": answer})
        assert paid == []
        agents[0] = agents[1]
        assert app.resume("r").result() == "done"
    assert paid == ["A"] * answer
