"""What is said and done when the disk fails below a directory, and a verb cannot be carried out or taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast import Keep
from holdfast.errors import StorageFailed, StorageFull
from holdfast.store.directory.directory_store import DirectoryStore
from holdfast.testing import ManualClock
from tests.faults.directory.faulty_files import KINDS, FaultyFiles


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


def opened(tmp_path: Path, files: FaultyFiles) -> holdfast.Store:
    clock = ManualClock()
    return holdfast.Store(DirectoryStore(str(tmp_path / "runs"), clock, reserve_bytes=0, files=files), clock=clock)


def steps(store: holdfast.Store) -> list[int]:
    return [info.step for info in store.history("run")]


def test_a_save_whose_sync_failed_was_not_saved_and_its_handle_is_not_used_again(
    tmp_path: Path, files: FaultyFiles
) -> None:
    with opened(tmp_path, files) as store:
        store.save("run", 1)
        (journal,) = (tmp_path / "runs").glob("families/*/*.journal")
        before, inode = journal.read_bytes(), journal.stat().st_ino
        files.fail(KINDS["sync fails"], 1, sticky=False)
        with pytest.raises(StorageFailed, match="nothing was saved"):
            store.save("run", 2)
        assert files.hits == 1
        assert journal.read_bytes() == before
        assert journal.stat().st_ino != inode, "what the system shows of the old file may never reach the disk"
        assert steps(store) == [1]
        store.save("run", 3)
        assert steps(store) == [1, 2]
        assert files.reused == 0


def test_a_write_that_failed_is_cut_off_without_needing_room(tmp_path: Path, files: FaultyFiles) -> None:
    with opened(tmp_path, files) as store:
        store.save("run", 1)
        (journal,) = (tmp_path / "runs").glob("families/*/*.journal")
        before = journal.read_bytes()
        files.fail(KINDS["disk full"], 1, sticky=True)
        with pytest.raises(StorageFull, match="nothing was saved"):
            store.save("run", 2)
        assert journal.read_bytes() == before
        assert steps(store) == [1]
        files.heal()
        store.save("run", 3)


def test_if_it_cannot_even_be_taken_back_that_is_said_and_settled_later(tmp_path: Path, files: FaultyFiles) -> None:
    with opened(tmp_path, files) as store:
        store.save("run", 1)
        files.fail(KINDS["sync fails"], 1, sticky=True)
        with pytest.raises(StorageFailed, match="it is unknown whether it was saved"):
            store.save("run", 2)
        with pytest.raises(StorageFailed, match="during its recovery; nothing else was done"):
            store.load("run")
        assert b"-run" in (tmp_path / "runs" / "lock").read_bytes()
        files.heal()
        assert steps(store) in ([1], [1, 2])
        settled = steps(store)
        assert b'"writing":""' in (tmp_path / "runs" / "lock").read_bytes()
        with holdfast.open(f"dir:{tmp_path / 'runs'}") as other:
            assert steps(other) == settled
            assert other.verify().problems == []
        assert files.reused == 0


def test_of_several_commits_only_the_one_that_met_the_failure_fails(tmp_path: Path, files: FaultyFiles) -> None:
    from holdfast.model.commit import Commit, Committed, NewEntry, Refused

    with opened(tmp_path, files) as store:
        for run_id in ("a", "b", "c"):
            store.save(run_id, 1)
        files.fail(KINDS["sync fails"], 2, sticky=False)
        commits = [Commit(run_id, b"commit00", entries=(NewEntry("n", b"\x00\xc0"),)) for run_id in ("a", "b", "c")]
        one, two, three = store.port.commit(commits)
        assert isinstance(one, Committed)
        assert isinstance(three, Committed)
        assert isinstance(two, Refused)
        assert isinstance(two.error, StorageFailed)
        files.heal()
        assert [len(store.journal(run_id)) for run_id in ("a", "b", "c")] == [1, 0, 1]


def test_prune_works_though_there_is_no_room_to_write_the_journal_anew(tmp_path: Path, files: FaultyFiles) -> None:
    with opened(tmp_path, files) as store:
        for n in range(8):
            store.save("run", {"n": n, "text": [f"{n} {i}" * 300 for i in range(4)]})
        files.quota_bytes = files.used_bytes() + 600  # a line fits, a copy of the journal does not
        chunks = store.stats().chunks
        report = store.prune("run", Keep(last=1))
        assert len(report.removed) == 7
        assert files.hits >= 1
        assert store.stats().chunks < chunks
        assert steps(store) == [8]
        files.quota_bytes = None
        store.save("run", "more")
        assert store.verify().problems == []
    with holdfast.open(f"dir:{tmp_path / 'runs'}") as again:
        assert steps(again) == [8, 9]


def test_the_file_for_people_does_not_stand_in_the_way_of_a_save(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", 1)
        (newest,) = path.glob("families/*/*.newest.json")
        newest.unlink()
        newest.mkdir()  # cannot be renamed over
        (newest / "x").touch()
        store.save("run", 2)
        found = store.load("run")
        assert found is not None
        assert found.state == 2
