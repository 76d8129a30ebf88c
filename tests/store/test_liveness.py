"""Signs of life on local stores: a process that died holding runs is known to be dead at once, a living one never."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Conflict
from holdfast.files.os_files import SystemFiles
from holdfast.store.capabilities import liveness_of
from holdfast.store.liveness import OwnerLocks

HOLD = """
import sys, holdfast
store = holdfast.open(sys.argv[1])
store.announce(sys.argv[2])
for run_id in sys.argv[3:]:
    assert store.claim(run_id, owner=sys.argv[2], lease=600)
print("held", flush=True)
sys.stdin.read()
store.close()
"""

FORK = """
import os, sys, time, holdfast
store = holdfast.open(sys.argv[1])
store.announce("parent")
assert store.claim("run", owner="parent", lease=600)
if os.fork() == 0:
    print("gone" if store.port.owner_is_dead("parent") else "held", os.getpid(), flush=True)
    time.sleep(600)
sys.stdin.read()
"""


class Process:
    """A process that holds something; it lives until it is told to end, or killed."""

    def __init__(self, script: str, *arguments: str) -> None:
        command = [sys.executable, "-c", script, *arguments]
        self.popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait(60)

    def kill_all(self) -> None:
        """The process, and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.communicate()

    def end(self) -> int:
        self.popen.communicate("", timeout=60)
        return self.popen.returncode


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        process.kill_all()


