"""Spares targets that do not respond, so that they do not delay the messages to others.

A few attempts are made at a time. Without this, many messages to a target that never responds would take all of them
for as long as their timeouts last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from holdfast.notifications.delivery import Attempt, Target, later
from holdfast.notifications.message import Message

SLOW_S: Final = 1.0
SLOW_MAX: Final = 3
"""After so many slow failures in a row the target is spared."""
SPARED_S: Final = 30.0


class Circuit:
    """Sends to one target. What it remembers concerns this process only."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        self.target = target
        self._clock = clock
        self._slow = 0
        self._spared_until = float("-inf")

    def send(self, message: Message, left: tuple[str, ...], *, is_last: bool) -> Attempt:
        """Send the message, unless the target did not respond a moment ago. The last attempt is always made."""
        began_at = self._clock()
        if began_at < self._spared_until and not is_last:
            return later("it did not respond to other messages", self._spared_until - began_at, left)
        attempt = self.target.send(message, left)
        if attempt.state != "later" or self._clock() < began_at + SLOW_S:
            self._slow = 0
        elif self._slow + 1 < SLOW_MAX:
            self._slow += 1
        else:
            self._slow, self._spared_until = SLOW_MAX - 1, self._clock() + SPARED_S  # then one attempt decides
        return attempt
