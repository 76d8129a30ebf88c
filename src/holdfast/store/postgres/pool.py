"""Connections for readers: opened when they are needed, kept for the next reader, each used by one at a time.

The driver's own pool has threads, which do not survive a fork, and looks after connections even while nobody uses them.
Here a connection that turns out to be dead is dropped by whoever finds it, and all that wait beside it with it.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import psycopg

from holdfast.errors import HoldfastError, StorageBusy, StoreClosed
from holdfast.store.postgres.connection import Link, Opener
from holdfast.store.postgres.errors import is_broken, translated

Result = TypeVar("Result")

_LOOK_S: Final = 0.001


class Pool:
    """Up to so many connections at once."""

    def __init__(self, opener: Opener, size: int) -> None:
        self._opener = opener
        self._size = size
        self._closed = False
        self.reset()

    def reset(self) -> None:
        """Begin with no connections: after a fork they are the parent's."""
        self._idle: deque[Link] = deque()
        self._busy: set[object] = set()
        """Who uses a connection, each with a ticket of its own: taking and giving one back twice does no harm, so an
        interrupt at any moment loses none."""

    def run(self, work: Callable[[Link], Result]) -> Result:
        """Do `work`, which only reads. If the connection is lost it is done again on another."""
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
                    self._give_back(link)
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
            time.sleep(_LOOK_S)
            self._busy.add(ticket)

    def failed(self, error: psycopg.Error) -> HoldfastError:
        """What an error of the driver means."""
        return translated(error, self._opener.settings.shown, self._opener.timeout_s)

    def _taken(self, until: float) -> Link:
        if self._closed:
            raise StoreClosed(f"{self._opener.settings.shown} was closed")
        while True:
            try:
                link = self._idle.pop()
            except IndexError:
                return self._opener.open(until)
            if not is_broken(link):
                return link

    def _give_back(self, link: Link) -> None:
        if is_broken(link) or self._closed or link.pgconn.transaction_status:
            link.close()
        else:
            self._idle.append(link)

    def links(self) -> list[Link]:
        """The connections nobody uses at this moment."""
        return list(self._idle)

    def drop_idle(self) -> None:
        """Close what waits for readers: it was cut off with the one that was used."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def close(self) -> None:
        """Close what there is, and give out nothing more."""
        self._closed = True
        self.drop_idle()


@contextlib.contextmanager
def of_one_moment(link: Link) -> Iterator[None]:
    """Reads that all see the database as it is at the first of them."""
    link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield
        link.execute("COMMIT")
    except BaseException:
        if not is_broken(link):
            with contextlib.suppress(psycopg.Error):
                link.rollback()
        raise
