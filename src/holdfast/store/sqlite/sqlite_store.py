"""The SQLite store: one file, several processes, no server.

One connection writes, guarded by a lock; others read, each used by one caller at a time. Reads fetch all rows and leave
no statement open, so nothing is held between calls. After a fork the child opens its own connections.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import apsw

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, StorageFailed, StoreClosed
from holdfast.files.durable import DiskReserve
from holdfast.fork_safety import quiesce_before_fork
from holdfast.model.commit import Commit, Committed, Outcome, Reason, Refused, TakeClaim
from holdfast.model.rows import CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.store.checksum import next_epoch, verify_run
from holdfast.store.decide import is_live
from holdfast.store.journal_prune import ChooseEntries, heads_after, last_of, planned_pruning
from holdfast.store.liveness import LockLiveness, OwnerLocks, all_claims
from holdfast.store.packs import NewPack
from holdfast.store.port import Choose, Mark, ScanMark, SweepResult
from holdfast.store.search import read_metadata, tag
from holdfast.store.sql.sql_reads import bound_limit, roots_after
from holdfast.store.sql.statements import ENTRIES, key_of, last_key, statements
from holdfast.store.sqlite.sqlite_connection import Connector, ReaderBarrier, transaction
from holdfast.store.sqlite.sqlite_packs import ChunkRemoved, move_to_pack, remove_chunks
from holdfast.store.sqlite.sqlite_reads import SqliteReads, fetch_on
from holdfast.store.sqlite.sqlite_writer import CommitOutcomeUnknown, Writer

Result = TypeVar("Result")

_SWEEP_BATCH: Final = 2_000
_REST_S: Final = 10.0
"""How long a fork waits until no thread uses SQLite."""
_abandoned: list[object] = []
"""Connections of a parent process that were in use when it forked: they can neither be used nor closed."""


class SqliteStore(SqliteReads, LockLiveness):
    """Runs in one SQLite file."""

    def __init__(
        self, path: str, clock: Clock, *, timeout_s: float = 20.0, reserve_bytes: int, vfs: str | None = None
    ) -> None:
        self.url = f"sqlite:{path}"
        self.path = os.path.abspath(path)
        self._clock = clock
        self._reserve = DiskReserve(self.path, reserve_bytes) if reserve_bytes else None
        self._opener = Connector(self.path, timeout_s, vfs)
        self._owners = OwnerLocks(
            os.path.realpath(self.path) + "-owners", lambda: {row.owner for row in all_claims(self)}
        )
        self._closed = ""
        self._at_rest = self._locked = True
        self._reset()
        quiesce_before_fork(self)
        with self._writing() as writer:
            self._opener.prepare(writer.connection)

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._writer: Writer | None = None
        self._is_writing = False
        """Whether a transaction is open, or a thread is about to begin one."""
        self._idle: deque[apsw.Connection] = deque()
        self._readers = ReaderBarrier()

    # --- writing -----------------------------------------------------------------------------------------------------

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        if self._reserve is not None:
            self._reserve.check(commits, self._reusable_bytes)
        with self._lock:
            self._is_writing = True
            try:
                return (self._writer or self._opened_writer()).commit(commits)
            except CommitOutcomeUnknown as unknown:
                return self._resolve(unknown)
            except apsw.Error as error:
                raise self._translate(error) from error
            finally:
                self._is_writing = False

    def _reusable_bytes(self) -> int:
        """The bytes that prune and delete have freed inside the file."""
        with self._writing() as writer:
            pages: int = writer.connection.pragma("freelist_count")
            return pages * int(writer.connection.pragma("page_size"))

    def _resolve(self, unknown: CommitOutcomeUnknown) -> list[Outcome]:
        """After COMMIT failed: open the file again and make its outcome definite.

        The transaction may be complete in the WAL although its sync failed: not visible now, but recovered after a
        crash. So if it is not stored, another transaction is committed in its place (it skips a run number, which must
        really change the file); if it is stored, it is checkpointed into the database file.
        """
        cause = unknown.__cause__
        self._drop_writer()
        try:
            with self._writing() as writer:
                is_stored = self._is_stored(writer, unknown.outcomes)
                if is_stored:
                    writer.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                else:
                    with transaction(writer.connection):
                        writer.connection.execute(statements()["skip_run_number"])
        except HoldfastError as error:
            raise StorageFailed(
                f"{self.path}: the disk failed while committing ({cause}) and again while checking the outcome; "
                "it is unknown whether the commit was saved"
            ) from error
        if not is_stored:
            raise StorageFailed(f"{self.path}: the disk failed while committing ({cause}); nothing was saved")
        return unknown.outcomes

    def _is_stored(self, writer: Writer, outcomes: list[Outcome]) -> bool:
        """Whether the commits of a transaction are in the file: either all of them, or none."""
        last = {o.run.run_id: o.run.commit_id for o in outcomes if isinstance(o, Committed) and o.fresh}
        rows = [writer.read(run_id) for run_id in last]
        return all(row is not None and row.commit_id == last[row.run_id] for row in rows)

    def claim_ready(self, takes: Sequence[TakeClaim], workflows: tuple[str, ...], commit_id: bytes) -> list[RunRow]:
        with self._changing() as writer:
            claimed: list[RunRow] = []
            passed: set[int] = set()
            while len(claimed) < len(takes):
                found = self._ready(writer.connection, workflows, len(takes) - len(claimed) + len(passed))
                ready = [row for row in found if row.run not in passed]
                if not ready:
                    break
                for row in ready:
                    outcome = writer.one(Commit(row.run_id, commit_id, take=takes[len(claimed)]))
                    if isinstance(outcome, Committed):
                        claimed.append(outcome.run)
                    else:  # claimed or damaged: it must not block the others
                        passed.add(row.run)
            return claimed

    def _ready(self, connection: apsw.Connection, workflows: tuple[str, ...], limit: int) -> list[RunRow]:
        fetch = fetch_on(connection)
        if workflows:
            found = fetch("runs_ready_of_workflows", self._bind_texts(workflows), limit)
        else:
            found = fetch("runs_ready", limit)
        return [RunRow(*row) for row in found]

    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        with self._changing() as writer:
            row = writer.read(run_id)
            if row is None:
                return None
            execute, sql, fetch = writer.connection.execute, statements(), fetch_on(writer.connection)
            rows = {c.number: c for c in self._list(fetch, CheckpointRow, row.run, 0, bound_limit(-1))}
            effects = self._list(fetch, EffectRow, row.run, 0, bound_limit(-1))
            gone = [rows[number] for number in choose(list(rows.values()), effects)]
            for c in gone:
                execute(sql["delete_checkpoint"], (key_of(row.run, c.number),))
                execute(sql["delete_attachments_of_checkpoint"], (row.run, c.lane, c.checkpoint_id))
            moved = heads_after(row, rows.values(), gone, reopen=reopen)
            if moved is not None:
                writer.update_run(row, moved.run)
                writer.set_lanes(row.run, moved.lanes)
                writer.forget()
            return gone

    def prune_entries(self, run_id: str, choose: ChooseEntries) -> int | None:
        with self._changing() as writer:
            row = writer.read(run_id)
            if row is None:
                return None
            execute, sql, fetch = writer.connection.execute, statements(), fetch_on(writer.connection)
            ranges = choose(row, self._list(fetch, CheckpointRow, row.run, 0, bound_limit(-1)))
            pruned = [EntryRow(*e) for e in fetch("entries_pruned", key_of(row.run, 0), last_key(row.run))]
            plan = planned_pruning(row, ranges, pruned, self._clock.now_us())
            if plan is None:
                return 0
            found = 0
            for entry in plan.rows:
                execute(sql["delete_entries"], (key_of(row.run, entry.position - 1), key_of(row.run, last_of(entry))))
                found += writer.connection.changes()
            plan.check(found)
            for e in plan.rows:
                execute(sql["insert_entry"], ENTRIES.bind(row.run, e))
            writer.update_run(row, plan.run)
            writer.forget()
            return plan.entries

    def sweep(self, family: int, dead: set[bytes], seen: dict[int, ScanMark], mark: Mark) -> SweepResult:
        left, chunks, size = set(dead), 0, 0
        while left:
            with self._changing() as writer:
                for row in family_rows(writer.connection, family):
                    verify_run(row)
                left -= mark(self._late_roots(writer.connection, family, seen))
                batch = [left.pop() for _ in range(min(len(left), _SWEEP_BATCH))]
                removed = remove_chunks(writer.connection, family, batch)
                for row in family_rows(writer.connection, family):
                    writer.update_run(row, next_epoch(row))
                writer.forget()
            chunks, size = chunks + removed.chunks, size + removed.bytes
        return SweepResult(chunks, size)

    def pack(self, family: int, pack: NewPack) -> bool:
        with contextlib.suppress(ChunkRemoved), self._changing() as writer:
            move_to_pack(writer.connection, family, pack)
            return True
        return False

    def _late_roots(self, connection: apsw.Connection, family: int, seen: dict[int, ScanMark]) -> list[bytes]:
        late = []
        for row in family_rows(connection, family):
            known = seen.get(row.run, ScanMark())
            late += roots_after(fetch_on(connection), row.run, known if known.rewrites == row.rewrites else ScanMark())
        return late

    def delete_run(
        self, run_id: str, seen: bytes | None = None, family: frozenset[int] | None = None
    ) -> RunRow | Refused | None:
        with self._changing() as writer:
            execute, sql = writer.connection.execute, statements()
            row = writer.reads.source(run_id)  # not verified: a damaged run can be deleted
            if row is None:
                return None
            if is_live(row, self._clock.lease_time):
                return Refused(Reason.CLAIMED, row)
            if seen is not None and row.commit_id != seen:
                return Refused(Reason.CHANGED, row)
            if family is not None and {each.run for each in family_rows(writer.connection, row.family)} - family:
                return Refused(Reason.CHANGED, row)
            execute(sql["note_deleted_run"], (row.run, row.run))
            for table in ("checkpoints", "entries", "effects", "attachments", "items", "messages"):
                execute(sql[f"delete_{table}"], (key_of(row.run, 0), last_key(row.run)))
            for table in ("lanes", "gates", "timers", "run"):
                execute(sql[f"delete_{table}"], (row.run,))
            for key, value in read_metadata(row.metadata).items():
                execute(sql["delete_tag"], (*tag(key, value), row.run))
            if not family_rows(writer.connection, row.family):
                for table in ("chunks", "places", "packs"):
                    execute(sql[f"delete_{table}"], (row.family,))
            writer.forget()
            return row

    def publish(self, entries: Mapping[str, bytes]) -> None:
        with self._changing() as writer:
            for name, body in entries.items():
                statement, bindings = ("publish", (name, body)) if body else ("unpublish", (name,))
                writer.connection.execute(statements()[statement], bindings)

    # --- connections -------------------------------------------------------------------------------------------------

    def _opened_writer(self) -> Writer:
        """The writer; this thread holds its lock."""
        self._require_open()
        if self._writer is None:
            self._writer = Writer(self._opener.open(), self._clock)
        return self._writer

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Writer]:
        """Hold the writer's lock and translate the errors of SQLite."""
        with self._lock:
            try:
                yield self._opened_writer()
            except apsw.Error as error:
                raise self._translate(error) from error

    def _translate(self, error: apsw.Error) -> HoldfastError:
        """Translate an error of SQLite. After an I/O error its connection is not used again."""
        if isinstance(error, apsw.IOError):
            self._drop_writer()
        return self._opener.translate(error)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Writer]:
        """A write transaction."""
        with self._writing() as writer:
            done, self._is_writing = False, True
            try:
                with transaction(writer.connection):
                    yield writer
                    done = True
            except BaseException as error:
                writer.forget()
                if done and isinstance(error, apsw.IOError):
                    self._drop_writer()
                    raise StorageFailed(
                        f"{self.path}: the disk failed while committing ({error}); "
                        "it is unknown whether the change was saved"
                    ) from error
                raise
            finally:
                self._is_writing = False

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(apsw.Error):
                writer.connection.close(True)

    def _read_warm(self, work: Callable[[apsw.Connection], Result]) -> Result | None:
        """Read a little through the connection that writes: its cache stays valid while no other process writes.

        None if it is in use; then nothing was read.
        """
        if self._is_writing or self._writer is None:
            return None
        with self._lock:
            writer = self._writer
            if writer is None or self._closed or writer.connection.in_transaction:
                return None
            try:
                return work(writer.connection)
            except apsw.Error as error:
                raise self._translate(error) from error

    def _read(self, work: Callable[[apsw.Connection], Result]) -> Result:
        readers, ticket = self._readers, object()
        try:
            readers.enter(ticket)
            self._require_open()
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._opener.open()
            try:
                result = work(connection)
            except apsw.Error as error:
                with contextlib.suppress(apsw.Error):
                    connection.close(True)
                raise self._opener.translate(error) from error
            self._idle.append(connection)
            self._close_idle_if_closed()
            return result
        finally:
            readers.leave(ticket)

    # --- forks -------------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Wait until no thread uses SQLite: the child would inherit locks that are never released."""
        self._locked = self._lock.acquire(timeout=_REST_S)
        self._at_rest = self._locked and self._readers.shut(_REST_S)

    def after_fork_in_parent(self) -> None:
        """Admit readers and writers again."""
        self._readers.open()
        if self._locked:
            self._lock.release()

    def after_fork(self) -> None:
        """Close the parent's connections; new ones are opened when they are needed.

        They must be closed, not only abandoned: SQLite keeps a table of a process's open files and its locks on them. A
        child inherits the table but not the locks, and would assume locks that it does not hold.
        """
        inherited = [self._writer.connection] if self._writer is not None else []
        inherited += self._idle
        if not self._at_rest:
            _abandoned.extend(inherited)
            self._closed = "was in use by another thread when this process was forked; start processes by spawn instead"
        self._reset()
        if self._at_rest:
            for connection in inherited:
                with contextlib.suppress(apsw.Error):
                    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                    connection.close(True)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self.url} {self._closed}")

    def close(self) -> None:
        self._owners.close()
        with self._lock:
            self._closed = self._closed or "was closed; open it again"
            self._drop_writer()
            self._close_idle()

    def _close_idle_if_closed(self) -> None:
        """The store may have been closed while this thread was reading."""
        if self._closed:
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            with contextlib.suppress(apsw.Error, IndexError):
                self._idle.pop().close(True)


def family_rows(connection: apsw.Connection, family: int) -> list[RunRow]:
    """The runs of a family."""
    return [RunRow(*row) for row in fetch_on(connection)("runs_of_family", family)]
