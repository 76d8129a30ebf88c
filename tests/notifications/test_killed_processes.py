"""A process is killed at every point between the discovery of an event and its recorded outcome: nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import defaultdict
from pathlib import Path

import holdfast
from tests.fork_server import PLAIN, run
from tests.notifications.flows import register
from tests.notifications.receivers import Receiver

EVENTS = {"gate_opened", "run_failed"}


def live(url: str, receiver: Receiver, case: str, kill_at: int = -1) -> int:
    """Announce in a process of its own; its exit code."""
    hooks = {"ops": f"{receiver.url}/{case}"}
    given = json.dumps({"url": url, "hooks": hooks, "kill_at": kill_at})
    environment = {**os.environ, "HOOK_SECRET": "a secret of more than sixteen characters"}
    done = run("-m", "tests.notifications.life", given, env=environment, loaded=f"{PLAIN},holdfast.notifications")
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def ids_of(receiver: Receiver, case: str) -> dict[str, list[str]]:
    """The ids that arrived in this case, by event."""
    found: dict[str, list[str]] = defaultdict(list)
    for request in receiver.requests:
        if request.path.endswith(f"/{case}"):
            found[request.data["event"]].append(request.data["id"])
            assert request.headers["Idempotency-Key"] == request.data["id"]
    return found


def prepare(folder: Path, receiver: Receiver) -> Path:
    """A store with a gate and a failure that were not announced yet."""
    path = folder / "first.db"
    assert live(f"sqlite:{path}", receiver, "before") == 0
    with holdfast.App(f"sqlite:{path}") as app:
        register(app)
        app.start("asks", run_id="a")
        app.start("fails", run_id="f")
    return path


def test_each_event_arrives_wherever_the_process_is_killed(tmp_path: Path) -> None:
    with Receiver() as receiver:
        first = prepare(tmp_path, receiver)
        expected: dict[str, set[str]] | None = None
        kills = repeated = 0
        while True:
            case, path = f"case-{kills}", tmp_path / f"{kills}.db"
            shutil.copy(first, path)
            was_killed = live(f"sqlite:{path}", receiver, case, kills) != 0
            if was_killed:
                assert live(f"sqlite:{path}", receiver, case) == 0
            arrived = ids_of(receiver, case)
            found = {event: set(ids) for event, ids in arrived.items()}
            assert set(found) == EVENTS
            expected = expected or found
            assert {len(ids) for ids in found.values()} == {1}, "every attempt has the same id"
            assert found == expected, "in every process"
            repeated += any(len(ids) > 1 for ids in arrived.values())
            with holdfast.open(f"sqlite:{path}") as store:
                assert store.verify().problems == []
                notifications = [one for one in store.runs(workflow="holdfast.notify") if "/since/" not in one.run_id]
                assert [one.status for one in notifications] == ["completed"] * 2
            if not was_killed:
                break
            kills += 1
        assert kills >= 20, "it was killed at all points"
        assert 0 < repeated < kills / 2, "only a kill between the request and its record repeats it"


def test_processes_that_are_killed_one_after_another_lose_nothing(tmp_path: Path) -> None:
    with Receiver() as receiver:
        path = prepare(tmp_path, receiver)
        lives = 0
        while live(f"sqlite:{path}", receiver, "case", kill_at=lives) != 0:
            lives += 1
        assert lives > 3
        found = ids_of(receiver, "case")
        assert set(found) == EVENTS
        assert {len(set(ids)) for ids in found.values()} == {1}
