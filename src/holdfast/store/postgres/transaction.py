"""The transaction of a batch of commits: lock the rows, decide on them, write and commit.

Rows are locked in the order of their families and numbers, and all rows are written in one go at the end, so that two
batches hardly ever wait for each other in a circle; if they do, PostgreSQL ends one, and it is done again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import psycopg

from holdfast.clock import Clock, LeaseTime
from holdfast.errors import DamagedData
from holdfast.model import commit as why
from holdfast.model.commit import Commit, Committed, Outcome, Refused
from holdfast.model.rows import RunRow
from holdfast.store.decide import Decision, decide
from holdfast.store.postgres import quick
from holdfast.store.postgres.arrays import Texts
from holdfast.store.postgres.batch import Batch
from holdfast.store.postgres.connection import Link
from holdfast.store.postgres.dialect import Statements
from holdfast.store.postgres.errors import is_broken
from holdfast.store.postgres.look import Foreseen, PostgresLook
from holdfast.store.seal import check_run
from holdfast.store.sql.rows import built

Result = TypeVar("Result")

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
"""Whatever the server's default is: what is read after a lock was waited for must be as it is then."""
_Cursor = psycopg.Cursor[tuple[Any, ...]]


class Doubt(NamedTuple):
    """A commit that may have been carried out: how to recognise it, and the outcome it has if it was."""

    mark: bytes
    """The id of the commit, or of the last of those that went with it: the run's row has it, or had it."""
    base: bytes
    """The id of the commit before it; empty if it was to create the run."""
    incarnation: bytes
    outcome: Committed


class Before(NamedTuple):
    """What an earlier attempt at the same change may have done."""

    doubts: dict[tuple[str, bytes], Doubt]
    """Commits in doubt, by their runs and ids."""
    result: Any = None
    """What the change comes to if the attempt was committed."""


NOTHING: Final = Before({})


class Again(Exception):
    """Somebody else was faster; the transaction is to be done again."""


class Unknowable(Exception):
    """Whether a commit was carried out cannot be told any more: what it would have left is gone for another reason."""


class Unclear(Exception):
    """The connection was lost when a change may have been committed."""

    def __init__(self, before: Before) -> None:
        super().__init__("the outcome of a commit is not known")
        self.before = before


class Names(NamedTuple):
    """What the statements are called with in one schema."""

    sql: Statements
    numbers: str
    """The sequence of the runs' numbers."""
    channel: str
    """Where whoever listens hears of runs."""
    patience: str
    """How long the server waits for the next statement of a transaction, in milliseconds."""


class Time(NamedTuple):
    """Where time comes from."""

    clock: Clock
    leases_too: bool
    """True: leases go by `clock` and not by the database's; for tests."""

    def now_us(self) -> int:
        return self.clock.now_us()

    def lease(self, database_us: int) -> Callable[[], LeaseTime]:
        """How leases are measured in a transaction that saw this time on the database's clock."""
        return self.clock.lease_time if self.leases_too else lambda: LeaseTime("", database_us)


