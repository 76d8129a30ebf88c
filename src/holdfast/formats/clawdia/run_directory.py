"""Clawdia's store of checkpoints and journals as files.

Files are replaced atomically and synced, and one process of this library writes at a time. A run's directory is named
by a segment of its id; directories named by the bare id, of another release of the original, are found as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final

from holdfast.errors import DamagedFile, NameTaken, StorageError
from holdfast.files.os_files import Files
from holdfast.formats.clawdia.operations import JournalEnd, Operations
from holdfast.formats.clawdia.run_records import Record, RunCheckpoint
from holdfast.formats.folder import Folder, log
from holdfast.formats.json_lines import LineFile
from holdfast.formats.schema import JsonObject, read_object, write_json
from holdfast.ids import check_id
from holdfast.model.views import Problem

RUNS: Final = "runs"
CHECKPOINTS: Final = "checkpoints"
Placed = tuple[tuple[str, ...], JsonObject]
"""A checkpoint and the parts of its file's name."""


class Directory(Operations):
    """Clawdia's file store: the checkpoints and journals below `root`, with its operations.

    Example:
        runs = clawdia.Directory("agent-store")
        runs.append(record)
        runs.save(checkpoint)
    """

    def __init__(self, root: str | os.PathLike[str], *, timeout_s: float = 20.0, files: Files | None = None) -> None:
        self._folder = Folder(root, timeout_s=timeout_s, files=files)
        self._known_journals: dict[str, list[Journal]] = {}
        self._bare: set[str] = set()
        """Directories named by a bare run id that belong to that run."""

    def close(self) -> None:
        """Close the lock file. Closing twice is allowed."""
        self._folder.close()

    def runs(self) -> list[str]:
        """Return the ids of the runs of which a file can be read.

        Example:
            runs.runs()
        """
        return sorted({run_id for home in self._all_homes() for run_id in self._inspect(home)[0]})

    def unreadable(self) -> list[str]:
        """Return the directories of runs in which no file can be read as one of the run in its name.

        Example:
            runs.unreadable()
        """
        return [problem.place for problem in self.unreadable_homes()]

    def unreadable_homes(self) -> list[Problem]:
        """Return the same directories, each with the reason.

        Example:
            runs.unreadable_homes()
        """
        found = [(home, self._inspect(home)[1]) for home in self._all_homes()]
        return [Problem(place=self._folder.at(RUNS, home), reason=reason) for home, reason in found if reason]

    def place(self, run_id: str) -> str:
        """Return the path of the run's directory.

        Example:
            runs.place("run.a")
        """
        return self._folder.at(RUNS, self.home(run_id))

    def home(self, run_id: str) -> str:
        """Return the name of the run's directory below `runs`.

        Example:
            runs.home("run.a")
        """
        check_id("run_id", run_id)
        return self._homes(run_id)[0]

    def problems(self, run_id: str) -> list[Problem]:
        """Return the files and records of the run that cannot be read. They are left unchanged.

        Example:
            runs.problems("run.a")
        """
        check_id("run_id", run_id)
        problems: list[Problem] = []
        self._files_of(run_id, problems)
        return problems + self._records(run_id)[1]

    def mend(self, run_id: str) -> bool:
        """Remove the torn end that a dead writer left in the run's journal. Return whether there was one.

        Clawdia can neither read nor append to a journal with such an end. `append` removes it as well. The bytes are
        saved in `.holdfast/torn`.

        Example:
            runs.mend("run.a")
        """
        check_id("run_id", run_id)
        with self._exclusive():
            return sum(journal.mend() for journal in self._journals(run_id)) > 0

    # --- storage -----------------------------------------------------------------------------------------------------

    def _exclusive(self) -> AbstractContextManager[None]:
        return self._folder.hold()

    def _checkpoints(self, run_id: str) -> list[JsonObject]:
        problems: list[Problem] = []
        found = self._files_of(run_id, problems)
        for problem in problems:
            log.warning("skipping %s: %s", problem.place, problem.reason)
        newest: dict[str, JsonObject] = {}
        for _, checkpoint in found:  # the original leaves an older file when it saves an id again
            before = newest.get(checkpoint["checkpoint_id"])
            if before is None or checkpoint["created_at_millis"] >= before["created_at_millis"]:
                newest[checkpoint["checkpoint_id"]] = checkpoint
        return list(newest.values())

    def _put(self, checkpoint: JsonObject) -> None:
        run_id = checkpoint["run_id"]
        home = self._homes(run_id)[0]
        name = checkpoint_name(
            checkpoint["covers_journal_seq"], checkpoint["checkpoint_id"], bare=home == bare_segment(run_id)
        )
        path = (RUNS, home, CHECKPOINTS, name)
        files = self._files_named(run_id, checkpoint["checkpoint_id"], name)
        mine = (run_id, checkpoint["checkpoint_id"])
        for place, found in files:
            if place == path and (found["run_id"], found["checkpoint_id"]) != mine:
                raise NameTaken(self._folder.at(*path), " of ".join(mine[::-1]), found["checkpoint_id"])
        self._folder.put(write_json(checkpoint), *path)
        for place, found in files:
            if place != path and (found["run_id"], found["checkpoint_id"]) == mine:
                self._folder.remove(*place)

    def _remove(self, run_id: str, unwanted: dict[str, JsonObject]) -> None:
        for place, found in self._files_of(run_id, []):
            known = unwanted.get(found["checkpoint_id"])
            if known is not None and found["created_at_millis"] <= known["created_at_millis"]:
                self._folder.remove(*place)

    def _records(self, run_id: str) -> tuple[list[JsonObject], list[Problem]]:
        found: dict[str, JsonObject] = {}
        problems: list[Problem] = []
        for journal in self._journals(run_id):
            records, broken = journal.read()
            found = {record["record_id"]: record for record in records} | found
            problems += broken
        return sorted(found.values(), key=lambda record: int(record["journal_seq"])), problems

    def _journal_end(self, run_id: str) -> JournalEnd:
        ends = [journal.end() for journal in self._journals(run_id)]
        if len(ends) == 1:
            return ends[0]
        seqs = {name: seq for end in ends for name, seq in end.seqs.items()}
        return JournalEnd(last_seq=max(end.last_seq for end in ends), seqs=seqs, seen=ends[0].seen)

    def _append(self, record: JsonObject, end: JournalEnd) -> bool:
        return self._journals(record["run_id"])[0].append(record, end)

    def _sync(self, run_id: str) -> None:
        for journal in self._journals(run_id):
            journal.sync()

    # --- locations ---------------------------------------------------------------------------------------------------

    def _journals(self, run_id: str) -> list[Journal]:
        """Return the run's journals: the one to append to, and one of another release, if there is one."""
        homes = self._homes(run_id)
        known = self._known_journals.get(run_id)
        if known is None or [journal.home for journal in known] != homes:
            known = self._known_journals[run_id] = [Journal(self._folder, run_id, home) for home in homes]
        return known

    def _homes(self, run_id: str) -> list[str]:
        """Return the names of the run's directories, the one to write to first: an existing one, if there is one."""
        bare = bare_segment(run_id)
        if bare is None or self._folder.identity(RUNS, bare) is None:
            return [segment(run_id)]
        if self._folder.identity(RUNS, segment(run_id)) is not None:
            return [segment(run_id), bare]
        if bare not in self._bare and run_id in self._ids_in(bare):
            self._bare.add(bare)
        return [bare] if bare in self._bare else [segment(run_id), bare]

    def _files_of(self, run_id: str, problems: list[Problem]) -> list[Placed]:
        """Return the run's checkpoints with their places. Unusable files are added to `problems`."""
        found: list[Placed] = []
        for home in self._homes(run_id):
            for place, checkpoint in self._all_in(home, problems):
                if checkpoint["run_id"] == run_id:
                    found.append((place, checkpoint))
                else:
                    reason = f"it belongs to run {checkpoint['run_id']!r}"
                    problems.append(Problem(place=self._folder.at(*place), reason=reason))
        return found

    def _files_named(self, run_id: str, checkpoint_id: str, name: str) -> list[Placed]:
        """Return the files of checkpoints that may have this id, whatever they cover, and the file of this name."""
        endings = tuple(f"-{part}.json" for part in (segment(checkpoint_id), bare_segment(checkpoint_id)) if part)
        places = [
            (RUNS, home, CHECKPOINTS, found)
            for home in self._homes(run_id)
            for found in self._folder.names(RUNS, home, CHECKPOINTS)
            if found.endswith(endings) or found == name
        ]
        return self._read_all(places, [])

    def _all_in(self, home: str, problems: list[Problem]) -> list[Placed]:
        names = [name for name in self._folder.names(RUNS, home, CHECKPOINTS) if name.endswith(".json")]
        return self._read_all([(RUNS, home, CHECKPOINTS, name) for name in names], problems)

    def _read_all(self, places: Iterable[tuple[str, ...]], problems: list[Problem]) -> list[Placed]:
        found: list[Placed] = []
        for place in places:
            try:
                data = self._folder.read(*place)
                if data is not None:
                    found.append((place, read_object(data, RunCheckpoint, self._folder.at(*place))))
            except DamagedFile as damage:
                problems.append(Problem(place=damage.place, reason=damage.reason))
        return found

    def _all_homes(self) -> list[str]:
        return [name for name in self._folder.names(RUNS) if self._folder.is_directory(RUNS, name)]

    def _inspect(self, home: str) -> tuple[set[str], str]:
        """Return the run of a directory; if it has files and its run is unknown, the reason."""
        try:
            found = self._ids_in(home)
            if found or not self._has_files(home):
                return found, ""
        except StorageError as error:  # an unreadable directory hides no other
            log.warning("skipping %s: %s", self._folder.at(RUNS, home), error)
            return set(), str(error)
        return set(), f"no file in {self._folder.at(RUNS, home)} can be read as one of the run in its name"

    def _has_files(self, home: str) -> bool:
        checkpoints = self._folder.names(RUNS, home, CHECKPOINTS)
        return self._folder.identity(RUNS, home, JOURNAL) is not None or any(n.endswith(".json") for n in checkpoints)

    def _ids_in(self, home: str) -> set[str]:
        """Return the run whose directory this is. Files of other runs that were copied there are ignored."""
        found = {checkpoint["run_id"] for _, checkpoint in self._all_in(home, [])}
        with contextlib.suppress(DamagedFile):  # it is not a file
            found |= Journal(self._folder, "", home).run_ids()
        return {run_id for run_id in found if home in (segment(run_id), bare_segment(run_id))}


