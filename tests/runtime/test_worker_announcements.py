"""Which workflows living workers execute: they announce it, and a wait that was too long says so."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, AsyncRun, NotFinished, Worker
from holdfast.errors import StoreClosed
from holdfast.runtime.publication import BUILT_IN
from holdfast.store.capabilities import WorkerRegistry
from tests.harness import Stage, until

NOBODY = r"is still ready after 0\.01 s; no running worker knows workflow 'flow': start one with `holdfast worker`"


@contextmanager
def _working(app: App, **options: Any) -> Iterator[Worker]:
    worker = app.worker(**options)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join()


def _known(app: App) -> set[str]:
    assert isinstance(app.store.port, WorkerRegistry)
    known = {name for names in app.store.port.workers().values() for name in names}
    return {name for name in known if not name.startswith(BUILT_IN)}


def test_a_wait_that_was_too_long_says_whether_a_worker_knows_the_workflow(stage: Stage) -> None:
    @stage.flow
    async def other(run: AsyncRun) -> None:
        """Nothing."""

    handle = stage.start("flow", enqueue=True)
    with pytest.raises(NotFinished, match=NOBODY):
        handle.result(0.01)
    with _working(stage.app):
        until(lambda: "other" in _known(stage.app), "the worker announces what it executes")
        with pytest.raises(NotFinished, match=NOBODY):
            handle.result(0.01)
        with pytest.raises(NotFinished, match=NOBODY):
            asyncio.run(_wait(stage.app, stage.run_id))

        @stage.flow
        async def flow(run: AsyncRun) -> Any:
            return await run.wait_for("go")

        until(lambda: "flow" in _known(stage.app), "and what was registered since")
        owner = stage.app._core.owner
        with pytest.raises(NotFinished, match=rf"after 0\.01 s; worker '{owner}' knows workflow 'flow'"):
            handle.result(0.01)
    assert "flow" not in _known(stage.app), "it has ended, and says so"


async def _wait(app: App, run_id: str) -> None:
    await app.aio.handle(run_id).result(0.01)


def _nothing(run: holdfast.Run) -> None:
    """Do nothing."""


@pytest.mark.parametrize("url", ["memory:", "dir:{}", "sqlite:{}/runs.db"])
def test_two_workers_of_one_app_are_known_together(tmp_path: Path, url: str) -> None:
    with App(url.format(tmp_path)) as app:
        app.workflow(name="a")(lambda run: None)
        app.workflow(name="b")(_nothing)
        with _working(app, workflows=["a"]):
            with _working(app, workflows=["b"]):
                until(lambda: _known(app) == {"a", "b"}, "both are known")
            assert _known(app) == {"a"}
        assert _known(app) == set()


def test_a_handle_that_can_move_the_run_on_itself_speaks_of_no_worker(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.wait_for("go")

    with pytest.raises(NotFinished, match=r"is still waiting after 0\.01 s; it waits for the event 'go'$"):
        stage.start(flow).result(0.01)


SCRIPT = """
import sys, holdfast
app = holdfast.App(sys.argv[1], lease_s=1.5)
@app.workflow
def flow(run):
    return run.wait_for("go")
print("ready", flush=True)
app.worker().run()
"""


def test_a_killed_worker_is_not_living(stage: Stage) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, stage.url], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        with holdfast.App(stage.url) as app:
            until(lambda: "flow" in _known(app), "the process announces what it executes", 60)
            process.kill()
            process.wait()
            until(lambda: "flow" not in _known(app), "it is dead", 60)
    finally:
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None


@pytest.mark.parametrize("url", ["memory:", "dir:{}", "sqlite:{}/runs.db"])
def test_a_worker_ends_when_its_app_is_closed(tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture) -> None:
    app = App(url.format(tmp_path))
    app.workflow(name="b")(_nothing)
    raised: list[BaseException] = []

    def work() -> None:
        try:
            app.worker().run()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: _known(app) == {"b"}, "the worker is at work")
    app.close()
    thread.join(240)
    assert (thread.is_alive(), raised) == (False, [])
    assert "the worker ends because its store was closed" in caplog.text


def test_a_worker_ends_when_its_app_is_closed_before_its_first_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(f"sqlite:{tmp_path}/runs.db")
    app.workflow(name="b")(_nothing)
    reap = Worker._reap

    def close_and_reap(worker: Worker) -> int:
        app.close()
        return reap(worker)

    monkeypatch.setattr(Worker, "_reap", close_and_reap)
    app.worker().run()
    assert "the worker ends because its store was closed" in caplog.text


def test_a_worker_of_a_closed_app_is_refused(tmp_path: Path) -> None:
    app = App(f"sqlite:{tmp_path}/runs.db")
    app.workflow(name="b")(_nothing)
    app.close()
    with pytest.raises(StoreClosed):
        app.worker().run()
