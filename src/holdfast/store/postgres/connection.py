"""Connections to PostgreSQL: how they are opened and checked, and how long they wait.

A connection never waits for ever. If the server gives no sign of life for `silence_s`, the statement is cancelled; if
even that brings no answer, the connection is given up. So a half-open connection costs a worker seconds, not its lease.

Nothing is set on a connection, and nothing is kept in a session, so a pooler that hands out another session for every
transaction (PgBouncer) does no harm. If there is one between us and the server, no statement is prepared and nobody
listens: that would be lost with the session.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import psycopg
from psycopg import generators
from psycopg.errors import QueryCanceled
from psycopg.pq import TransactionStatus

from holdfast.errors import StorageFailed
from holdfast.store.postgres import arrays
from holdfast.store.postgres.errors import Silent, is_refused_for_good, is_starting, translated
from holdfast.store.postgres.settings import Settings

_CANCEL_S: Final = 1.0
_PAUSE_S: Final = 0.05
_BYTES_PER_S: Final = 1024 * 1024
"""So much even a slow, busy server stores in a second."""
_EVENTS: Final = {1: select.POLLIN, 2: select.POLLOUT, 3: select.POLLIN | select.POLLOUT}
_PREPARE_THRESHOLD: Final = 3
_CHECK: Final = (
    "SELECT pg_backend_pid(), current_setting('server_encoding'), current_setting('fsync'), "
    "current_setting('full_page_writes'), current_setting('synchronous_commit'), pg_is_in_recovery()"
)
_WEAK: Final = "off"


class Link(psycopg.Connection[tuple[Any, ...]]):
    """A connection that does not wait for ever."""

    silence_s: float = 5.0
    pooled: bool = False
    """Whether a pooler stands between us and the server."""

    def wait(self, gen: Any, interval: float = 0.0, timeout: float | None = None) -> Any:
        """Carry out one exchange with the server. The driver's own waiting has no end, unless it is given one."""
        if interval or timeout is not None:
            return super().wait(gen, interval) if timeout is None else super().wait(gen, timeout=timeout)
        try:
            return _exchanged(gen, self.pgconn.socket, self.silence_s)
        except Silent:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE and self._cancelled():
                try:
                    _exchanged(gen, self.pgconn.socket, _CANCEL_S)
                except QueryCanceled:
                    raise
                except psycopg.Error:
                    pass
            # Even if the statement came to its end: cancelled while it waited for a replica, it is not safe yet.
            self.pgconn.finish()
            raise
        except (KeyboardInterrupt, SystemExit):
            self.pgconn.finish()
            raise

    @contextlib.contextmanager
    def patient(self, sent_bytes: int) -> Iterator[None]:
        """While it lasts, the server may be silent for as long as a slow one takes to store so much."""
        silence_s = self.silence_s
        self.silence_s += sent_bytes / _BYTES_PER_S
        try:
            yield
        finally:
            self.silence_s = silence_s

    @contextlib.contextmanager
    def in_one_go(self) -> Iterator[None]:
        """Send all statements of the block together and wait once, at its end, for all answers."""
        error: psycopg.Error | None = None
        try:
            with self.pipeline() as pipeline:
                if _CAN_END_AT_SYNC:
                    pipeline._exit_gen = lambda: _ended_at_sync(pipeline)  # type: ignore[method-assign]
                try:
                    yield
                except psycopg.Error as first:  # not raised inside: the driver would log what follows from it
                    error = first
        except psycopg.Error as last:
            error = error or last
        if error is not None:
            raise error

    def _cancelled(self) -> bool:
        try:
            self.cancel_safe(timeout=_CANCEL_S)
        except psycopg.Error:
            return False
        return True


_CAN_END_AT_SYNC: Final = all(
    hasattr(psycopg.Pipeline, name) for name in ("_exit_gen", "_enqueue_sync", "_communicate_gen", "_fetch_gen")
)


