"""The SQLite writer: one connection, one transaction for each batch of commits.

The writer remembers the rows of the runs it wrote last. A decision made on a remembered row is only applied if the row
still has the same commit id (every change of a row changes it), so in the common case a commit needs no read.
If the id differs, or if the decision is to refuse, the row is read and the decision is made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw
import msgspec

from holdfast.clock import Clock
from holdfast.errors import DamagedData
from holdfast.model.commit import Commit, Committed, Outcome, Reason, Refused
from holdfast.model.rows import ItemRow, LaneRow, RunRow
from holdfast.store.checksum import verify_run
from holdfast.store.decide import Decision, decide
from holdfast.store.sql.sql_reads import SqlTransactionReads
from holdfast.store.sql.statements import (
    ATTACHMENTS,
    CHECKPOINTS,
    EFFECTS,
    ENTRIES,
    GATES,
    ITEMS,
    LANES,
    MESSAGES,
    RUNS,
    TIMERS,
    key_of,
    statements,
    update_run,
)
from holdfast.store.sqlite.sqlite_connection import roll_back
from holdfast.store.sqlite.sqlite_reads import fetch_on, sqlite_row_from

_REMEMBERED_MAX = 4096
_CACHED_BYTES_MAX = 1024 * 1024
"""A cached statement keeps its bindings in memory, so one with a larger body is not cached."""


class CommitOutcomeUnknown(Exception):
    """COMMIT itself failed, so the transaction may be stored or not. Carries the outcomes it has if it is."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        super().__init__("the outcome of a commit is unknown")
        self.outcomes = outcomes


