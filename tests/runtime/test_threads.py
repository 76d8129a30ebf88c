"""Threads and tasks: runs do not wait for each other's threads, and what is cancelled or left leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncRun, Run, StepFailed
from holdfast.model.rows import RunRow
from holdfast.runtime import loop_thread
from holdfast.runtime.async_driver import _CALL_THREADS
from holdfast.runtime.loop_thread import wait_released
from tests.harness import Stage, until


@pytest.mark.timeout(40)
def test_many_def_parents_of_async_children_do_not_wait_for_each_others_threads(awaiting: Stage) -> None:
    """All parents are inside their own code at the same time; each child then needs a thread for its step."""
    parents = _CALL_THREADS + 6
    together = threading.Barrier(parents)

    def double(number: int) -> int:
        return number * 2

    async def child(run: AsyncRun, number: int) -> int:
        return await run.step(double, number)

    def parent(run: Run, number: int) -> Any:
        together.wait(15)
        return run.child("child", number)

    app = awaiting.app
    app.workflow(child)
    app.workflow(parent)

    async def outside() -> list[Any]:
        starts = [app.aio.start("parent", n, run_id=f"{awaiting.run_id}-{n}") for n in range(parents)]
        handles = await asyncio.wait_for(asyncio.gather(*starts), 30)
        return [await handle.result(240) for handle in handles]

    assert asyncio.run(outside()) == [n * 2 for n in range(parents)]


@pytest.mark.timeout(40)
def test_blocking_steps_whose_time_was_up_use_up_no_threads(awaiting: Stage) -> None:
    go = threading.Event()

    @awaiting.flow
    async def flow(run: AsyncRun) -> int:
        async def hangs(inner: AsyncRun) -> None:
            with pytest.raises(StepFailed, match="took longer"):
                await inner.step(go.wait, 30, timeout=0.02)

        await run.gather(*[hangs] * _CALL_THREADS, limit=_CALL_THREADS)
        return await run.step(len, "abc")

    thread = threading.Thread(target=lambda: awaiting.start(flow), daemon=True)
    thread.start()
    thread.join(240)
    ended = not thread.is_alive()
    go.set()
    thread.join(240)
    assert ended, "the last step waits for threads that hang"
    assert awaiting.app.handle(awaiting.run_id).result(240) == 3


def test_a_task_that_is_cancelled_while_it_starts_a_run_leaves_no_claim_behind(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> str:
        return "done"

    ids = [f"{local.run_id}-{rounds}" for rounds in range(32)]

    async def outside() -> None:
        for rounds, run_id in enumerate(ids):
            task = asyncio.ensure_future(local.app.aio.start("flow", run_id=run_id))
            for _ in range(rounds):  # so it is cancelled at another place each time
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(outside())
    until(lambda: not any(row.owner for row in rows_of(local, ids)), "nobody holds them", 3)  # a thread ends its run
    created = rows_of(local, ids)
    assert created, "some were cancelled only after that"
    for row in created:
        assert local.app.handle(row.run_id).result(240) == "done"


def rows_of(stage: Stage, ids: list[str]) -> list[RunRow]:
    """Those of these runs that were created."""
    rows = [stage.onlooker.port.run(run_id) for run_id in ids]
    return [row for row in rows if row is not None]


def test_a_transaction_of_an_async_workflow_works_on_the_thread_of_its_connection(
    awaiting: Stage, tmp_path: Path
) -> None:
    """sqlite3 refuses a connection on any thread but the one that made it."""
    path = str(tmp_path / "shop.db")
    threads: set[str] = set()

    def insert(connection: sqlite3.Connection, who: str) -> int:
        threads.add(threading.current_thread().name)
        connection.execute("INSERT INTO payments VALUES (?)", (who,))
        return int(connection.execute("SELECT count(*) FROM payments").fetchone()[0])

    @awaiting.flow
    async def flow(run: AsyncRun) -> list[int]:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE IF NOT EXISTS payments (who TEXT)")
        threads.add(threading.current_thread().name)
        try:
            await run.step(len, "x")
            return [await run.transaction(connection, insert, who) for who in ("ana", "ben")]
        finally:
            connection.close()

    assert awaiting.start(flow).result(240) == [1, 2]
    assert len(threads) == 1


def test_ctrl_c_lets_an_async_run_record_the_effect_in_progress(
    awaiting: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted = threading.Event()

    def wait_and_tell(app: Any, run_id: str) -> None:
        interrupted.set()
        wait_released(app, run_id)

    def pay() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        interrupted.wait(60)
        return "paid"

    @awaiting.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.effect(pay)

    monkeypatch.setattr(loop_thread, "wait_released", wait_and_tell)
    with pytest.raises(KeyboardInterrupt):
        awaiting.start(flow)
    assert awaiting.journal("outcome")[0]["result"] == "paid"
    assert awaiting.status() == "ready"
    assert awaiting.app.resume(awaiting.run_id).result(240) == "paid"
