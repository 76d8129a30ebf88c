"""The defects of the five systems Holdfast grew out of, each of which must be impossible here.

A test is named after the defect. Those about files as such (temporary names, torn lines) belong to the directory store.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Keep, Store
from holdfast.errors import ClaimLost, InvalidCursor, StorageFailed, WorkflowConflict
from holdfast.testing import ManualClock


@pytest.fixture(params=["memory", "sqlite"])
def clock_and_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ManualClock, Store]]:
    clock = ManualClock()
    url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'runs.db'}"
    with holdfast.open(url, clock=clock) as store:
        yield clock, store


@pytest.fixture
def store(clock_and_store: tuple[ManualClock, Store]) -> Store:
    return clock_and_store[1]


def state_of(store: Store, run_id: str, **choice: Any) -> Any:
    found = store.load(run_id, **choice)
    assert found is not None
    return found.state


CLAIM_ALL = """
import sys, holdfast
with holdfast.open("sqlite:" + sys.argv[1]) as store:
    won = [str(i) for i in range(200) if store.claim(f"run-{i}", owner=sys.argv[2], lease=60)]
print(" ".join(won))
"""


def test_claim_race(tmp_path: Path) -> None:
    """Of four that claim at once none may destroy the checkpoint, and exactly one wins."""
    path = str(tmp_path / "runs.db")
    with holdfast.open(f"sqlite:{path}") as store:
        for i in range(200):
            store.save(f"run-{i}", {"n": i})
        arguments = [sys.executable, "-c", CLAIM_ALL, path]
        processes = [
            subprocess.Popen([*arguments, f"w{i}"], stdout=subprocess.PIPE, text=True) for i in range(4)
        ]  # fmt: skip
        won = [process.communicate(timeout=120)[0].split() for process in processes]
        assert sorted(int(name) for names in won for name in names) == list(range(200))
        assert all(state_of(store, f"run-{i}") == {"n": i} for i in range(200))


def test_unfenced_complete(clock_and_store: tuple[ManualClock, Store]) -> None:
    """A completion by a former owner must not take the run from the present one."""
    clock, store = clock_and_store
    store.save("run", 1)
    a = store.claim("run", owner="a", lease=10)
    clock.advance(11)
    b = store.claim("run", owner="b", lease=10)
    assert a is not None
    assert b is not None
    with pytest.raises(ClaimLost):
        a.complete()
    b.save(2)
    b.complete()
    assert store.runs()[0].status == "completed"


def test_recover_steals(clock_and_store: tuple[ManualClock, Store]) -> None:
    """Recovery must not take runs from owners that live."""
    clock, store = clock_and_store
    store.save("run", 1)
    claim = store.claim("run", owner="a", lease=10)
    assert claim is not None
    for _ in range(5):
        clock.advance(8)
        claim.renew()
        assert store.recover_expired() == 0
    claim.save(2)
    clock.advance(11)
    assert store.recover_expired() == 1


def test_traversal(tmp_path: Path) -> None:
    """An id is never a path."""
    outside = tmp_path / "outside.json"
    outside.write_text("mine")
    inside = tmp_path / "inside"
    inside.mkdir()
    with holdfast.open(f"sqlite:{inside / 'runs.db'}") as store:
        for run_id in ("../outside", "../outside.json", str(outside), "..", "/", "a/../../outside"):
            assert store.load(run_id) is None
            store.save(run_id, {"id": run_id})
            assert state_of(store, run_id) == {"id": run_id}
            assert store.delete(run_id)
    assert outside.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"outside.json", "inside"}
    assert all(path.name.startswith("runs.db") for path in inside.iterdir())


SAVE_FOR_EVER = """
import sys, holdfast
store = holdfast.open("sqlite:" + sys.argv[1])
for i in range(1_000_000):
    store.save("run", {"n": i, "text": ["x" * 400] * 40})
    print(i, flush=True)
