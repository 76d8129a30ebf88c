"""A crash before and after every commit: nothing done is lost, and nothing is done twice."""

from __future__ import annotations

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
