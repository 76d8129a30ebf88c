"""The defects of the five systems, each of which must be impossible on their own files, among our processes.

One test per defect, named after it as tests/test_seed_defects.py names them for our own stores.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import HoldfastError
from holdfast.errors import ClaimLost, DamagedFile, InvalidId, NameTaken, StorageFailed
from holdfast.errors import WorkflowConflict as Changed
from holdfast.formats import brainwires, car, clawdia, mur, simple_agents
from holdfast.formats.clawdia.run_directory import segment
from tests.faults.formats.claims import contend
from tests.formats import originals
from tests.formats.processes import dead_claim, ended, forked
from tests.formats.sample_files import EXECUTION, before_step, covering, paused, raw, scope

NOBODY = 65534


def test_claim_race(tmp_path: Path) -> None:
    """Of four that claim at once exactly one wins, and the checkpoint is never lost. (10,000 rounds: make torture.)"""
    figures = contend(tmp_path, rounds=400)
    assert figures.problem_count == 0, figures.problems
    assert figures.counts["rounds"] == 400
    assert figures.counts["won"] == 3 * 400


def test_unfenced_complete(tmp_path: Path) -> None:
    """A completion by who no longer holds a run must not take it from who does."""
    a, b = car.Directory(tmp_path), car.Directory(tmp_path)
    a.save(paused())
    assert a.claim("run-1") is not None
    a.save(paused(iterations=2))  # it pauses again
    assert b.claim("run-1") is not None
    a.complete("run-1")
    assert raw(tmp_path / "run-1.inflight") == paused(iterations=2)
    assert originals.car_recovered(tmp_path) == 1  # somebody who knows no owners takes it from b
    c = car.Directory(tmp_path)
    assert c.claim("run-1") is not None
    with pytest.raises(ClaimLost):
        b.complete("run-1")
    assert raw(tmp_path / "run-1.inflight") == paused(iterations=2)


def test_recover_steals(tmp_path: Path) -> None:
    """Recovery must not take runs from processes that live, and must take them from those that died."""
    runs = car.Directory(tmp_path)
    runs.save(paused())
    told, tell = os.pipe()

    def hold() -> None:
        assert car.Directory(tmp_path).claim("run-1") is not None
        os.write(tell, b"x")
        time.sleep(60)

    pid = forked(hold)
    try:
        assert os.read(told, 1) == b"x"
        for _ in range(5):
            assert runs.recover_orphaned() == 0
        assert runs.claim("run-1") is None
        assert raw(tmp_path / "run-1.inflight") == paused()
    finally:
        os.kill(pid, signal.SIGKILL)
        ended(pid)
        os.close(told)
        os.close(tell)
    assert runs.recover_orphaned() == 1
    assert runs.claim("run-1") == paused()


def test_traversal(tmp_path: Path) -> None:
    """An id never leads out of the directory."""
    inside = tmp_path / "inside"
    for outside in ("outside.json", "outside.inflight", "outside"):
        (tmp_path / outside).write_text("mine")
    verbs: list[Callable[[Any], object]] = [
        car.Directory(inside).load, car.Directory(inside).claim, car.Directory(inside).complete,
        car.Directory(inside).remove, lambda name: car.Directory(inside).save(paused(name)),
        simple_agents.Directory(inside).load, simple_agents.Directory(inside).delete,
        lambda name: simple_agents.Directory(inside).save(scope(name)),
        mur.Directory(inside).load_latest, mur.Directory(inside).cleanup,
        lambda name: mur.Directory(inside).save(before_step(0, name)),
    ]  # fmt: skip
    for run_id in ("../outside", str(tmp_path / "outside"), "..", "a/../../outside"):
        for verb in verbs:
            with pytest.raises(InvalidId):
                verb(run_id)
        # These two make names of ids, so any id is one.
        brainwires.Directory(inside).save_checkpoint(brainwires.new_checkpoint(run_id, "a"))
        clawdia.Directory(inside).save(covering(0, run_id=run_id, checkpoint_id=run_id), 0)
        brainwires.Directory(inside).delete_checkpoint(run_id)
    assert all((tmp_path / name).read_text() == "mine" for name in ("outside.json", "outside.inflight", "outside"))
    assert {path.name for path in tmp_path.iterdir()} == {"inside", "outside", "outside.json", "outside.inflight"}


SAVES: dict[str, tuple[Callable[[Path, int], object], Callable[[Path], Any]]] = {
    "car": (
        lambda at, n: car.Directory(at).save(paused(wf_state={"n": n, "text": "x" * 50_000})),
        lambda at: (car.Directory(at).load("run-1") or {})["wf_state"]["n"],
    ),
    "simple_agents": (
        lambda at, n: simple_agents.Directory(at).save(scope(step=n, scope_snapshot="x" * 50_000)),
        lambda at: (simple_agents.Directory(at).load("run-1") or {})["step"],
    ),
    "brainwires": (
        lambda at, n: brainwires.Directory(at).mark_step_complete("t", f"u{n}", brainwires.side_effect(f"u{n}", "w")),
        lambda at: (brainwires.Directory(at).load_checkpoint("t") or {})["step_index"] - 1,
    ),
    "mur": (
        lambda at, n: mur.Directory(at).save(before_step(n, variables={"text": "x" * 50_000}, completed_steps=[])),
        lambda at: (mur.Directory(at).load_latest(EXECUTION) or {})["step_index"],
    ),
    "clawdia": (
        lambda at, n: clawdia.Directory(at).save(covering(n, 7, writer_id="x" * 50_000), n),
        lambda at: (clawdia.Directory(at).load_latest("run.a") or {})["covers_journal_seq"],
    ),
}


@pytest.mark.parametrize("system", SAVES)
def test_torn_write(system: str, tmp_path: Path) -> None:
    """A process killed while it saves leaves the checkpoint before, or the new one, whole. (Power cuts: torture.)"""
    save, newest = SAVES[system]
    for trial in range(3):
        told, tell = os.pipe()
        place = tmp_path / str(trial)

        def work(place: Path = place, tell: int = tell) -> None:
            for number in range(1000):
                save(place, number)
                os.write(tell, b"%d\n" % number)

        pid = forked(work)
        os.close(tell)
        with os.fdopen(told) as acknowledged:
            last = [int(acknowledged.readline()) for _ in range(4)][-1]
            os.kill(pid, signal.SIGKILL)
            rest = acknowledged.read().split()
        assert ended(pid) == -signal.SIGKILL
        last = int(rest[-1]) if rest else last
        assert newest(place) in (last, last + 1)
        if system == "clawdia":
            assert clawdia.Directory(place).problems("run.a") == []


def test_permission_error_is_not_missing(tmp_path: Path) -> None:
    """What may not be read is an error; only what is not there is None."""
    simple_agents.Directory(tmp_path).save(scope())
    car.Directory(tmp_path).save(paused("run-2"))
    for name in ("run-1.json", "run-2.json"):
        (tmp_path / name).chmod(0)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)

    def look() -> None:
        if os.geteuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        looks: list[Callable[[], object]] = [
            lambda: simple_agents.Directory(tmp_path).load("run-1"), lambda: car.Directory(tmp_path).load("run-2")
        ]  # fmt: skip
        for one in looks:
            with pytest.raises(StorageFailed, match="permissions"):
                one()
        assert simple_agents.Directory(tmp_path).load("run-3") is None

    assert ended(forked(look)) == 0


def test_scope_loss_on_resume(tmp_path: Path) -> None:
    """The whole scope comes back, not its input alone."""
    whole = {
        "input": {"k": "v"},
        "node_outputs": {"a": [1, 2.5], "b": None},
        "loop_iterations": {"loop": 3},
        "cache_entries": {"é": "✓"},
        "last_tool_output": {"n": 2**63},
    }
    runs = simple_agents.Directory(tmp_path)
    runs.save(scope(scope_snapshot=whole))
    found = runs.load("run-1")
    assert found is not None
    assert found["scope_snapshot"] == whole
    assert (found["step"], found["next_node_id"]) == (3, "tool")


def test_lost_update_and_temp_sharing(tmp_path: Path) -> None:
    """Marks of several processes at once are neither lost nor mixed up, and one of those who mark the same is first."""
    told, tell = os.pipe()

    def mark(me: int) -> None:
        tasks = brainwires.Directory(tmp_path)
        for number in range(50):
            for use in (f"mine-{me}-{number}", f"ours-{number}"):
                if tasks.mark_step_complete("task", use, brainwires.side_effect(use, "write_file"), result=me):
                    os.write(tell, b"%s\n" % use.encode())

    pids = [forked(lambda me=me: mark(me)) for me in range(4)]  # type: ignore[misc]
    os.close(tell)
    with os.fdopen(told) as lines:
        won = lines.read().split()
    assert [ended(pid) for pid in pids] == [0] * 4
    expected = sorted([f"mine-{me}-{n}" for me in range(4) for n in range(50)] + [f"ours-{n}" for n in range(50)])
    assert sorted(won) == expected
    found = raw(tmp_path / "task.json")
    assert sorted(found["completed_tool_ids"]) == expected
    assert sorted(line["tool_use_id"] for line in found["side_effects_log"]) == expected
    assert found["step_index"] == len(expected)


def test_sanitise_collision(tmp_path: Path) -> None:
    """Ids that become one name are told apart by the id inside."""
    tasks = brainwires.Directory(tmp_path)
    assert tasks.mark_step_complete("proj/task.1", "use-1", brainwires.side_effect("use-1", "pay"))
    with pytest.raises(NameTaken):
        tasks.load_checkpoint("proj_task_1")
    with pytest.raises(NameTaken):
        tasks.mark_step_complete("proj_task_1", "use-2", brainwires.side_effect("use-2", "pay"))
    assert raw(tmp_path / "proj_task_1.json")["completed_tool_ids"] == ["use-1"]


def test_skip_without_result(tmp_path: Path) -> None:
    """A tool call that is not repeated is answered with the result it had, by any process."""
    effect = brainwires.side_effect("use-1", "read_file")

    def work() -> None:
        brainwires.Directory(tmp_path).mark_step_complete("task", "use-1", effect, result={"content": "text"})
        os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(work)) == -signal.SIGKILL
    tasks = brainwires.Directory(tmp_path)
    assert brainwires.is_completed(tasks.load_checkpoint("task"), "use-1")
    assert tasks.result("task", "use-1") == {"content": "text"}
    assert set(raw(tmp_path / "task.json")) == set(brainwires.new_checkpoint("task", "a")), "the original's fields only"


@pytest.mark.parametrize("make", [brainwires.Directory, lambda _: brainwires.Memory()], ids=["directory", "memory"])
def test_non_idempotent_mark(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    """Marking twice is marking once."""
    tasks = make(tmp_path)
    assert tasks.mark_step_complete("task", "use-1", brainwires.side_effect("use-1", "pay"))
    before = tasks.load_checkpoint("task")
    for _ in range(3):
        assert not tasks.mark_step_complete("task", "use-1", brainwires.side_effect("use-1", "pay"), result=2)
    assert tasks.load_checkpoint("task") == before
    assert before["step_index"] == len(before["side_effects_log"]) == 1


def test_latest_picks_tmp(tmp_path: Path) -> None:
    """Only a step's own file is a checkpoint; nothing of ours is ever taken for one by the original."""
    executions = mur.Directory(tmp_path)
    executions.save(before_step(2))
    home = tmp_path / EXECUTION
    assert originals.mur_latest(home) == 2
    assert {path.name for path in home.iterdir()} == {"2.json"}
    for name in ("9.tmp", "9.bak", "+9.json", "09.json", "9", "٩.json", "9.json.tmp", "x9.json"):
        (home / name).write_text((home / "2.json").read_text())
    assert executions.load_latest(EXECUTION) == before_step(2)
    assert executions.steps(EXECUTION) == [2]


