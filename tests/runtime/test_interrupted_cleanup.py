"""An interrupted run has not ended: its `finally` blocks perform and record nothing, and a resume continues it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.drivers import BlockingDriver, Plan
from holdfast.errors import InvalidInput, RunFailed, StoreClosed
from holdfast.model.commit import Commit, Outcome
from tests.harness import until


class World:
    """What the workflows of these tests do outside."""

    def __init__(self) -> None:
        self.performed: list[str] = []
        self.interrupts = 1

    def slow(self) -> int:
        """Interrupted at its first call, as by Ctrl-C."""
        self.interrupts -= 1
        if self.interrupts >= 0:
            raise KeyboardInterrupt
        return 5

    def compensate(self) -> None:
        self.performed.append("compensate")


def kinds(app: holdfast.App, run_id: str) -> list[str]:
    return [entry.kind for entry in app.store.journal(run_id)]


Body = Callable[[holdfast.Run, World], object]


def _in_step(run: holdfast.Run, world: World) -> object:
    try:
        return run.step(world.slow)
    finally:
        run.effect(world.compensate)


def _in_plain_code(run: holdfast.Run, world: World) -> object:
    try:
        return world.slow()
    finally:
        run.effect(world.compensate)


def _in_except(run: holdfast.Run, world: World) -> object:
    try:
        return run.step(world.slow)
    except BaseException:
        run.effect(world.compensate)
        raise


def _in_gather(run: holdfast.Run, world: World) -> object:
    try:
        return run.gather(lambda branch: branch.step(world.slow), lambda branch: branch.step(int, 5))[0]
    finally:
        run.effect(world.compensate)


def _with_timeout(run: holdfast.Run, world: World) -> object:
    try:
        return run.step(world.slow, timeout=240)
    finally:
        run.effect(world.compensate)


@pytest.mark.parametrize("body", [_in_step, _in_plain_code, _in_except, _in_gather, _with_timeout])
def test_ctrl_c_performs_nothing_in_finally_blocks(body: Body) -> None:
    world = World()
    with holdfast.App("memory:") as app:

        @app.workflow
        def work(run: holdfast.Run) -> object:
            return body(run, world)

        with pytest.raises(KeyboardInterrupt):
            app.start(work, run_id="r")
        assert (app.handle("r").status(), world.performed) == ("ready", [])
        assert "intent" not in kinds(app, "r")
        assert app.resume("r").result() == 5
        assert world.performed == ([] if body is _in_except else ["compensate"])


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_exit_in_a_task_of_other_code_does_not_stop_the_loop(kind: type[BaseException]) -> None:
    """Frameworks call tools in tasks of their own; asyncio lets an exit in a task end the whole loop."""

    async def tool() -> int:
        raise kind

    with holdfast.App("memory:") as app:

        @app.workflow
        async def interrupted(run: holdfast.AsyncRun) -> int:
            return await asyncio.create_task(tool())

        @app.workflow
        async def other(run: holdfast.AsyncRun) -> int:
            return await run.step(int, 7)

        with contextlib.suppress(kind):
            app.start(interrupted, run_id="r")
        assert app.handle("r").status() == ("ready" if kind is KeyboardInterrupt else "failed")
        assert app.start(other).result() == 7


def test_a_run_started_while_the_caller_handles_ctrl_c_may_make_calls() -> None:
    with holdfast.App("memory:") as app:

        @app.workflow
        def clean_up(run: holdfast.Run) -> int:
            return run.step(int, 7)

        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            assert app.start(clean_up).result() == 7


class AsyncWorld(World):
    """A step that waits until it is cancelled, at its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Event()

    async def wait(self) -> int:
        self.interrupts -= 1
        if self.interrupts >= 0:
            self.began.set()
            await asyncio.sleep(3600)
        return 5


def async_app(url: str, world: AsyncWorld) -> holdfast.App:
    app = holdfast.App(url)

    @app.workflow
    async def work(run: holdfast.AsyncRun) -> int:
        async def branch(inner: holdfast.AsyncRun) -> int:
            try:
                return await inner.step(world.wait)
            finally:
                await inner.effect(world.compensate)

        try:
            return (await run.gather(branch))[0]
        finally:
            await run.effect(world.compensate)

    return app


def test_a_cancelled_task_performs_nothing_in_finally_blocks() -> None:
    world = AsyncWorld()

    async def main() -> None:
        app = async_app("memory:", world)
        task = asyncio.create_task(app.aio.start("work", run_id="r"))
        async with asyncio.timeout(240):
            while not world.began.is_set():
                await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert world.performed == []
        handle = await app.aio.resume("r")
        assert await handle.result() == 5
        assert world.performed == ["compensate", "compensate"]

    asyncio.run(main())


