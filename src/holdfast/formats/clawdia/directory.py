"""Clawdia's store of checkpoints and journals as files: whole, synced, and with one writer at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Final

from holdfast.errors import DamagedFile, NameTaken, StorageError
from holdfast.formats.clawdia.journal import JOURNAL, Journal
from holdfast.formats.clawdia.places import bare_segment, checkpoint_name, segment
from holdfast.formats.clawdia.shape import RunCheckpoint
from holdfast.formats.clawdia.verbs import JournalEnd, Verbs
from holdfast.formats.folder import Folder, log
from holdfast.formats.lossless import write_json
from holdfast.formats.shapes import read_checked
from holdfast.ids import check_id
from holdfast.model.views import Problem
from holdfast.store.directory.files import Files

RUNS: Final = "runs"
CHECKPOINTS: Final = "checkpoints"

Placed = tuple[tuple[str, ...], dict[str, Any]]
"""A checkpoint and the parts of its file's name."""


class Directory(Verbs):
    """Clawdia's file store: the checkpoints and journals below `root`, with its verbs.

    Example:
        runs = clawdia.Directory("agent-store")
        runs.append(record)
        runs.save(checkpoint)
    """

    def __init__(self, root: str | os.PathLike[str], *, timeout_s: float = 20.0, files: Files | None = None) -> None:
        self._folder = Folder(root, timeout_s=timeout_s, files=files)
        self._known_journals: dict[str, list[Journal]] = {}
        self._bare: set[str] = set()
        """Directories named by a run's id alone that are known to be that run's."""

    def close(self) -> None:
        """Give back the lock's file. Closing twice is no mistake."""
        self._folder.close()

    def runs(self) -> list[str]:
        """The ids of the runs that are here, as far as any of their files can be read.

        Example:
            runs.runs()
        """
        return sorted({run_id for home in self._all_homes() for run_id in self._look(home)[0]})

    def unreadable(self) -> list[str]:
        """Directories of runs in which no file can be read, or none is of the run that its name says.

        Example:
            runs.unreadable()
        """
        return [problem.place for problem in self.unreadable_homes()]

    def unreadable_homes(self) -> list[Problem]:
        """The same directories, each with the reason.

        Example:
            runs.unreadable_homes()
        """
        looks = [(home, self._look(home)) for home in self._all_homes()]
        return [Problem(place=self._folder.at(RUNS, home), reason=why) for home, (_, why) in looks if why]

    def place(self, run_id: str) -> str:
        """The path of the run's directory.

        Example:
            runs.place("run.a")
        """
        return self._folder.at(RUNS, self.home(run_id))

    def home(self, run_id: str) -> str:
        """The name of the run's directory below `runs`.

        Example:
            runs.home("run.a")
        """
        check_id("run_id", run_id)
        return self._homes(run_id)[0]

    def problems(self, run_id: str) -> list[Problem]:
        """What of the run cannot be read. It is left as it is, and hides nothing else.

        Example:
            runs.problems("run.a")
        """
        check_id("run_id", run_id)
        problems: list[Problem] = []
        self._files_of(run_id, problems)
        return problems + self._records(run_id)[1]

    def mend(self, run_id: str) -> bool:
        """Remove the torn end that a writer which died has left in the run's journal. Whether there was one.

        Clawdia can neither read nor append to a journal with such an end. `append` does this as well. The bytes are
        kept in `.holdfast/torn`.

        Example:
            runs.mend("run.a")
        """
        check_id("run_id", run_id)
        with self._held():
            return sum(journal.mend() for journal in self._journals(run_id)) > 0

    # --- how the data is kept ----------------------------------------------------------------------------------------

    def _held(self) -> AbstractContextManager[None]:
        return self._folder.held()

    def _checkpoints(self, run_id: str) -> list[dict[str, Any]]:
        problems: list[Problem] = []
        found = self._files_of(run_id, problems)
        for problem in problems:
            log.warning("%s was passed over: %s", problem.place, problem.reason)
        newest: dict[str, dict[str, Any]] = {}
        for _, checkpoint in found:  # the original leaves an older one behind when it saves an id again
            before = newest.get(checkpoint["checkpoint_id"])
            if before is None or checkpoint["created_at_millis"] >= before["created_at_millis"]:
                newest[checkpoint["checkpoint_id"]] = checkpoint
        return list(newest.values())

    def _put(self, checkpoint: dict[str, Any]) -> None:
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

    def _remove(self, run_id: str, gone: dict[str, dict[str, Any]]) -> None:
        for place, found in self._files_of(run_id, []):
            known = gone.get(found["checkpoint_id"])
            if known is not None and found["created_at_millis"] <= known["created_at_millis"]:
                self._folder.remove(*place)

    def _records(self, run_id: str) -> tuple[list[dict[str, Any]], list[Problem]]:
        found: dict[str, dict[str, Any]] = {}
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

    def _append(self, record: dict[str, Any], end: JournalEnd) -> bool:
        return self._journals(record["run_id"])[0].append(record, end)

    def _settle(self, run_id: str) -> None:
        for journal in self._journals(run_id):
            journal.settle()

    # --- where it lies -----------------------------------------------------------------------------------------------

    def _journals(self, run_id: str) -> list[Journal]:
        """The run's journals: the one that is appended to, and one that another release left, if there is one."""
        homes = self._homes(run_id)
        known = self._known_journals.get(run_id)
        if known is None or [journal.home for journal in known] != homes:
            known = self._known_journals[run_id] = [Journal(self._folder, run_id, home) for home in homes]
        return known

    def _homes(self, run_id: str) -> list[str]:
        """The names of the run's directories: first the one it writes to, which is the one it has, if it has one."""
        bare = bare_segment(run_id)
        if bare is None or self._folder.identity(RUNS, bare) is None:
            return [segment(run_id)]
        if self._folder.identity(RUNS, segment(run_id)) is not None:
            return [segment(run_id), bare]
        if bare not in self._bare and run_id in self._ids_in(bare):
            self._bare.add(bare)
        return [bare] if bare in self._bare else [segment(run_id), bare]

    def _files_of(self, run_id: str, problems: list[Problem]) -> list[Placed]:
        """The run's checkpoints with their places. What cannot be used is added to `problems`."""
        found: list[Placed] = []
        for home in self._homes(run_id):
            for place, checkpoint in self._all_in(home, problems):
                if checkpoint["run_id"] == run_id:
                    found.append((place, checkpoint))
                else:
                    reason = f"it is of run {checkpoint['run_id']!r}"
                    problems.append(Problem(place=self._folder.at(*place), reason=reason))
        return found

    def _files_named(self, run_id: str, checkpoint_id: str, name: str) -> list[Placed]:
        """The files that a checkpoint of this id may have, whatever it covers, and the one that has this name."""
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
                    found.append((place, read_checked(data, RunCheckpoint, self._folder.at(*place))))
            except DamagedFile as damage:
                problems.append(Problem(place=damage.place, reason=damage.reason))
        return found

    def _all_homes(self) -> list[str]:
        return [name for name in self._folder.names(RUNS) if self._folder.is_directory(RUNS, name)]

    def _look(self, home: str) -> tuple[set[str], str]:
        """The run whose directory it is, and if that cannot be told of one that has files, why not."""
        try:
            found = self._ids_in(home)
            if found or not self._has_files(home):
                return found, ""
        except StorageError as error:  # one that may not be read hides no other
            log.warning("%s was passed over: %s", self._folder.at(RUNS, home), error)
            return set(), str(error)
        return set(), f"no file in {self._folder.at(RUNS, home)} can be read as one of the run that its name says"

    def _has_files(self, home: str) -> bool:
        checkpoints = self._folder.names(RUNS, home, CHECKPOINTS)
        return self._folder.identity(RUNS, home, JOURNAL) is not None or any(n.endswith(".json") for n in checkpoints)

    def _ids_in(self, home: str) -> set[str]:
        """The run whose directory this is: files of others that were put there are not theirs to be found by."""
        found = {checkpoint["run_id"] for _, checkpoint in self._all_in(home, [])}
        with contextlib.suppress(DamagedFile):  # it is no file at all
            found |= Journal(self._folder, "", home).run_ids()
        return {run_id for run_id in found if home in (segment(run_id), bare_segment(run_id))}