def test_torn_latest_without_fallback(tmp_path: Path) -> None:
    """A torn newest checkpoint does not hide the one before it."""
    executions, runs = mur.Directory(tmp_path / "mur"), clawdia.Directory(tmp_path / "clawdia")
    for number in (1, 2, 3):
        executions.save(before_step(number))
        runs.save(covering(number, number), 3)
    newest = max((tmp_path / "clawdia" / "runs" / segment("run.a") / "checkpoints").iterdir())
    for path in (tmp_path / "mur" / EXECUTION / "3.json", newest):
        path.write_bytes(path.read_bytes()[:40])
    assert executions.load_latest(EXECUTION) == before_step(2)
    with pytest.raises(DamagedFile):
        executions.load(EXECUTION, 3)
    assert runs.load_latest("run.a") == covering(2, 2)
    assert runs.prune("run.a", clawdia.PrunePolicy(prune_covered_before=2)).retained_count == 1


def test_stale_workflow_definition(tmp_path: Path) -> None:
    """A run is not silently gone on with as another workflow."""
    runs = car.Directory(tmp_path / "car")
    runs.save(paused())
    changed = paused()
    changed["workflow"]["max_iterations"] = 5
    with pytest.raises(Changed):
        runs.save(changed)
    scopes = simple_agents.Directory(tmp_path / "simple")
    scopes.save(scope())
    with pytest.raises(Changed):
        scopes.load("run-1", workflow_name="v2")
    with pytest.raises(Changed):
        scopes.save(scope(workflow_name="v2"))
    executions = mur.Directory(tmp_path / "mur")
    executions.save(before_step(0), workflow="sha256:1")
    with pytest.raises(Changed):
        executions.load_latest(EXECUTION, workflow="sha256:2")


