"""Sessions of announced owners: one connection each, which holds an advisory lock.

The server releases the lock as soon as the connection ends, so other processes detect a death at once. But a live owner
may lose its connection, too. Three rules protect it:

1. An owner is declared dead only after its lock was missing for its grace period, and that is written into its row. The
   row's `session` grows whenever the owner takes the lock again, which restarts the period. Both change the same row,
   so one of them is first: an owner that finds `dead` there has lost its name, and with it all claims.
2. An owner begins an effect only if the server has recently confirmed that the lock is held: less than half a grace
   period ago, measured from before the query was sent. Until the lock is taken again no effect begins.
3. A lock taken before a restart of the server proves nothing: a restart or failover drops all locks.

The lock is shared, so that an owner can take it again while the server still keeps the old connection. Only the first
acquisition is exclusive, to detect a second living process of the same name.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import select
import threading
import time
from collections.abc import Callable, Collection
from typing import Final, Protocol, TypeVar

import psycopg
from blake3 import blake3
from psycopg import errors as pg

from holdfast.clock import US
from holdfast.errors import Conflict, StorageError, StorageFailed
from holdfast.store.capabilities import Presence
from holdfast.store.postgres.dialect import Statements, Texts, columns_of
from holdfast.store.postgres.errors import is_broken, translated
from holdfast.store.postgres.postgres_connection import Connection, Connector

_log: Final = logging.getLogger("holdfast.store")
_CONFLICT_S: Final = 2.0
"""How long the old connection of a process that has just died may keep the lock."""
_PAUSE_S: Final = 0.05
_POLL_S: Final = 1.0
"""How often at least the thread checks whether another thread has replaced the connection."""
_INTEREST_S: Final = 30.0
"""How long after the last query the lock is confirmed periodically, so that the next effect need not wait."""


def lock_key(schema: str, owner: str) -> int:
    """The advisory lock of an owner. If two owners share one, a dead one seems alive, never the reverse."""
    text = f"{schema}\x00{owner}".encode(errors="surrogatepass")
    return int.from_bytes(blake3(b"holdfast owner " + text).digest(8), "big", signed=True)


class OwnerSession:
    """One owner's connection and lock. A thread detects their loss and takes the lock again."""

    def __init__(self, opener: Connector, sql: Statements, owner: str) -> None:
        self._opener = opener
        self._sql = sql
        self._owner = owner
        self._key = lock_key(opener.settings.schema, owner)
        self._token = secrets.token_bytes(16)
        self._grace_s = opener.settings.owner_grace_s
        self._lock = threading.Lock()
        """Held by the thread that uses the connection."""
        self.link: Connection | None = None
        self._pid = 0
        """The server process that held the lock last."""
        self._proved_at = 0.0
        self._asked_at = 0.0
        self._is_lost = False
        self._closing = threading.Event()

    def begin(self) -> None:
        """Take the lock for the first time. Behind a transaction pooler there is none, and only leases are used."""
        until = time.monotonic() + self._opener.timeout_s
        link = self._opener.open(until)
        try:
            if link.pooled or not self._grace_s:
                link.execute(self._sql["forget_owner"], (self._owner,))  # left by a dead process of the same name
                link.close()
                return
            self._exclude_others(link)
            link.execute("SELECT pg_advisory_lock_shared(%s)", (self._key,))
            link.execute("SELECT pg_advisory_unlock(%s)", (self._key,))
            self._set_up(link)
            sent_at = time.monotonic()
            bound = (self._owner, self._key, self._token, int(self._grace_s * US))
            link.execute(self._sql["begin_session"], bound)
        except psycopg.Error as error:
            link.close()
            raise translated(error, self._opener.settings.shown, self._opener.timeout_s) from error
        except BaseException:
            link.close()
            raise
        self.link, self._proved_at, self._pid = link, sent_at, link.info.backend_pid
        threading.Thread(target=self._maintain, name="holdfast-owner", daemon=True).start()

    def _exclude_others(self, link: Connection) -> None:
        until = time.monotonic() + _CONFLICT_S
        while link.execute("SELECT pg_try_advisory_lock(%s)", (self._key,)).fetchone() != (True,):
            if time.monotonic() > until:
                raise Conflict(f"owner {self._owner!r} is announced by another living process; use another name")
            time.sleep(_PAUSE_S)

    def _set_up(self, link: Connection) -> None:
        """Disable the timeout of idle sessions, and mark this start of the server."""
        link.execute(self._sql["keep_idle_session"])
        link.execute(self._sql["mark_server"], (secrets.token_hex(16),))

    # --- queries of the owner ---------------------------------------------------------------------------------------

    @property
    def has_lock(self) -> bool:
        """Whether other processes can detect this owner's death; False if it only has leases."""
        return self._pid > 0

    def presence(self) -> Presence:
        """What is known without a query."""
        self._asked_at = time.monotonic()
        if self._is_lost:
            return Presence.LOST
        is_proved = self.link is not None and self._asked_at < self._proved_at + self._grace_s / 2
        return Presence.SURE if is_proved else Presence.UNSURE

    def confirm(self) -> Presence:
        """Wait until the server confirms that the lock is held, or that the owner was declared dead."""
        until = time.monotonic() + self._opener.timeout_s
        while True:
            self._prove()
            found = self.presence()
            if found is not Presence.UNSURE:
                return found
            if time.monotonic() > until or self._closing.is_set():
                raise StorageFailed(
                    f"{self._opener.settings.shown}: owner {self._owner!r} lost its session and could not take its "
                    f"lock again in {self._opener.timeout_s:g} s, so it begins no effect; "
                    "check that the server can be reached"
                )
            self._closing.wait(_PAUSE_S)

    # --- keeping the lock ------------------------------------------------------------------------------------------

    def _maintain(self) -> None:
        """Detect the end of the connection at once and take the lock again; runs on the thread."""
        while not self._closing.is_set() and not self._is_lost:
            link = self.link
            if link is None or self._is_due(link):
                self._prove()
            if self.link is None:
                self._closing.wait(_PAUSE_S)

    def _is_due(self, link: Connection) -> bool:
        """Wait until the connection ends, or until the lock must be confirmed again."""
        poll = select.poll()
        try:
            poll.register(link.pgconn.socket, select.POLLIN)
        except (psycopg.Error, ValueError):  # another thread has closed it
            return True
        has_ended = bool(poll.poll(min(_POLL_S, self._grace_s / 4) * 1000))
        return has_ended or time.monotonic() < self._asked_at + _INTEREST_S

    def _prove(self) -> None:
        """Query the server once; without a connection, open one and take the lock again."""
        with self._lock:
            if self._closing.is_set() or self._is_lost:
                return
            try:
                if self.link is None:
                    self._take_again()
                    return
                sent_at = time.monotonic()
                self.link.execute("SELECT 1")
                self._proved_at = sent_at
            except (psycopg.Error, StorageError) as error:
                if self.link is not None:
                    _log.info("the session of owner %r was lost, taking its lock again: %s", self._owner, error)
                self._drop()

    def _take_again(self) -> None:
        link = self._opener.open()
        try:
            if link.pooled:
                raise StorageFailed(
                    f"{self._opener.settings.shown} now connects through a pooler, which drops locks; "
                    "connect to the server directly"
                )
            if link.execute("SELECT pg_try_advisory_lock_shared(%s)", (self._key,)).fetchone() != (True,):
                raise StorageFailed(f"owner {self._owner!r} is being announced by another process; use another name")
            self._set_up(link)
            sent_at = time.monotonic()
            done = link.execute(self._sql["resume_session"], (self._owner, self._token))
        except BaseException:
            link.close()
            raise
        if not done.rowcount:
            link.close()
            self._is_lost = True
            _log.warning(
                "owner %r was declared dead: it was disconnected from %s for more than %g s; its claims are lost",
                self._owner,
                self._opener.settings.shown,
                self._grace_s,
            )
            return
        old_pid, self._pid = self._pid, link.info.backend_pid
        self.link, self._proved_at = link, sent_at
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege):  # then its death is detected by its leases
            link.execute(self._sql["end_old_session"], (old_pid, self._key))

    def _drop(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            with contextlib.suppress(psycopg.Error):
                link.close()

    def close(self) -> None:
        """Release the lock and remove the row; runs that are still claimed have a lease."""
        self._closing.set()
        with self._lock:
            if self.link is not None and not is_broken(self.link):
                with contextlib.suppress(psycopg.Error):
                    self.link.execute(self._sql["end_session"], (self._owner, self._token))
            self._drop()


class OwnerSessions:
    """The owners announced through one store."""

    def __init__(self, opener: Connector, sql: Statements) -> None:
        self._opener = opener
        self._sql = sql
        self.reset()

    def reset(self) -> None:
        """Forget all sessions: after a fork they belong to the parent."""
        self._lock = threading.Lock()
        self._sessions: dict[str, OwnerSession] = {}

    def links(self) -> list[Connection]:
        """The connections of all sessions."""
        return [session.link for session in self._sessions.values() if session.link is not None]

    def announce(self, owner: str) -> None:
        """Take the lock of this owner. Raises Conflict if another living session has it."""
        with self._lock:
            if owner not in self._sessions or self._sessions[owner].presence() is Presence.LOST:
                session = OwnerSession(self._opener, self._sql, owner)
                session.begin()
                self._sessions[owner] = session

    def presence(self, owner: str) -> Presence:
        session = self._sessions.get(owner)
        return Presence.SURE if session is None or not session.has_lock else session.presence()

    def confirm(self, owner: str) -> Presence:
        session = self._sessions.get(owner)
        return Presence.SURE if session is None or not session.has_lock else session.confirm()

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()


_KEPT_US: Final = 3600 * US
"""How long the row of an owner is kept that has no claims and did not return after a restart of the server."""
_NOT_NOW: Final = (
    pg.DeadlockDetected,
    pg.InsufficientPrivilege,
    pg.ReadOnlySqlTransaction,
    pg.SerializationFailure,
)
"""Another process is marking the same owners, or this role may only read: then the owners are not dead yet."""
Result = TypeVar("Result")


class Run(Protocol):
    """Calls a function with a connection, again if the connection is lost; so the function must be idempotent."""

    def __call__(self, work: Callable[[Connection], Result], /) -> Result: ...


def find_dead_owners(run: Run, sql: Statements, owners: Collection[str] | None) -> set[str]:
    """The owners, of these or of all, that are known to be dead. Executes a second statement if a lock is missing."""

    def find(link: Connection) -> set[str]:
        bound = (owners is None, Texts(list(owners or ())))
        absent = link.execute(sql["owners_absent"], bound, binary=True).fetchall()
        dead = {owner for owner, _, _, is_dead, _ in absent if is_dead}
        expired = [
            (owner, token, session) for owner, token, session, is_dead, is_due in absent if is_due and not is_dead
        ]
        if expired:
            with contextlib.suppress(*_NOT_NOW):
                marked = link.execute(sql["mark_absent"], columns_of("tbi", expired), binary=True).fetchall()
                dead |= {owner for owner, is_dead in marked if is_dead}
        return dead

    return run(find)


def forget_dead(run: Run, sql: Statements, holding: Collection[str]) -> None:
    """Remove the rows of dead owners that have no claims."""

    def forget(link: Connection) -> None:
        with contextlib.suppress(*_NOT_NOW):  # another process does it
            link.execute(sql["forget_dead_owners"], (_KEPT_US, Texts(list(holding))))

    run(forget)
