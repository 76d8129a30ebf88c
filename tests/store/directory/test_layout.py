"""What is in the directory: files that people can read, private to their owner, whatever the ids are."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import shutil
import stat
import unicodedata
import uuid
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import DamagedData, Keep
from holdfast.errors import StorageFailed, UnsupportedFormat
from holdfast.model.commit import Commit, NewEffect, NewRun
from holdfast.store.directory.directory_store import DirectoryStore
from holdfast.store.directory.paths import family_number, journal_stem, run_stem
from holdfast.store.directory.run_journal import write_line

HOSTILE = [
    "a/b", "a_b", "A/b", "a-b", "..", ".", "...", "../../etc/passwd", "/absolute", "~", "con", "CON", "nul", "aux.txt",
    "trailing.", "trailing", "trailing ", " leading", "back\\slash", "a:b", "a*b", "a?b", '"', "%2e%2e", "x" * 200,
    "x" * 199 + "y", "é" * 256, "é", unicodedata.normalize("NFD", "é"), "ﬁ", "fi", "İ", "i", "\u0131", "ß", "SS",
    "日本語", "😀", "-rf", "lock", "holdfast.json", "tmp", "chunks",
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def journals(path: Path) -> list[Path]:
    return sorted(path.glob("families/*/*.journal"))


def lines(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text("utf-8").splitlines()]


def test_a_person_can_read_what_happened_and_the_newest_checkpoint(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        store.append("order 4711", [{"kind": "note", "text": "looked it up"}])
        saved = store.save("order 4711", {"total": 12}, status="waiting", metadata={"team": "a"}, next_node="ask")
        store.mark_done("order 4711", "mail", result={"to": "ana"})
        store.save("order 4711", {"messages": [f"message {i} " * 50 for i in range(30)]})
    (journal,) = journals(path)
    assert journal.name.startswith("order-4711-")
    assert journal.parent.name == "00000001-order-4711"
    first, second, third, fourth = lines(journal)
    assert first["run"]["run_id"] == "order 4711"
    assert first["entries"][0]["shows"] == {"kind": "note", "text": "looked it up"}
    assert second["checkpoints"][0]["shows"] == {"total": 12}
    assert second["run"]["shows"] == {"team": "a"}
    assert (second["run"]["status"], second["checkpoints"][0]["next_node"]) == ("waiting", "ask")
    assert third["effects"][0]["shows"] == {"to": "ana"}
    assert not {"lane", "named", "next_node", "metadata"} & fourth["checkpoints"][0].keys(), "empty fields are omitted"
    assert [line["n"] for line in lines(journal)] == [1, 2, 3, 4]
    assert "shows" not in fourth["checkpoints"][0]
    newest = json.loads(journal.with_name(journal.name.replace(".journal", ".newest.json")).read_text("utf-8"))
    assert newest["state"]["messages"][29].startswith("message 29")
    assert (newest["run_id"], newest["step"], newest["status"]) == ("order 4711", 2, "waiting")
    assert newest["checkpoint_id"] != saved.checkpoint_id


def test_a_person_can_read_how_an_effect_was_called(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        effect = NewEffect("mail", "done", body=b"\x00\x01", call=b"\x00\x81\xa2to\xa3ana")
        store.port.commit([Commit("run", b"commit01", create=NewRun(), effects=(effect,))])
        store.mark_intent("run", "uncalled")
    first, second = lines(journals(path)[0])
    assert (first["effects"][0]["shows"], first["effects"][0]["shows_call"]) == (1, {"to": "ana"})
    assert "shows_call" not in second["effects"][0]


def test_what_json_cannot_express_is_shown_with_its_type_and_comes_back_as_it_was(path: Path) -> None:
    state = {
        "tuple": (1, [2]), "set": {"b", "a"}, "bytes": b"\xff", "when": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        "day": dt.date(2026, 1, 2), "long": dt.timedelta(days=1), "id": uuid.UUID(int=7),
        "price": decimal.Decimal("1.20"), "huge": 2**80,
    }  # fmt: skip
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", state)
        found = store.load("run")
        assert found is not None
        assert found.state == state
    (newest,) = path.glob("families/*/*.newest.json")
    assert json.loads(newest.read_text("utf-8"))["state"] == {
        "tuple": {"$tuple": [1, [2]]}, "set": {"$set": ["a", "b"]}, "bytes": {"$bytes": "/w=="},
        "when": {"$datetime": "2026-01-02T00:00:00+00:00"}, "day": {"$date": "2026-01-02"},
        "long": {"$timedelta": "1 day, 0:00:00"}, "id": {"$uuid": str(uuid.UUID(int=7))},
        "price": {"$decimal": "1.20"}, "huge": 2**80,
    }  # fmt: skip


def test_nothing_is_read_back_from_what_is_shown(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", {"n": 1})
    for newest in path.glob("families/*/*.newest.json"):
        newest.write_text('{"state": {"n": 2}}')
    with holdfast.open(f"dir:{path}") as store:
        found = store.load("run")
        assert found is not None
        assert found.state == {"n": 1}
        assert store.verify().problems == []


def test_a_diff_of_a_journal_shows_only_the_lines_that_were_added(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", {"n": 0})
        (journal,) = journals(path)
        for n in range(1, 5):
            before = journal.read_bytes()
            store.save("run", {"n": n})
            after = journal.read_bytes()
            assert after.startswith(before)
            assert after[len(before) :].count(b"\n") == 1


def test_a_state_too_large_for_people_is_kept_and_said_not_to_be_shown(path: Path) -> None:
    state = {"noise": os.urandom(1_500_000)}
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", state)
        found = store.load("run")
        assert found is not None
        assert found.state == state
    (newest,) = path.glob("families/*/*.newest.json")
    assert json.loads(newest.read_text("utf-8"))["state"] == "too large to be shown here"


def test_all_ids_coexist_and_none_leaves_the_directory(path: Path, tmp_path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        for n, run_id in enumerate(HOSTILE):
            store.save(run_id, {"n": n})
        for n, run_id in enumerate(HOSTILE):
            store.fork(run_id, f"{run_id[:90]} fork {n}")
    with holdfast.open(f"dir:{path}") as store:
        for n, run_id in enumerate(HOSTILE):
            found = store.load(run_id)
            assert found is not None
            assert found.state == {"n": n}, run_id
            assert found.run_id == run_id
        assert len(store.runs(limit=1000)) == 2 * len(HOSTILE)
        assert store.verify().problems == []
    assert os.listdir(tmp_path) == ["runs"]
    names = [journal.name for journal in journals(path)]
    assert len({unicodedata.normalize("NFKC", name).casefold() for name in names}) == 2 * len(HOSTILE)
    for name in names:
        assert name.isascii()
        assert name == name.lower()
        assert len(name) < 120
        assert name.split(".")[0].strip(". ") not in ("con", "nul", "aux", "prn")
        assert journal_stem(name) is not None


def test_every_family_name_is_read_back(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        for run_id in HOSTILE:
            store.append(run_id, [{"kind": "n"}])
    numbers = [family_number(name) for name in os.listdir(path / "families")]
    assert sorted(number or 0 for number in numbers) == list(range(1, len(HOSTILE) + 1))


def test_the_id_inside_is_compared_with_the_id_asked_for(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        store.save("one", 1)
        store.save("two", 2)
    (one,) = path.glob("families/*/one-*.journal")
    one.rename(one.with_name(run_stem("two") + ".journal"))
    with holdfast.open(f"dir:{path}") as store:
        (problem,) = store.verify().problems
        assert "it contains run 'one' of family 1, which is not the run of this file" in problem.reason
        assert store.load("one") is None
        found = store.load("two")
        assert found is not None
        assert found.state == 2
    (two,) = path.glob("families/*-two/two-*.journal")
    two.unlink()
    with holdfast.open(f"dir:{path}") as store, pytest.raises(DamagedData, match="it contains run 'one'"):
        store.save("two", 3)


def test_a_family_that_was_copied_by_hand_is_reported(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", 1)
        store.save("other", 1)
    (family,) = path.glob("families/*-run")
    twin = family.with_name(f"{family.name}-copy")
    twin.mkdir()
    for journal in family.glob("*.journal"):
        (twin / journal.name).write_bytes(journal.read_bytes())
    with holdfast.open(f"dir:{path}") as store:
        assert any("also in" in problem.reason for problem in store.verify().problems)
        assert store.load("other") is not None


def test_files_and_directories_are_their_owners_alone(path: Path) -> None:
    old = os.umask(0)
    try:
        with holdfast.open(f"dir:{path}") as store:
            store.save("run", {"messages": [f"message {i} " * 50 for i in range(30)]})
            store.prune("run", Keep(last=1))
    finally:
        os.umask(old)
    found = [path, *path.rglob("*")]
    assert len([entry for entry in found if entry.is_file()]) > 5
    for entry in found:
        assert stat.S_IMODE(entry.stat().st_mode) == (0o700 if entry.is_dir() else 0o600), entry


def test_foreign_files_are_left_alone(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", {"messages": [f"message {i} " * 50 for i in range(30)]})
    (family,) = path.glob("families/*")
    foreign = [
        path / ".git", path / "README.md", path / "families" / ".DS_Store", path / "families" / "notes",
        family / "journal.bak", family / "run.journal~", family / "chunks" / "desktop.ini",
    ]  # fmt: skip
    for file in foreign:
        file.write_bytes(b"somebody else's")
    with holdfast.open(f"dir:{path}") as store:
        assert store.verify().problems == []
        store.save("run", 2)
        store.prune("run", Keep(last=1))
        assert [run.run_id for run in store.runs()] == ["run"]
    assert all(file.read_bytes() == b"somebody else's" for file in foreign)


def test_a_directory_of_something_else_is_not_taken(path: Path) -> None:
    path.mkdir()
    (path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(StorageFailed, match="other files"):
        holdfast.open(f"dir:{path}")
    assert os.listdir(path) == ["holiday.jpg"]
    with pytest.raises(StorageFailed, match="create its parent directory"):
        holdfast.open(f"dir:{path / 'missing' / 'runs'}")
    (path / "file").write_bytes(b"")
    with pytest.raises(StorageFailed):
        holdfast.open(f"dir:{path / 'file'}")


def test_an_empty_directory_is_taken_and_a_broken_mark_is_not(path: Path) -> None:
    path.mkdir()
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", 1)
    mark = path / "holdfast.json"
    for content, error in [
        ('{"format": "holdfast directory", "version": 3}', UnsupportedFormat),
        ('{"format": "another", "version": 1}', StorageFailed),
        ("{", DamagedData),
    ]:
        mark.write_text(content)
        with pytest.raises(error):
            holdfast.open(f"dir:{path}")
    mark.unlink()
    with pytest.raises(DamagedData, match=r"holdfast\.json is damaged: it is missing"):
        holdfast.open(f"dir:{path}")


def test_a_journal_of_a_newer_version_is_refused_and_the_others_are_not(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        store.save("new", 1)
        store.save("old", 1)
    (journal,) = path.glob("families/*/new-*.journal")
    first, *rest = lines(journal)
    first.pop("sum")
    first.pop("n")
    journal.write_bytes(write_line(1, {**first, "version": 2}))
    assert rest == []
    with holdfast.open(f"dir:{path}") as store:
        with pytest.raises(UnsupportedFormat, match="version 2"):
            store.load("new")
        with pytest.raises(UnsupportedFormat):
            store.save("new", 2)
        store.save("old", 2)
        assert any("version 2" in problem.reason for problem in store.verify().problems)


def test_numbers_of_runs_are_never_used_again(path: Path) -> None:
    seen = set()
    for _ in range(3):
        with holdfast.open(f"dir:{path}") as store:
            for run_id in ("a", "b"):
                store.save(run_id, 1)
                row = store.port.run(run_id)
                assert row is not None
                seen.add(row.run)
                store.delete(run_id)
            assert store.runs() == []
            assert os.listdir(path / "families") == []
    assert seen == set(range(1, 7))


def test_a_thousand_runs_are_opened_and_listed(path: Path) -> None:
    base = Path("/dev/shm") / f"holdfast-{os.getpid()}" if os.path.isdir("/dev/shm") else path
    try:
        with holdfast.open(f"dir:{base}") as store:
            for n in range(1000):
                store.append(f"run {n}", [{"kind": "n"}])
        with holdfast.open(f"dir:{base}") as store:
            assert len(store.runs(limit=1000)) == 1000
            assert store.port.run("run 500") is not None
    finally:
        shutil.rmtree(base, ignore_errors=True)


def test_state_whose_journal_was_moved_away_is_reported_and_kept(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", {"messages": [f"message {i} " * 50 for i in range(30)]})
        store.save("other", 1)
    (journal,) = path.glob("families/*/run-*.journal")
    away = path.parent / "away"
    journal.rename(away)
    with holdfast.open(f"dir:{path}") as store:
        assert [run.run_id for run in store.runs()] == ["other"]
        assert [problem.reason.split(": ")[1] for problem in store.verify().problems] == ["it has no journal of a run"]
    away.rename(journal)
    with holdfast.open(f"dir:{path}") as store:
        assert store.verify().problems == []
        assert store.load("run") is not None


def test_what_an_interrupted_creation_or_deletion_left_is_removed(path: Path) -> None:
    with holdfast.open(f"dir:{path}") as store:
        store.save("run", {"messages": [f"message {i} " * 50 for i in range(30)]})
    (journal,) = path.glob("families/*/run-*.journal")
    (journal.parent / "passing").touch()
    with holdfast.open(f"dir:{path}") as store:
        assert store.load("run") is not None
    assert not (journal.parent / "passing").exists()
    (journal.parent / "passing").touch()
    (path / "tmp" / "new").write_bytes(b"half")
    journal.unlink()
    with holdfast.open(f"dir:{path}") as store:
        assert store.runs() == []
        assert store.verify().problems == []
    assert os.listdir(path / "families") == os.listdir(path / "tmp") == []


@pytest.mark.parametrize("room", [True, False])
def test_pruned_entries_are_gone_from_the_journal_and_stay_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    if not room:  # to write the file anew
        monkeypatch.setattr(DirectoryStore, "_compact", lambda *_: None)
    with holdfast.open(f"dir:{path}") as store:
        store.append("run", [{"kind": "n", "secret": f"word-{n}"} for n in range(1, 8)])
        assert store.port.prune_entries("run", lambda _run, _checkpoints: [(2, 3)]) == 2
        assert store.port.prune_entries("run", lambda _run, _checkpoints: [(4, 5)]) == 2
        store.append("run", [{"kind": "n", "secret": "word-8"}])
        before = store.journal("run")
    (journal,) = journals(path)
    assert ("word-3" in journal.read_text("utf-8")) != room
    assert "word-6" in journal.read_text("utf-8")
    with holdfast.open(f"dir:{path}") as store:
        assert store.journal("run") == before
        assert [entry.position for entry in before] == [1, 2, 6, 7, 8]
        assert store.verify().problems == []