@pytest.fixture(params=["sqlite", "dir"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'runs.db'}" if request.param == "sqlite" else f"dir:{tmp_path / 'runs'}"


def signs(url: str) -> list[str]:
    """The files of owners."""
    scheme, _, path = url.partition(":")
    directory = Path(path + "-owners" if scheme == "sqlite" else path + "/owners")
    return sorted(os.listdir(directory)) if directory.exists() else []


def holding(processes: list[Process], url: str, owner: str, *run_ids: str) -> Process:
    process = Process(HOLD, url, owner, *run_ids)
    processes.append(process)
    assert process.line() == "held"
    return process


def test_a_killed_process_is_taken_over_at_once_and_a_living_or_stopped_one_is_not(
    url: str, processes: list[Process]
) -> None:
    with holdfast.open(url) as store:
        for run_id in ("a", "b", "c"):
            store.save(run_id, 1)
        process = holding(processes, url, "w1", "a", "b", "c")
        assert store.claim("a", owner="w2") is None
        assert store.recover_expired() == 0
        process.popen.send_signal(signal.SIGSTOP)
        assert not liveness_of(store.port).owner_is_dead("w1")
        assert store.claim("a", owner="w2") is None
        process.kill()
        assert liveness_of(store.port).owner_is_dead("w1")
        claim = store.claim("a", owner="w2")
        assert claim is not None
        claim.save("taken over")
        assert liveness_of(store.port).owner_is_dead("w1"), "other runs of it are still to be recovered"
        assert store.recover_expired() == 2
        assert {run.run_id for run in store.runs(status="ready")} == {"b", "c"}
        assert signs(url) == []
        assert not liveness_of(store.port).owner_is_dead("w1")


def test_a_process_that_ends_well_leaves_nothing_behind(url: str, processes: list[Process]) -> None:
    with holdfast.open(url) as store:
        store.save("run", 1)
        process = holding(processes, url, "w1")
        assert len(signs(url)) == 1
        assert process.end() == 0
        assert signs(url) == []
        store.announce("w2")
        assert len(signs(url)) == 1
    assert signs(url) == []


def test_a_process_that_closes_its_store_with_a_claim_is_known_to_have_ended(
    url: str, processes: list[Process]
) -> None:
    with holdfast.open(url) as store:
        store.save("run", 1)
        process = holding(processes, url, "w1", "run")
        assert store.claim("run", owner="w2") is None
        assert process.end() == 0
        assert liveness_of(store.port).owner_is_dead("w1")
        claim = store.claim("run", owner="w2")
        assert claim is not None
        claim.release()
    assert signs(url) == []


def test_a_child_does_not_keep_its_dead_parent_alive(url: str, processes: list[Process]) -> None:
    with holdfast.open(url) as store:
        store.save("run", 1)
        process = Process(FORK, url)
        processes.append(process)
        seen, child = process.line().split()
        assert seen == "held"
        assert store.claim("run", owner="w2") is None
        process.kill()
        os.kill(int(child), 0)
        assert liveness_of(store.port).owner_is_dead("parent")
        assert store.claim("run", owner="w2") is not None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_announces_itself_anew_and_its_end_is_not_the_parents(url: str) -> None:
    with holdfast.open(url) as store, holdfast.open(url) as other:
        store.announce("parent")
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(60)
                store.announce("child")
                assert not liveness_of(store.port).owner_is_dead("parent")
                store.close()
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert len(signs(url)) == 1
        assert not liveness_of(other.port).owner_is_dead("parent")
        other.recover_expired()
        assert len(signs(url)) == 1


def test_a_name_belongs_to_one_living_process(url: str, processes: list[Process]) -> None:
    with holdfast.open(url) as store, holdfast.open(url) as same_process:
        store.save("run", 1)
        process = holding(processes, url, "w1", "run")
        with pytest.raises(Conflict, match="w1"):
            store.announce("w1")
        process.kill()
        store.announce("w1")
        same_process.announce("w1")
        same_process.close()
        assert len(signs(url)) == 1
        assert not liveness_of(store.port).owner_is_dead("w1")


def test_awaiting_callers_announce_themselves_too(url: str) -> None:
    async def work(store: holdfast.Store) -> None:
        await store.aio.announce("w1")
        await store.aio.close()

    store = holdfast.open(url)
    asyncio.run(work(store))
    assert signs(url) == []
    with pytest.raises(holdfast.errors.StoreClosed):
        store.announce("w1")


def test_names_of_owners_are_kept_apart_and_none_leaves_its_directory(url: str, tmp_path: Path) -> None:
    owners = ["a", "A", "a/b", "../a", "..", ".", "é", "e\u0301", "x" * 512, "a b", "~", "holdfast.json"]
    before = set(os.listdir(tmp_path))
    with holdfast.open(url) as store:
        for owner in owners:
            store.announce(owner)
        assert len(signs(url)) == len(owners)
        store.save("run", 1)
        assert store.verify().problems == []
        added = set(os.listdir(tmp_path)) - before
        assert all(name.startswith("runs") for name in added)


class Between:
    """Does something once, between the opening of a file and its locking."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
        lock, self.met = SystemFiles.try_lock, 0

        def late(files: SystemFiles, handle: int, *, shared: bool = False) -> bool:
            self.met += 1
            if self.met == 1:
                work()
            return lock(files, handle, shared=shared)

        monkeypatch.setattr(SystemFiles, "try_lock", late)


ANNOUNCE = """
import sys
from holdfast.store.liveness import OwnerLocks
OwnerLocks(sys.argv[1]).announce("w")
print("held", flush=True)
sys.stdin.read()
"""

REMOVE_DEAD = """
import sys
from holdfast.store.liveness import OwnerLocks
owners = OwnerLocks(sys.argv[1])
owners.remove_dead_owners(())
print(owners.owner_is_dead("w"))
"""


def announced(processes: list[Process], directory: Path) -> Process:
    process = Process(ANNOUNCE, str(directory))
    processes.append(process)
    assert process.line() == "held"
    return process


def test_a_file_that_is_removed_before_its_lock_is_taken_is_no_sign_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: list[Process]
) -> None:
    """Somebody takes the name of a dead owner while another removes what that one left."""
    directory = tmp_path / "owners"
    announced(processes, directory).kill()
    between = Between(monkeypatch, lambda: OwnerLocks(str(directory)).remove_dead_owners(()))
    mine = OwnerLocks(str(directory))
    mine.announce("w")
    assert between.met == 4, "the one that was removed: by both, and found dead before; and a new one"
    assert len(os.listdir(directory)) == 1
    looked = subprocess.run(
        [sys.executable, "-c", REMOVE_DEAD, str(directory)], capture_output=True, text=True, check=True, timeout=240
    )
    assert looked.stdout == "False\n"
    assert len(os.listdir(directory)) == 1
    mine.close()
    assert not directory.exists()


@pytest.mark.parametrize("look", [False, True])
def test_a_new_process_of_a_dead_ones_name_is_neither_taken_for_dead_nor_buried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: list[Process], look: bool
) -> None:
    """Somebody has opened the dead owner's file; before it is locked, it is removed, and a new process has the name."""
    directory = tmp_path / "owners"
    announced(processes, directory).kill()

    def replaced() -> None:
        (path,) = directory.iterdir()
        path.unlink()
        announced(processes, directory)

    between = Between(monkeypatch, replaced)
    mine = OwnerLocks(str(directory))
    if look:
        assert not mine.owner_is_dead("w")
    else:
        mine.remove_dead_owners(())
    assert between.met > 0
    assert len(os.listdir(directory)) == 1
    assert not mine.owner_is_dead("w")
    processes[-1].kill()
    assert mine.owner_is_dead("w")


def test_who_only_looks_is_not_in_the_way_of_who_comes(url: str) -> None:
    stop = threading.Event()
    with holdfast.open(url) as store, holdfast.open(url) as looking:

        def look() -> None:
            while not stop.is_set():
                liveness_of(looking.port).owner_is_dead("w")

        thread = threading.Thread(target=look)
        thread.start()
        try:
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                store.announce("w")
                store.port._owners.close()  # type: ignore[attr-defined]
        finally:
            stop.set()
            thread.join()
