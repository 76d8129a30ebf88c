"""Workers on PostgreSQL: the server restarts under them, they are woken, and they keep to their limits."""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.engine import world
from tests.processes import Cast, told, until
from tests.runtime.actors import make_app
from tests.store.postgres.server import Server, running
from tests.store.postgres.shared_servers import new_url


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of its own, that may be ended."""
    with running(settings={"fsync": "off"}) as found:
        yield found


def test_a_worker_survives_the_sudden_restart_of_the_server_and_no_run_is_lost(
    actors: Cast, server: Server, place: str
) -> None:
    url = server.url(durability="relaxed", schema="restart")
    count = 200
    with make_app(url, 2.0) as app:
        for number in range(count):
            name = ("quick", "quick_async")[number % 2]
            app.start(name, place, number, 0.01, run_id=f"run {number}", enqueue=True)
        workers = [actors.begin("work", url=url, place=place, lease_s=2.0) for _ in range(2)]
        until(lambda: len(told(place, "worker", "begins")) == 2)
        until(lambda: len(told(place, "step", "end")) > 30)
        server.crash()
        time.sleep(0.3)
        server.start()
        until(lambda: len(told(place, "step", "end")) > 120)
        server.crash()
        server.start()
        until(lambda: _completed(app) == count, "runs are stranded")
        for number in range(count):
            kinds = [entry.kind for entry in app.store.journal(f"run {number}")]
            assert kinds == ["started", "step", "step", "completed"]
        assert app.store.verify().problems == []
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0


def _completed(app: Any) -> int:
    try:
        return len(app.runs(status="completed", limit=1000))
    except Exception:  # the server is just away
        return 0


class Idle:
    """An idle worker, and how long runs wait for it."""

    def __init__(self, actors: Cast, place: str, *, deaf: bool) -> None:
        self._place = place
        self._url = new_url()
        self.app = make_app(self._url)
        self.worker = actors.begin("work", url=self._url, place=place, deaf=deaf, lease_s=5.0)
        until(lambda: told(place, "worker", "begins"))
        self.waits_s: list[float] = []

    def give(self, number: int) -> None:
        """Make a run ready and wait until the worker has begun with it."""
        began = time.monotonic()
        self.app.start("quick", self._place, number, run_id=f"run {number}", enqueue=True)
        until(lambda: any(line.arg == number for line in told(self._place, "step", "begin")))
        self.waits_s.append(time.monotonic() - began)


def test_a_worker_that_is_told_begins_sooner_than_one_that_can_only_look(actors: Cast, tmp_path: Path) -> None:
    hearing = Idle(actors, str(tmp_path / "hearing"), deaf=False)
    deaf = Idle(actors, str(tmp_path / "deaf"), deaf=True)
    for number in range(7):
        time.sleep(0.5)  # it is quiet: whoever looks does so seldom now
        hearing.give(number)
        deaf.give(number)
    assert statistics.median(hearing.waits_s) < statistics.median(deaf.waits_s)
    for idle in (hearing, deaf):
        idle.app.close()
        idle.worker.send_signal(signal.SIGTERM)
        assert idle.worker.wait(30) == 0


def test_a_worker_keeps_to_its_limits_and_returns_when_it_is_idle(actors: Cast, place: str) -> None:
    url = new_url()
    with make_app(url) as app:
        for number in range(24):
            name = ("quick", "quick_async")[number % 2]
            app.start(name, place, number, 0.02, run_id=f"run {number}", enqueue=True)
        worker = actors.begin("work", url=url, place=place, limits={"quick": 2, "quick_async": 3}, until_idle=True)
        assert worker.wait(60) == 0
        assert len(app.runs(status="completed")) == 24
    steps = [line for line in world.lines(place) if line.kind == "step"]
    for kind, limit in ((0, 2), (1, 3)):
        active = most = 0
        for line in steps:
            if line.arg % 2 == kind:
                active += 1 if line.name == "begin" else -1
                most = max(most, active)
        assert 1 < most <= limit
