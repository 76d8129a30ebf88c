"""Several processes and threads in one directory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Keep
from holdfast.errors import StorageBusy, StoreClosed
from holdfast.files.os_files import SystemFiles
from holdfast.store.directory.directory_store import DirectoryStore
from holdfast.testing import ManualClock
from tests.interrupted import interrupted

_SPAWN = multiprocessing.get_context("spawn")
_PROCESSES = 8
_DEADLINE_S = 200.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"dir:{tmp_path / 'runs'}"


def all_ended(processes: list[SpawnProcess]) -> bool:
    """Whether all ended well, within the time after which they hang."""
    for process in processes:
        process.join(_DEADLINE_S)
    ended = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return ended == [0] * len(processes)


def started(work: Any, *arguments: Any) -> list[SpawnProcess]:
    processes = [_SPAWN.Process(target=work, args=(number, *arguments)) for number in range(_PROCESSES)]
    for process in processes:
        process.start()
    return processes


def _create(number: int, url: str, go: Any) -> None:
    go.wait(_DEADLINE_S)
    with holdfast.open(url, timeout_s=120) as store:
        store.save(f"run {number}", number)


def test_processes_that_make_the_directory_at_once_do_not_get_in_each_others_way(url: str) -> None:
    go = _SPAWN.Barrier(_PROCESSES)
    assert all_ended(started(_create, url, go))
    with holdfast.open(url) as store:
        assert {run.run_id for run in store.runs()} == {f"run {n}" for n in range(_PROCESSES)}
        assert len({store.port.run(f"run {n}").run for n in range(_PROCESSES)}) == _PROCESSES  # type: ignore[union-attr]
        assert store.verify().problems == []


def _write(number: int, url: str, rounds: int) -> None:
    with holdfast.open(url, timeout_s=120) as store:
        for i in range(rounds):
            store.append("shared", [{"kind": "n", "by": number, "i": i}])
            store.save(f"own {number}", {"i": i, "messages": [f"message {j} " * 40 for j in range(10 + i)]})
            if store.mark_done("shared", f"effect {i}", result=number):
                store.append("done", [{"kind": "n", "i": i}])
            if i % 4 == 3:
                store.prune(f"own {number}", Keep(last=2))
        store.fork("own 0", f"fork {number}") if store.load("own 0") else None


def test_eight_processes_write_and_nothing_is_lost_or_done_twice(url: str) -> None:
    rounds = 8
    with holdfast.open(url) as store:
        store.save("own 0", {"i": -1})
    assert all_ended(started(_write, url, rounds))
    with holdfast.open(url) as store:
        entries = store.journal("shared")
        assert [entry.position for entry in entries] == list(range(1, _PROCESSES * rounds + 1))
        assert {(e["by"], e["i"]) for e in entries} == {(n, i) for n in range(_PROCESSES) for i in range(rounds)}
        assert sorted(entry["i"] for entry in store.journal("done")) == list(range(rounds))
        for number in range(_PROCESSES):
            found = store.load(f"own {number}")
            assert found is not None
            assert found.state["i"] == rounds - 1
        assert store.verify().problems == []
        assert store.port.repairs == ()  # type: ignore[attr-defined]


def _claim(number: int, url: str) -> None:
    with holdfast.open(url, timeout_s=120) as store:
        while claims := store.claim_ready(f"worker {number}", limit=2, lease=600):
            for claim in claims:
                claim.append([{"kind": "taken", "by": number}])
                claim.complete()


def test_eight_processes_take_every_ready_run_once(url: str) -> None:
    with holdfast.open(url) as store:
        for n in range(40):
            store.save(f"run {n}", n)
    assert all_ended(started(_claim, url))
    with holdfast.open(url) as store:
        for n in range(40):
            assert len(store.journal(f"run {n}")) == 1
        assert {run.status for run in store.runs(limit=100)} == {"completed"}


def test_two_stores_see_each_others_commits_rewrites_and_deletions(url: str) -> None:
    with holdfast.open(url) as one, holdfast.open(url) as two:
        for n in range(6):
            one.save("run", {"n": n, "messages": [f"message {n} {i} " * 40 for i in range(20)]})
            found = two.load("run")
            assert found is not None
            assert found.state["n"] == n
        two.prune("run", Keep(last=1))
        assert len(list(one.history("run"))) == 1
        one.save("run", {"n": 6, "messages": [f"message 0 {i} " * 40 for i in range(20)]})
        two.fork("run", "fork")
        assert [run.run_id for run in one.runs()] == ["fork", "run"]
        two.delete("run")
        assert one.load("run") is None
        one.save("run", "anew")
        found = two.load("run")
        assert found is not None
        assert found.state == "anew"
        assert two.verify().problems == []


class _Dying(SystemFiles):
    """Dies in the middle of a call."""

    def __init__(self, call: str, at: int) -> None:
        self._call = call
        self._left = at

    def _meet(self, call: str) -> None:
        self._left -= call == self._call
        if call == self._call and self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def sync(self, handle: int) -> None:
        self._meet("sync")
        super().sync(handle)

    def rename(self, old: str, new: str) -> None:
        self._meet("rename")
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._meet("unlink")
        super().unlink(path)


def _die(url: str, call: str, at: int) -> None:
    clock = ManualClock()
    port = DirectoryStore(url.removeprefix("dir:"), clock, reserve_bytes=0, files=_Dying(call, at))
    store = holdfast.Store(port, clock=clock)
    for n in range(20):
        store.save("run", {"n": n, "messages": [f"message {n} {i} " * 40 for i in range(20)]})
        store.prune("run", Keep(last=1))


@pytest.mark.parametrize(("call", "at"), [("sync", 9), ("sync", 30), ("rename", 20), ("rename", 33), ("unlink", 5)])
def test_what_a_killed_process_left_is_settled_by_one_that_was_there_all_along(url: str, call: str, at: int) -> None:
    with holdfast.open(url) as store:
        store.save("run", {"n": -1})
        process = _SPAWN.Process(target=_die, args=(url, call, at))
        process.start()
        process.join(_DEADLINE_S)
        assert process.exitcode == -signal.SIGKILL
        found = store.load("run")
        assert found is not None
        before = found.state["n"]
        store.save("run", {"n": 99})
        assert store.verify().problems == []
        numbers = [store.load("run", checkpoint_id=c.checkpoint_id).state["n"] for c in store.history("run")]  # type: ignore[union-attr]
        assert numbers[-2:] == [before, 99]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_parent_and_child_both_go_on_after_a_fork(url: str) -> None:
    with holdfast.open(url) as store:
        store.save("run", "parent")
        stop = threading.Event()
        errors: list[BaseException] = []

        def busy() -> None:
            try:
                for n in range(10_000):
                    if stop.is_set():
                        return
                    store.save("busy", {"n": n, "text": "x" * 3000})
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=busy)
        thread.start()
        children = []
        for number in range(4):
            time.sleep(0.01)
            child = os.fork()
            if child == 0:
                try:
                    signal.alarm(int(_DEADLINE_S))
                    for i in range(5):
                        store.save(f"child {number}", i)
                    found = store.load("run")
                    store.close()
                    os._exit(0 if found is not None else 2)
                except BaseException:
                    os._exit(1)
            children.append(child)
            store.save("run", number)
        ended = [os.waitpid(child, 0)[1] for child in children]
        stop.set()
        thread.join(_DEADLINE_S)
        assert ended == [0] * 4
        assert errors == []
        for number in range(4):
            assert len(list(store.history(f"child {number}"))) == 5
        assert store.verify().problems == []


def test_who_waits_too_long_is_told_that_the_store_is_busy(url: str) -> None:
    with holdfast.open(url) as store, holdfast.open(url, timeout_s=0.05) as impatient:
        store.save("run", 1)
        assert isinstance(store.port, DirectoryStore)
        with store.port._exclusive(), pytest.raises(StorageBusy, match="try again"):
            impatient.save("run", 2)
        impatient.save("run", 3)
        assert len(list(store.history("run"))) == 2


def test_a_closed_store_says_so(url: str) -> None:
    store = holdfast.open(url)
    store.save("run", 1)
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.load("run")
    with pytest.raises(StoreClosed):
        store.save("run", 2)


def test_a_directory_that_was_removed_and_made_anew_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", 1)
        path.rename(tmp_path / "away")
        with pytest.raises(holdfast.errors.StorageFailed):
            store.save("run", 2)
        with holdfast.open(f"dir:{path}") as other:
            other.save("run", "new")
            found = store.load("run")
            assert found is not None
            assert found.state == "new"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of files that were being read
def test_an_interrupt_at_any_moment_leaves_a_directory_that_works(url: str) -> None:
    with holdfast.open(url) as store, holdfast.open(url, timeout_s=5) as other:
        acknowledged = interrupted(lambda number: store.append("run", [{"kind": "n", "n": number}]), 150, 0.01)
        other.save("other", 1)
        store.save("run", "after all")
        assert len(other.journal("run")) >= acknowledged
        assert store.verify().problems == []


def test_what_cannot_be_shown_is_saved_once_and_disturbs_nobody_in_its_batch(url: str) -> None:
    """Numbers with thousands of digits are values like others, but JSON's readers refuse them."""
    with holdfast.open(url) as store:

        def append(number: int) -> None:
            for i in range(10):
                store.append(f"run {number}", [{"kind": "n", "n": i, "large": 10**5000}])

        def save() -> None:
            for i in range(10):
                store.save("large", {"n": 10**5000 + i, "deep": _nested(180), "text": "x" * 3000})

        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        threads.append(threading.Thread(target=save))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_DEADLINE_S)
        assert [len(store.journal(f"run {number}")) for number in range(4)] == [10] * 4
        assert len(list(store.history("large"))) == 10
    with holdfast.open(url) as again:
        loaded = again.load("large")
        assert loaded is not None
        assert loaded.state == {"n": 10**5000 + 9, "deep": _nested(180), "text": "x" * 3000}


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value
