"""The SQLite store in trouble: forks, a disk that is full, a disk that fails."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import Keep, fork_safety
from holdfast.errors import StorageFailed, StorageFull, StoreClosed
from holdfast.files import durable as rooms
from holdfast.store.sqlite import sqlite_connection as connections
from holdfast.store.sqlite import sqlite_store as stores
from holdfast.store.sqlite.sqlite_store import SqliteStore
from tests.interrupted import interrupted


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'runs.db'}"


def test_a_nearly_full_disk_refuses_saves_and_lets_prune_work(url: str) -> None:
    with holdfast.open(url) as store:
        for i in range(5):
            store.save("run", {"n": i, "text": ["x" * 3000] * 5})
        store.save("held", 1)
    with holdfast.open(url, reserve_bytes=2**60) as store:
        for write in (
            lambda: store.save("run", 1),
            lambda: store.append("run", [{"kind": "a"}]),
            lambda: store.mark_done("run", "k"),
            lambda: store.attach("run", "c", "k", 1),
        ):
            with pytest.raises(StorageFull, match="reserve"):
                write()
        assert store.load("run") is not None
        claim = store.claim("held", owner="w")
        assert claim is not None
        claim.release()
        assert len(store.prune("run", Keep(last=1)).removed) == 4
        assert store.delete("run")
        assert store.recover_expired() == 0


def test_what_prune_frees_on_a_full_disk_can_be_used_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open(url, reserve_bytes=400_000) as store:
        for i in range(20):
            store.save("run", {"n": i, "bytes": os.urandom(30_000)})
        monkeypatch.setattr(rooms, "free_bytes", lambda path: 1000)
        with pytest.raises(StorageFull, match="1000 bytes are free"):
            store.save("run", {"n": 20, "bytes": os.urandom(30_000)})
        store.prune("run", Keep(last=1))
        store.save("run", {"n": 21})


def test_a_large_commit_is_refused_before_it_uses_up_the_reserve(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "free_bytes", lambda path: 1_000_000)
    with holdfast.open(url, reserve_bytes=400_000) as store:
        store.save("run", 1)
        with pytest.raises(StorageFull, match=r"800[0-9]{3} bytes are to be added, 1000000 bytes are free"):
            store.append("run", [{"kind": "a", "noise": os.urandom(800_000)}])
        store.append("run", [{"kind": "a", "noise": os.urandom(500_000)}])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_goes_on_with_connections_of_its_own(url: str) -> None:
    with holdfast.open(url) as store:
        store.save("run", "parent")
        store.load("run")
        child = os.fork()
        if child == 0:
            try:
                for i in range(20):
                    store.save("child", i)
                assert store.load("run") is not None
                store.close()
                os._exit(0)
            except BaseException:
                os._exit(1)
        for i in range(20):
            store.save("run", i)
        assert os.waitpid(child, 0)[1] == 0
        assert len(list(store.history("child"))) == 20
        assert store.verify().problems == []
        tokens = {store.access.core.ids.token(8) for _ in range(100)}
        assert len(tokens) == 100


def test_what_a_forked_process_saves_stays_when_the_parent_closes(url: str) -> None:
    """SQLite believes to hold locks it inherited only the memory of; then the parent takes the WAL away."""
    store = holdfast.open(url)
    store.save("run", "parent")
    store.load("run")
    told, tell = os.pipe()
    go_on, let_go_on = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.save("child", 1)
            os.write(tell, b"1")
            os.read(go_on, 1)
            for i in range(2, 6):
                store.save("child", i)
            os._exit(0)
        except BaseException:
            os._exit(1)
    os.read(told, 1)
    store.close()
    os.write(let_go_on, b"1")
    assert os.waitpid(child, 0)[1] == 0
    for handle in (told, tell, go_on, let_go_on):
        os.close(handle)
    with holdfast.open(url) as again:
        found = again.load("child")
        assert found is not None
        assert found.state == 5


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_until_nobody_is_inside_sqlite(url: str) -> None:
    with holdfast.open(url) as store:
        stop = threading.Event()

        def busy(name: str) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                store.save(name, {"texts": [f"{name} {number} {i} " * 40 for i in range(30)]})
                store.load(name)

        threads = [threading.Thread(target=busy, args=(f"busy-{i}",)) for i in range(3)]
        for thread in threads:
            thread.start()
        for number in range(15):
            child = os.fork()
            if child == 0:
                try:
                    store.save(f"child-{number}", {"texts": ["x" * 500] * 20})
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join(240)
        assert store.stats().runs["ready"] == 18
        assert store.verify().problems == []


class FailingVFS(apsw.VFS):
    """Fails syncs while it is told to."""

    def __init__(self) -> None:
        super().__init__("failing", "")
        self.failing = 0
        self.opened = 0

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:
        vfs = self
        vfs.opened += 1

        class File(apsw.VFSFile):
            def __init__(self) -> None:
                super().__init__("", name, flags)

            def xSync(self, flags: int) -> None:
                if vfs.failing:
                    vfs.failing -= 1
                    raise apsw.IOError("injected")
                super().xSync(flags)

        return File()


@pytest.mark.parametrize(("failures", "said"), [(1, "nothing was saved"), (5, "is unknown")])
def test_a_save_whose_sync_failed_is_settled_or_said_to_be_unknown(tmp_path: Path, failures: int, said: str) -> None:
    """The transaction is in the WAL, whole: it must not come back after a crash if it was reported as not saved."""
    vfs = FailingVFS()
    path = str(tmp_path / "runs.db")
    store = holdfast.Store(SqliteStore(path, holdfast.clock.SystemClock(), reserve_bytes=0, vfs="failing"))
    store.save("run", 1)
    store.load("run")
    opened = vfs.opened
    vfs.failing = failures
    with pytest.raises(StorageFailed, match=said):
        store.save("run", 2)
    assert vfs.opened > opened, "the handle that failed is not used again"
    vfs.failing = 0
    (tmp_path / "crash").mkdir()
    for name in ("runs.db", "runs.db-wal"):
        shutil.copy(tmp_path / name, tmp_path / "crash" / name)
    with holdfast.open(f"sqlite:{tmp_path / 'crash' / 'runs.db'}") as crashed:
        found = crashed.load("run")
        assert found is not None
        assert found.state == 1 or "unknown" in said
    assert store.save("run", 3).number >= 2
    store.close()


def test_an_interrupt_at_any_moment_leaves_a_store_that_works(url: str) -> None:
    """Ctrl-C in a notebook, or SIGALRM: the next save neither hangs nor finds a transaction open."""
    with holdfast.open(url) as store, holdfast.open(url, timeout_s=2) as other:
        acknowledged = interrupted(lambda number: store.append("run", [{"kind": "n", "n": number}]), 400, 1e-3)
        other.save("other", 1)
        store.save("run", "after all")
        assert len(store.journal("run")) >= acknowledged > 0
        assert store.verify().problems == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_beside_a_long_read_leaves_the_parent_unlocked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_REST_S", 0.1)
    with holdfast.open(url) as store:
        store.save("run", 1)
        port = store.port
        assert isinstance(port, SqliteStore)
        reading, go_on = threading.Event(), threading.Event()

        def read(_: apsw.Connection) -> bool:
            reading.set()
            return go_on.wait(30)

        reader = threading.Thread(target=lambda: port._read(read))
        reader.start()
        assert reading.wait(30)
        child = os.fork()
        if child == 0:
            try:
                store.save("run", 2)
            except StoreClosed as error:
                os._exit(0 if "spawn" in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        go_on.set()
        reader.join(240)
        writer = threading.Thread(target=lambda: store.save("run", 3), daemon=True)
        writer.start()
        writer.join(240)
        assert not writer.is_alive()
        loaded = store.load("run")
        assert loaded is not None
        assert loaded.state == 3


def test_a_directory_whose_sync_failed_is_synced_by_the_next_who_opens(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def sync(path: str) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise StorageFailed("the directory cannot be synced")

    monkeypatch.setattr(connections, "sync_directory", sync)
    with pytest.raises(StorageFailed):
        holdfast.open(url)
    holdfast.open(url).close()
    assert len(calls) == 2
    holdfast.open(url).close()
    assert len(calls) == 2


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_for_what_is_being_imported() -> None:
    held, imported = threading.Event(), threading.Event()

    def load() -> None:
        with fork_safety.loading:
            held.set()
            imported.wait(0.2)
            imported.set()

    thread = threading.Thread(target=load)
    thread.start()
    assert held.wait(30)
    child = os.fork()
    if child == 0:
        free = fork_safety.loading.acquire(blocking=False)
        os._exit(0 if free and imported.is_set() else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join(240)
    assert fork_safety.loading.acquire(blocking=False)
    fork_safety.loading.release()
