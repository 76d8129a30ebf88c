"""What the other processes of these tests do: `python -m tests.runtime.actors work '{"url": …}'`.

They tell what happens through a file that only grows (`tests.faults.engine.world`), and wait for files to appear.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any
from unittest import mock

import holdfast
from holdfast.errors import StorageFailed
from holdfast.runtime import reaper
from holdfast.store.postgres.postgres_store import PostgresStore
from tests.faults.engine import world

WAIT_S = 240.0


def wait_for_file(path: str) -> None:
    """Wait until the file is there."""
    until = time.monotonic() + WAIT_S
    while not os.path.exists(path):
        if time.monotonic() > until:
            raise TimeoutError(path)
        time.sleep(0.005)


def hold(place: str) -> str:
    """A step that takes until it is let go on; called again, it does not wait."""
    again = world.done(place, "step", "hold", None)
    world.note(place, "step", "hold")
    if not again:
        wait_for_file(f"{place}.go")
    return "held"


async def hold_async(place: str) -> str:
    """The same, awaited."""
    return await asyncio.to_thread(hold, place)


def holding(run: holdfast.Run, place: str) -> str:
    """A step that takes long, an effect behind it; what stops it is noted."""
    try:
        held = run.step(hold, place)
        run.effect(world.mail, place, "behind", in_doubt="retry")
    except BaseException as error:
        world.note(place, "user", type(error).__name__)
        raise
    return held


async def holding_async(run: holdfast.AsyncRun, place: str) -> str:
    """The same, awaited."""
    try:
        held = await run.step(hold_async, place)
        await run.effect(world.mail, place, "behind", in_doubt="retry")
    except BaseException as error:
        world.note(place, "user", type(error).__name__)
        raise
    return held


def parent(run: holdfast.Run, place: str) -> str:
    """Waits for a child."""
    return f"child {run.child('holding', place)}"


async def parent_async(run: holdfast.AsyncRun, place: str) -> str:
    """The same, awaited."""
    return f"child {await run.child('holding_async', place)}"


def busy(place: str, number: int, span_s: float) -> int:
    """A step that says when it begins and when it ends."""
    world.note(place, "step", "begin", number)
    time.sleep(span_s)
    world.note(place, "step", "end", number)
    return number


def quick(run: holdfast.Run, place: str, number: int, span_s: float = 0.0) -> int:
    """Two steps."""
    run.step(busy, place, number, span_s)
    return run.step(int, number)


async def quick_async(run: holdfast.AsyncRun, place: str, number: int, span_s: float = 0.0) -> int:
    """The same, awaited."""
    await run.step(busy, place, number, span_s)
    return await run.step(int, number)


def make_app(url: str, lease_s: float = 60.0) -> holdfast.App:
    """An app that knows all of these workflows."""
    app = holdfast.App(url, lease_s=lease_s)
    for workflow in (holding, holding_async, parent, parent_async, quick, quick_async):
        app.workflow(workflow)
    return app


# --- actors ----------------------------------------------------------------------------------------------------------


def start(url: str, workflow: str, place: str, run_id: str, lease_s: float) -> None:
    """Start a run and move it on."""
    try:
        make_app(url, lease_s).start(workflow, place, run_id=run_id)
    except holdfast.errors.ClaimLost:
        world.note(place, "caller", "ClaimLost")


def work(
    url: str, place: str, lease_s: float = 60.0, drain_s: float = 10.0, stay: bool = False, deaf: bool = False,
    limits: dict[str, int] | None = None, until_idle: bool = False, workflows: list[str] | None = None,
    polls: bool = True,
) -> None:  # fmt: skip
    """Work until SIGTERM. With `stay` the process lives on until the file `.exit` is there."""
    if not polls:
        reaper.POLL_FIRST_S = reaper.POLL_MAX_S = reaper.POLL_NOTIFIED_S = 3600.0  # type: ignore[misc]
    app = make_app(url, lease_s)
    unheard = mock.patch.object(PostgresStore, "listen", side_effect=StorageFailed("nothing to hear"))
    with unheard if deaf else mock.MagicMock():
        worker = app.worker(drain_s=drain_s, limits=limits, workflows=workflows)
        world.note(place, "worker", "begins")
        worker.run(until_idle=until_idle)
        world.note(place, "worker", "ended")
    if stay:
        wait_for_file(f"{place}.exit")


ACTORS: dict[str, Any] = {"start": start, "work": work}


if __name__ == "__main__":
    ACTORS[sys.argv[1]](**json.loads(sys.argv[2]))