def test_unbounded_growth(tmp_path: Path) -> None:
    """What is done can be let go, and nothing else is left behind by doing the same over and over."""

    def count(place: Path) -> int:
        return sum(path.is_file() for path in place.rglob("*"))

    for number in range(30):
        runs = car.Directory(tmp_path / "car")
        runs.save(paused(f"run-{number}"))
        dead_claim(tmp_path / "car", f"run-{number}") if number % 10 == 0 else runs.claim(f"run-{number}")
        runs.recover_orphaned()
        runs.remove(f"run-{number}")
        runs.close()
        scopes = simple_agents.Directory(tmp_path / "simple")
        scopes.save(scope(f"run-{number}"))
        scopes.delete(f"run-{number}")
        tasks = brainwires.Directory(tmp_path / "brainwires")
        tasks.mark_step_complete(f"t{number}", "u", brainwires.side_effect("u", "w"), result=1)
        tasks.delete_checkpoint(f"t{number}")
        executions = mur.Directory(tmp_path / "mur")
        for step in range(3):
            executions.save(before_step(step), workflow="w")
        executions.roll_back(EXECUTION, 1)
        executions.cleanup(EXECUTION)
        journaled = clawdia.Directory(tmp_path / "clawdia")
        journaled.save(covering(number, number), number)
        journaled.prune("run.a", clawdia.PrunePolicy(prune_covered_before=number))
    assert count(tmp_path / "car") <= 2
    assert count(tmp_path / "simple") == count(tmp_path / "brainwires") == count(tmp_path / "mur") == 1
    assert count(tmp_path / "clawdia") == 2


def test_every_refusal_is_one_of_ours(tmp_path: Path) -> None:
    """Whatever is wrong is told by an error of Holdfast's tree, so one `except` is enough."""
    calls: list[Callable[[], object]] = [
        lambda: car.Directory(tmp_path).load("../x"), lambda: mur.Directory(tmp_path).load(EXECUTION, 1),
        lambda: clawdia.Memory().save({}, 0), lambda: brainwires.Memory().mark_step_complete("", "", {}),
        lambda: simple_agents.Directory("").load("x"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(HoldfastError):
            call()
