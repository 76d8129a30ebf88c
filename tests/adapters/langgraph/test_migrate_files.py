"""Migration from SQLite changes no file of the source, and can be killed and repeated."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.adapters.langgraph import HoldfastSaver, migrate
from holdfast.adapters.langgraph.migration import open_source
from holdfast.adapters.langgraph.migration.source import SourceChanged
from holdfast.adapters.langgraph.migration.source_sqlite import SqliteSource
from holdfast.adapters.langgraph.migration.thread_copy import LEASE_S
from holdfast.errors import InvalidInput
from tests.adapters.langgraph.forge import Forge
from tests.adapters.langgraph.material import chat, said
from tests.adapters.langgraph.sources import Order, Source, all_of, assert_same, filled, of
from tests.fork_server import LANGGRAPH, Forked, run, start
from tests.store.postgres import shared_servers

_count = itertools.count()

WRITER = """
import os, sys, time
from tests.adapters.langgraph.sources import *
source = Source("sqlite", Path(sys.argv[1]), sys.argv[2])
with source.saver() as saver:
    if sys.argv[3] == "fill":
        chat(saver).invoke(said("one"), of("chat"))
        chat(saver, Delta).invoke(said("one"), of("delta"))
    else:
        saver.get_tuple(of("chat"))
    print("ready", flush=True)
    if sys.argv[4] == "die":
        os.kill(os.getpid(), 9)
    if sys.argv[4] == "go on":
        for turn in range(10_000):
            chat(saver).invoke(said(f"{turn} " + "word " * 200), of("chat" if turn % 3 else f"chat-{turn}"))
            time.sleep(0.02)
    sys.stdin.read()
"""

MIGRATION = """
import os, sys
from holdfast.adapters.langgraph import migrate
from holdfast.adapters.langgraph.migration import thread_copy
from holdfast.store.group_commit import Committer
thread_copy._COMMIT_CHECKPOINTS = 3
thread_copy.LEASE_S = 2.0
when, at, count = sys.argv[3], int(sys.argv[4]), 0
real = Committer.commit
def commit(self, one):
    global count
    count += 1
    if when == "before" and count == at: os.kill(os.getpid(), 9)
    done = real(self, one)
    if when == "after" and count == at: os.kill(os.getpid(), 9)
    return done
