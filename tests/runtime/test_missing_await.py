"""Calls without `await`: none passes silently, and nothing is done after one."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

from holdfast import AsyncRun, HoldfastError, RunFailed, StepFailed
from holdfast.errors import MissingAwait
from holdfast.testing import replay
from tests.harness import Stage


def failure(stage: Stage, run_id: str | None = None) -> dict[str, Any]:
    """Why the run failed."""
    with pytest.raises(RunFailed) as failed:
        stage.app.handle(run_id or stage.run_id).result(240)
    assert stage.status(run_id) == "failed"
    return failed.value.failure


def line_of(fn: Callable[..., Any], text: str) -> str:
    """The place of a line of a function, as errors name it."""
    lines, first = inspect.getsourcelines(fn)
    return f"{__file__}:{first + next(number for number, line in enumerate(lines) if text in line)}"


def test_a_question_tested_without_await_fails_the_run_and_nothing_is_paid(awaiting: Stage) -> None:
    async def flow(run: AsyncRun) -> None:
        if run.ask("Refund?", bool):
            await run.effect(awaiting.calls.append, "paid")

    awaiting.flow(flow)
    awaiting.start(flow)
    found = failure(awaiting)
    assert found["type"] == "MissingAwait"
    assert "run.ask('Refund?')" in found["message"]
    assert line_of(flow, "run.ask") in found["message"]
    assert awaiting.calls == []
    assert [entry["kind"] for entry in awaiting.journal()] == ["started", "failed"]
    assert awaiting.app.gates(awaiting.run_id) == []


@pytest.mark.parametrize("next_call", ["effect", "step", "ask", "child", "map", "gather", "sleep", "loop"])
def test_a_dropped_call_stops_the_next_call_before_it_does_anything(awaiting: Stage, next_call: str) -> None:
    @awaiting.flow
    async def other(run: AsyncRun) -> None:
        awaiting.calls.append("child")

    async def turns(run: AsyncRun) -> None:
        async for _ in run.loop():
            awaiting.calls.append("turn")
            break

    calls: dict[str, Callable[[AsyncRun], Awaitable[Any]]] = {
        "effect": lambda run: run.effect(awaiting.calls.append, "paid"),
        "step": lambda run: run.step(awaiting.calls.append, "done"),
        "ask": lambda run: run.ask("And this?", bool),
        "child": lambda run: run.child("other"),
        "map": lambda run: run.map(awaiting.calls.append, [1, 2]),
        "gather": lambda run: run.gather(lambda r: r.step(awaiting.calls.append, 1)),
        "sleep": lambda run: run.sleep(3600),
        "loop": turns,
    }

    async def flow(run: AsyncRun) -> None:
        run.ask("ok?", bool)  # type: ignore[unused-coroutine]
        await calls[next_call](run)

    awaiting.flow(flow)
    awaiting.start(flow)
    found = failure(awaiting)
    assert found["type"] == "MissingAwait"
    assert line_of(flow, "ok?") in found["message"]
    assert awaiting.calls == []
    assert [entry["kind"] for entry in awaiting.journal()] == ["started", "failed"]


def test_an_error_that_is_swallowed_still_fails_the_run(awaiting: Stage) -> None:
    async def flow(run: AsyncRun) -> str:
        try:
            if run.ask("Refund?", bool):
                return "not reached"
        except HoldfastError:
            pass
        with contextlib.suppress(HoldfastError):
            await run.effect(awaiting.calls.append, "paid")
        return "all is well"

    awaiting.flow(flow)
    awaiting.start(flow)
    assert failure(awaiting)["type"] == "MissingAwait"
    assert awaiting.calls == []


@pytest.mark.parametrize("held", [True, False])
def test_a_call_that_nobody_has_awaited_at_the_end_fails_the_run(awaiting: Stage, held: bool) -> None:
    async def flow(run: AsyncRun) -> Any:
        found = await run.step(len, "abc")
        await run.log("pending")
        last = run.effect(awaiting.calls.append, "paid")
        return last if held else (found, None)

    awaiting.flow(flow)
    awaiting.start(flow)
    message = failure(awaiting)["message"]
    assert "run.effect(append)" in message
    assert line_of(flow, "run.effect") in message
    assert [entry["kind"] for entry in awaiting.journal()] == ["started", "step", "failed"], "nothing pending"


def test_calls_may_be_made_first_and_awaited_later(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        first = run.ask("first?", bool)
        second = run.ask("second?", bool)
        return [await first, await second]

    awaiting.start(flow)
    awaiting.app.answer(awaiting.run_id, True)
    assert awaiting.status() == "waiting"
    awaiting.app.answer(awaiting.run_id, False)
    assert awaiting.app.handle(awaiting.run_id).result(240) == [True, False]


def test_identity_is_given_in_the_order_of_awaiting(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        first, second = run.step(len, "a"), run.step(len, "bb")
        return [await second, await first]

    assert awaiting.start(flow).result() == [2, 1]
    assert [entry["result"] for entry in awaiting.journal("step")] == [2, 1]


TAKERS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "ensure_future": asyncio.ensure_future,
    "create_task": asyncio.create_task,
    "gather": lambda call: _only(asyncio.gather(call)),
    "wait_for": lambda call: asyncio.wait_for(call, 60),
    "shield": asyncio.shield,
}


async def _only(found: Awaitable[Any]) -> Any:
    return (await found)[0]


@pytest.mark.parametrize("taker", TAKERS)
def test_whatever_takes_a_coroutine_takes_a_call(awaiting: Stage, taker: str) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        call = run.step(len, "abc")
        assert inspect.isawaitable(call)
        assert asyncio.iscoroutine(call)
        assert "not awaited" in repr(call)
        return await TAKERS[taker](call)

    assert awaiting.start(flow).result() == 3


def test_a_task_group_takes_calls_and_shows_where_they_are(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run.step(len, "a" * n, key=f"n{n}")) for n in range(3)]
            assert "run.step" in repr(tasks[0])
        return [task.result() for task in tasks]

    assert awaiting.start(flow).result() == [0, 1, 2]


USES: dict[str, Callable[[Any], Any]] = {
    "equal": lambda call: call == "yes",
    "unequal": lambda call: call != "yes",
    "less": lambda call: call < 3,
    "item": lambda call: call["approve"],
    "iterate": list,
    "unpack": lambda call: (lambda a, b: a)(*call),
    "contains": lambda call: "yes" in call,
    "length": len,
    "attribute": lambda call: call.approve,
    "not": lambda call: not call,
}


@pytest.mark.parametrize("use", USES)
def test_a_call_used_as_its_result_says_that_await_is_missing(awaiting: Stage, use: str) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        call = cast(Any, run.ask("Refund?", {"approve": bool}))
        try:
            USES[use](call)
        finally:
            call.close()

    awaiting.start(flow)
    found = failure(awaiting)
    assert (found["type"], "run.ask('Refund?')" in found["message"]) == ("MissingAwait", True)


def test_a_call_can_be_asked_what_it_has_and_closed_on_purpose(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        call = cast(Any, run.ask("Refund?", bool))
        found = (hasattr(call, "approve"), call == call, len({call, call}))
        call.close()
        return found

    assert awaiting.start(flow).result() == (False, True, 1)


@pytest.mark.parametrize("place", ["step", "effect", "child", "ask", "send", "map"])
def test_a_call_given_to_another_call_is_refused_at_once(awaiting: Stage, place: str) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> None:
        call = cast(Any, run.step(len, "abc"))
        match place:
            case "step":
                await run.step(awaiting.calls.append, call)
            case "effect":
                await run.effect(awaiting.calls.append, call)
            case "child":
                await run.child("flow", call)
            case "ask":
                await run.ask("ok?", bool, show=call)
            case "send":
                await run.send("other", "event", call)
            case "map":
                await run.map(awaiting.calls.append, [call])

    awaiting.start(flow)
    assert f"passed to run.{place}" in failure(awaiting)["message"]
    assert awaiting.calls == []


def test_a_dropped_call_in_a_branch_fails_the_run(awaiting: Stage) -> None:
    async def branch(run: AsyncRun) -> None:
        run.step(len, "abc")  # type: ignore[unused-coroutine]

    @awaiting.flow
    async def flow(run: AsyncRun) -> None:
        await run.gather(branch, lambda r: r.step(len, "a"))
        await run.effect(awaiting.calls.append, "paid")

    awaiting.start(flow)
    assert line_of(branch, "run.step") in failure(awaiting)["message"]
    assert awaiting.calls == []


def test_a_dropped_call_in_a_child_fails_the_child(awaiting: Stage) -> None:
    @awaiting.flow
    async def inner(run: AsyncRun) -> None:
        run.step(len, "abc")  # type: ignore[unused-coroutine]

    @awaiting.flow
    async def flow(run: AsyncRun) -> None:
        await run.child("inner", key="c")

    awaiting.start(flow)
    assert failure(awaiting)["type"] == "ChildFailed"
    assert failure(awaiting, f"{awaiting.run_id}/c")["type"] == "MissingAwait"


def test_a_dropped_call_beside_one_that_waits_stops_what_follows_and_fails_the_run(awaiting: Stage) -> None:
    asked = asyncio.Event()

    async def pays(run: AsyncRun) -> None:
        await asked.wait()
        run.ask("really?", bool, key="really")  # type: ignore[unused-coroutine]
        await run.effect(awaiting.calls.append, "paid", key="pay")

    async def asks(run: AsyncRun) -> None:
        try:
            await run.ask("ok?", bool, key="ok")
        finally:
            asked.set()

    @awaiting.flow
    async def flow(run: AsyncRun) -> None:
        await asyncio.gather(asks(run), pays(run), return_exceptions=True)

    awaiting.start(flow)
    assert line_of(pays, "really?") in failure(awaiting)["message"]
    assert awaiting.calls == []
    assert awaiting.app.gates(awaiting.run_id) == [], "the gate of the failed run is closed"


def test_an_error_of_the_workflow_stands_before_a_call_it_kept_from_being_awaited(awaiting: Stage) -> None:
    def broken() -> None:
        raise ValueError("no")

    @awaiting.flow
    async def flow(run: AsyncRun) -> None:
        first, second = run.step(broken), run.step(len, "a")
        await first
        await second

    awaiting.start(flow)
    assert failure(awaiting)["type"] == StepFailed.__name__


def test_a_cancelled_run_is_cancelled_whatever_it_has_not_awaited(awaiting: Stage) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> None:
        first, second = run.ask("first?", bool), run.ask("second?", bool)
        await first
        await second

    awaiting.start(flow)
    assert awaiting.app.cancel(awaiting.run_id).status() == "cancelled"


def test_a_rehearsal_finds_a_missing_await(awaiting: Stage) -> None:
    async def flow(run: AsyncRun) -> None:
        await run.ask("ok?", bool)

    awaiting.flow(flow)
    awaiting.start(flow)

    async def forgetful(run: AsyncRun) -> None:
        run.log("about to ask")  # type: ignore[unused-coroutine]
        await run.ask("ok?", bool)

    awaiting.change(forgetful, name="flow")
    with pytest.raises(MissingAwait):
        replay(awaiting.app, awaiting.run_id)


def test_a_task_that_was_never_awaited_does_not_outlive_the_run(awaiting: Stage) -> None:
    tasks: list[asyncio.Task[Any]] = []

    @awaiting.flow
    async def flow(run: AsyncRun) -> None:
        call: Coroutine[Any, Any, Any] = run.effect(awaiting.calls.append, "paid")
        tasks.append(asyncio.create_task(call))

    awaiting.start(flow)
    assert failure(awaiting)["type"] == "MissingAwait"

    async def outcome() -> BaseException | None:
        await asyncio.wait(tasks)
        return tasks[0].exception()

    assert isinstance(awaiting.app._core.loop.run(outcome()), MissingAwait)
    assert awaiting.calls == []


@pytest.mark.parametrize("save", [AsyncRun.checkpoint, lambda run: run.ask("ok?", bool), lambda run: asyncio.sleep(0)])
def test_a_call_put_into_the_state_without_await_is_named(awaiting: Stage, save: Any) -> None:
    async def flow(run: AsyncRun) -> None:
        run.state["x"] = {"parts": [run.step(len, "a")]}
        await save(run)

    awaiting.flow(flow)
    awaiting.start(flow)
    found = failure(awaiting)
    assert found["type"] == "MissingAwait"
    assert line_of(flow, "run.step") in found["message"]


def test_a_loop_of_an_async_workflow_asks_for_async_for(awaiting: Stage) -> None:
    async def flow(run: AsyncRun) -> None:
        for _ in run.loop():  # type: ignore[attr-defined]
            awaiting.calls.append("turn")

    awaiting.flow(flow)
    awaiting.start(flow)
    assert "`async for turn in run.loop()`" in failure(awaiting)["message"]
    assert awaiting.calls == []


def test_an_effect_that_returns_a_call_without_await_has_happened(awaiting: Stage) -> None:
    async def flow(run: AsyncRun) -> None:
        def pay() -> list[Any]:
            awaiting.calls.append("paid")
            return [run.step(len, "a")]

        await run.effect(pay)

    awaiting.flow(flow)
    awaiting.start(flow)
    assert failure(awaiting)["type"] in ("ResultLost", "MissingAwait")
    assert [effect.state for effect in awaiting.onlooker.effects(awaiting.run_id)] == ["done"]
    assert awaiting.calls == ["paid"]
