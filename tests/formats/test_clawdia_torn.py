"""Torn ends of Clawdia's journals: nothing that is a record, or becomes one, is removed; the rest is, and is kept."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Conflict, Store, formats
from holdfast.files.os_files import SystemFiles
from holdfast.formats import clawdia, json_lines
from holdfast.formats.clawdia.run_directory import segment
from tests.formats import originals
from tests.formats.processes import ended, forked
from tests.formats.sample_files import record
from tests.formats.test_kills import Killing

JOURNAL = Path("runs") / segment("run.a") / "journal.ndjson"
CHANGES = ("write", "truncate", "overwrite")


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_GRACE_S", 0.0)


def theirs(seq: int, name: str = "theirs") -> bytes:
    """A record as Clawdia writes it, without its end."""
    return json.dumps({"journal_schema_version": 1, **record(seq), "record_id": name}, separators=(",", ":")).encode()


HALF = theirs(2)[:300]
REST = theirs(2)[300:] + b"\n"


class Hooked(SystemFiles):
    """Files that call something once, before the first of these calls, which is on `path` if that is given."""

    def __init__(self, calls: tuple[str, ...], act: Callable[[], object], path: Path | None = None) -> None:
        self._paths: dict[int, str] = {}
        self._act: Callable[[], object] | None = act
        self._path = path
        for name in calls:
            setattr(self, name, self._hooked(getattr(self, name)))

    def _hooked(self, call: Callable[..., object]) -> Callable[..., object]:
        def hooked(*args: object) -> object:
            path = self._paths.get(args[0], "") if isinstance(args[0], int) else args[0]
            act = self._act
            if act is not None and (self._path is None or path == str(self._path)):
                self._act = None
                act()
            return call(*args)

        return hooked

    def open_for_append(self, path: str) -> int:
        handle = super().open_for_append(path)
        self._paths[handle] = path
        return handle

    def sync(self, handle: int) -> None:
        pass


def begin(place: Path, tail: bytes) -> Path:
    """A journal with one record and something behind it."""
    clawdia.Directory(place).append({**record(None), "record_id": "first"})
    add(place / JOURNAL, tail)
    return place / JOURNAL


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def ids(path: Path) -> list[str]:
    """The records that Clawdia's own reader finds, in the order of the file."""
    return [found["record_id"] for found in originals.clawdia_records(path)]


def append(place: Path, files: SystemFiles | None = None) -> str:
    runs = clawdia.Directory(place, files=files)
    try:
        return runs.append({**record(None), "record_id": "ours"})
    finally:
        runs.close()


def kept(place: Path) -> list[bytes]:
    return sorted(found.read_bytes() for found in place.glob(".holdfast/torn/*"))


def test_a_record_that_is_half_written_when_it_is_read_is_not_removed(tmp_path: Path) -> None:
    """The system lets a change of ours wait until the write that is under way is done."""
    path = begin(tmp_path, HALF)
    assert append(tmp_path, Hooked(CHANGES, lambda: add(path, REST), path)) == "journal.3"
    assert (ids(path), kept(tmp_path)) == (["first", "theirs", "ours"], [])


def test_a_write_whose_parts_are_shown_apart_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = begin(tmp_path, HALF)
    monkeypatch.setattr(json_lines, "_GRACE_S", 3600.0)
    monkeypatch.setattr(time, "sleep", lambda _s: add(path, REST))
    assert append(tmp_path) == "journal.3"
    assert (ids(path), kept(tmp_path)) == (["first", "theirs", "ours"], [])


@pytest.mark.parametrize("seconds", [0, 7200], ids=["the clock is right", "the file's date is in the future"])
def test_an_end_that_stays_torn_is_removed_after_one_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    path, waits = begin(tmp_path, HALF), list[float]()
    date = path.stat().st_mtime + seconds
    os.utime(path, (date, date))
    monkeypatch.setattr(json_lines, "_GRACE_S", 3600.0)
    monkeypatch.setattr(time, "sleep", waits.append)
    assert append(tmp_path) == "journal.2"
    assert (ids(path), kept(tmp_path), len(waits)) == (["first", "ours"], [HALF], 1)
    assert waits[0] <= 3600.0


def test_what_is_appended_while_a_torn_end_is_put_aside_stays(tmp_path: Path) -> None:
    """A second Clawdia, which has read the journal before the first one died in a write."""
    path = begin(tmp_path, HALF)
    files = Hooked(("rename",), lambda: add(path, b"\n" + theirs(2, "second") + b"\n" + theirs(3, "third") + b"\n"))
    assert append(tmp_path, files) == "journal.4"
    assert (ids(path), kept(tmp_path)) == (["first", "second", "third", "ours"], [HALF])


