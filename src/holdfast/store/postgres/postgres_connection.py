"""Connections to PostgreSQL, and the pool of those that read.

A connection never waits without a limit. If the server does not answer for `silence_s`, the statement is cancelled; if
the cancellation is not answered either, the connection is closed. So a half-open connection costs a worker seconds, not
its lease.

No session state is used, so a pooler that assigns another session to every transaction (PgBouncer) is supported. Behind
one, statements are not prepared and LISTEN is not used: both would be lost with the session.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.errors import QueryCanceled
from psycopg.pq import TransactionStatus

from holdfast.errors import HoldfastError, StorageBusy, StorageFailed, StoreClosed
from holdfast.store.postgres import dialect
from holdfast.store.postgres.errors import Silent, is_broken, is_refused_for_good, is_starting, translated
from holdfast.store.postgres.settings import Settings
from holdfast.store.sql.statements import Columns

_CANCEL_S: Final = 1.0
_PAUSE_S: Final = 0.05
_BYTES_PER_S: Final = 1024 * 1024
"""What even a slow, busy server stores in a second."""
_EVENTS: Final = {1: select.POLLIN, 2: select.POLLOUT, 3: select.POLLIN | select.POLLOUT}
_PREPARE_THRESHOLD: Final = 3
_CHECK: Final = (
    "SELECT pg_backend_pid(), current_setting('server_encoding'), current_setting('fsync'), "
    "current_setting('full_page_writes'), current_setting('synchronous_commit'), pg_is_in_recovery()"
)
_WEAK: Final = "off"
_POLL_S: Final = 0.001

Result = TypeVar("Result")


class Connection(psycopg.Connection[Columns]):
    """A connection whose waits are limited."""

    silence_s: float = 5.0
    pooled: bool = False
    """Whether there is a pooler between this process and the server."""

    def wait(self, gen: PQGen[Result], interval: float = 0.0, timeout: float | None = None) -> Result:
        """Perform one exchange with the server. The driver itself would wait without a limit."""
        if interval or timeout is not None:
            return super().wait(gen, interval) if timeout is None else super().wait(gen, timeout=timeout)
        try:
            return _exchange(gen, self.pgconn.socket, self.silence_s)
        except Silent:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE and self._cancelled():
                try:
                    _exchange(gen, self.pgconn.socket, _CANCEL_S)
                except QueryCanceled:
                    raise
                except psycopg.Error:
                    pass
            # Even if the statement ended: cancelled while it waited for a replica, it is not durable yet.
            self.pgconn.finish()
            raise
        except (KeyboardInterrupt, SystemExit):
            self.pgconn.finish()
            raise

    @contextlib.contextmanager
    def patient(self, sent_bytes: int) -> Iterator[None]:
        """Within the block, extend `silence_s` by the time a slow server takes to store so many bytes."""
        silence_s = self.silence_s
        self.silence_s += sent_bytes / _BYTES_PER_S
        try:
            yield
        finally:
            self.silence_s = silence_s

    @contextlib.contextmanager
    def pipelined(self) -> Iterator[None]:
        """Send all statements of the block together and wait for all answers at its end."""
        error: psycopg.Error | None = None
        try:
            with self.pipeline() as pipeline:
                if _CAN_END_AT_SYNC:
                    pipeline._exit_gen = lambda: _end_at_sync(pipeline)  # type: ignore[method-assign]
                try:
                    yield
                except psycopg.Error as first:  # raised later: here the driver would log the errors that follow from it
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


def _end_at_sync(pipeline: Any) -> Any:
    """End a pipeline as the driver does, but with Sync as the last message.

    The driver sends a Flush after it. Any message, even an empty one, stops the server's timeout for idle transactions:
    a client that then disappears would keep its locks until the network connection times out.
    """
    try:
        pipeline._enqueue_sync()
        yield from pipeline._communicate_gen()
    finally:
        # Send what the socket did not take at once; the server answers only when it has everything.
        yield from generators.send(pipeline.pgconn)
        yield from pipeline._fetch_gen(flush=False)


def _exchange(gen: PQGen[Result], socket: int, silence_s: float) -> Result:
    """Run the driver's generator to its end; raise Silent if the socket stays silent."""
    try:
        wanted = next(gen)
        poll = select.poll()
        poll.register(socket, _EVENTS[wanted])
        while True:
            found = poll.poll(silence_s * 1000)
            if not found:
                raise Silent(f"the server did not answer for {silence_s:g} s")
            event = found[0][1]
            ready = (1 if event & ~select.POLLOUT else 0) | (2 if event & select.POLLOUT else 0)
            before, wanted = wanted, gen.send(ready)
            if wanted != before:
                poll.modify(socket, _EVENTS[wanted])
    except StopIteration as done:
        result: Result = done.value
        return result


_abandoned: list[Connection] = []
"""A parent process's connections."""


