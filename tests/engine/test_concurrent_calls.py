"""Calls side by side: none gives the run away under another, none sleeps through what another has read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import AsyncRun, InvalidInput, Run, RunFailed
from holdfast.engine.execution import Execution
from tests.harness import Stage

WAITS: dict[str, Callable[[AsyncRun], Awaitable[Any]]] = {
    "ask": lambda run: run.ask("ok?", bool, key="w"),
    "wait_for": lambda run: run.wait_for("go", key="w"),
    "sleep": lambda run: run.sleep(3600, key="w"),
    "child": lambda run: run.child("asks", key="w"),
}


@pytest.mark.parametrize("kind", WAITS)
def test_what_waits_does_not_give_the_run_back_while_a_keyed_effect_is_under_way(awaiting: Stage, kind: str) -> None:
    async def pay() -> str:
        awaiting.calls.append("begun")
        await asyncio.sleep(0.1)
        awaiting.calls.append("paid")
        return "paid"

    @awaiting.flow
    async def asks(run: AsyncRun) -> Any:
        return await run.ask("of the child?", bool)

    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        return await asyncio.gather(run.effect(pay, key="pay", in_doubt="retry"), WAITS[kind](run))

    assert awaiting.start(flow).status() == "waiting"
    assert awaiting.calls == ["begun", "paid"], "it was not left behind"
    assert [line.state for line in awaiting.onlooker.effects(awaiting.run_id)] == ["done"]
    awaiting.restart()
    if kind == "ask":
        awaiting.app.answer(awaiting.run_id, True)
    elif kind == "wait_for":
        awaiting.app.send(awaiting.run_id, "go", True)
    elif kind == "child":
        awaiting.app.answer(f"{awaiting.run_id}/w", True)
    else:
        awaiting.clock.advance(3601)
    answer = None if kind == "sleep" else True
    assert awaiting.app.handle(awaiting.run_id).result(240) == ["paid", answer]
    assert awaiting.calls == ["begun", "paid"], "and not done again"


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_two_keyed_questions_side_by_side_are_both_asked_and_answered(awaiting: Stage, order: str) -> None:
    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        return await asyncio.gather(run.ask("A?", str, key="a"), run.ask("B?", str, key="b"))

    assert awaiting.start(flow).status() == "waiting"
    answered: list[str] = []
    while awaiting.status() == "waiting":
        gates = sorted((gate.gate for gate in awaiting.app.gates(awaiting.run_id)), reverse=order == "ba")
        awaiting.app.answer(awaiting.run_id, gates[0].upper(), gate=gates[0])
        answered.append(gates[0])
    assert sorted(answered) == ["a", "b"]
    assert awaiting.app.handle(awaiting.run_id).result(240) == ["A", "B"]
    assert len(awaiting.journal("asked")) == 2


@pytest.mark.parametrize("local", ["def"], indirect=True)
def test_an_event_another_branch_has_read_meanwhile_is_not_slept_through(
    local: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One branch looks for its event; before it notes how far it had looked, another reads the inbox."""
    looked, read = threading.Event(), threading.Event()
    real = Execution.find_item

    def find_item(exe: Execution, kinds: tuple[str, ...], name: str) -> Any:
        item = real(exe, kinds, name)
        if name == "b" and not looked.is_set():
            assert item is None
            looked.set()
            assert read.wait(10)
        return item

    monkeypatch.setattr(Execution, "find_item", find_item)

    def sent() -> None:
        assert looked.wait(10)
        local.app.send(local.run_id, "b", "the event", enqueue=True)

    @local.flow
    async def flow(run: AsyncRun) -> Any:
        async def works(inner: AsyncRun) -> None:
            await inner.step(sent)
            await inner.step(read.set)  # the inbox is read before it

        async def waits(inner: AsyncRun) -> Any:
            return await inner.wait_for("b")

        return await run.gather(works, waits)

    assert local.start(flow).status() == "completed"
    assert local.app.handle(local.run_id).result(240) == [None, "the event"]


def _send(run: AsyncRun) -> Awaitable[Any]:
    return run.send("nobody", "event", object())


def _child(run: AsyncRun) -> Awaitable[Any]:
    return run.child("flow", object())


def _ask(run: AsyncRun) -> Awaitable[Any]:
    return run.ask("?", {"ok": bool}, expires=5, expired={"nope": 1})


def _undo(run: AsyncRun) -> Awaitable[Any]:
    return run.effect(len, "x", undo="nobody knows it")


@pytest.mark.parametrize("bad", [_send, _child, _ask, _undo])
def test_a_call_that_was_refused_and_caught_is_refused_the_same_on_replay(
    local: Stage, bad: Callable[[AsyncRun], Awaitable[Any]]
) -> None:
    seen: list[tuple[str, str]] = []

    @local.flow
    async def flow(run: AsyncRun) -> str:
        try:
            await bad(run)
        except InvalidInput as refused:
            seen.append((type(refused).__name__, str(refused)))
        await run.step(len, "x")
        await run.ask("more?", bool)
        return "done"

    assert local.start(flow).status() == "waiting"
    local.restart()
    assert local.app.answer(local.run_id, True).result(240) == "done"
    assert len(seen) == 2
    assert seen[0] == seen[1]


def test_an_effect_refused_because_another_branch_performs_it_is_refused_on_replay_too(stage: Stage) -> None:
    seen: list[Any] = []

    def pay() -> str:
        stage.calls.append("paid")
        time.sleep(0.1)
        return "paid"

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        async def pays(inner: AsyncRun) -> str:
            try:
                return await inner.effect(pay, key="pay-17")
            except InvalidInput:
                return "refused"

        seen.append(await run.gather(pays, pays))
        await run.ask("more?", bool)

    stage.start(flow)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).status() == "completed"
    assert sorted(seen[0]) == ["paid", "refused"]
    assert seen[0] == seen[1]
    assert stage.calls == ["paid"]


@pytest.mark.timeout(20)
def test_an_async_branch_in_a_def_workflow_is_refused(local: Stage) -> None:
    async def later() -> int:
        return 1

    def flow(run: Run) -> Any:
        async def branch(inner: Run) -> Any:
            return inner.step(later)

        return run.gather(branch)

    local.app.workflow(flow)
    with pytest.raises(RunFailed, match="an async branch belongs in an async def workflow"):
        local.app.start("flow", run_id=local.run_id).result(240)
    assert [entry["kind"] for entry in local.journal()][-1] == "failed"
