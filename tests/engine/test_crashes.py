"""A crash before and after every commit: nothing done is lost, and nothing is done twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import AsyncRun, DidNotHappen, Happened
from holdfast.errors import StorageFailed
from tests.harness import Stage


def world(stage: Stage) -> Callable[[AsyncRun], Any]:
    """A workflow that does a little of everything. What it does to the world is noted; the world can be asked."""
    done: dict[str, str] = {}

    def pay(who: str, *, idempotency_key: str) -> str:
        stage.calls.append((stage.run_id, "pay", who))
        assert idempotency_key not in done, "done twice"
        done[idempotency_key] = who
        done[f"{stage.run_id} {who}"] = f"receipt for {who}"
        return f"receipt for {who}"

    def look(who: str) -> Any:
        found = done.get(f"{stage.run_id} {who}")
        return Happened(found) if found else DidNotHappen

    async def flow(run: AsyncRun) -> Any:
        drawn = (await run.uuid()).hex
        found: list[Any] = [await run.step(len, drawn), await run.effect(pay, "ana", check=look)]

        async def asks(inner: AsyncRun) -> Any:
            return await inner.ask("ok?", bool)

        async def pays(inner: AsyncRun) -> Any:
            await inner.log("about to pay")
            return await inner.effect(pay, "ben", check=look)

        found += await run.gather(asks, pays)
        async for turn in run.loop():
            run.state["sum"] = run.state.get("sum", 0) + await run.step(abs, -turn)
            if turn == 2:
                break
        await run.send(f"{run.run_id}-nobody", "hello")
        return [*found, run.state["sum"], await run.wait_for("end")]

    return flow


EXPECTED = [32, "receipt for ana", True, "receipt for ben", 3, "the end"]


def drive(stage: Stage) -> Any:
    """From wherever the run stands to its end, as people and processes would."""
    handle = stage.start("flow")
    for _ in range(5):
        status = handle.status()
        if status == "completed":
            return handle.result(240)
        gates = [gate.gate for gate in stage.app.gates(stage.run_id) if gate.purpose == "ask"]
        if gates:
            stage.app.answer(stage.run_id, True, gate=gates[0])
        else:
            stage.app.send(stage.run_id, "end", "the end", key="only once")
            if handle.status() != "completed":
                stage.app.resume(stage.run_id)
    raise AssertionError(f"it does not end: {handle.status()}")


@pytest.mark.parametrize("late", [False, True])
def test_a_crash_around_any_commit_changes_nothing_in_the_end(local: Stage, late: bool) -> None:
    sweep(local, late=late)


def test_a_crash_around_any_commit_changes_nothing_on_any_store(stage: Stage) -> None:
    sweep(stage, late=stage.is_async)


def sweep(stage: Stage, *, late: bool) -> None:
    """Cut the wire at the first commit of a run, at the second of another, and so on; `late`: just behind it."""
    stage.flow(world(stage))
    base, commits = stage.run_id, 0
    while True:
        stage.run_id = f"{base}-{commits}"
        stage.wire.cut_after(commits, late=late)
        found = None
        with contextlib.suppress(StorageFailed):
            found = drive(stage)
        if not stage.wire.dead:
            break
        stage.restart()
        found = drive(stage)
        assert found == EXPECTED, f"cut at commit {commits + 1}"
        paid = [who for run_id, _, who in stage.calls if run_id == stage.run_id]
        assert sorted(paid) == ["ana", "ben"], f"cut at commit {commits + 1}"
        assert len(stage.journal("answered")) == len(stage.journal("received")) == 1
        assert len(stage.journal("log")) == 1
        commits += 1
    assert found == EXPECTED
    assert commits > 15


def test_a_crash_before_an_effect_beside_a_gate_with_a_key_does_not_look_like_changed_code(local: Stage) -> None:
    """The process dies after the gate is recorded and before the effect of another task begins."""
    if not local.is_async:
        pytest.skip("calls of one scope are concurrent only in tasks")

    has_died = [False]

    async def pays(run: AsyncRun) -> None:
        await run.step(len, "a", key="look")
        while not has_died[0] and not await local.app.aio.gates(local.run_id):
            await asyncio.sleep(0.001)
        await run.effect(local.calls.append, "paid", key="pay")

    async def asks(run: AsyncRun) -> bool:
        for _ in range(20):  # in a replay it comes late to the gate
            await asyncio.sleep(0)
        return await run.ask("ok?", bool, key="ask")

    @local.flow
    async def flow(run: AsyncRun) -> bool:
        _, answer = await asyncio.gather(pays(run), asks(run))
        return answer

    base, cut = local.run_id, 0
    while True:
        local.run_id, local.calls[:], has_died[0] = f"{base}-{cut}", [], False
        local.wire.cut_after(cut)
        with contextlib.suppress(StorageFailed):
            local.start(flow)
        if not local.wire.dead:
            break
        local.restart()
        has_died[0] = True
        local.start(flow)
        for _ in range(2):  # an effect in doubt asks as well
            for gate in local.app.gates(local.run_id):
                yes = True if gate.purpose == "ask" else {"outcome": "did not happen"}
                local.app.answer(local.run_id, yes, gate=gate.gate)
        assert local.app.handle(local.run_id).result(240) is True, f"cut at commit {cut + 1}"
        cut += 1
    assert cut > 3
