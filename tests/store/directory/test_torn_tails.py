"""Torn tails are cut off and said; damage anywhere else is reported with its file and line, and never repaired."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import DamagedData, Keep
from holdfast.store.directory.directory_store import DirectoryStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def journal_of(path: Path, run_id: str) -> Path:
    (found,) = path.glob(f"families/*/{run_id}-*.journal")
    return found


def repairs(store: holdfast.Store) -> tuple[str, ...]:
    assert isinstance(store.port, DirectoryStore)
    return store.port.repairs


def states(store: holdfast.Store, run_id: str) -> list[Any]:
    found = [store.load(run_id, checkpoint_id=info.checkpoint_id) for info in store.history(run_id)]
    return [checkpoint.state for checkpoint in found if checkpoint is not None]


def prepared(path: Path) -> tuple[Path, list[int]]:
    """Four commits to a run, and where each line ends; another run beside it."""
    with holdfast.open(f"dir:{path}") as store:
        store.save("other", {"messages": [f"message {i} " * 50 for i in range(30)]})
        store.save("run", {"n": 0})
        journal = journal_of(path, "run")
        ends = [journal.stat().st_size]
        for n in range(1, 4):
            store.save("run", {"n": n})
            ends.append(journal.stat().st_size)
    return journal, ends


def test_a_torn_tail_is_cut_off_at_every_byte_of_the_last_line_and_said(path: Path) -> None:
    journal, ends = prepared(path)
    whole = journal.read_bytes()
    for size in range(ends[2] + 1, ends[3]):
        journal.write_bytes(whole[:size])
        with holdfast.open(f"dir:{path}") as store:
            (said,) = repairs(store)
            assert f"line 4: {size - ends[2]} bytes of an unfinished write were cut off" in said
            assert journal.name in said
            assert journal.read_bytes() == whole[: ends[2]]
    with holdfast.open(f"dir:{path}") as store:
        assert repairs(store) == ()
        assert states(store, "run") == [{"n": 0}, {"n": 1}, {"n": 2}]
        store.save("run", {"n": 4})
        assert states(store, "run")[-1] == {"n": 4}
        assert store.verify().problems == []


def test_a_last_line_with_any_byte_changed_is_a_torn_tail(path: Path) -> None:
    journal, ends = prepared(path)
    whole = journal.read_bytes()
    for at in range(ends[2], ends[3] - 1, 3):
        journal.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with holdfast.open(f"dir:{path}") as store:
            assert len(repairs(store)) == 1
            assert len(list(store.history("run"))) == 3


@pytest.mark.parametrize("tail", [b"\0" * 700, b"garbage", b"garbage\n\n{}\n", b'{"sum":"', b"\n"])
def test_whatever_an_interrupted_write_leaves_is_cut_off(path: Path, tail: bytes) -> None:
    journal, _ = prepared(path)
    whole = journal.read_bytes()
    journal.write_bytes(whole + tail)
    with holdfast.open(f"dir:{path}") as store:
        assert len(repairs(store)) == 1
        assert states(store, "run") == [{"n": n} for n in range(4)]
    assert journal.read_bytes() == whole


def test_a_repair_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal, _ = prepared(path)
    journal.write_bytes(journal.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING, "holdfast"), holdfast.open(f"dir:{path}") as store:
        assert [record.getMessage() for record in caplog.records] == list(repairs(store))


def test_a_tail_torn_by_a_process_that_died_is_repaired_by_those_that_live(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", 1)
        journal = journal_of(path, "run")
        with journal.open("ab") as file:
            file.write(b'{"sum":"0123')
        found = store.load("run")
        assert found is not None
        assert len(repairs(store)) == 1
        store.save("run", 2)
        assert states(store, "run") == [1, 2]


def test_damage_before_the_last_line_names_file_and_line_and_changes_nothing(path: Path) -> None:
    journal, ends = prepared(path)
    whole = journal.read_bytes()
    for line, start in enumerate([0, *ends[:-2]], start=1):
        for at in range(start, ends[line - 1], 37):
            damaged = whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :]
            journal.write_bytes(damaged)
            with holdfast.open(f"dir:{path}") as store:
                with pytest.raises(DamagedData) as caught:
                    store.load("run")
                assert journal.name in caught.value.place
                assert caught.value.place.endswith(f" line {line}")
                assert repairs(store) == ()
            assert journal.read_bytes() == damaged


def test_a_missing_line_is_damage(path: Path) -> None:
    journal, ends = prepared(path)
    whole = journal.read_bytes()
    journal.write_bytes(whole[: ends[0]] + whole[ends[1] :])
    with holdfast.open(f"dir:{path}") as store, pytest.raises(DamagedData, match=r"line 2 is damaged.*its number is 3"):
        store.load("run")


def test_a_damaged_run_is_refused_by_every_verb_and_the_others_go_on(path: Path) -> None:
    journal, ends = prepared(path)
    content = bytearray(journal.read_bytes())
    content[ends[1] + 50] ^= 1
    journal.write_bytes(content)
    with holdfast.open(f"dir:{path}") as store:
        verbs: list[Any] = [
            lambda: store.save("run", 9),
            lambda: store.append("run", [{"kind": "n"}]),
            lambda: store.claim("run", owner="w"),
            lambda: store.load("run"),
            lambda: list(store.history("run")),
            lambda: store.journal("run"),
            lambda: store.effects("run"),
            lambda: store.prune("run", Keep(last=1)),
            lambda: store.fork("run", "new"),
            lambda: store.export_run("run"),
            store.runs,
        ]
        for verb in verbs:
            with pytest.raises(DamagedData, match="run"):
                verb()
        assert any(journal.name in problem.reason and "line 3" in problem.reason for problem in store.verify().problems)
        store.save("other", 2)
        claim = store.claim("other", owner="w", lease=0.001)
        assert claim is not None
        store.fork("other", "fork")
        assert store.recover_expired() in (0, 1)
        assert store.stats().checkpoints == 3
    assert journal.read_bytes() == bytes(content)


def test_the_newest_checkpoint_before_the_damage_stays_loadable(path: Path) -> None:
    journal, ends = prepared(path)
    content = bytearray(journal.read_bytes())
    content[ends[1] + 50] ^= 1
    journal.write_bytes(content)
    with holdfast.open(f"dir:{path}") as store:
        found = store.load("run", damaged="previous")
        assert found is not None
        assert found.state == {"n": 1}


def test_a_damaged_run_can_be_deleted(path: Path) -> None:
    journal, ends = prepared(path)
    content = bytearray(journal.read_bytes())
    content[ends[1] + 50] ^= 1
    journal.write_bytes(content)
    with holdfast.open(f"dir:{path}") as store:
        assert store.delete("run")
        assert store.verify().problems == []
        store.save("run", "anew")
        assert states(store, "run") == ["anew"]


def test_a_damaged_member_keeps_its_family_from_being_swept(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        for n in range(4):
            store.save("run", {"n": n, "messages": [f"message {n} {i} " * 50 for i in range(30)]})
        store.fork("run", "fork")
        store.save("fork", 1)
        store.save("fork", 2)
    journal = journal_of(path, "fork")
    content = bytearray(journal.read_bytes())
    content[20] ^= 1
    journal.write_bytes(content)
    with holdfast.open(f"dir:{path}") as store:
        chunks = store.stats().chunks
        report = store.prune("run", Keep(last=1))
        assert len(report.removed) == 3
        assert report.damage is not None
        assert journal.name in report.damage
        assert store.stats().chunks == chunks


def test_a_damaged_or_missing_chunk_is_found(path: Path) -> None:
    prepared(path)
    (chunk, *_) = sorted(path.glob("families/*/chunks/*"))
    body = chunk.read_bytes()
    chunk.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    with holdfast.open(f"dir:{path}") as store:
        assert store.verify().problems
        with pytest.raises(DamagedData):
            store.load("other")
        chunk.unlink()
        with pytest.raises(DamagedData, match="missing"):
            store.load("other")


def test_a_file_damaged_while_the_store_is_open_is_noticed(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", 1)
        store.save("run", 2)
        journal = journal_of(path, "run")
        content = journal.read_bytes()
        journal.write_bytes(content.replace(b"ready", b"reads", 1))
        with pytest.raises(DamagedData, match="line 1"):
            store.load("run")
        journal.write_bytes(content)
        assert states(store, "run") == [1, 2]


def test_a_broken_counter_stops_only_new_runs(path: Path) -> None:
    prepared(path)
    (path / "last-run.json").write_text("{")
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", 1)
        with pytest.raises(DamagedData, match="last-run"):
            store.save("new", 1)
        (path / "last-run.json").unlink()
        store.save("new", 1)
        row = store.port.run("new")
        assert row is not None
        assert row.run == 3
