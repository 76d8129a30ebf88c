"""A run's journal file: appended to without reading it again, read to its last whole record."""

from __future__ import annotations

from typing import Any, Final

from holdfast.errors import DamagedFile
from holdfast.formats.clawdia.shape import Record
from holdfast.formats.clawdia.verbs import JournalEnd
from holdfast.formats.folder import Folder
from holdfast.formats.lines import LineFile
from holdfast.model.views import Problem

RUNS: Final = "runs"
JOURNAL: Final = "journal.ndjson"
_START: Final = b'{"journal_schema_version":'
"""How every record of Clawdia begins."""


class Journal:
    """One run's journal. What is remembered of it holds only while the file is as it was left."""

    def __init__(self, folder: Folder, run_id: str, home: str) -> None:
        self.home = home
        self._run_id = run_id
        self._file = LineFile(folder, (RUNS, home, JOURNAL), Record, home, foreign_start=_START)
        self._end: JournalEnd | None = None

    def run_ids(self) -> set[str]:
        """The runs its records are of: one, unless somebody copied files about."""
        return {record["run_id"] for record in self._file.read().values}

    def read(self) -> tuple[list[dict[str, Any]], list[Problem]]:
        """The run's records in order, and what could not be read in the middle."""
        lines = self._file.read()
        records = [record for record in lines.values if record["run_id"] == self._run_id]
        records.sort(key=lambda record: int(record["journal_seq"]))
        return records, [Problem(place=damage.place, reason=damage.reason) for damage in lines.problems]

    def end(self) -> JournalEnd:
        """How far it is. DamagedFile if a record in the middle is broken: its number may be anybody's."""
        known = self._end
        if known is not None and known.seen is not None and self._file.is_unchanged(known.seen):
            return known
        lines, seen = self._file.read_unchanged()
        if lines.problems:
            raise DamagedFile(lines.problems[0].place, lines.problems[0].reason)
        own = [record for record in lines.values if record["run_id"] == self._run_id]
        numbers = {record["record_id"]: record["journal_seq"] for record in own}
        return JournalEnd(last_seq=max(numbers.values(), default=0), seqs=numbers, seen=seen)

    def settle(self) -> None:
        """Make durable what stands in it."""
        self._file.settle()

    @property
    def appended_end(self) -> JournalEnd | None:
        """How far it is after an append, if no other program has appended at the same time."""
        return self._end if self._end is not None and self._end.seen is not None else None

    def mend(self) -> bool:
        """Remove a torn end, and keep it beside; whether there was one."""
        return self._file.mend()

    def append(self, record: dict[str, Any], end: JournalEnd) -> bool:
        """Add a record, durably. False, and nothing was added, if the journal has changed since `end`."""
        self._end = None
        if not self._file.append(record, end.seen):
            return False
        end.seqs[record["record_id"]] = record["journal_seq"]
        self._end = JournalEnd(last_seq=record["journal_seq"], seqs=end.seqs, seen=self._file.left)
        return True
