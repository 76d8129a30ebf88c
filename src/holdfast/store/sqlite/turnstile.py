"""Knows who is inside, and can keep everybody out for a while: so that nobody is in SQLite during a fork.

Whoever goes in holds a ticket of its own. Going in and out are single operations on a set and may be repeated, so an
interrupt between any two steps leaves nothing locked and nobody counted for ever, as long as `leave` stands in a
`finally`.
"""

from __future__ import annotations

import time
from typing import Final

_LOOK_S: Final = 0.0005


class Turnstile:
    """Lets any number in at once, unless it is shut."""

    def __init__(self) -> None:
        self._inside: set[object] = set()
        self._shut = False

    def enter(self, ticket: object) -> None:
        """Go in, as soon as it is not shut."""
        self._inside.add(ticket)
        while self._is_shut():  # perhaps in this very moment, so look after having come in
            self._inside.discard(ticket)
            time.sleep(_LOOK_S)
            self._inside.add(ticket)

    def _is_shut(self) -> bool:
        return self._shut

    def leave(self, ticket: object) -> None:
        """Go out; also for who never came in."""
        self._inside.discard(ticket)

    def shut(self, timeout_s: float) -> bool:
        """Let nobody in any more and wait until all have left; False if somebody is still inside after that time."""
        until = time.monotonic() + timeout_s
        self._shut = True
        while self._inside and time.monotonic() < until:
            time.sleep(_LOOK_S)
        return not self._inside

    def open(self) -> None:
        """Let everybody in again."""
        self._shut = False