Committer.commit = commit
print(migrate(sys.argv[1], sys.argv[2]), flush=True)
print("commits", count)
"""


@pytest.fixture
def source(folder: Path) -> Source:
    return Source("sqlite", folder, f"file-{next(_count)}")


@pytest.fixture
def target(folder: Path) -> str:
    return f"sqlite:{folder / f'file-target-{next(_count)}.db'}"


@contextmanager
def writer(source: Source, first: str, then: str) -> Iterator[Forked]:
    """Another process that has the source open."""
    names = (str(source.path.parent), source.path.stem)
    process = start("-c", WRITER, *names, first, then, loaded=LANGGRAPH, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        if then == "die":
            process.wait(240)
        yield process
    finally:
        process.close()


def end(process: Forked) -> None:
    """Let the process end, as it does when its input ends."""
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(240) == 0


def files(source: Source) -> set[str]:
    return {name.removeprefix(source.path.name) for name in source.file_hashes()}


def moved(source: Source, target: str) -> None:
    """Migrate, and check that the files of the source did not change."""
    before = source.file_hashes()
    report = migrate(source.url, target)
    assert source.file_hashes() == before
    assert (report.problems, report.skipped, report.threads) == ([], [], 2)


def test_a_source_that_was_closed(source: Source, target: str) -> None:
    with writer(source, "fill", "stay") as process:
        end(process)
    assert files(source) == {""}
    moved(source, target)
    assert_same(source, target, "chat", "delta")


def test_a_source_that_a_writer_has_open(source: Source, target: str) -> None:
    with writer(source, "fill", "stay"):
        assert files(source) == {"", "-wal", "-shm"}
        moved(source, target)
    assert_same(source, target, "chat", "delta")


def test_a_source_that_a_reader_has_opened_after_it_was_closed(source: Source, target: str) -> None:
    with source.saver() as saver:
        chat(saver).invoke(said("one"), of("chat"))
        chat(saver).invoke(said("one"), of("delta"))
    with writer(source, "look", "stay"):
        moved(source, target)
    assert_same(source, target, "chat", "delta")


def test_a_source_whose_writer_died(source: Source, target: str) -> None:
    with writer(source, "fill", "die"):
        assert files(source) == {"", "-wal", "-shm"}
        moved(source, target)
    assert_same(source, target, "chat", "delta")


def test_a_source_that_was_copied_with_its_log_only(source: Source, target: str) -> None:
    with writer(source, "fill", "die"):
        os.unlink(f"{source.path}-shm")
        before = set(Path("/tmp").glob("holdfast-migrate-*"))
        moved(source, target)
        assert set(Path("/tmp").glob("holdfast-migrate-*")) == before
    assert_same(source, target, "chat", "delta")


def test_a_source_with_a_rollback_journal(source: Source, target: str) -> None:
    with source.saver() as saver:
        chat(saver).invoke(said("one"), of("chat"))
        chat(saver).invoke(said("one"), of("delta"))
        saver.conn.execute("PRAGMA journal_mode = DELETE")
    moved(source, target)
    assert files(source) == {""}


def test_a_source_that_may_not_be_written_to(source: Source, target: str) -> None:
    with writer(source, "fill", "stay") as process:
        end(process)
    folder = source.path.parent / f"locked-{next(_count)}"
    folder.mkdir()
    locked = Path(shutil.copy(source.path, folder))
    locked.chmod(0o400)
    folder.chmod(0o500)
    assert migrate(str(locked), target).threads == 2
    folder.chmod(0o700)


def test_a_source_that_this_process_has_open_is_refused(source: Source, target: str) -> None:
    with source.saver() as saver:
        chat(saver).invoke(said("one"), of("chat"))
        with pytest.raises(InvalidInput, match="this process already has"):
            migrate(source.url, target)
    assert migrate(source.url, target).threads == 1


@pytest.mark.parametrize("first", ["fill", "look"])
def test_a_source_that_is_being_written_to(source: Source, target: str, first: str) -> None:
    filled(source, 2)
    with writer(source, first, "go on"):
        for _ in range(6):
            report = migrate(source.url, target)
            assert (report.problems, report.skipped) == ([], [])
            time.sleep(0.3)
    report = migrate(source.url, target)
    assert (report.problems, report.skipped) == ([], [])
    with HoldfastSaver(target, allow=[Order]) as saver:
        threads = {found.config["configurable"]["thread_id"] for found in saver.list(None) if found}
    assert len(threads) > 6
    assert_same(source, target, *sorted(threads - {"mixed"}))
    again = migrate(source.url, target)
    assert (again.threads, again.unchanged) == (0, len(threads))


OPENING = """
import fcntl, os, struct, sys
handle = os.open(sys.argv[1] + "-shm", os.O_RDWR | os.O_CREAT)
os.ftruncate(handle, 0)
os.ftruncate(handle, 32768)
fcntl.fcntl(handle, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 128, 1, 0))
print("ready", flush=True)
sys.stdin.read()
os.unlink(sys.argv[1] + "-shm")
"""


def test_a_source_that_another_process_is_just_opening(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that opens the database has created the -shm and locked it, but not yet written its header."""
    with writer(source, "fill", "die"):
        pass
    opened = SqliteSource._open
    count = itertools.count(1)
    process = start("-c", OPENING, str(source.path), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"

        def open_again(self: SqliteSource) -> None:
            if next(count) == 3:
                end(process)
            opened(self)

        monkeypatch.setattr(SqliteSource, "_open", open_again)
        reader = open_source(source.url)
        with reader.snapshot():
            assert len(list(reader.rows("chat"))) > 0
        assert next(count) > 3
        reader.close()
    finally:
        process.close()


def test_a_quiet_source_that_changes_while_it_is_read_is_read_again(source: Source, target: str) -> None:
    """A database that no process has open is read without locks, so the reader must detect changes itself."""
    filled(source, 3)
    calls = itertools.count()

    def disturb(done: int, total: int) -> None:
        if next(calls) == 4:
            script = (
                "import sys; from tests.adapters.langgraph.sources import *\n"
                "filled(Source('sqlite', Path(sys.argv[1]), sys.argv[2]), 1)"
            )
            run("-c", script, str(source.path.parent), source.path.stem, loaded=LANGGRAPH).check_returncode()

    report = migrate(source.url, target, progress=disturb)
    assert (report.problems, report.skipped) == ([], [])
    migrate(source.url, target)
    assert_same(source, target)


def test_a_reader_without_locks_detects_a_change(source: Source) -> None:
    filled(source, 1)
    reader = open_source(source.url)
    with reader.snapshot():
        reader.check()
        with writer(source, "fill", "stay") as process:
            reader.check()  # what was written lies beside the file so far
            end(process)
        with pytest.raises(SourceChanged):
            reader.check()
    with reader.snapshot():  # opens the file again
        reader.check()
        assert len(list(reader.rows("chat"))) == 6
    reader.close()


@pytest.fixture(scope="module")
def forge() -> Iterator[Forge]:
    """Makes processes."""
    forge = Forge()
    yield forge
    forge.close()


def killed(forge: Forge, source: str, target: str, when: str, at: int) -> int | None:
    """Migrate in a process that dies at a commit; the number of commits if it came to its end."""
    done = forge.run(MIGRATION, source, target, when, str(at))
    if done.code == -signal.SIGKILL:
        return None
    assert done.code == 0, done.output
    return int(done.output.split()[-1])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_migration_killed_at_every_commit_comes_to_the_same_end(
    forge: Forge, source: Source, target: str, when: str
) -> None:
    filled(source, 3)
    expected = killed(forge, source.url, f"{target}-whole", when, 0)
    assert expected is not None
    assert expected > 15
    with HoldfastSaver(f"{target}-whole", allow=[Order]) as saver:
        whole = all_of(saver, "chat", "delta", "mixed", "waiting", "answered")
    at = 1
    while killed(forge, source.url, target, when, at) is None:
        at += 1  # every call comes a little further
    report = migrate(source.url, target)
    assert (report.problems, report.skipped, report.unchanged) == ([], [], 5)
    with HoldfastSaver(target, allow=[Order]) as saver:
        assert all_of(saver, "chat", "delta", "mixed", "waiting", "answered") == whole
    assert_same(source, target)


def test_a_migration_killed_at_any_moment_can_be_repeated(forge: Forge, source: Source, target: str) -> None:
    filled(source, 3)
    chance = random.Random(5)
    for _ in range(6):
        forge.run(MIGRATION, source.url, target, "", "0", kill_after=chance.uniform(0.05, 0.5))
    report = migrate(source.url, target)
    assert (report.problems, report.skipped) == ([], [])
    assert_same(source, target)


def test_a_migration_into_postgres_waits_for_the_lease_of_one_that_was_killed(forge: Forge, source: Source) -> None:
    filled(source, 3)
    url = shared_servers.new_url()
    assert killed(forge, source.url, url, "after", 2) is None
    report = migrate(source.url, url)
    assert (report.problems, report.skipped) == ([], [])
    assert_same(source, url)


def test_a_migration_into_a_file_need_not_wait_for_one_that_was_killed(
    forge: Forge, source: Source, target: str
) -> None:
    filled(source, 3)
    assert killed(forge, source.url, target, "after", 2) is None
    report = migrate(source.url, target)
    assert (report.problems, report.skipped) == ([], [])
    assert report.seconds < LEASE_S / 2


def test_a_half_moved_thread_that_was_continued_is_skipped(forge: Forge, source: Source, target: str) -> None:
    filled(source, 3)
    at = 2
    assert killed(forge, source.url, target, "after", at) is None
    with HoldfastSaver(target, allow=[Order]) as saver:
        (thread,) = {found.config["configurable"]["thread_id"] for found in saver.list(None) if found}
        newest = saver.get_tuple(of(thread))
        assert newest is not None
        with saver.claim(thread):  # which detects that the migration died
            saver.put_writes(newest.config, [("question", "?")], "another task")
        before = all_of(saver, thread)
        report = migrate(source.url, saver.store)
        assert len(report.skipped) == 1
        assert "continued in the store" in report.skipped[0]
        assert all_of(saver, thread) == before