class Writer:
    """Applies commits. Used by one thread at a time."""

    def __init__(self, connection: apsw.Connection, clock: Clock) -> None:
        self.connection = connection
        self._clock = clock
        self._execute = connection.cursor().execute
        self._sql = statements()
        self.reads = SqliteTransactionReads(fetch_on(connection), sqlite_row_from)
        self._remembered: dict[str, RunRow] = {}

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Apply or refuse each commit, in one transaction. On an error none of them is stored."""
        outcomes: list[Outcome] = []
        try:
            self._execute("BEGIN IMMEDIATE")
            for commit in commits:
                outcomes.append(self.one(commit))  # noqa: PERF401 - the handler counts them
            self._execute("COMMIT")
        except BaseException as error:
            self.forget()
            roll_back(self.connection)
            if isinstance(error, apsw.IOError) and len(outcomes) == len(commits):
                raise CommitOutcomeUnknown(outcomes) from error
            raise
        return outcomes

    def forget(self) -> None:
        """Read rows again before the next decision."""
        self._remembered.clear()

    def read(self, run_id: str) -> RunRow | None:
        """The run's row as of this transaction, checked."""
        found = self.reads.source(run_id)
        return verify_run(found) if found else None

    def one(self, commit: Commit) -> Outcome:
        """Apply or refuse one commit within the transaction."""
        remembered = self._remembered.get(commit.run_id)
        if remembered is not None:
            outcome = self._decide(remembered, commit)
            if type(outcome) is Committed and outcome.fresh:
                return outcome
        try:
            row = self.read(commit.run_id)
        except DamagedData as damage:
            return Refused(Reason.DAMAGED, error=damage)
        decided = self._decide(row, commit)
        assert decided is not None, "the row was read in this transaction"
        return decided

    def _decide(self, row: RunRow | None, commit: Commit) -> Outcome | None:
        """The outcome, or None if `row` is out of date; then nothing was written."""
        made = decide(row, commit, self._clock.now_us(), self._clock.lease_time, self.reads)
        if isinstance(made, Refused):
            return made
        if not made.fresh:
            return made.outcome()
        if row is None:
            self._execute(self._sql["insert_run"], RUNS.bind(made.run.run, made.run))
        elif not self._update_run(row, made.changes):
            return None
        added = self._write(made, commit)
        if len(self._remembered) >= _REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[commit.run_id] = made.run
        return made.outcome(added)

    def _update_run(self, old: RunRow, changes: Mapping[str, Any]) -> bool:
        """Write the fields that changed if the stored row is still `old`."""
        self._execute(update_run(tuple(changes)), (*changes.values(), old.run, old.commit_id))
        return self.connection.changes() == 1

    def update_run(self, old: RunRow, new: RunRow) -> None:
        """Write a row that was read in this transaction."""
        fields = RunRow.__struct_fields__
        pairs = zip(fields, msgspec.structs.astuple(old), msgspec.structs.astuple(new), strict=True)
        updated = self._update_run(old, {name: value for name, before, value in pairs if value != before})
        assert updated, "the row was read in this transaction"

    def set_lanes(self, run: int, lanes: Sequence[LaneRow]) -> None:
        """Write the heads of lanes; a lane without checkpoints has none."""
        for lane in lanes:
            if lane.head:
                self._execute(self._sql["set_lane"], LANES.bind(run, lane))
            else:
                self._execute(self._sql["delete_lane"], (run, lane.lane))

    # --- the rows of a decision --------------------------------------------------------------------------------------

    def _write(self, made: Decision, commit: Commit) -> int:
        """Write the rows and chunks; return how many bytes of state were added."""
        execute, sql, run, family = self._execute, self._sql, made.run.run, made.run.family
        added = 0
        for chunk in commit.chunks:
            execute(sql["insert_chunk"], (family, chunk.hash, chunk.body, family, chunk.hash))
            if self.connection.changes():
                added += len(chunk.body)
        for c in made.checkpoints:
            execute(sql["insert_checkpoint"], CHECKPOINTS.bind(run, c))
            added += len(c.root)
        for e in made.entries:
            execute(sql["insert_entry"], ENTRIES.bind(run, e), can_cache=len(e.body) <= _CACHED_BYTES_MAX)
        for key, value in made.old_tags:
            execute(sql["delete_tag"], (key, value, run))
        for key, value in made.new_tags:
            execute(sql["insert_tag"], (key, value, run))
        for c in made.replaced:
            execute(sql["replace_checkpoint"], (*CHECKPOINTS.bind_changes(c), key_of(run, c.number)))
            added += len(c.root)
        if made.lanes:
            self.set_lanes(run, made.lanes)
        for f in made.effects:
            can_cache = len(f.body) + len(f.call) <= _CACHED_BYTES_MAX
            execute(sql["set_effect"], EFFECTS.bind(run, f), can_cache=can_cache)
        for a in made.attachments:
            execute(sql["set_attachment"], ATTACHMENTS.bind(run, a))
            added += len(a.root)
        for g in made.gates:
            execute(sql["set_gate"], GATES.bind(run, g), can_cache=len(g.body) <= _CACHED_BYTES_MAX)
        for i in made.items:
            execute(sql["insert_item"], ITEMS.bind(run, i), can_cache=len(i.body) <= _CACHED_BYTES_MAX)
        for i in made.taken:
            execute(sql["take_item"], (*ITEMS.bind_changes(i), key_of(run, i.number)))
        for m in made.messages:
            execute(sql["insert_message"], MESSAGES.bind(run, m), can_cache=len(m.body) <= _CACHED_BYTES_MAX)
        for name in made.drop_timers:
            execute(sql["drop_timer"], (run, name))
        for timer in commit.timers:
            execute(sql["set_timer"], TIMERS.bind(run, timer))
        for number in commit.sent:
            execute(sql["drop_message"], (key_of(run, number),))
        return added


class SqliteTransactionReads(SqlTransactionReads):
    """The reads of decisions on the connection that writes."""

    def source(self, run_id: str) -> RunRow | None:
        return self._first(RunRow, "run_by_id", run_id)

    def new_run(self) -> int:
        number: int = self._fetch("new_run_number")[0][0]
        return number

    def items(self, run: int, numbers: Sequence[int]) -> list[ItemRow]:
        rows = [self._first(ItemRow, "item", key_of(run, number)) for number in numbers]
        return [row for row in rows if row is not None]