JOURNAL: Final = "journal.ndjson"
_START: Final = b'{"journal_schema_version":'
"""The first bytes of every record of Clawdia."""


class Journal:
    """One run's journal. Its end is cached, and the cache is valid only while the file is unchanged."""

    def __init__(self, folder: Folder, run_id: str, home: str) -> None:
        self.home = home
        self._run_id = run_id
        self._file = LineFile(folder, (RUNS, home, JOURNAL), Record, home, foreign_start=_START)
        self._end: JournalEnd | None = None

    def run_ids(self) -> set[str]:
        """Return the runs of its records: one, unless files were copied between directories."""
        return {record["run_id"] for record in self._file.read().values}

    def read(self) -> tuple[list[JsonObject], list[Problem]]:
        """Return the run's records in order, and its broken records."""
        lines = self._file.read()
        records = [record for record in lines.values if record["run_id"] == self._run_id]
        records.sort(key=lambda record: int(record["journal_seq"]))
        return records, [Problem(place=damage.place, reason=damage.reason) for damage in lines.problems]

    def end(self) -> JournalEnd:
        """Return its end. Raises DamagedFile if it has a broken record, whose number is unknown."""
        known = self._end
        if known is not None and known.seen is not None and self._file.is_unchanged(known.seen):
            return known
        lines, seen = self._file.read_unchanged()
        if lines.problems:
            raise DamagedFile(lines.problems[0].place, lines.problems[0].reason)
        own = [record for record in lines.values if record["run_id"] == self._run_id]
        numbers = {record["record_id"]: record["journal_seq"] for record in own}
        return JournalEnd(last_seq=max(numbers.values(), default=0), seqs=numbers, seen=seen)

    def sync(self) -> None:
        """Make its records durable."""
        self._file.sync()

    @property
    def appended_end(self) -> JournalEnd | None:
        """Its end after an append, if no other program appended at the same time."""
        return self._end if self._end is not None and self._end.seen is not None else None

    def mend(self) -> bool:
        """Remove a torn end, and save it elsewhere. Return whether there was one."""
        return self._file.remove_torn_end()

    def append(self, record: JsonObject, end: JournalEnd) -> bool:
        """Append a record durably. Return False, and append nothing, if the journal has changed since `end`."""
        self._end = None
        if not self._file.append(record, end.seen):
            return False
        end.seqs[record["record_id"]] = record["journal_seq"]
        self._end = JournalEnd(last_seq=record["journal_seq"], seqs=end.seqs, seen=self._file.left)
        return True


_VISIBLE_MAX: Final = 80
_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]", re.ASCII)
_BARE_MAX: Final = 200


def segment(value: str) -> str:
    """Return the id as a part of a path, with a hash."""
    visible = _OTHER.sub("_", value[:_VISIBLE_MAX]) or "id"
    return f"{visible}-{hashlib.sha256(value.encode()).hexdigest()[:12]}"


def bare_segment(value: str) -> str | None:
    """Return the id if it can be a file name unchanged, else None."""
    plain = not _OTHER.search(value) and value.strip(".") and len(value) <= _BARE_MAX
    return value if plain else None


def checkpoint_name(covers: int, checkpoint_id: str, *, bare: bool) -> str:
    """Return the name of a checkpoint's file."""
    name = (bare_segment(checkpoint_id) if bare else None) or segment(checkpoint_id)
    return f"{covers:020}-{name}.json"