"""


def test_torn_write(tmp_path: Path) -> None:
    """A crash in a save must not destroy the checkpoint before it. (Power cuts are in the torture.)"""
    path = str(tmp_path / "runs.db")
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", SAVE_FOR_EVER, path], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(20)][-1]
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        process.wait()
        process.stdout.close()
        with holdfast.open(f"sqlite:{path}") as store:
            assert state_of(store, "run")["n"] in (acknowledged, acknowledged + 1)
            assert store.verify().problems == []


NOBODY = 65534

READ_AS_SOMEBODY = """
import os, sys, holdfast, holdfast.open_store, holdfast.store.sqlite.sqlite_store
holdfast.store.sqlite.sqlite_store.statements()
if os.geteuid() == 0:
    os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
try:
    holdfast.open("sqlite:" + sys.argv[1]).load("run")
except holdfast.errors.StorageFailed:
    sys.exit(0)
sys.exit(1)
"""


def test_permission_error_is_not_missing(tmp_path: Path) -> None:
    """What may not be read is an error; only what is not there is None."""
    path = tmp_path / "runs.db"
    with holdfast.open(f"sqlite:{path}") as store:
        store.save("run", 1)
    path.chmod(0)
    done = subprocess.run([sys.executable, "-c", READ_AS_SOMEBODY, str(path), str(NOBODY)], check=False, timeout=240)
    assert done.returncode == 0
    (tmp_path / "directory").mkdir()
    with pytest.raises(StorageFailed):
        holdfast.open(f"sqlite:{tmp_path / 'directory'}")


def test_scope_loss_on_resume(store: Store) -> None:
    """The whole state comes back, not a part of it."""
    scope = {
        "input": {"k": "v"},
        "node_outputs": {"a": [1, 2], "b": ("x", b"y")},
        "loop_iterations": {"loop": 3},
        "last_tool_output": None,
    }
    store.save("run", scope, step=3, next_node="tool")
    found = store.load("run")
    assert found is not None
    assert (found.state, found.step, found.next_node) == (scope, 3, "tool")


MARK_ALL = """
import sys, holdfast
with holdfast.open("sqlite:" + sys.argv[1]) as store:
    print(sum(store.mark_done("task", f"use-{i}", result=sys.argv[2]) for i in range(100)))