def test_a_record_that_continues_the_line_of_a_torn_one_stays(tmp_path: Path) -> None:
    path = begin(tmp_path, HALF)
    assert append(tmp_path, Hooked(CHANGES, lambda: add(path, theirs(2, "second") + b"\n"), path)) == "journal.3"
    assert (ids(path), kept(tmp_path)) == (["first", "second", "ours"], [HALF])


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_two_records_on_one_line_are_two_records(tmp_path: Path, end: bytes) -> None:
    """Two Clawdias write their lines, and then the ends of both."""
    begin(tmp_path, theirs(2, "second") + theirs(2, "third") + end)
    runs = clawdia.Directory(tmp_path)
    assert (len(runs.records("run.a")), runs.problems("run.a")) == (3, [])
    assert append(tmp_path) == "journal.3"
    assert {found["record_id"] for found in runs.records("run.a")} == {"first", "second", "third", "ours"}
    assert kept(tmp_path) == []


def test_a_torn_record_on_the_line_of_a_whole_one_is_removed_alone(tmp_path: Path) -> None:
    path = begin(tmp_path, theirs(2) + HALF)
    assert append(tmp_path) == "journal.3"
    assert (ids(path), kept(tmp_path)) == (["first", "theirs", "ours"], [HALF])


class DyingInAWrite(SystemFiles):
    """Files of a process that is killed when a part of a record is written."""

    def write(self, handle: int, data: bytes | bytearray) -> None:
        if b"journal_seq" in data:
            super().write(handle, data[:300])
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(handle, data)


def test_the_torn_end_of_a_killed_process_of_ours_is_mended_so_that_clawdia_goes_on(tmp_path: Path) -> None:
    path = begin(tmp_path, b"")
    assert ended(forked(lambda: append(tmp_path, DyingInAWrite()))) == -signal.SIGKILL
    with pytest.raises(json.JSONDecodeError):
        ids(path)
    runs = clawdia.Directory(tmp_path)
    assert [runs.mend("run.a"), runs.mend("run.a"), runs.mend("another")] == [True, False, False]
    assert ids(path) == ["first"]
    assert len(kept(tmp_path)) == 1


def test_a_process_killed_at_any_step_of_mending_leaves_what_can_be_mended(tmp_path: Path) -> None:
    for at in range(1, 100):
        place = tmp_path / str(at)
        path = begin(place, HALF)
        status = ended(forked(lambda at=at, place=place: append(place, Killing(at))))  # type: ignore[misc]
        assert append(place) == "journal.2"
        assert ids(path) == ["first", "ours"]
        assert [found.removesuffix(b"\n") for found in kept(place)].count(HALF)
        if status == 0:
            break
    assert at > 5, "it was killed at some steps"


# --- exported over a journal that has gone on ------------------------------------------------------------------------


def imported(place: Path, store: Store, *seqs: int) -> Path:
    runs = clawdia.Directory(place)
    for seq in seqs:
        runs.append(record(seq))
    formats.import_dir("clawdia", place, store)
    return place / JOURNAL


def test_an_export_that_replaces_keeps_what_clawdia_has_appended_since(tmp_path: Path, store: Store) -> None:
    path = imported(tmp_path, store, 1, 2)
    add(path, theirs(3) + b"\n")
    with pytest.raises(Conflict):
        formats.export_run("clawdia", store, "run.a", tmp_path)
    assert formats.export_run("clawdia", store, "run.a", tmp_path, replace=True) == [path]
    assert ids(path) == ["record.1", "record.2", "theirs"]


def test_an_export_that_replaces_appends_what_a_journal_lacks(tmp_path: Path, store: Store) -> None:
    path = imported(tmp_path, store, 1, 2, 4)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b'{"journal_schema_version"', 10)] + HALF)
    formats.export_run("clawdia", store, "run.a", tmp_path, replace=True)
    assert (ids(path), kept(tmp_path)) == (["record.1", "record.2", "record.4"], [HALF])


@pytest.mark.parametrize("seqs", [(1, 3), (1, 2, 3)], ids=["it lacks one in the middle", "it has another record"])
def test_an_export_that_replaces_refuses_a_journal_that_says_something_else(
    tmp_path: Path, store: Store, seqs: tuple[int, ...]
) -> None:
    path = imported(tmp_path, store, 1, 2)
    path.write_bytes(b"".join(theirs(seq, f"there.{seq}" if seq == 2 else f"record.{seq}") + b"\n" for seq in seqs))
    before = path.read_bytes()
    with pytest.raises(Conflict, match=r"record 'record\.\d'"):
        formats.export_run("clawdia", store, "run.a", tmp_path, replace=True)
    assert path.read_bytes() == before
