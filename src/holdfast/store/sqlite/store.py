"""The SQLite store: one file, several processes, nothing to install beside it.

One connection writes, guarded by a lock; others read, each by one caller at a time. Reads fetch all they need and leave
no statement open, so nothing is ever held between calls. After a fork the child opens connections of its own and leaves
the parent's alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, TypeVar

import apsw

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, StorageFailed, StoreClosed
from holdfast.forking import watch_restless
from holdfast.model import commit as why
from holdfast.model.commit import Commit, Committed, Outcome, Refused, Take
from holdfast.model.rows import CheckpointRow, EntryRow, RunRow
from holdfast.store.decide import is_live
from holdfast.store.heads import heads_after
from holdfast.store.owners import Owners
from holdfast.store.port import Choose, Mark, Seen, Swept
from holdfast.store.pruning import ChooseEntries, last_of, planned_pruning
from holdfast.store.room import Room
from holdfast.store.seal import check_run, next_epoch
from holdfast.store.sql.rows import built, entry_columns, key_of, last_key
from holdfast.store.sql.statements import statements
from holdfast.store.sqlite.connection import Opener, transaction
from holdfast.store.sqlite.reads import SqliteReads, family_rows, roots_after
from holdfast.store.sqlite.rows import checkpoint_row, effect_row, first
from holdfast.store.sqlite.turnstile import Turnstile
from holdfast.store.sqlite.writer import Unclear, Writer
from holdfast.store.tags import read_metadata, tag

Result = TypeVar("Result")

_SWEEP_BATCH: Final = 2_000
_REST_S: Final = 10.0
"""How long a fork waits for others to leave SQLite."""
_abandoned: list[object] = []
"""Connections of a parent process that were in use when it forked: they can be neither used nor closed."""


class SqliteStore(SqliteReads):
    """Runs in one SQLite file."""

    def __init__(
        self, path: str, clock: Clock, *, timeout_s: float = 20.0, reserve_bytes: int, vfs: str | None = None
    ) -> None:
        self.url = f"sqlite:{path}"
        self.path = os.path.abspath(path)
        self._clock = clock
        self._room = Room(self.path, reserve_bytes) if reserve_bytes else None
        self._opener = Opener(self.path, timeout_s, vfs)
        self._owners = Owners(os.path.realpath(self.path) + "-owners", lambda: {row.owner for row in self.all_held()})
        self._closed = ""
        self._at_rest = self._locked = True
        self._reset()
        watch_restless(self)
        with self._writing() as writer:
            self._opener.prepare(writer.connection)

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._writer: Writer | None = None
        self._idle: deque[apsw.Connection] = deque()
        self._readers = Turnstile()

    # --- writing -----------------------------------------------------------------------------------------------------

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        if self._room is not None:
            self._room.check(commits, self._reusable_bytes)
        with self._lock:
            try:
                return (self._writer or self._opened_writer()).commit(commits)
            except Unclear as unclear:
                return self._settled(unclear)
            except apsw.Error as error:
                raise self._failed(error) from error

    def _reusable_bytes(self) -> int:
        """What prune and delete have freed inside the file."""
        with self._writing() as writer:
            pages: int = writer.connection.pragma("freelist_count")
            return pages * int(writer.connection.pragma("page_size"))

    def _settled(self, unclear: Unclear) -> list[Outcome]:
        """After COMMIT failed: never trust that handle again; open the file anew, and make sure of one or the other.

        The transaction may be in the WAL, whole, though its sync failed: not seen now, but found after a crash. So if
        it is not there, something else is committed in its place (a number is left out, which must really change the
        file); and if it is there, it is brought into the database file.
        """
        cause = unclear.__cause__
        self._drop_writer()
        try:
            with self._writing() as writer:
                is_there = self._is_there(writer, unclear.outcomes)
                if is_there:
                    writer.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                else:
                    with transaction(writer.connection):
                        writer.connection.execute(statements()["new_run_number"]).fetchall()
        except HoldfastError as error:
            raise StorageFailed(
                f"{self.path}: the disk failed while committing ({cause}) and again when looking what became of it; "
                "whether it was saved is not known"
            ) from error
        if not is_there:
            raise StorageFailed(f"{self.path}: the disk failed while committing; nothing was saved ({cause})")
        return unclear.outcomes

    def _is_there(self, writer: Writer, outcomes: list[Outcome]) -> bool:
        """Whether the commits of a transaction, all or none of them, are in the file."""
        last = {o.run.run_id: o.run.commit_id for o in outcomes if isinstance(o, Committed) and o.fresh}
        rows = [writer.read(run_id) for run_id in last]
        return all(row is not None and row.commit_id == last[row.run_id] for row in rows)

    def claim_ready(self, takes: Sequence[Take], workflows: tuple[str, ...], commit_id: bytes) -> list[RunRow]:
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
                    else:  # held, or damaged: it must not stop the others
                        passed.add(row.run)
            return claimed

    def _ready(self, connection: apsw.Connection, workflows: tuple[str, ...], limit: int) -> list[RunRow]:
        if workflows:
            sql, values = statements()["runs_ready_of_workflows"], (json.dumps(workflows), limit)
            return [built(RunRow, row) for row in connection.execute(sql, values).fetchall()]
        return [built(RunRow, row) for row in connection.execute(statements()["runs_ready"], (limit,)).fetchall()]

    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        with self._changing() as writer:
            row = writer.read(run_id)
            if row is None:
                return None
            execute, sql = writer.connection.execute, statements()
            first, last = key_of(row.run, 0), last_key(row.run)
            found = execute(sql["checkpoints_after"], (first, last, -1)).fetchall()
            rows = {checkpoint.number: checkpoint for checkpoint in map(checkpoint_row, found)}
            effects = [effect_row(e) for e in execute(sql["effects"], (first, last)).fetchall()]
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
            execute, sql = writer.connection.execute, statements()
            first, last = key_of(row.run, 0), last_key(row.run)
            checkpoints = execute(sql["checkpoints_after"], (first, last, -1)).fetchall()
            ranges = choose(row, [checkpoint_row(c) for c in checkpoints])
            pruned = [built(EntryRow, e) for e in execute(sql["entries_pruned"], (first, last)).fetchall()]
            plan = planned_pruning(row, ranges, pruned, self._clock.now_us())
            if plan is None:
                return 0
            found = 0
            for entry in plan.rows:
                execute(sql["delete_entries"], (key_of(row.run, entry.position - 1), key_of(row.run, last_of(entry))))
                found += writer.connection.changes()
            plan.check(found)
            for e in plan.rows:
                execute(sql["insert_entry"], entry_columns(row.run, e))
            writer.update_run(row, plan.run)
            writer.forget()
            return plan.entries

    def sweep(self, family: int, dead: set[bytes], seen: dict[int, Seen], mark: Mark) -> Swept:
        left, chunks, size = set(dead), 0, 0
        while left:
            with self._changing() as writer:
                for row in family_rows(writer.connection, family):
                    check_run(row)
                left -= mark(self._late_roots(writer.connection, family, seen))
                batch = [left.pop() for _ in range(min(len(left), _SWEEP_BATCH))]
                sizes = [writer.connection.execute(statements()["delete_chunk"], (family, name)).get for name in batch]
                for row in family_rows(writer.connection, family):
                    writer.update_run(row, next_epoch(row))
                writer.forget()
            chunks += len([found for found in sizes if found is not None])
            size += sum(found or 0 for found in sizes)
        return Swept(chunks, size)

    def _late_roots(self, connection: apsw.Connection, family: int, seen: dict[int, Seen]) -> list[bytes]:
        late = []
        for row in family_rows(connection, family):
            known = seen.get(row.run, Seen())
            late += roots_after(connection, row.run, known if known.rewrites == row.rewrites else Seen())
        return late

    def delete_run(
        self, run_id: str, seen: bytes | None = None, family: frozenset[int] | None = None
    ) -> RunRow | Refused | None:
        with self._changing() as writer:
            execute, sql = writer.connection.execute, statements()
            found = first(execute, sql["run_by_id"], (run_id,))
            if not found:
                return None
            row = built(RunRow, found)
            if is_live(row, self._clock.lease_time):
                return Refused(why.CLAIMED, row)
            if seen is not None and row.commit_id != seen:
                return Refused(why.CHANGED, row)
            if family is not None and {each.run for each in family_rows(writer.connection, row.family)} - family:
                return Refused(why.CHANGED, row)
            for table in ("checkpoints", "entries", "effects", "attachments", "items", "messages"):
                execute(sql[f"delete_{table}"], (key_of(row.run, 0), last_key(row.run)))
            for table in ("lanes", "gates", "timers", "run"):
                execute(sql[f"delete_{table}"], (row.run,))
            for key, value in read_metadata(row.metadata).items():
                execute(sql["delete_tag"], (*tag(key, value), row.run))
            if not family_rows(writer.connection, row.family):
                execute(sql["delete_chunks"], (row.family,))
            writer.forget()
            return row

    # --- connections -------------------------------------------------------------------------------------------------

    def _opened_writer(self) -> Writer:
        """The writer; its lock is held by this thread."""
        if self._closed:
            raise StoreClosed(f"{self.url} {self._closed}")
        if self._writer is None:
            self._writer = Writer(self._opener.open(), self._clock)
        return self._writer

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Writer]:
        """Holds the writer's lock, and translates the errors of SQLite."""
        with self._lock:
            try:
                yield self._opened_writer()
            except apsw.Error as error:
                raise self._failed(error) from error

    def _failed(self, error: apsw.Error) -> HoldfastError:
        """What an error of SQLite means. After an input/output error its connection is not used again."""
        if isinstance(error, apsw.IOError):
            self._drop_writer()
        return self._opener.translated(error)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Writer]:
        """A write transaction."""
        with self._writing() as writer:
            done = False
            try:
                with transaction(writer.connection):
                    yield writer
                    done = True
            except BaseException as error:
                writer.forget()
                if done and isinstance(error, apsw.IOError):
                    self._drop_writer()
                    raise StorageFailed(
                        f"{self.path}: the disk failed while committing; whether it was done is not known ({error})"
                    ) from error
                raise

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(apsw.Error):
                writer.connection.close(True)

    def _read(self, work: Callable[[apsw.Connection], Result]) -> Result:
        readers, ticket = self._readers, object()
        try:
            readers.enter(ticket)
            if self._closed:
                raise StoreClosed(f"{self.url} {self._closed}")
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._opener.open()
            try:
                result = work(connection)
            except apsw.Error as error:
                with contextlib.suppress(apsw.Error):
                    connection.close(True)
                raise self._opener.translated(error) from error
            self._idle.append(connection)
            self._close_idle_if_closed()
            return result
        finally:
            readers.leave(ticket)

    # --- forks -------------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Wait until nobody is inside SQLite: the child would inherit its locks in the middle of something."""
        self._locked = self._lock.acquire(timeout=_REST_S)
        self._at_rest = self._locked and self._readers.shut(_REST_S)

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._readers.open()
        if self._locked:
            self._lock.release()

    def after_fork(self) -> None:
        """Give the parent's connections back, and open others when they are needed.

        They must be closed, not only left alone: SQLite keeps a table of the files a process has open and of the locks
        it has on them. A child inherits the table but not the locks, and would believe to have what it has not.
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

    def announce(self, owner: str) -> None:
        if self._closed:
            raise StoreClosed(f"{self.url} {self._closed}")
        self._owners.announce(owner)

    def is_gone(self, owner: str) -> bool:
        return self._owners.is_gone(owner)

    def register_worker(self, owner: str, workflows: Sequence[str], lease_us: int) -> None:  # noqa: ARG002
        self._owners.write_workflows(owner, workflows)

    def workers(self) -> dict[str, tuple[str, ...]]:
        return self._owners.workflows()

    def bury(self, holding: Collection[str]) -> None:
        self._owners.bury(holding)

    def close(self) -> None:
        self._owners.close()
        with self._lock:
            self._closed = self._closed or "was closed"
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