"""


def test_lost_update_and_temp_sharing(tmp_path: Path) -> None:
    """Marks of several processes at once are neither lost nor mixed up."""
    path = str(tmp_path / "runs.db")
    holdfast.open(f"sqlite:{path}").close()
    arguments = [sys.executable, "-c", MARK_ALL, path]
    processes = [subprocess.Popen([*arguments, f"w{i}"], stdout=subprocess.PIPE, text=True) for i in range(4)]
    won = [int(process.communicate(timeout=120)[0]) for process in processes]
    assert sum(won) == 100
    with holdfast.open(f"sqlite:{path}") as store:
        assert sorted(effect.key for effect in store.effects("task")) == sorted(f"use-{i}" for i in range(100))


def test_sanitise_collision(store: Store) -> None:
    """Ids that look alike to a file system are different runs."""
    ids = ["proj/task.1", "proj_task_1", "proj task 1", "PROJ/task.1", "täsk", "t\u00e4sk", "ta\u0308sk", "t_sk"]
    for number, run_id in enumerate(dict.fromkeys(ids)):
        store.mark_done(run_id, f"use-{number}")
    for number, run_id in enumerate(dict.fromkeys(ids)):
        assert [effect.key for effect in store.effects(run_id)] == [f"use-{number}"]


def test_skip_without_result(store: Store) -> None:
    """A tool call that is not repeated is answered with the result it had."""
    store.mark_done("run", "use-1", tool="read_file", result={"content": "text"})
    assert store.is_done("run", "use-1")
    assert store.effects("run", key="use-1")[0].result == {"content": "text"}


def test_non_idempotent_mark(store: Store) -> None:
    """Marking twice is marking once."""
    assert store.mark_done("run", "use-1", result=1)
    for _ in range(3):
        assert not store.mark_done("run", "use-1", result=2)
    assert [(effect.key, effect.result) for effect in store.effects("run")] == [("use-1", 1)]


def test_torn_latest_without_fallback(tmp_path: Path) -> None:
    """A damaged newest checkpoint does not hide the one before it."""
    import apsw

    path = str(tmp_path / "runs.db")
    with holdfast.open(f"sqlite:{path}") as store:
        for i in range(3):
            store.save("run", i)
        raw = apsw.Connection(path)
        raw.execute("UPDATE checkpoints SET root = X'01' WHERE key = (SELECT max(key) FROM checkpoints)")
        raw.close()
        with pytest.raises(holdfast.DamagedData):
            store.load("run")
        assert state_of(store, "run", damaged="previous") == 1
        assert state_of(store, "run", step=1) == 0
        assert store.prune("run", Keep(last=2)).kept == 2


def test_stale_workflow_definition(store: Store) -> None:
    """A run is not silently gone on with as another workflow."""
    store.save("run", 1, workflow="refund-v1")
    with pytest.raises(WorkflowConflict):
        store.save("run", 2, workflow="refund-v2")
    assert store.runs()[0].workflow == "refund-v1"


def test_cursor_zero(store: Store) -> None:
    """A cursor that cannot be read is an error, not the beginning."""
    store.append("run", [{"kind": "a"}])
    store.save("run", 1)
    for cursor in ("", "garbage", "journal.x", "seq.1"):
        with pytest.raises(InvalidCursor):
            store.load("run", at=cursor)


def test_terminal_mismatch_across_backends(store: Store) -> None:
    """Terminal is the same three statuses for saving, claiming and pruning, on every store."""
    for status in ("completed", "failed", "cancelled"):
        assert store.save(status, 1, status=status).terminal
        store.save(status, 2)
        assert store.claim(status, owner="w") is None
        store.save(status, 3, status="running")
        store.prune(status, Keep(last=1, latest_terminal=True))
        assert [info.status for info in store.history(status)] == [status, "running"]
    for status in ("ready", "running", "waiting", "paused", "rolling_back"):
        assert not store.save(status, 1, status=status).terminal
        store.save(status, 2, status="ready")
        store.prune(status, Keep(last=1, latest_terminal=True))
        assert [info.status for info in store.history(status)] == ["ready"]


def test_replay_of_a_complete_run(store: Store) -> None:
    """The journal of a run that ended can be read from beginning to end, whatever came after its end."""
    store.append("run", [{"kind": "turn"}, {"kind": "terminal_result"}])
    store.save("run", 1, status="completed")
    store.append("run", [{"kind": "turn_lifecycle"}])
    assert [entry.kind for entry in store.journal("run")] == ["turn", "terminal_result", "turn_lifecycle"]
    assert state_of(store, "run", at=2) == 1


def test_idempotent_pending_allowed(store: Store) -> None:
    """An effect in doubt does not block the run: it can be claimed, and the effect resolved either way."""
    store.save("run", 1)
    store.mark_intent("run", "pay", tool="pay")
    claim = store.claim("run", owner="w")
    assert claim is not None
    claim.save(2)
    assert claim.mark_done("pay", result="paid once")
    claim.complete()
    assert [(effect.key, effect.state) for effect in store.effects("run")] == [("pay", "done")]


def test_unbounded_growth(store: Store) -> None:
    """History costs what changed, and what is not to be kept can be let go."""
    messages: list[dict[str, str]] = []
    for turn in range(150):
        messages.append({"content": f"turn {turn} " * 80})
        store.save("run", {"messages": messages})
    raw = sum(len(message["content"]) for message in messages)
    kept = store.stats().state_bytes
    assert kept < 2 * raw
    store.prune("run", Keep(last=1))
    assert store.stats().state_bytes < kept / 3
    assert state_of(store, "run") == {"messages": messages}
