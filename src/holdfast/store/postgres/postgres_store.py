"""The PostgreSQL store: one database, many workers on many machines.

Two connections write, each guarded by a lock and each for its part of the runs: commits that wait for one are written
together, which is faster than many connections with one commit each, and one batch is prepared while the other is on
its way. Which connection writes a run only matters for speed. Other connections read, each used by one caller at a
time. Nothing is held between calls, except the session lock of an announced owner, on a connection of its own. After a
fork the child opens its own connections and never uses the parent's.

Every call ends within about `timeout_s`, even if the server is unreachable or a connection is half open. During a
restart of the server calls wait for it. Leases are measured by the clock of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

import psycopg
from blake3 import blake3

from holdfast.clock import Clock, LeaseTime, SystemClock
from holdfast.errors import StoreClosed
from holdfast.fork_safety import reset_after_fork
from holdfast.model.commit import Commit, Committed, Outcome, Refused, TakeClaim
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.store.capabilities import Presence
from holdfast.store.group_commit import part_of
from holdfast.store.journal_prune import ChooseEntries
from holdfast.store.packs import NewPack
from holdfast.store.port import Choose, Mark, ScanMark, SweepResult
from holdfast.store.postgres import migrations, postgres_packs
from holdfast.store.postgres import prune as pruning
from holdfast.store.postgres.dialect import Texts, quoted, statements_for
from holdfast.store.postgres.listener import Listener
from holdfast.store.postgres.owner_sessions import OwnerSessions, find_dead_owners, forget_dead
from holdfast.store.postgres.postgres_connection import Connection, Connector, Pool, abandon
from holdfast.store.postgres.postgres_reads import PostgresReads
from holdfast.store.postgres.postgres_writer import RetryingWriter, Writer
from holdfast.store.postgres.settings import read_url
from holdfast.store.postgres.transaction import EarlierAttempt, LeaseClock, SchemaNames
from holdfast.store.sql.statements import row_from

Result = TypeVar("Result")

TIMEOUT_S: Final = 10.0
"""The longest duration of a call, unless a shorter one is given: less than a worker's lease."""
_SWEEP_BATCH: Final = 2_000
_WRITERS: Final = 2


class DatabaseClock(SystemClock):
    """Wall time of this machine. Leases are measured by the database, so its lease time is an estimate."""

    def lease_time(self) -> LeaseTime:
        return LeaseTime("", self.now_us())


