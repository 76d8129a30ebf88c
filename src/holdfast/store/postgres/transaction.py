"""The transaction of a batch of commits: lock the rows, decide on them, write and commit.

Rows are locked in the order of their families and numbers, and all rows are written together at the end, so deadlocks
are rare. If one occurs, PostgreSQL aborts one of the transactions, and it is retried.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import psycopg

from holdfast.clock import Clock, LeaseTime
from holdfast.errors import DamagedData
from holdfast.model.commit import Commit, Committed, Outcome, Reason, Refused
from holdfast.model.rows import RunRow
from holdfast.store.checksum import verify_run
from holdfast.store.decide import Decision, decide
from holdfast.store.postgres import write_batch
from holdfast.store.postgres.dialect import Statements, Texts
from holdfast.store.postgres.errors import is_broken
from holdfast.store.postgres.postgres_connection import Connection
from holdfast.store.postgres.postgres_reads import PostgresTransactionReads, PrefetchedReads
from holdfast.store.postgres.write_batch import Batch
from holdfast.store.sql.statements import Columns, row_from

Result = TypeVar("Result")

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
"""Independent of the server's default: a read after waiting for a lock must see what was committed meanwhile."""
_Cursor = psycopg.Cursor[Columns]


class InDoubtCommit(NamedTuple):
    """A commit that may be stored: how to recognise it, and the outcome it has if it is."""

    mark: bytes
    """The id of the commit, or of the last one in the same transaction: the run's row has it, or had it."""
    base: bytes
    """The id of the commit before it; empty if the commit creates the run."""
    incarnation: bytes
    outcome: Committed


class EarlierAttempt(NamedTuple):
    """An earlier attempt at the same change that may have been committed."""

    doubts: dict[tuple[str, bytes], InDoubtCommit]
    """Commits in doubt, by their runs and ids."""
    result: Any = None
    """The result of the change if the attempt was committed."""


NOTHING: Final = EarlierAttempt({})


class RetryTransaction(Exception):
    """Another writer was faster; the transaction must be retried."""


class OutcomeNotRecorded(Exception):
    """The outcome of a commit can no longer be found out: the rows that would prove it were removed."""


class CommitOutcomeUnknown(Exception):
    """The connection was lost while a change was being committed."""

    def __init__(self, before: EarlierAttempt) -> None:
        super().__init__("the outcome of a commit is unknown")
        self.before = before


class SchemaNames(NamedTuple):
    """The statements of one schema, and values that they are executed with."""

    sql: Statements
    numbers: str
    """The sequence of the runs' numbers."""
    channel: str
    """The channel of notifications about runs."""
    idle_ms: str
    """How long the server waits for the next statement of a transaction."""


class LeaseClock(NamedTuple):
    """The clocks of dates and of leases."""

    clock: Clock
    leases_too: bool
    """True: leases are measured by `clock` instead of the database; for tests."""

    def now_us(self) -> int:
        return self.clock.now_us()

    def lease(self, database_us: int) -> Callable[[], LeaseTime]:
        """The lease time of a transaction that read this time from the database."""
        return self.clock.lease_time if self.leases_too else lambda: LeaseTime("", database_us)


