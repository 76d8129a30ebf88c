"""Notifications of runs that become ready or receive an inbox item, by LISTEN.

Notifications are hints, sent with the commit itself. One that is lost, for example while the connection was down, is
not sent again, so workers also poll.
"""

from __future__ import annotations

import time
from typing import Final, Self

import psycopg
from psycopg import sql

from holdfast.errors import StorageFailed
from holdfast.fork_safety import reset_after_fork
from holdfast.store.postgres.errors import translated
from holdfast.store.postgres.postgres_connection import Connection, Connector, abandon

_QUIET_S: Final = 20.0
"""After so long without a notification the connection is tested."""


class Listener:
    """A connection that receives notifications. Used by one thread; `with` closes it."""

    def __init__(self, opener: Connector, channel: str) -> None:
        self._opener = opener
        self._channel = channel
        self._link: Connection | None = None
        self._alive = 0.0
        """When the connection last proved that it is not half open."""
        self._connect()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Abandon the parent's connection; a child that listens opens its own."""
        if self._link is not None:
            abandon([self._link])
            self._link = None

    def works(self, timeout_s: float = 5.0) -> bool:
        """Whether notifications arrive: sends one to itself and waits for it."""
        token = f"{id(self)}/{time.monotonic_ns()}"
        link = self._connect()
        link.execute("SELECT pg_notify(%s, %s)", (self._channel, token))
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if token in self.notified_runs(until - time.monotonic()):
                return True
        return False

    def notified_runs(self, timeout_s: float) -> list[str]:
        """The ids of runs that changed, as soon as there are any; empty after `timeout_s`.

        A lost connection is opened again; notifications sent in the meantime are lost.
        """
        link = self._connect()
        try:
            if time.monotonic() > self._alive + _QUIET_S:
                link.execute("SELECT 1")
                self._alive = time.monotonic()
            found = list(dict.fromkeys(n.payload for n in link.notifies(timeout=timeout_s, stop_after=1)))
            self._alive = time.monotonic() if found else self._alive
            return found
        except psycopg.Error:
            self.close()
            time.sleep(min(timeout_s, 0.1))
            self._connect()
            return []

    def _connect(self) -> Connection:
        if self._link is None:
            link = self._opener.open(time.monotonic() + self._opener.timeout_s)
            try:
                if link.pooled:
                    raise StorageFailed(
                        f"{self._opener.settings.shown} connects through a pooler, which drops notifications; "
                        "poll for ready runs instead"
                    )
                link.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
            except psycopg.Error as error:
                link.close()
                raise translated(error, self._opener.settings.shown, self._opener.timeout_s) from error
            except BaseException:
                link.close()
                raise
            self._link, self._alive = link, time.monotonic()
        return self._link

    def close(self) -> None:
        """Stop listening. A second call does nothing."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
