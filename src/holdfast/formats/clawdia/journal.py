"""A run's journal file: appended to without reading it again, read to its last whole record."""

from __future__ import annotations

from typing import Any, Final

from holdfast.errors import DamagedFile
from holdfast.formats.clawdia.shape import Record
from holdfast.formats.clawdia.verbs import JournalEnd
from holdfast.formats.folder import OWN, Folder, log
from holdfast.formats.lines import Lines, read_lines, write_line
from holdfast.formats.lossless import write_json
from holdfast.model.views import Problem
from holdfast.store.directory.files import Identity

RUNS: Final = "runs"
JOURNAL: Final = "journal.ndjson"
_TORN: Final = "torn"


class Journal:
    """One run's journal. What is remembered of it holds only while the file is the one that was left."""

    def __init__(self, folder: Folder, run_id: str, home: str) -> None:
        self.home = home
        self._folder = folder
        self._run_id = run_id
        self._name = (RUNS, home, JOURNAL)
        self._known: tuple[Identity, JournalEnd] | None = None

    def run_ids(self) -> set[str]:
        """The runs its records are of: one, unless somebody copied files about."""
        return {record["run_id"] for record in self._lines().values}

    def read(self) -> tuple[list[dict[str, Any]], list[Problem]]:
        """The run's records in order, and what could not be read in the middle."""
        lines = self._lines()
        records = [record for record in lines.values if record["run_id"] == self._run_id]
        records.sort(key=lambda record: record["journal_seq"])
        return records, [Problem(place=damage.place, reason=damage.reason) for damage in lines.problems]

    def end(self) -> JournalEnd:
        """How far it is. DamagedFile if a record in the middle is broken: its number may be anybody's."""
        identity = self._folder.identity(*self._name)
        if self._known is not None and self._known[0] == identity:
            return self._known[1]
        return self._end_of(self._lines())

    def _end_of(self, lines: Lines) -> JournalEnd:
        if lines.problems:
            raise DamagedFile(lines.problems[0].place, lines.problems[0].reason)
        numbers = {record["record_id"]: record["journal_seq"] for record in lines.values}
        return JournalEnd(last_seq=max(numbers.values(), default=0), seqs=numbers)

    def append(self, record: dict[str, Any]) -> None:
        """Add a record, durably. A torn end is cut off first, and kept beside."""
        data, is_ended = write_json(record, compact=True), True
        identity = self._folder.identity(*self._name)
        if self._known is None or self._known[0] != identity:
            content = self._folder.read(*self._name) or b""
            lines = self._lines(content)
            self._known = None
            end, is_ended = self._end_of(lines), lines.is_ended
            if lines.size < len(content):
                self._cut_off(content[lines.size :], lines.size)
        else:
            end = self._known[1]
        self._known = None
        self._folder.append(write_line(data, is_ended=is_ended), *self._name)
        end.seqs[record["record_id"]] = record["journal_seq"]
        left = self._folder.identity(*self._name)
        if left is not None:
            self._known = left, JournalEnd(last_seq=record["journal_seq"], seqs=end.seqs)

    def _lines(self, content: bytes | None = None) -> Lines:
        if content is None:
            content = self._folder.read(*self._name) or b""
        return read_lines(content, Record, self._folder.at(*self._name))

    def _cut_off(self, torn: bytes, size: int) -> None:
        kept = (OWN, _TORN, f"{self.home}-{size}")
        self._folder.put(torn, *kept)
        self._folder.cut(size, *self._name)
        log.warning(
            "%s ended in %d bytes that are no record; they are kept in %s",
            self._folder.at(*self._name), len(torn), self._folder.at(*kept),
        )  # fmt: skip
