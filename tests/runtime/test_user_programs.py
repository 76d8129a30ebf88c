"""What use from outside broke: each test is a program of a user, shortened."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
from typing import Any

import pydantic
import pytest

import holdfast
from holdfast import App, AsyncRun, Conflict, InvalidInput, Keep, Run, RunFailed
from holdfast.engine.failures import judge
from holdfast.errors import MissingAwait, Unstorable
from holdfast.model.commit import Commit, NewRun
from holdfast.runtime.handle import next_poll_s
from tests.engine.test_rollback import Shop
from tests.harness import Stage

# --- effects ---------------------------------------------------------------------------------------------------------


def test_an_effect_whose_result_cannot_be_stored_is_not_taken_for_one_that_failed(stage: Stage) -> None:
    def visa() -> object:
        stage.calls.append("visa")
        return object()

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        try:
            await run.effect(visa)
        except holdfast.EffectFailed:
            await run.effect(stage.calls.append, "amex")

    with pytest.raises(RunFailed, match=r"ResultLost.*was performed"):
        stage.start(flow).result(240)
    assert stage.calls == ["visa"]
    assert not issubclass(holdfast.EffectInDoubt, holdfast.EffectFailed)


def test_the_last_word_counts_whatever_is_listed_for_what_it_was_raised_for(stage: Stage) -> None:
    class Declined(Exception):
        pass

    def pay() -> None:
        stage.calls.append("pay")
        raise TimeoutError("the second card: no answer") from Declined("the first card")

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.effect(pay, not_done=(Declined,), retry=3)

    stage.start(flow)
    assert stage.calls == ["pay"]
    assert [gate.purpose for gate in stage.app.gates(stage.run_id)] == ["in_doubt"]


def test_a_check_that_returns_nothing_leaves_the_effect_in_doubt(stage: Stage) -> None:
    def pay() -> None:
        stage.calls.append("pay")
        raise TimeoutError

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.effect(pay, check=lambda: None)

    stage.start(flow)
    (gate,) = stage.app.gates(stage.run_id)
    assert "returned None" in gate.prompt
    assert stage.calls == ["pay"]


class _Response:
    def __init__(self, status: int, history: list[Any]) -> None:
        self.status_code = status
        self.history = history


def _client_error(name: str, package: str, **facts: Any) -> Exception:
    error: Exception = type(name, (Exception,), {"__module__": package})("it failed")
    error.__dict__.update(facts)
    return error


def test_answers_that_a_client_made_up_or_got_for_another_request_prove_nothing() -> None:
    plain = _client_error("HTTPError", "requests.exceptions", response=_Response(404, []))
    redirected = _client_error("HTTPError", "requests.exceptions", response=_Response(404, ["303"]))
    assert (judge(plain, ()), judge(redirected, ())) == ("not_done", "doubtful")
    unread = _client_error("ClientResponseError", "aiohttp.client_exceptions", status=400)
    assert judge(unread, ()) == "not_done"
    unread.__cause__ = _client_error("BadHttpMessage", "aiohttp.http_exceptions")
    assert judge(unread, ()) == "not_done", "its class is not known by that name"
    processing = type("HttpProcessingError", (Exception,), {"__module__": "aiohttp.http_exceptions"})
    unread.__cause__ = type("BadHttpMessage", (processing,), {"__module__": "aiohttp.http_exceptions"})()
    assert judge(unread, ()) == "doubtful"
    many = ExceptionGroup("batch", [*[ValueError(number) for number in range(300)], TimeoutError()])
    assert judge(many, ()) == "doubtful"


# --- values ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Seen:
    url: str


class Receipt(pydantic.BaseModel):
    created: dt.datetime


def test_a_set_whose_items_come_back_as_dicts_is_refused_with_its_path() -> None:
    with holdfast.open("memory:") as store, pytest.raises(Unstorable, match=r"state\['seen'\].*use a list"):
        store.save("r", {"seen": {Seen("a")}})


def test_a_moment_that_pydantic_parsed_can_be_stored() -> None:
    receipt = Receipt.model_validate_json('{"created": "2026-11-17T10:00:00+02:00"}')
    with holdfast.open("memory:") as store:
        store.save("r", {"receipt": receipt})
        loaded = store.load("r")
        assert loaded is not None
        assert loaded.state["receipt"]["created"] == receipt.created


def test_an_undo_gets_the_types_it_names(stage: Stage) -> None:
    def take_back(result: Seen, what: Seen) -> None:
        stage.calls.append((result.url, what.url))

    stage.undo(take_back)

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.effect(lambda what: what, Seen("x"), name="pay", undo=take_back)
        return await run.ask("Well?", bool)

    stage.start(flow)
    stage.app.rollback(stage.run_id, to=1)
    assert stage.calls == [("x", "x")]


# --- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda call: {"amount": [call]}, Seen])
def test_a_call_without_await_inside_an_argument_is_found_before_the_effect(awaiting: Stage, wrap: Any) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> None:
        await run.effect(awaiting.calls.append, wrap(run.step(len, "a")))

    with pytest.raises(RunFailed, match=MissingAwait.__name__):
        awaiting.start(flow).result(240)
    assert awaiting.calls == []


def test_a_run_whose_input_cannot_be_made_is_paused_and_not_taken_for_ever(app: App) -> None:
    broken = [False]

    @dataclasses.dataclass
    class Order:
        number: int

        def __post_init__(self) -> None:
            if broken:
                assert broken[0] is False, "not in the worker"

    @app.workflow
    def ship(run: Run, order: Order) -> int:
        return order.number

    ship.fn.__annotations__["order"] = Order
    app.start(ship, Order(1), run_id="r", enqueue=True)
    broken[0] = True
    app.worker().run(until_idle=True)
    assert app.handle("r").status() == "paused"
    broken[0] = False
    assert app.resume("r").result(240) == 1


def test_cancelling_twice_is_cancelling_once(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.ask("Well?", bool)

    stage.start(flow)
    stage.app.cancel(stage.run_id)
    assert stage.app.cancel(stage.run_id).status() == "cancelled"


def test_a_wait_without_a_limit_can_last_for_days() -> None:
    assert next_poll_s(10**6) == next_poll_s(30) > next_poll_s(0)


# --- going back ------------------------------------------------------------------------------------------------------


def test_a_late_process_cannot_start_a_child_that_was_taken_back(stage: Stage) -> None:
    shop = Shop(stage)

    @stage.flow
    async def kid(run: AsyncRun) -> Any:
        return await run.effect(shop.buy, "k1", undo=shop.give_back)

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        await run.step(str, "first")
        return await run.child("kid")

    child = f"{stage.run_id}/child:kid#1"

    def dies(commit: Commit) -> None:
        if commit.run_id == child:
            stage.die()

    stage.wire.before = dies
    stage.start_and_die(parent)
    stage.restart()
    stage.app.rollback(stage.run_id, to=2).result(240)
    assert stage.status(child) == "cancelled"
    late = Commit(child, b"12345678", create=NewRun(required=True), workflow="kid")
    outcome = stage.onlooker.port.commit([late])[0]
    assert getattr(outcome, "reason", "") == "run_exists", "a process that was frozen before it created the child"
    assert stage.calls == [("buy", "k1")]


def test_a_child_that_its_parent_has_taken_back_or_done_with_is_not_executed_again(stage: Stage) -> None:
    @stage.flow
    async def kid(run: AsyncRun) -> None:
        await run.step(str, "first")
        raise ValueError("no")

    @stage.flow
    async def parent(run: AsyncRun) -> str:
        try:
            await run.child("kid")
        except holdfast.errors.ChildFailed:
            await run.effect(stage.calls.append, "by wire")
        return "done"

    stage.start(parent).result(240)
    child = f"{stage.run_id}/child:kid#1"
    with pytest.raises(Conflict, match="has recorded how it ended"):
        stage.app.retry(child)
    stage.app.rollback(stage.run_id, to=1, force=True).result(240)
    with pytest.raises(Conflict, match="rolled back to before it was started"):
        stage.app.rollback(child, to=1)


def test_a_failed_effect_is_not_retried_when_another_was_performed_for_it(stage: Stage) -> None:
    def card() -> None:
        raise ValueError("declined")

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        try:
            await run.effect(card)
        except holdfast.EffectFailed as failed:
            await run.effect(stage.calls.append, "wire", key="wire")
            raise RuntimeError("a mistake in later code") from failed

    stage.start(flow)
    with pytest.raises(Conflict, match="wire"):
        stage.app.retry(stage.run_id)
    assert stage.calls == ["wire"]


def test_what_failed_in_a_task_group_is_tried_again(awaiting: Stage) -> None:
    fixed: list[bool] = []

    def rate() -> int:
        if not fixed:
            raise ValueError("no rate")
        return 2

    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        await run.step(int, key="first")  # the calls of the group begin together only in a run that exists
        async with asyncio.TaskGroup() as group:
            rated = group.create_task(run.step(rate, key="b"))
            paid = group.create_task(run.effect(int, 1, key="a"))
        return rated.result() + paid.result()

    awaiting.start(flow)
    fixed.append(True)
    assert awaiting.app.retry(awaiting.run_id).result(240) == 3


def test_a_turn_whose_checkpoint_was_pruned_is_no_place_to_go_back_to(app: App) -> None:
    @app.workflow
    def flow(run: Run) -> Any:
        for turn in run.loop():
            run.state["turn"] = run.step(int, turn)
            if turn == 3:
                break
        return run.ask("Well?", {"yes": bool})

    app.start(flow, run_id="r")
    inside = next(entry.position for entry in app.store.journal("r") if entry.data.get("in") == "loop#1[2]")
    app.store.prune("r", Keep())
    with pytest.raises(InvalidInput, match="checkpoint of turn 1"):
        app.rollback("r", to=inside)
    with pytest.raises(InvalidInput, match="checkpoint of turn 1"):
        app.fork("r", at=inside)


def test_an_edit_reaches_the_arguments_of_the_next_call_and_is_not_overwritten(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        run.state["limit"] = 1
        await run.step(str, "first")
        paid = await run.step(int, run.state["limit"], name="pay")
        return [paid, run.state["limit"]]

    stage.start(flow).result(240)
    early = stage.app.fork(stage.run_id, f"{stage.run_id}-a", at="pay", update={"limit": 5})
    assert early.result(240) == [5, 5]
    first = stage.app.fork(stage.run_id, f"{stage.run_id}-b", at="str", state={"limit": 7})
    assert first.result(240) == [7, 7]
    with pytest.raises(InvalidInput):
        stage.app.fork(stage.run_id, f"{stage.run_id}-c", at="pay", update={"limit.x": 5})


@pytest.mark.parametrize("how", ["copy", "fork"])
def test_a_failed_effect_has_another_key_in_a_copy_or_fork(stage: Stage, how: str) -> None:
    fixed: list[bool] = []

    def pay(idempotency_key: str) -> None:
        if not fixed:
            raise ValueError("not configured")
        stage.calls.append(idempotency_key)

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.effect(pay, not_done=ValueError)

    stage.start(flow)
    other = f"{stage.run_id}-{how}"
    if how == "copy":
        stage.onlooker.copy(stage.run_id, other)
    else:
        stage.app.fork(stage.run_id, other)
    again = f"{stage.run_id}-again"
    stage.app.fork(stage.run_id, again)
    fixed.append(True)
    for run_id in (other, stage.run_id):
        stage.app.retry(run_id).result(240)
    assert len(set(stage.calls)) == len(stage.calls) == 2
    stage.app.retry(again).result(240)
    assert len(stage.calls) == 2, "a fork takes over what its family has done since"
