"""Checkpoints of the framework's workflows in a Holdfast store."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agent_framework")

import pydantic
from agent_framework import (
    Agent,
    AgentExecutor,
    AgentResponse,
    Content,
    Executor,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    WorkflowMessage,
    handler,
    response_handler,
)

import holdfast
from holdfast.adapters.agent_framework import AgentStopped, HoldfastCheckpointStorage
from holdfast.errors import ClaimLost, InvalidInput, RunClaimed, Unstorable
from tests.adapters.agent_framework.story_agent import FakeClient, call, pay, results

NAME = "orders"


class Kind(enum.Enum):
    SMALL = "small"


class Customer(pydantic.BaseModel):
    name: str


@dataclasses.dataclass
class Order:
    number: int
    kind: Kind = Kind.SMALL
    customer: Customer | None = None


class Other:
    pass


TYPES = [Order, Kind, Customer]


def checkpoint(**fields: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(workflow_name=NAME, graph_signature_hash="hash", **fields)


def storage(place: Path | None = None, run_id: str = "order-17", types: Sequence[type] = TYPES) -> Any:
    return HoldfastCheckpointStorage("memory:" if place is None else f"sqlite:{place / 'runs.db'}", run_id, types=types)


@pytest.mark.parametrize(
    "value",
    [
        Order(17, customer=Customer(name="ana")),
        [Kind.SMALL, (1, "two", {"three"}), b"four", None, 5.5],
        {1: "int", "1": "text"},
        {"__type__": "not a type"},
        [Content.from_function_call("c", "pay", arguments={"order": "A"}), Content.from_text("hi")],
        Other,
    ],
    ids=["dataclass", "containers", "keys", "reserved", "contents", "class"],
)
def test_values_come_back_as_they_were(value: Any) -> None:
    async def main() -> Any:
        ours = storage()
        saved = checkpoint(state={"value": value}, messages={"a": [WorkflowMessage(value, "a")]})
        await ours.save(saved)
        return await ours.load(saved.checkpoint_id)

    if value is Other:
        with pytest.raises(AgentStopped) as refused:
            asyncio.run(main())
        assert isinstance(refused.value.__cause__, Unstorable)
        return
    found = asyncio.run(main())
    assert found.state == {"value": value}
    assert found.messages["a"][0] == WorkflowMessage(value, "a")


def test_messages_and_responses_of_agents_come_back() -> None:
    async def main() -> Any:
        ours = storage()
        message = Message("assistant", ["hello"], author_name="clerk")
        await ours.save(checkpoint(state={"response": AgentResponse(messages=[message]), "message": message}))
        return (await ours.get_latest(workflow_name=NAME)).state

    state = asyncio.run(main())
    assert state["response"].text == "hello"
    assert state["message"].author_name == "clerk"


@pytest.mark.parametrize("response_type", [str, bool, Order, Content, list[str]])
def test_open_requests_come_back_with_the_type_of_their_response(response_type: Any) -> None:
    async def main() -> Any:
        ours = storage()
        event = WorkflowEvent.request_info("r1", "executor", Order(17), response_type)
        await ours.save(checkpoint(pending_request_info_events={"r1": event}))
        return (await ours.get_latest(workflow_name=NAME)).pending_request_info_events["r1"]

    event = asyncio.run(main())
    assert (event.request_id, event.source_executor_id, event.data) == ("r1", "executor", Order(17))
    assert event.request_type is Order
    assert event.response_type is getattr(response_type, "__origin__", response_type)


@pytest.mark.parametrize("response_type", [Other, str | None])
def test_a_request_whose_response_has_an_unknown_type_is_refused(response_type: Any) -> None:
    event: Any = WorkflowEvent.request_info("r1", "executor", "?", response_type)
    with pytest.raises(AgentStopped, match="types=\\["):
        asyncio.run(storage().save(checkpoint(pending_request_info_events={"r1": event})))


def test_a_value_that_needs_pickle_is_refused_with_its_place() -> None:
    with pytest.raises(AgentStopped, match=r"Other at 'state/deep/0'.*types=\[Other\]"):
        asyncio.run(storage().save(checkpoint(state={"deep": [Other()]})))


def test_a_type_of_the_same_name_is_not_the_type() -> None:
    fake = dataclasses.make_dataclass("Order", ["number"], namespace={"__module__": Order.__module__})
    with pytest.raises(AgentStopped, match="Order"):
        asyncio.run(storage().save(checkpoint(state={"order": fake(1)})))


def test_a_stored_type_is_only_read_if_it_is_given_again(tmp_path: Path) -> None:
    async def main() -> None:
        saved = checkpoint(state={"order": Order(17)})
        await storage(tmp_path).save(saved)
        await storage(tmp_path, types=[]).load(saved.checkpoint_id)

    with pytest.raises(WorkflowCheckpointException, match=r"types=\[(Kind|Order)\]"):
        asyncio.run(main())


@pytest.mark.parametrize("kind", [Other, "Order", types.SimpleNamespace])
def test_types_that_cannot_be_stored_are_refused_at_once(kind: Any) -> None:
    with pytest.raises(InvalidInput, match="dataclasses"):
        storage(types=[kind])


def test_checkpoints_are_listed_loaded_and_removed() -> None:
    async def main() -> None:
        ours = storage()
        assert await ours.get_latest(workflow_name=NAME) is None
        assert await ours.list_checkpoint_ids(workflow_name=NAME) == []
        assert not await ours.delete("a")
        with pytest.raises(WorkflowCheckpointException, match="has no checkpoint 'a'"):
            await ours.load("a")
        await ours.save(checkpoint(checkpoint_id="a", state={"n": 1}))
        await ours.save(checkpoint(checkpoint_id="b", previous_checkpoint_id="a", state={"n": 2}))
        await ours.save(WorkflowCheckpoint("another", "hash", checkpoint_id="c", previous_checkpoint_id="elsewhere"))
        assert await ours.list_checkpoint_ids(workflow_name=NAME) == ["a", "b"]
        assert [found.state for found in await ours.list_checkpoints(workflow_name=NAME)] == [{"n": 1}, {"n": 2}]
        assert (await ours.get_latest(workflow_name=NAME)).checkpoint_id == "b"
        assert await ours.delete("b")
        assert not await ours.delete("b")
        assert (await ours.get_latest(workflow_name=NAME)).checkpoint_id == "a"
        await ours.save(checkpoint(checkpoint_id="a", state={"n": 3}))
        assert (await ours.load("a")).state == {"n": 3}
        await ours.close()

    asyncio.run(main())


def test_instances_of_one_workflow_do_not_see_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        one, two = storage(tmp_path, "order-1"), storage(tmp_path, "order-2")
        await one.save(checkpoint(checkpoint_id="a"))
        assert await two.get_latest(workflow_name=NAME) is None
        with pytest.raises(WorkflowCheckpointException):
            await two.load("a")

    asyncio.run(main())


class Approve(Executor):
    """Asks, then pays."""

    def __init__(self, paid: list[Order]) -> None:
        super().__init__("approve")
        self.paid = paid

    @handler
    async def ask(self, order: Order, ctx: WorkflowContext[Order]) -> None:
        ctx.set_state("order", order)
        await ctx.request_info(order, bool)

    @response_handler
    async def answer(self, order: Order, approved: bool, ctx: WorkflowContext[Order, str]) -> None:
        if approved:
            self.paid.append(order)
        await ctx.yield_output(f"paid {order.number}" if approved else "refused")


def build(paid: list[Order]) -> Workflow:
    return WorkflowBuilder(start_executor=Approve(paid), name=NAME).build()


def test_a_workflow_goes_on_in_another_process_and_only_in_one(tmp_path: Path) -> None:
    paid: list[Order] = []

    async def ask() -> None:
        ours = storage(tmp_path)
        async with ours.claim():
            await build(paid).run(Order(17), checkpoint_storage=ours)
        await ours.close()

    async def go_on() -> list[str]:
        ours = storage(tmp_path)
        try:
            async with ours.claim():
                last = await ours.get_latest(workflow_name=NAME)
                if not last.pending_request_info_events:
                    return ["answered already"]
                answers = dict.fromkeys(last.pending_request_info_events, True)
                run = await build(paid).run(
                    responses=answers, checkpoint_id=last.checkpoint_id, checkpoint_storage=ours
                )
                return list(run.get_outputs())
        except RunClaimed:
            return ["claimed"]
        finally:
            await ours.close()

    async def both() -> list[list[str]]:
        return list(await asyncio.gather(go_on(), go_on()))

    asyncio.run(ask())
    with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}") as store:
        assert [(run.run_id, run.status) for run in store.runs()] == [("order-17", "waiting")]
    found = asyncio.run(both())
    assert ["paid 17"] in found
    assert ["claimed"] in found or ["answered already"] in found
    assert paid == [Order(17)]
    assert asyncio.run(go_on()) == ["answered already"]
    with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}") as store:
        assert [run.status for run in store.runs()] == ["completed"]
        assert store.verify().ok


def test_a_workflow_whose_checkpoint_cannot_be_saved_stops() -> None:
    class Keep(Executor):
        @handler
        async def keep(self, order: Order, ctx: WorkflowContext[Order]) -> None:
            ctx.set_state("other", Other())
            await ctx.send_message(order)

        @handler
        async def never(self, text: str, ctx: WorkflowContext[str]) -> None:
            raise AssertionError("not called")

    paid: list[Order] = []
    keep = Keep("keep")
    workflow = WorkflowBuilder(start_executor=keep, name=NAME).add_edge(keep, Approve(paid)).build()

    async def main() -> None:
        await workflow.run(Order(17), checkpoint_storage=storage())

    with pytest.raises(AgentStopped, match="pickle"):
        asyncio.run(main())
    assert not paid


def test_a_workflow_that_another_process_has_taken_over_stops(tmp_path: Path) -> None:
    paid: list[Order] = []

    async def main() -> None:
        ours, theirs = storage(tmp_path), storage(tmp_path)
        async with theirs.claim():
            with pytest.raises(AgentStopped) as stopped:
                await build(paid).run(Order(17), checkpoint_storage=ours)
            assert isinstance(stopped.value.__cause__, (RunClaimed, ClaimLost))
        assert await ours.get_latest(workflow_name=NAME) is None

    asyncio.run(main())


def test_a_workflow_inside_a_workflow_comes_back(tmp_path: Path) -> None:
    paid: list[Order] = []

    def outer() -> Workflow:
        inner = WorkflowExecutor(build(paid), id="inner", propagate_request=True)
        return WorkflowBuilder(start_executor=inner, name="outer").build()

    async def main() -> None:
        ours = storage(tmp_path)
        await outer().run(Order(17), checkpoint_storage=ours)
        last = await ours.get_latest(workflow_name="outer")
        answers = dict.fromkeys(last.pending_request_info_events, True)
        assert len(answers) == 1
        await outer().run(responses=answers, checkpoint_id=last.checkpoint_id, checkpoint_storage=ours)

    asyncio.run(main())
    assert paid == [Order(17)]


def test_an_agent_in_a_workflow_comes_back_with_its_conversation(tmp_path: Path) -> None:
    calls: list[str] = []

    def model(messages: Sequence[Message]) -> Sequence[Content]:
        calls.append("model")
        found = results(messages)
        return [Content.from_text(found[-1])] if found else [call("c", "pay", order="A-17", amount=40)]

    def make() -> Workflow:
        agent = AgentExecutor(Agent(FakeClient(model), name="payer", tools=[pay]), id="payer")
        return WorkflowBuilder(start_executor=agent, name=NAME).build()

    async def main() -> Any:
        ours = storage(tmp_path)
        await make().run("Pay.", checkpoint_storage=ours)
        last = await ours.get_latest(workflow_name=NAME)
        ((request_id, event),) = last.pending_request_info_events.items()
        answers = {request_id: event.data.to_function_approval_response(False)}
        return await make().run(responses=answers, checkpoint_id=last.checkpoint_id, checkpoint_storage=ours)

    run = asyncio.run(main())
    assert "rejected" in run.get_outputs()[-1].text
    assert calls == ["model", "model"]