def abandon(links: Iterable[Connection]) -> None:
    """In a child process: make the parent's connections unusable without closing them.

    Closing one would end the parent's session on the server. So its file descriptor is redirected to the null device,
    and the object is never collected.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for link in links:
        if not link.closed:
            os.dup2(nothing, link.pgconn.socket)
        _abandoned.append(link)
    os.close(nothing)


class Connector:
    """Opens connections to one database."""

    def __init__(self, settings: Settings, timeout_s: float) -> None:
        self.settings = settings
        self.timeout_s = timeout_s
        self.silence_s = timeout_s * 0.4

    def open(self, until: float = 0.0) -> Connection:
        """Return a new connection, checked. Retries until `until` if the server cannot be reached."""
        starting_until = max(until, time.monotonic() + self.timeout_s)
        while True:
            try:
                link = self._connect()
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

    def _connect(self) -> Connection:
        wait_s = max(2, int(self.timeout_s * 0.3))
        conninfo: dict[str, Any] = {
            "connect_timeout": wait_s,
            "tcp_user_timeout": int(self.timeout_s * 1000),
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "client_encoding": "utf8",
            "application_name": "holdfast",
            **self.settings.conninfo,
        }
        link = Connection.connect(**conninfo, autocommit=True)
        link.silence_s = self.silence_s
        dialect.register(link)
        return link

    def _set_up(self, link: Connection) -> None:
        """Check the server, and detect a pooler by changing backend processes."""
        pids = {link.info.backend_pid}
        for _ in range(2):
            (pid, encoding, *durable, in_recovery) = link.execute(_CHECK).fetchone() or ()
            pids.add(pid)
        link.pooled = len(pids) > 1
        link.prepare_threshold = None if link.pooled else _PREPARE_THRESHOLD
        shown = self.settings.shown
        if encoding != "UTF8":
            raise StorageFailed(f"{shown}: the encoding of the database is {encoding}; create one with UTF8")
        if in_recovery:
            raise StorageFailed(f"{shown}: this server is a read-only replica; connect to the primary")
        if _WEAK in durable and not self.settings.relaxed:
            fsync, pages, commit = durable
            raise StorageFailed(
                f"{shown} cannot be used durably: fsync is {fsync}, full_page_writes is {pages}, synchronous_commit is "
                f"{commit}; turn them on (ALTER ROLE … SET synchronous_commit = on), or add ?durability=relaxed"
            )


class Pool:
    """The connections that read, at most `size` at once."""

    def __init__(self, opener: Connector, size: int) -> None:
        self._opener = opener
        self._size = size
        self._closed = False
        self.reset()

    def reset(self) -> None:
        """Forget all connections: after a fork they belong to the parent."""
        self._idle: deque[Connection] = deque()
        self._busy: set[object] = set()
        """A ticket for each connection in use. Adding or removing one twice is harmless, so an interrupt loses none."""

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Call `work`, which only reads. If the connection is lost, retry on another one."""
        until = time.monotonic() + self._opener.timeout_s
        ticket = object()
        try:
            self._enter(ticket, until)
            while True:
                link = self._taken(until)
                try:
                    return work(link)
                except psycopg.Error as error:
                    if not is_broken(link) or time.monotonic() > until:
                        raise self.failed(error) from error
                    self.drop_idle()
                finally:
                    self._return(link)
        finally:
            self._busy.discard(ticket)

    def _enter(self, ticket: object, until: float) -> None:
        self._busy.add(ticket)
        while len(self._busy) > self._size:
            self._busy.discard(ticket)
            if time.monotonic() > until:
                raise StorageBusy(
                    f"{self._opener.settings.shown}: all {self._size} connections are in use; "
                    "try again, or open the store with a larger pool_size"
                )
            time.sleep(_POLL_S)
            self._busy.add(ticket)

    def failed(self, error: psycopg.Error) -> HoldfastError:
        """The error of Holdfast for an error of the driver."""
        return translated(error, self._opener.settings.shown, self._opener.timeout_s)

    def _taken(self, until: float) -> Connection:
        if self._closed:
            raise StoreClosed(f"{self._opener.settings.shown} was closed; open it again")
        while True:
            try:
                link = self._idle.pop()
            except IndexError:
                return self._opener.open(until)
            if not is_broken(link):
                return link

    def _return(self, link: Connection) -> None:
        if is_broken(link) or self._closed or link.pgconn.transaction_status:
            link.close()
        else:
            self._idle.append(link)

    def links(self) -> list[Connection]:
        """The idle connections."""
        return list(self._idle)

    def drop_idle(self) -> None:
        """Close the idle connections: the lost one was cut off together with them."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they are returned."""
        self._closed = True
        self.drop_idle()


@contextlib.contextmanager
def in_snapshot(link: Connection) -> Iterator[None]:
    """Within the block, all reads see the database as of the first of them."""
    link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield
        link.execute("COMMIT")
    except BaseException:
        if not is_broken(link):
            with contextlib.suppress(psycopg.Error):
                link.rollback()
        raise