class PostgresStore(PostgresReads):
    """Runs in one schema of a PostgreSQL database. A `clock` replaces all time, leases included; it is for tests."""

    writers = _WRITERS

    def __init__(self, url: str, clock: Clock | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        settings = read_url(url)
        self.url = settings.shown
        self.clock: Clock = clock or DatabaseClock()
        """The clock of operations."""
        self._schema = settings.schema
        self._sql = statements_for(settings.schema)
        self._time = LeaseClock(self.clock, leases_too=clock is not None)
        self._channel = f"holdfast_{blake3(settings.schema.encode()).hexdigest(8)}"
        self._opener = Connector(settings, min(timeout_s, TIMEOUT_S))
        idle_ms = str(int(self._opener.timeout_s * 1000))
        names = SchemaNames(self._sql, f"{quoted(settings.schema)}.run_numbers", self._channel, idle_ms)
        self._pool = Pool(self._opener, settings.pool_size)
        self._writers = [RetryingWriter(self._opener, names, self._time) for _ in range(_WRITERS)]
        self._owners = OwnerSessions(self._opener, self._sql)
        self._closed = False
        reset_after_fork(self)
        self._prepare()

    def _prepare(self) -> None:
        link = self._opener.open()
        try:
            migrations.prepare(link, self._schema, self.url)
        except psycopg.Error as error:
            raise self._pool.failed(error) from error
        finally:
            link.close()

    # --- writing -----------------------------------------------------------------------------------------------------

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return self._change(commits[0].run_id, lambda writer, before: writer.commit(commits, before))

    def claim_ready(self, takes: Sequence[TakeClaim], workflows: tuple[str, ...], commit_id: bytes) -> list[RunRow]:
        outcomes = self._change("", lambda writer, before: writer.claim_ready(takes, workflows, commit_id, before))
        rows = [outcome.run for outcome in outcomes if isinstance(outcome, Committed)]
        for row in rows:
            self._writer_of(row.run_id).remember(row)
        return rows

    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        done = self._change(run_id, lambda writer, before: pruning.prune(writer, run_id, choose, before, reopen=reopen))
        return done.rows if done is not None else None

    def prune_entries(self, run_id: str, choose: ChooseEntries) -> int | None:
        done = self._change(run_id, lambda writer, before: pruning.prune_entries(writer, run_id, choose, before))
        return done.entries if done is not None else None

    def sweep(self, family: int, dead: set[bytes], seen: dict[int, ScanMark], mark: Mark) -> SweepResult:
        def sweep_batch(writer: Writer, before: EarlierAttempt) -> tuple[SweepResult, set[bytes]]:
            return pruning.sweep(writer, self._sql, family, batch, seen, mark, before)

        left, chunks, size = set(dead), 0, 0
        while left:
            batch = [left.pop() for _ in range(min(len(left), _SWEEP_BATCH))]
            swept, spared = self._change("", sweep_batch)
            left -= spared
            chunks, size = chunks + swept.chunks, size + swept.bytes
        return SweepResult(chunks, size)

    def pack(self, family: int, pack: NewPack) -> bool:
        sequence = f"{quoted(self._schema)}.pack_numbers"
        return self._change("", lambda writer, _before: postgres_packs.pack(writer, sequence, family, pack))

    def delete_run(
        self, run_id: str, seen: bytes | None = None, family: frozenset[int] | None = None
    ) -> RunRow | Refused | None:
        return self._change(
            run_id, lambda writer, before: pruning.delete_run(writer, self._sql, run_id, seen, family, before)
        )

    def _change(self, run_id: str, work: Callable[[Writer, EarlierAttempt], Result]) -> Result:
        self._require_open()
        return self._writer_of(run_id).run(work)

    def _writer_of(self, run_id: str) -> RetryingWriter:
        """The writer that caches the row of this run, if one does."""
        return self._writers[part_of(run_id, _WRITERS)]

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self.url} was closed; open it again")

    # --- reading and listening ---------------------------------------------------------------------------------------

    def _read(self, work: Callable[[Connection], Result]) -> Result:
        return self._pool.run(work)

    def listen(self) -> Listener:
        """Subscribe to runs that become ready or receive an inbox item. Raises StorageFailed behind a pooler."""
        self._require_open()
        return Listener(self._opener, self._channel)

    # --- owners ------------------------------------------------------------------------------------------------------

    def announce(self, owner: str) -> None:
        self._require_open()
        self._owners.announce(owner)

    def presence(self, owner: str) -> Presence:
        return self._owners.presence(owner)

    def confirm(self, owner: str) -> Presence:
        return self._owners.confirm(owner)

    def owner_is_dead(self, owner: str) -> bool:
        return owner in self.dead_owners((owner,))

    def dead_owners(self, owners: Collection[str]) -> set[str]:
        return find_dead_owners(self._read, self._sql, owners) if owners else set()

    def claims_of_dead(self) -> list[RunRow]:
        dead = find_dead_owners(self._read, self._sql, None)
        if not dead:
            return []
        rows = [row_from(RunRow, row) for row in self._fetch("runs_held_by", Texts(list(dead)))]
        if not rows:
            self.remove_dead_owners(())
            return []
        dead = self.dead_owners(dead)  # again: a name may have been announced again before the rows were read
        return [row for row in rows if row.owner in dead]

    def register_worker(self, owner: str, workflows: Sequence[str], lease_us: int) -> None:
        def register(link: Connection) -> None:
            if workflows:
                link.execute(self._sql["register_worker"], (owner, Texts(list(workflows)), lease_us))
            link.execute(self._sql["forget_workers"], ("" if workflows else owner,))

        self._read(register)

    def workers(self) -> dict[str, tuple[str, ...]]:
        found = {str(owner): tuple(names) for owner, names in self._fetch("workers")}
        gone = self.dead_owners(found)
        return {owner: names for owner, names in found.items() if owner not in gone}

    def publish(self, entries: Mapping[str, bytes]) -> None:
        def write(link: Connection) -> None:
            with link.transaction():
                for name, body in sorted(entries.items()):
                    statement, bindings = ("publish", (name, body)) if body else ("unpublish", (name,))
                    link.execute(self._sql[statement], bindings)

        self._read(write)

    def remove_dead_owners(self, holding: Collection[str]) -> None:
        forget_dead(self._read, self._sql, holding)

    # --- life --------------------------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        """Abandon the parent's connections; new ones are opened when they are needed."""
        inherited = self._pool.links() + self._owners.links()
        inherited += [each.writer.link for each in self._writers if each.writer is not None]
        abandon(inherited)
        self._pool.reset()
        for each in self._writers:
            each.reset()
        self._owners.reset()

    def close(self) -> None:
        self._closed = True
        self._owners.close()
        for each in self._writers:
            each.close()
        self._pool.close()