def _ended_at_sync(pipeline: Any) -> Any:
    """End a pipeline as the driver does, but with Sync as the last message.

    The driver sends a Flush after it, and a message, even one that does nothing, stops the server's clock for idle
    transactions: a client that vanishes then would keep its locks until the network gives it up.
    """
    try:
        pipeline._enqueue_sync()
        yield from pipeline._communicate_gen()
    finally:
        # What the socket did not take at once is still to be sent; the server answers only when it has all of it.
        yield from generators.send(pipeline.pgconn)
        yield from pipeline._fetch_gen(flush=False)


def _exchanged(gen: Any, socket: int, silence_s: float) -> Any:
    """Drive the driver's generator until it ends; Silent if the socket stays silent."""
    try:
        wanted = next(gen)
        poll = select.poll()
        poll.register(socket, _EVENTS[wanted])
        while True:
            found = poll.poll(silence_s * 1000)
            if not found:
                raise Silent(f"the server gave no sign of life for {silence_s:g} s")
            event = found[0][1]
            ready = (1 if event & ~select.POLLOUT else 0) | (2 if event & select.POLLOUT else 0)
            before, wanted = wanted, gen.send(ready)
            if wanted != before:
                poll.modify(socket, _EVENTS[wanted])
    except StopIteration as done:
        return done.value


_abandoned: list[Link] = []
"""A parent process's connections."""


def abandon(links: Iterable[Link]) -> None:
    """In a child process: have nothing more to do with the parent's connections.

    Closing one would say goodbye to the server in the parent's name. So what it leads to in this process is replaced by
    nothing, and the object is kept for ever.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for link in links:
        if not link.closed:
            os.dup2(nothing, link.pgconn.socket)
        _abandoned.append(link)
    os.close(nothing)


class Opener:
    """Opens connections to one database."""

    def __init__(self, settings: Settings, timeout_s: float) -> None:
        self.settings = settings
        self.timeout_s = timeout_s
        self.silence_s = timeout_s * 0.4

    def open(self, until: float = 0.0) -> Link:
        """A new connection, checked. A server that cannot be reached is tried again until that moment."""
        starting_until = max(until, time.monotonic() + self.timeout_s)
        while True:
            try:
                link = self._connected()
                break
            except psycopg.Error as error:
                end = starting_until if is_starting(error) else until
                if time.monotonic() > end or is_refused_for_good(error):
                    raise translated(error, self.settings.shown, self.timeout_s) from error
                time.sleep(_PAUSE_S)
        try:
            self._set_up(link)
        except psycopg.Error as error:
            link.close()
            raise translated(error, self.settings.shown, self.timeout_s) from error
        except BaseException:
            link.close()
            raise
        return link

    def _connected(self) -> Link:
        wait_s = max(2, int(self.timeout_s * 0.3))
        more = {
            "connect_timeout": wait_s, "tcp_user_timeout": int(self.timeout_s * 1000), "keepalives_idle": 5,
            "keepalives_interval": 2, "keepalives_count": 3, "client_encoding": "utf8",
            "application_name": "holdfast",
        }  # fmt: skip
        link = Link.connect(**{**more, **self.settings.conninfo}, autocommit=True)
        link.silence_s = self.silence_s
        arrays.register(link)
        return link

    def _set_up(self, link: Link) -> None:
        """Look what this connection leads to."""
        pids = {link.info.backend_pid}
        for _ in range(2):
            (pid, encoding, *durable, in_recovery) = link.execute(_CHECK).fetchone() or ()
            pids.add(pid)
        link.pooled = len(pids) > 1
        link.prepare_threshold = None if link.pooled else _PREPARE_THRESHOLD
        shown = self.settings.shown
        if encoding != "UTF8":
            raise StorageFailed(f"{shown}: the database's encoding is {encoding}, UTF8 is needed")
        if in_recovery:
            raise StorageFailed(f"{shown}: this server only reads, it is a replica; connect to the primary")
        if _WEAK in durable and not self.settings.relaxed:
            fsync, pages, commit = durable
            raise StorageFailed(
                f"{shown} cannot be used durably: fsync is {fsync}, full_page_writes is {pages}, synchronous_commit is "
                f"{commit}; turn them on (ALTER ROLE … SET synchronous_commit = on), or add ?durability=relaxed"
            )
