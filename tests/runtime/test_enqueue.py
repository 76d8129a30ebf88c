"""`enqueue=True` records what was asked for; its handle only waits, and a worker executes the run."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast import AsyncRun, NotFinished
from tests.harness import Stage


def test_a_handle_of_an_enqueued_run_waits_and_executes_nothing(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        if run.run_id == stage.run_id:  # the worker also takes what other tests have left
            stage.calls.append(threading.get_ident())
        return "done"

    handle = stage.start(flow, enqueue=True)
    with pytest.raises(NotFinished):
        handle.result(0.05)
    assert (handle.status(), stage.calls) == ("ready", [])
    stage.app.worker().run(until_idle=True)
    assert handle.result(240) == "done"
    assert len(stage.calls) == 1
    assert stage.calls != [threading.get_ident()]


def test_awaiting_a_handle_of_an_enqueued_run_executes_nothing(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> str:
        local.calls.append("called")
        return "done"

    async def wait() -> None:
        handle = await local.app.aio.start("flow", run_id=local.run_id, enqueue=True)
        with pytest.raises(NotFinished):
            await handle.result(0.05)

    asyncio.run(wait())
    assert local.calls == []
    assert local.status() == "ready"


def test_every_verb_that_enqueues_gives_a_handle_that_only_waits(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        answer = await run.ask("go on?", str)
        stage.calls.append(answer)
        return answer

    stage.start(flow)
    app = stage.app
    for handle in (
        app.answer(stage.run_id, "yes", enqueue=True),
        app.send(stage.run_id, "news", enqueue=True),
        app.resume(stage.run_id, enqueue=True),
        app.fork(stage.run_id, f"{stage.run_id}-b", enqueue=True),
    ):
        with pytest.raises(NotFinished):
            handle.result(0.02)
    assert stage.calls == []
    assert stage.app.handle(stage.run_id).result(240) == "yes", "a plain handle moves the run on: no worker is needed"