@pytest.mark.parametrize("by", ["start", "worker"])
def test_closing_the_app_performs_nothing_in_finally_blocks(tmp_path: Path, by: str) -> None:
    world = AsyncWorld()
    url = f"sqlite:{tmp_path / 'runs.db'}"
    app = async_app(url, world)
    raised: list[BaseException] = []

    def execute() -> None:
        try:
            if by == "start":
                app.start("work", run_id="r")
            else:
                app.start("work", run_id="r", enqueue=True)
                app.worker().run()
        except StoreClosed as error:
            raised.append(error)

    thread = threading.Thread(target=execute)
    thread.start()
    until(world.began.is_set, "the step begins")
    app.close()
    thread.join(240)
    assert not thread.is_alive()
    assert world.performed == []
    with async_app(url, world) as second:
        assert second.resume("r").result() == 5
    assert world.performed == ["compensate", "compensate"]


def test_ctrl_c_between_two_steps_of_a_plan_reaches_the_plan() -> None:
    """Python delivers a signal between any two instructions, also after the plan has yielded."""
    released: list[str] = []

    def plan() -> Plan[int]:
        try:
            yield lambda: 1
            yield lambda: 2
        except KeyboardInterrupt:
            released.append("interrupted")
            raise
        return 3

    def commit(_: Commit) -> Outcome:
        raise AssertionError

    driver, seen = BlockingDriver(commit), 0

    def trace(frame: object, event: str, _: object) -> object:
        nonlocal seen
        if frame.f_code is BlockingDriver.run.__code__ and event == "line":  # type: ignore[attr-defined]
            seen += 1
            if seen == at:
                raise KeyboardInterrupt
        return trace

    at = 0
    while True:
        at, seen = at + 1, 0
        released.clear()
        running = plan()
        sys.settrace(trace)  # type: ignore[arg-type]
        try:
            result = driver.run(running)
        except KeyboardInterrupt:
            assert inspect.getgeneratorstate(running) in (inspect.GEN_CREATED, inspect.GEN_CLOSED)
        else:
            assert result == 3
            break
        finally:
            sys.settrace(None)
    assert at > 10


STRANDED = """
import sys, threading, holdfast
app = holdfast.App(sys.argv[1], lease_s=3600)
began = threading.Event()
def slow():
    began.set()
    threading.Event().wait()
@app.workflow
def work(run):
    return run.step(slow)
threading.Thread(target=app.start, args=(work,), kwargs={"run_id": "r"}, daemon=True).start()
began.wait()
app.close()
"""


@pytest.mark.parametrize("scheme", ["sqlite", "dir"])
def test_a_run_that_executes_when_its_app_is_closed_is_taken_over_once_the_process_ends(
    tmp_path: Path, scheme: str
) -> None:
    url = f"{scheme}:{tmp_path / 'runs'}"
    subprocess.run([sys.executable, "-c", STRANDED, url], check=True, timeout=240)
    with holdfast.App(url) as app:

        @app.workflow
        def work(run: holdfast.Run) -> int:
            return run.step(int, 5, name="slow")

        assert app.handle("r").status() == "running"
        app.worker().run(until_idle=True)
        assert app.handle("r").status() == "completed"


def test_an_interrupt_before_an_async_execution_begins_leaves_no_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.runtime.loop_thread import LoopThread

    with async_app("memory:", AsyncWorld()) as app:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(LoopThread, "execute", interrupted)
            with pytest.raises(KeyboardInterrupt):
                app.start("work", run_id="r")
        assert list(app.runs()) == []
        app.start("work", run_id="q", enqueue=True)
        with monkeypatch.context() as patch:
            patch.setattr(LoopThread, "execute", interrupted)
            with pytest.raises(KeyboardInterrupt):
                app.resume("q")
        assert (app.handle("q").status(), app.handle("q").info().owner) == ("ready", None)


async def _async_change(_: object) -> None: ...


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda run, db: run.step(int, 1, timeout="3"), "timeout must be a number of seconds"),
        (lambda run, db: run.transaction(db, _async_change), "cannot call the async function"),
        (lambda run, db: run.transaction(db, "INSERT"), "needs a function and its arguments"),
    ],
)
def test_wrong_arguments_of_a_call_are_named(call: Callable[[holdfast.Run, object], object], text: str) -> None:
    import sqlite3

    with holdfast.App("memory:") as app:

        @app.workflow
        def work(run: holdfast.Run) -> object:
            return call(run, sqlite3.connect(":memory:"))

        with pytest.raises(RunFailed, match=text) as caught:
            app.start(work).result()
        assert InvalidInput.__name__ in str(caught.value)
