"""Hearing of runs: PostgreSQL tells at once which runs have become ready or have something new in their inbox.

It is only a hint, sent with the commit itself: one that is missed (while the connection was down, say) is not sent
again, so whoever listens also looks now and then.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self

import psycopg
from psycopg import sql

from holdfast.errors import StorageFailed
from holdfast.forking import watch
from holdfast.store.postgres.connection import Link, Opener, abandon
from holdfast.store.postgres.errors import translated

_QUIET_S: Final = 20.0
"""After so long without a word the connection is tried."""


class Listener:
    """A connection that hears of runs. Used by one thread; `with` closes it."""

    def __init__(self, opener: Opener, channel: str) -> None:
        self._opener = opener
        self._channel = channel
        self._link: Link | None = None
        self._alive = 0.0
        """When the connection last showed that it is not half open."""
        self._listening()
        watch(self)

    def after_fork(self) -> None:
        """Leave the parent's connection alone; a child that listens opens one of its own."""
        if self._link is not None:
            abandon([self._link])
            self._link = None

    def works(self, timeout_s: float = 5.0) -> bool:
        """Whether what is told arrives: tells itself something and listens for it."""
        token = f"{id(self)}/{time.monotonic_ns()}"
        link = self._listening()
        link.execute("SELECT pg_notify(%s, %s)", (self._channel, token))
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if token in self.heard(until - time.monotonic()):
                return True
        return False

    def heard(self, timeout_s: float) -> list[str]:
        """The ids of runs that something happened to, as soon as there are any; none if nothing did for so long.

        A connection that was lost is opened anew; what happened meanwhile is not told.
        """
        link = self._listening()
        try:
            if time.monotonic() > self._alive + _QUIET_S:
                link.execute("SELECT 1")
                self._alive = time.monotonic()
            heard = list(dict.fromkeys(n.payload for n in link.notifies(timeout=timeout_s, stop_after=1)))
            self._alive = time.monotonic() if heard else self._alive
            return heard
        except psycopg.Error:
            self.close()
            time.sleep(min(timeout_s, 0.1))
            self._listening()
            return []

    def _listening(self) -> Link:
        if self._link is None:
            link = self._opener.open(time.monotonic() + self._opener.timeout_s)
            try:
                if link.pooled:
                    raise StorageFailed(
                        f"{self._opener.settings.shown} leads through a pooler, which does not pass on what is told; "
                        "look for ready runs now and then instead"
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
        """Hear nothing more. Closing twice is no mistake."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