class Transaction:
    """Locks the rows, decides on them, writes and commits. Begins when it is made."""

    def __init__(
        self,
        link: Link,
        names: Names,
        time: Time,
        wanted: list[str] | tuple[str, tuple[Any, ...]],
        *,
        commits: Sequence[Commit] = (),
    ) -> None:
        """`wanted` are runs by their ids, or a statement that finds them and what is bound to it.

        `commits` are those that will be decided: what they need is asked for together with the rows.
        """
        self._link = link
        self._names = names
        self._sql = names.sql
        self._time = time
        statement, bindings = ("lock_runs", (Texts(wanted),)) if isinstance(wanted, list) else wanted
        try:
            with self._link.in_one_go():
                self._link.execute(BEGIN, prepare=False)
                found = self._link.execute(self._sql[statement], bindings, binary=True)
                moment = self._link.execute(self._sql["moment"], (names.patience,), binary=True)
                numbers = self._new_numbers(sorted({commit.run_id for commit in commits if commit.create}))
                foreseen = Foreseen(link, names.sql, commits)
            rows = [built(RunRow, row) for row in found.fetchall()]
            (database_us, _) = moment.fetchone() or (0, "")
            self._look_numbers = [number for (number,) in numbers.fetchall()][::-1] if numbers else []
        except BaseException:
            self._roll_back()
            raise
        self._read = {row.run_id: row for row in rows}
        self.rows = dict(self._read)
        """The runs as they are with the decisions so far."""
        self.lease = time.lease(database_us)
        known = foreseen.answers(self._read)
        self._look = PostgresLook(self._link, self._sql, self.rows, self._look_numbers, known)
        self._batch = Batch()
        self._made: list[tuple[Decision, Commit] | Outcome] = []
        self._stored: set[tuple[Any, ...]] = set()
        self.changed: dict[str, RunRow] = {}
        self._found = False
        """Whether a commit in doubt turned out to be there."""

    def _new_numbers(self, creating: list[str]) -> _Cursor | None:
        if not creating:
            return None
        return self._link.execute(self._sql["new_numbers"], (self._names.numbers, Texts(creating)), binary=True)

    # --- deciding ----------------------------------------------------------------------------------------------------

    def decide(self, commit: Commit, before: Before = NOTHING) -> None:
        """Decide on one commit. What it writes is only gathered."""
        if commit.run_id in self._batch.runs:
            self._flush()  # so that looks see what an earlier commit of this run has written
        row = self.rows.get(commit.run_id)
        if row is not None:
            try:
                check_run(row)
            except DamagedData as damage:
                self._made.append(Refused(why.DAMAGED, extra=damage))
                return
        doubt = before.doubts.get((commit.run_id, commit.commit_id))
        if doubt is not None and self.is_there(commit.run_id, doubt):
            self._made.append(doubt.outcome)
            return
        if row is None and commit.create is not None and not self._look_numbers:
            raise Again  # the run was there when numbers were fetched, and not when rows were
        made = decide(row, commit, self._time.now_us(), self.lease, self._look)
        if isinstance(made, Refused):
            self._made.append(made)
        elif not made.fresh:
            self._made.append(Committed(made.run, made.numbers, 0, made.checkpoint_id, made.covers, made.step, False))
        else:
            self._batch.add(made, commit, row)
            self.rows[commit.run_id] = self.changed[commit.run_id] = made.run
            self._made.append((made, commit))

    def is_there(self, run_id: str, doubt: Doubt) -> bool:
        """Whether a commit in doubt was carried out. Its run is locked, so an attempt that lingers comes too late."""
        row = self._read.get(run_id)
        if not doubt.base:
            there = row is not None and row.incarnation == doubt.incarnation
        else:
            if row is None or row.incarnation != doubt.incarnation:
                raise Unknowable("the run has been deleted since")
            ((recent,),) = self.execute("recent_commits", row.run)
            there = doubt.mark in recent
            if not there and doubt.base not in recent:
                raise Unknowable("too much has happened to the run since")
        self._found = self._found or there
        return there

    # --- writing -----------------------------------------------------------------------------------------------------

    def update_run(self, row: RunRow) -> None:
        """Write a run's row that is locked by this transaction."""
        self._batch.update_run(row)

    def now_us(self) -> int:
        """The date of what is written."""
        return self._time.now_us()

    def execute(self, name: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """Execute one statement of the transaction and wait for its rows."""
        done = self._link.execute(self._sql[name], bindings, binary=True)
        return done.fetchall() if done.description is not None else []

    def more(self, name: str, *bindings: Any) -> list[str]:
        """Lock more rows; the ids of those that were not locked before."""
        self._flush()
        found = [built(RunRow, row) for row in self.execute(name, *bindings)]
        new = {row.run_id: row for row in found if row.run_id not in self.rows}
        self.rows.update(new)
        return list(new)

    def send(self, statements: Iterable[tuple[str, tuple[Any, ...]]]) -> int:
        """Execute several statements in one go; how many rows they changed."""
        with self._link.in_one_go():
            sent = [self._link.execute(self._sql[name], bindings) for name, bindings in statements]
        return sum(cursor.rowcount for cursor in sent)

    def _flush(self) -> None:
        """Write what is gathered, and do not commit yet."""
        with self._link.patient(self._batch.bytes), self._link.in_one_go():
            chunks = self._send()
        self._note(chunks)
        self._batch = Batch()
        self._look.known = {}

    def _send(self) -> list[_Cursor]:
        """Send the statements; those that tell which chunks are new."""
        chunks = []
        for name, bindings in self._batch.statements(self._names.channel):
            sent = self._link.execute(self._sql[name], bindings, binary=True)
            chunks += [sent] if name == "insert_chunks" else []
        return chunks

    def _note(self, chunks: list[_Cursor]) -> None:
        for sent in chunks:
            self._stored.update(sent.fetchall())

    def commit(self, result: Callable[[], Result]) -> Result:
        """Write everything and commit; then, but not before, there is a result."""
        try:
            with self._link.patient(self._batch.bytes), self._link.in_one_go():
                chunks = self._send()
                if self._found:
                    self._link.execute(self._sql["barrier"])
                self._link.execute("COMMIT", prepare=False)
        except psycopg.Error as error:
            if is_broken(self._link):
                raise Unclear(Before(self._doubts(), result())) from error
            raise
        self._note(chunks)
        return result()

    def _doubts(self) -> dict[tuple[str, bytes], Doubt]:
        """How the commits of this transaction would be recognised: they are all there, or none is."""
        doubts = {}
        for made, commit in [made for made in self._made if isinstance(made, tuple)]:
            read = self._read.get(commit.run_id)
            base = read.commit_id if read is not None else b""
            doubt = Doubt(self.changed[commit.run_id].commit_id, base, made.run.incarnation, quick.committed(made, 0))
            doubts[commit.run_id, commit.commit_id] = doubt
        return doubts

    def outcomes(self) -> list[Outcome]:
        """What became of the commits, in their order."""
        return [
            quick.committed(made[0], quick.added_bytes(made[0], made[1], self._stored))
            if isinstance(made, tuple)
            else made
            for made in self._made
        ]

    @contextlib.contextmanager
    def rolled_back_on_error(self) -> Iterator[None]:
        """Leave no transaction behind."""
        try:
            yield
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if not is_broken(self._link):
            with contextlib.suppress(psycopg.Error):
                self._link.rollback()