class Transaction:
    """Locks the rows, decides on them, writes and commits. Begins when it is constructed."""

    def __init__(
        self,
        link: Connection,
        names: SchemaNames,
        time: LeaseClock,
        wanted: list[str] | tuple[str, Columns],
        *,
        commits: Sequence[Commit] = (),
    ) -> None:
        """`wanted` are the ids of runs, or a statement that selects them and its bindings.

        `commits` will be decided: the rows they probably need are requested together with the runs.
        """
        self._link = link
        self._names = names
        self._sql = names.sql
        self._time = time
        statement, bindings = ("lock_runs", (Texts(wanted),)) if isinstance(wanted, list) else wanted
        try:
            with self._link.pipelined():
                self._link.execute(BEGIN, prepare=False)
                found = self._link.execute(self._sql[statement], bindings, binary=True)
                moment = self._link.execute(self._sql["moment"], (names.idle_ms,), binary=True)
                numbers = self._new_numbers(sorted({commit.run_id for commit in commits if commit.create}))
                prefetched = PrefetchedReads(link, names.sql, commits)
            rows = [row_from(RunRow, row) for row in found.fetchall()]
            (database_us, _) = moment.fetchone() or (0, "")
            self._new_run_numbers = [number for (number,) in numbers.fetchall()][::-1] if numbers else []
        except BaseException:
            self._roll_back()
            raise
        self._read = {row.run_id: row for row in rows}
        self.rows = dict(self._read)
        """The runs with the changes of the decisions so far."""
        self.lease = time.lease(database_us)
        known = prefetched.answers(self._read)
        self._reads = PostgresTransactionReads(self._link, self._sql, self.rows, self._new_run_numbers, known)
        self._batch = Batch()
        self._made: list[tuple[Decision, Commit] | Outcome] = []
        self._stored: set[Columns] = set()
        self.changed: dict[str, RunRow] = {}
        self._found = False
        """Whether a commit in doubt was found to be stored."""

    def _new_numbers(self, creating: list[str]) -> _Cursor | None:
        if not creating:
            return None
        return self._link.execute(self._sql["new_numbers"], (self._names.numbers, Texts(creating)), binary=True)

    # --- deciding ----------------------------------------------------------------------------------------------------

    def decide(self, commit: Commit, before: EarlierAttempt = NOTHING) -> None:
        """Decide on one commit. Its rows are collected, not written yet."""
        if commit.run_id in self._batch.runs:
            self._flush()  # so that reads see the rows of an earlier commit of this run
        row = self.rows.get(commit.run_id)
        if row is not None:
            try:
                verify_run(row)
            except DamagedData as damage:
                self._made.append(Refused(Reason.DAMAGED, error=damage))
                return
        doubt = before.doubts.get((commit.run_id, commit.commit_id))
        if doubt is not None and self.is_stored(commit.run_id, doubt):
            self._made.append(doubt.outcome)
            return
        if row is None and commit.create is not None and not self._new_run_numbers:
            raise RetryTransaction  # the run existed when numbers were fetched, but not when rows were
        made = decide(row, commit, self._time.now_us(), self.lease, self._reads)
        if isinstance(made, Refused):
            self._made.append(made)
        elif not made.fresh:
            self._made.append(made.outcome())
        else:
            self._batch.add(made, commit, row)
            self.rows[commit.run_id] = self.changed[commit.run_id] = made.run
            self._made.append((made, commit))

    def is_stored(self, run_id: str, doubt: InDoubtCommit) -> bool:
        """Whether a commit in doubt is stored. Its run is locked, so an attempt in progress comes too late."""
        row = self._read.get(run_id)
        if not doubt.base:
            stored = row is not None and row.incarnation == doubt.incarnation
        else:
            if row is None or row.incarnation != doubt.incarnation:
                raise OutcomeNotRecorded("the run has been deleted since")
            ((recent,),) = self.execute("recent_commits", row.run)
            stored = doubt.mark in recent
            if not stored and doubt.base not in recent:
                raise OutcomeNotRecorded("the run has had too many commits since")
        self._found = self._found or stored
        return stored

    # --- writing -----------------------------------------------------------------------------------------------------

    def update_run(self, row: RunRow) -> None:
        """Write the row of a run that this transaction has locked."""
        self._batch.update_run(row)

    def now_us(self) -> int:
        """The date of the rows to write."""
        return self._time.now_us()

    def execute(self, name: str, *bindings: object) -> list[Columns]:
        """Execute one statement of the transaction and wait for its rows."""
        done = self._link.execute(self._sql[name], bindings, binary=True)
        return done.fetchall() if done.description is not None else []

    def lock_more(self, name: str, *bindings: object) -> list[str]:
        """Lock more rows and return the ids of those that were not locked before."""
        self._flush()
        found = [row_from(RunRow, row) for row in self.execute(name, *bindings)]
        new = {row.run_id: row for row in found if row.run_id not in self.rows}
        self.rows.update(new)
        return list(new)

    def send(self, statements: Iterable[tuple[str, Columns]]) -> int:
        """Execute several statements in one round trip and return how many rows they changed."""
        with self._link.pipelined():
            sent = [self._link.execute(self._sql[name], bindings) for name, bindings in statements]
        return sum(cursor.rowcount for cursor in sent)

    def _flush(self) -> None:
        """Write the collected rows, without a commit."""
        with self._link.patient(self._batch.bytes), self._link.pipelined():
            chunks = self._send()
        self._note(chunks)
        self._batch = Batch()
        self._reads.known = {}

    def _send(self) -> list[_Cursor]:
        """Send the statements and return those that report which chunks are new."""
        chunks = []
        for name, bindings in self._batch.statements(self._names.channel):
            sent = self._link.execute(self._sql[name], bindings, binary=True)
            chunks += [sent] if name == "insert_chunks" else []
        return chunks

    def _note(self, chunks: list[_Cursor]) -> None:
        for sent in chunks:
            self._stored.update(sent.fetchall())

    def commit(self, result: Callable[[], Result]) -> Result:
        """Write everything, commit, and only then compute the result."""
        try:
            with self._link.patient(self._batch.bytes), self._link.pipelined():
                chunks = self._send()
                if self._found:
                    self._link.execute(self._sql["barrier"])
                self._link.execute("COMMIT", prepare=False)
        except psycopg.Error as error:
            if is_broken(self._link):
                raise CommitOutcomeUnknown(EarlierAttempt(self._doubts(), result())) from error
            raise
        self._note(chunks)
        return result()

    def _doubts(self) -> dict[tuple[str, bytes], InDoubtCommit]:
        """How the commits of this transaction are recognised: either all of them are stored, or none."""
        doubts = {}
        for made, commit in [made for made in self._made if isinstance(made, tuple)]:
            read = self._read.get(commit.run_id)
            base = read.commit_id if read is not None else b""
            doubt = InDoubtCommit(self.changed[commit.run_id].commit_id, base, made.run.incarnation, made.outcome())
            doubts[commit.run_id, commit.commit_id] = doubt
        return doubts

    def outcomes(self) -> list[Outcome]:
        """The outcomes of the commits, in their order."""
        return [
            made[0].outcome(write_batch.added_bytes(made[0], made[1], self._stored))
            if isinstance(made, tuple)
            else made
            for made in self._made
        ]

    @contextlib.contextmanager
    def rolled_back_on_error(self) -> Iterator[None]:
        """Roll back if the block raises."""
        try:
            yield
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if not is_broken(self._link):
            with contextlib.suppress(psycopg.Error):
                self._link.rollback()
