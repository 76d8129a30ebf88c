"""Ids and errors with which a model or a tool could mislead the approver or repeat a payment."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("strands")
from strands import tool
from strands.hooks import BeforeToolCallEvent

import holdfast
from holdfast.errors import Diverged
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


class Approval:
    """A hook whose condition may change while a run waits."""

    def __init__(self) -> None:
        self.is_on = True

    def __call__(self, event: BeforeToolCallEvent) -> None:
        if self.is_on and event.tool_use["name"] == "pay" and event.interrupt("approve") != "y":
            event.cancel_tool = "refused"


@pytest.mark.parametrize("answer", [None, True, False])
def test_a_call_whose_approval_was_removed_is_not_made_and_later_made_once(answer: bool | None) -> None:
    calls: Calls = []
    approval = Approval()

    async def work(run: holdfast.AsyncRun) -> str:
        model = scripted([call("c1", "pay", order="A")], calls=calls)
        return str(await agent_of(model, [paying(calls)], hook=approval).invoke_async("go")).strip()

    app, handle = start(work)
    approval.is_on = False
    with pytest.raises(Diverged, match="the journal has gate 'approve agent Strands Agents 1 model 1 c1 hook approve'"):
        app.resume("run") if answer is None else answer_all(app, answer)
    assert handle.status() == "paused"
    assert kinds(calls) == ["model"]
    approval.is_on = True
    app.resume("run")
    if answer is None:
        answer_all(app)
    assert handle.result() == ("refused" if answer is False else "paid A")
    assert kinds(calls) == (["model", "model"] if answer is False else ["model", "pay", "model"])


def test_the_key_of_a_call_does_not_depend_on_what_was_asked() -> None:
    approval = Approval()

    async def work(run: holdfast.AsyncRun) -> str:
        model = scripted([call("c1", "pay", order="A")], [call("c1", "pay", order="B")], calls=[])
        return str(await agent_of(model, [paying([])], hook=approval).invoke_async("go"))

    def keys() -> list[str]:
        app, handle = start(work)
        while app.gates("run"):
            answer_all(app)
        handle.result()
        return [effect.key for effect in app.store.effects("run")]

    asked = keys()
    approval.is_on = False
    assert asked == keys()
    assert len(set(asked)) == 2


def test_a_model_is_not_called_while_a_gate_of_its_last_response_was_not_reached() -> None:
    calls: Calls = []
    approval = Approval()

    def refuse(event: BeforeToolCallEvent) -> None:
        if approval.is_on:
            approval(event)
        else:
            event.cancel_tool = "payments are closed"

    async def work(run: holdfast.AsyncRun) -> str:
        model = scripted([call("c1", "pay", order="A")], calls=calls)
        return str(await agent_of(model, [paying(calls)], hook=refuse).invoke_async("go")).strip()

    app, handle = start(work)
    approval.is_on = False
    with pytest.raises(Diverged):
        answer_all(app)
    assert kinds(calls) == ["model"]
    approval.is_on = True
    app.resume("run")
    assert handle.result() == "paid A"


@pytest.mark.parametrize("was_closed", [True, False])
def test_a_payment_does_not_change_after_the_model_has_read_its_result(was_closed: bool) -> None:
    calls: Calls = []
    is_closed = [was_closed]

    def close(event: BeforeToolCallEvent) -> None:
        if is_closed[0] and event.tool_use["input"]["order"] == "A":
            event.cancel_tool = "payments are closed"
        elif event.tool_use["input"]["order"] == "B":
            event.interrupt("approve")

    async def work(run: holdfast.AsyncRun) -> str:
        model = scripted([call("c1", "pay", order="A")], [call("c1", "pay", order="B")], calls=calls)
        return str(await agent_of(model, [paying(calls)], hook=close).invoke_async("go")).strip()

    app, handle = start(work)
    made = kinds(calls)
    assert made == (["model", "model"] if was_closed else ["model", "pay", "model"])
    is_closed[0] = not was_closed
    with pytest.raises(Diverged, match="so it was not called"):
        answer_all(app)
    assert kinds(calls) == (made if was_closed else [*made, "pay"])  # B was approved
    is_closed[0] = was_closed
    assert app.resume("run").result() == handle.result()
    assert kinds(calls) == [*made, "pay", "model"]


@pytest.mark.parametrize("answer", [True, False])
def test_a_tool_without_a_record_is_not_called_if_its_approval_was_removed(answer: bool) -> None:
    calls: Calls = []
    approval = Approval()

    async def work(run: holdfast.AsyncRun) -> str:
        model = scripted([call("c1", "pay", order="A")], calls=calls)
        agent = agent_of(model, [paying(calls)], {"pay": {"record": "none"}}, hook=approval)
        return str(await agent.invoke_async("go")).strip()

    app, handle = start(work)
    approval.is_on = False
    with pytest.raises(Diverged, match="so it was not called"):
        answer_all(app, answer)
    assert kinds(calls) == ["model"]
    approval.is_on = True
    app.resume("run")
    assert handle.result() == ("paid A" if answer else "refused")


@pytest.mark.parametrize("given", [[1], None, "x"])
def test_arguments_that_are_not_an_object_are_reported_to_the_model(given: Any) -> None:
    calls: Calls = []
    odd: Any = {"toolUse": {"toolUseId": "c2", "name": "pay", "input": given}}

    async def work(run: holdfast.AsyncRun) -> str:
        model = scripted([call("c1", "pay", order="A"), odd], calls=calls)
        return str(await agent_of(model, [paying(calls)], hook=Approval()).invoke_async("go"))

    app, handle = start(work)
    assert [gate.show for gate in app.gates("run")] == [{"order": "A"}, {"input": given}]
    answer_all(app)
    assert "paid A; Error" in handle.result()
    assert kinds(calls) == ["model", "pay", "model"]


@pytest.mark.parametrize("order", [float("nan"), "\ud800"])
def test_arguments_that_cannot_be_stored_fail_the_run_before_a_gate_is_open(order: Any) -> None:
    calls: Calls = []

    async def work(run: holdfast.AsyncRun) -> str:
        model = scripted([call("c1", "pay", order="A"), call("c2", "pay", order=order)], calls=calls)
        return str(await agent_of(model, [paying(calls)], hook=Approval()).invoke_async("go"))

    app, handle = start(work)
    assert "cannot be stored" in failure(handle)
    assert not [entry for entry in app.store.journal("run") if entry.kind == "asked"]
