"""Runs move between a directory and the other stores and stay equal; a full disk, as `holdfast.open` meets it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Keep, Store
from holdfast.errors import StorageFull
from holdfast.files import durable as rooms
from holdfast.model.commit import Commit, NewEffect
from holdfast.model.rows import AttachmentRow, CheckpointRow, EffectRow, EntryRow
from holdfast.store.directory.directory_store import DirectoryStore


def prepared(store: Store) -> None:
    store.append("run", [{"kind": "note", "text": "x"}, {"kind": "tool", "set": {1, 2}, "t": (1, "é")}])
    store.save("run", {"n": 1}, workflow="w", metadata={"team": "a"}, next_node="tool")
    store.save("run", {"messages": [f"message {i} " * 60 for i in range(60)]}, checkpoint_id="named", status="waiting")
    store.save("run", [b"\0\xff", None, 2**70], lane="side")
    store.mark_intent("run", "begun", tool="mail")
    called = NewEffect("called", "done", "mail", body=b"\x00\x01", call=b"\x00\xa3ana")
    store.port.commit([Commit("run", b"commit01", effects=(called,))])
    store.mark_done("run", "key", tool="t", target="x", result=[1])
    store.attach("run", "named", "k", {"v": "y" * 5000})


def everything(store: Store, run_id: str) -> Any:
    """All that moves with a run, as bytes where there are any."""
    port = store.port
    row = port.run(run_id)
    assert row is not None
    roots, _ = port.roots(row.family)
    sizes = port.chunk_sizes(row.family)
    return (
        (row.workflow, row.status, row.metadata, row.position, row.serial, row.head_id, row.step),
        [(c.number, c.lane, c.checkpoint_id, c.parent_id, c.step, c.next_node, c.covers, c.status, c.metadata, c.root)
         for c in port.rows(CheckpointRow, row.run)],
        [(e.position, e.kind, e.created_us, e.body) for e in port.rows(EntryRow, row.run)],
        [(e.key, e.state, e.tool, e.target, e.reversible, e.body, e.call) for e in port.rows(EffectRow, row.run)],
        [(a.lane, a.checkpoint_id, a.key, a.root) for a in port.rows(AttachmentRow, row.run)],
        sorted(roots), port.chunks(row.family, sorted(sizes)),
    )  # fmt: skip


URLS = ["memory:", "sqlite:{}/runs.db", "dir:{}/runs"]


@pytest.mark.parametrize("other", URLS)
def test_a_run_is_equal_after_it_moved_to_a_directory_and_back(tmp_path: Path, other: str) -> None:
    (tmp_path / "other").mkdir()
    with holdfast.open(other.format(tmp_path / "other")) as source, holdfast.open(f"dir:{tmp_path / 'here'}") as here:
        prepared(source)
        here.import_run(source.export_run("run"))
        assert everything(here, "run") == everything(source, "run")
        source.import_run(here.export_run("run"), run_id="back")
        assert everything(source, "back") == everything(source, "run")
        here.copy("run", "copy")
        assert everything(here, "copy") == everything(here, "run")
        assert here.verify().problems == []


def test_the_same_bytes_come_back_as_from_the_other_stores(tmp_path: Path) -> None:
    states = []
    for url in URLS:
        with holdfast.open(url.format(tmp_path)) as store:
            prepared(store)
            row = store.port.run("run")
            assert row is not None
            sizes = store.port.chunk_sizes(row.family)
            bodies = store.port.chunks(row.family, list(sizes))
            states.append((sizes, bodies, [c.root for c in store.port.rows(CheckpointRow, row.run)]))
            assert store.port.chunks(row.family, [b"n" * 16]) == {}
    assert states[0] == states[1] == states[2]


def test_a_nearly_full_disk_refuses_saves_and_lets_prune_work(tmp_path: Path) -> None:
    url = f"dir:{tmp_path / 'runs'}"
    with holdfast.open(url) as store:
        for i in range(5):
            store.save("run", {"n": i, "text": ["x" * 3000] * 5})
        store.save("held", 1)
    with holdfast.open(url, reserve_bytes=2**60) as store:
        writes: list[Any] = [
            lambda: store.save("run", 1),
            lambda: store.append("run", [{"kind": "a"}]),
            lambda: store.mark_done("run", "k"),
            lambda: store.attach("run", "c", "k", 1),
        ]
        for write in writes:
            with pytest.raises(StorageFull, match="reserve"):
                write()
        assert store.load("run") is not None
        claim = store.claim("held", owner="w")
        assert claim is not None
        claim.release()
        assert len(store.prune("run", Keep(last=1)).removed) == 4
        assert store.delete("run")


def test_what_prune_frees_can_be_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs"

    def used() -> int:
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())

    with holdfast.open(f"dir:{path}", reserve_bytes=400_000) as store:
        for i in range(20):
            store.save("run", {"n": i, "bytes": os.urandom(30_000)})
        full = used() + 390_000
        monkeypatch.setattr(rooms, "free_bytes", lambda path: full - used())
        with pytest.raises(StorageFull):
            store.save("run", {"n": 20, "bytes": os.urandom(30_000)})
        before = used()
        report = store.prune("run", Keep(last=1))
        assert used() < before - 500_000
        assert report.bytes_freed > 500_000
        store.save("run", {"n": 21, "bytes": os.urandom(30_000)})


def test_prune_shortens_the_journal(tmp_path: Path) -> None:
    with holdfast.open(f"dir:{tmp_path / 'runs'}") as store:
        for i in range(50):
            store.save("run", {"n": i, "text": "x" * 500})
        (journal,) = (tmp_path / "runs").glob("families/*/*.journal")
        before = journal.stat().st_size
        store.prune("run", Keep(last=1))
        assert journal.stat().st_size < before / 10
        assert store.stats().file_bytes < before
    with holdfast.open(f"dir:{tmp_path / 'runs'}") as store:
        found = store.load("run")
        assert found is not None
        assert found.state["n"] == 49
        assert store.verify().problems == []


@pytest.mark.parametrize("room", [True, False])
def test_a_head_that_goes_back_is_one_line_and_what_people_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    if not room:  # to write the file anew
        monkeypatch.setattr(DirectoryStore, "_compact", lambda *_: None)
    with holdfast.open(f"dir:{tmp_path / 'runs'}") as store:
        for n in range(1, 4):
            store.save("run", n)
            store.save("run", n, lane="side")
        (journal,) = (tmp_path / "runs").glob("families/*/*.journal")
        lines = journal.read_text("utf-8").splitlines()
        store.port.prune("run", lambda _rows, _effects: [2, 4, 5, 6])
        if not room:
            *before, line = journal.read_text("utf-8").splitlines()
            assert before == lines
            content = json.loads(line)
            assert (content["run"]["head"], content["pruned"]) == (3, [2, 4, 5, 6])
            assert content["lanes"] == [{"lane": "side"}]  # without a head
        (shown,) = (tmp_path / "runs").glob("families/*/*.newest.json")
        assert json.loads(shown.read_text("utf-8"))["state"] == 2
    with holdfast.open(f"dir:{tmp_path / 'runs'}") as store:
        found = store.load("run")
        assert found is not None
        assert (found.state, store.load("run", lane="side")) == (2, None)
        assert (store.save("run", "side", lane="side").step, store.save("run", 4).number) == (1, 8)
        store.port.prune("run", lambda rows, _effects: [row.number for row in rows if not row.lane])
        assert not list((tmp_path / "runs").glob("families/*/*.newest.json"))
        assert store.verify().problems == []
    with holdfast.open(f"dir:{tmp_path / 'runs'}") as store:
        assert (store.load("run"), store.save("run", 5).step) == (None, 1)
        assert store.verify().problems == []


@pytest.mark.parametrize("url", ["dir:", "dir://host/runs", "dir", "directory:runs"])
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(holdfast.InvalidInput, match=r"write .*dir:(PATH|host/runs|runs)"):
        holdfast.open(url)
