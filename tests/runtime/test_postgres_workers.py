"""Workers on PostgreSQL: the server restarts under them, they are woken, and they keep to their limits."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
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


@pytest.mark.parametrize("deaf", [False, True])
def test_a_worker_begins_runs_by_notifications_alone_and_by_polling_alone(actors: Cast, place: str, deaf: bool) -> None:
    url = new_url()

    def has_begun(number: int) -> bool:
        return any(line.arg == number for line in told(place, "step", "begin"))

    with make_app(url) as app:
        worker = actors.begin("work", url=url, place=place, deaf=deaf, polls=deaf)
        until(lambda: told(place, "worker", "begins"))
        first = 0
        while not told(place, "step", "begin"):  # until it listens
            assert first < 1000
            app.start("quick", place, first, run_id=f"run {first}", enqueue=True)
            first += 1
            time.sleep(0.1)
        for number in range(first, first + 7):
            app.start("quick", place, number, run_id=f"run {number}", enqueue=True)
            until(lambda number=number: has_begun(number))  # type: ignore[misc]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0


def test_a_worker_keeps_to_its_limits_and_returns_when_it_is_idle(actors: Cast, place: str) -> None:
    url = new_url()
    with make_app(url) as app:
        for number in range(24):
            name = ("quick", "quick_async")[number % 2]
            app.start(name, place, number, 0.2, run_id=f"run {number}", enqueue=True)
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
