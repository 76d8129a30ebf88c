"""The PostgreSQL store: one database, many workers on many machines.

One connection writes, guarded by a lock: commits that wait for it go together, which is faster than many connections
with one commit each. Others read, each used by one caller at a time. Nothing is held between calls, except by an owner
that announced itself: the lock of its session, on a connection of its own. After a fork the child opens connections of
its own and never touches the parent's.

Every call ends within about `timeout_s`, also if the server is gone or a connection is half open. While the server is
away for a moment (a restart), calls wait for it. Leases are measured by the database's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

import psycopg
from blake3 import blake3

from holdfast.clock import Clock, LeaseTime
from holdfast.errors import StoreClosed
from holdfast.forking import watch
from holdfast.model.commit import Commit, Committed, Outcome, Refused, Take
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.store.port import Choose, Mark, Presence, Seen, Swept
from holdfast.store.postgres import keeping, migrations
from holdfast.store.postgres.arrays import Texts
from holdfast.store.postgres.changing import Changes
from holdfast.store.postgres.connection import Link, Opener, abandon
from holdfast.store.postgres.dialect import quoted, statements_for
from holdfast.store.postgres.listening import Listener
from holdfast.store.postgres.owner_session import OwnerSessions
from holdfast.store.postgres.owner_verdict import dead_owners, forget_dead
from holdfast.store.postgres.pool import Pool
from holdfast.store.postgres.reads import PostgresReads
from holdfast.store.postgres.settings import read_url
from holdfast.store.postgres.transaction import Before, Names, Time
from holdfast.store.postgres.writer import Writer
from holdfast.store.pruning import ChooseEntries
from holdfast.store.sql.rows import built

Result = TypeVar("Result")

TIMEOUT_S: Final = 10.0
"""How long a call takes at most, unless less is asked for: shorter than a worker's lease."""
_SWEEP_BATCH: Final = 2_000


class DatabaseClock:
    """Wall time of this machine. Leases are the database's business; asked for lease time, it can only guess."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def lease_time(self) -> LeaseTime:
        return LeaseTime("", self.now_us())


class PostgresStore(PostgresReads):
    """Runs in one schema of a PostgreSQL database. A `clock` replaces all time, leases included; it is for tests."""

    def __init__(self, url: str, clock: Clock | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        settings = read_url(url)
        self.url = settings.shown
        self.clock: Clock = clock or DatabaseClock()
        """What verbs may ask for time."""
        self._schema = settings.schema
        self._sql = statements_for(settings.schema)
        self._time = Time(self.clock, leases_too=clock is not None)
        channel = f"holdfast_{blake3(settings.schema.encode()).hexdigest(8)}"
        self._channel = channel
        self._opener = Opener(settings, min(timeout_s, TIMEOUT_S))
        patience = str(int(self._opener.timeout_s * 1000))
        names = Names(self._sql, f"{quoted(settings.schema)}.run_numbers", channel, patience)
        self._pool = Pool(self._opener, settings.pool_size)
        self._changes = Changes(self._opener, names, self._time)
        self._owners = OwnerSessions(self._opener, self._sql)
        self._closed = False
        watch(self)
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
        return self._change(lambda writer, before: writer.commit(commits, before))

    def claim_ready(self, takes: Sequence[Take], workflows: tuple[str, ...], commit_id: bytes) -> list[RunRow]:
        outcomes = self._change(lambda writer, before: writer.claim_ready(takes, workflows, commit_id, before))
        return [outcome.run for outcome in outcomes if isinstance(outcome, Committed)]

    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        done = self._change(lambda writer, before: keeping.prune(writer, run_id, choose, before, reopen=reopen))
        return done.rows if done is not None else None

    def prune_entries(self, run_id: str, choose: ChooseEntries) -> int | None:
        done = self._change(lambda writer, before: keeping.prune_entries(writer, run_id, choose, before))
        return done.entries if done is not None else None

    def sweep(self, family: int, dead: set[bytes], seen: dict[int, Seen], mark: Mark) -> Swept:
        left, chunks, size = set(dead), 0, 0
        while left:
            batch = [left.pop() for _ in range(min(len(left), _SWEEP_BATCH))]
            swept, spared = self._change(
                lambda writer, before, batch=batch: keeping.sweep(  # type: ignore[misc]
                    writer, self._sql, family, batch, seen, mark, before
                )
            )
            left -= spared
            chunks, size = chunks + swept.chunks, size + swept.bytes
        return Swept(chunks, size)

    def delete_run(
        self, run_id: str, seen: bytes | None = None, family: frozenset[int] | None = None
    ) -> RunRow | Refused | None:
        return self._change(lambda writer, before: keeping.delete_run(writer, self._sql, run_id, seen, family, before))

    def _change(self, work: Callable[[Writer, Before], Result]) -> Result:
        if self._closed:
            raise StoreClosed(f"{self.url} was closed")
        return self._changes.run(work)

    # --- reading and listening ---------------------------------------------------------------------------------------

    def _read(self, work: Callable[[Link], Result]) -> Result:
        return self._pool.run(work)

    def listen(self) -> Listener:
        """Hear of runs that become ready or get something into their inbox. Refused behind a transaction pooler."""
        if self._closed:
            raise StoreClosed(f"{self.url} was closed")
        return Listener(self._opener, self._channel)

    # --- owners ------------------------------------------------------------------------------------------------------

    def announce(self, owner: str) -> None:
        if self._closed:
            raise StoreClosed(f"{self.url} was closed")
        self._owners.announce(owner)

    def presence(self, owner: str) -> Presence:
        return self._owners.presence(owner)

    def confirm(self, owner: str) -> Presence:
        return self._owners.confirm(owner)

    def is_gone(self, owner: str) -> bool:
        return owner in self.gone_owners((owner,))

    def gone_owners(self, owners: Collection[str]) -> set[str]:
        return dead_owners(self._read, self._sql, owners) if owners else set()

    def claims_of_dead(self) -> list[RunRow]:
        dead = dead_owners(self._read, self._sql, None)
        if not dead:
            return []
        rows = [built(RunRow, row) for row in self._all("runs_held_by", Texts(list(dead)))]
        if not rows:
            self.bury(())
            return []
        dead = self.gone_owners(dead)  # again: a name may have been announced anew before the rows were read
        return [row for row in rows if row.owner in dead]

    def register_worker(self, owner: str, workflows: Sequence[str], lease_us: int) -> None:
        def register(link: Link) -> None:
            if workflows:
                link.execute(self._sql["register_worker"], (owner, Texts(list(workflows)), lease_us))
            link.execute(self._sql["forget_workers"], ("" if workflows else owner,))

        self._read(register)

    def workers(self) -> dict[str, tuple[str, ...]]:
        found = {str(owner): tuple(names) for owner, names in self._all("workers")}
        gone = self.gone_owners(found)
        return {owner: names for owner, names in found.items() if owner not in gone}

    def bury(self, holding: Collection[str]) -> None:
        forget_dead(self._read, self._sql, holding)

    # --- life --------------------------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        """Leave the parent's connections alone, and open others when they are needed."""
        inherited = self._pool.links() + self._owners.links()
        if self._changes.writer is not None:
            inherited.append(self._changes.writer.link)
        abandon(inherited)
        self._pool.reset()
        self._changes.reset()
        self._owners.reset()

    def close(self) -> None:
        self._closed = True
        self._owners.close()
        self._changes.close()
        self._pool.close()
