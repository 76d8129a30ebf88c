"""The directory of owners' files does not outlive its use, and no file of a living owner ever vanishes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import StorageFailed
from holdfast.store.capabilities import liveness_of
from holdfast.store.liveness import OwnerLocks
from holdfast.store.port import RunQuery
from tests.store.test_liveness import Process, announced, holding, processes, signs, url

__all__ = ["processes", "url"]  # fixtures

SCRIPT = """
import sys, holdfast
app = holdfast.App(sys.argv[1])
app.workflow(lambda run: run.ask("well?"), name="w")
app.start("w")
"""
LEFT_HOLDING = """
import sys, holdfast
store = holdfast.open(sys.argv[1])
store.announce("w1")
assert store.claim("run", owner="w1", lease=600)
"""
COME_AND_GO = """
import os, sys
from holdfast.store.liveness import OwnerLocks, _held_locks
directory, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
owners = OwnerLocks(directory)
path = owners._path(name)
for _ in range(rounds):
    owners.announce(name)
    handle = _held_locks.handles[path][0]
    assert os.path.samestat(os.fstat(handle), os.stat(path)), "the file of a living owner was removed"
    owners.remove_dead_owners(())
    assert os.path.samestat(os.fstat(handle), os.stat(path)), "the file of a living owner was removed"
    owners.close()
print("done", flush=True)
"""


def directory_of(url: str) -> Path:
    scheme, _, path = url.partition(":")
    return Path(path + "-owners" if scheme == "sqlite" else path + "/owners")


def test_a_script_that_ends_without_closing_leaves_no_directory_of_owners(url: str) -> None:
    for _ in range(2):
        subprocess.run([sys.executable, "-c", SCRIPT, url], check=True, timeout=240)
        assert not directory_of(url).exists()


def test_a_script_that_ends_while_it_holds_a_run_is_known_to_be_dead_at_once(url: str) -> None:
    with holdfast.open(url) as store:
        store.save("run", 1)
        subprocess.run([sys.executable, "-c", LEFT_HOLDING, url], check=True, timeout=240)
        assert liveness_of(store.port).owner_is_dead("w1")
        assert store.claim("run", owner="w2") is not None
    assert not directory_of(url).exists()


def test_what_a_killed_owner_left_is_removed_by_the_next_process_that_closes_the_store(
    url: str, processes: list[Process]
) -> None:
    with holdfast.open(url) as store:
        store.save("run", 1)
    holding(processes, url, "idle").kill()
    assert len(signs(url)) == 1
    with holdfast.open(url):
        pass
    assert not directory_of(url).exists()
    holding(processes, url, "w1", "run").kill()
    with holdfast.open(url) as store:
        pass
    assert len(signs(url)) == 1, "it proves that the run may be taken over at once"
    with holdfast.open(url) as store:
        assert store.claim("run", owner="w2") is not None
    assert not directory_of(url).exists()


def test_an_owner_that_claims_and_dies_while_the_dead_are_buried_stays_known_to_be_dead(
    url: str, processes: list[Process]
) -> None:
    """Who holds runs was read before it came; it has died when the files are looked at."""
    with holdfast.open(url) as store:
        store.save("run", 1)
        held = {row.owner for row in store.port.runs(RunQuery(claimed="any", limit=10))}
        holding(processes, url, "w1", "run").kill()
        liveness_of(store.port).remove_dead_owners(held)
        assert liveness_of(store.port).owner_is_dead("w1")
        assert store.claim("run", owner="w2") is not None


def test_a_file_that_is_not_an_owners_is_not_removed(url: str, processes: list[Process]) -> None:
    with holdfast.open(url) as store:
        store.announce("w1")
        (directory_of(url) / "notes.txt").write_text("mine")
    assert signs(url) == ["notes.txt"]


def test_processes_that_come_and_go_at_once_never_lose_their_files(tmp_path: Path, processes: list[Process]) -> None:
    """The one that leaves removes the directory while another one enters it; a third is killed again and again."""
    directory = tmp_path / "owners"
    processes += [Process(COME_AND_GO, str(directory), f"w{n}", "300") for n in range(3)]
    coming = processes[:3]
    while any(process.popen.poll() is None for process in coming):
        announced(processes, directory).kill()
    for process in coming:
        assert process.line() == "done"
        assert process.end() == 0
    OwnerLocks(str(directory)).remove_dead_owners(())
    assert not directory.exists()


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "owners").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StorageFailed, match="owner's file"):
        OwnerLocks(str(tmp_path / "owners")).announce("w")
