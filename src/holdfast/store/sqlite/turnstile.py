"""Counts those who are inside, and can keep everybody out for a while: so that nobody is in SQLite during a fork."""

from __future__ import annotations

import threading
import time


class Turnstile:
    """Lets any number in at once, unless it is shut."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._shut = False

    def enter(self) -> None:
        with self._changed:
            while self._shut:
                self._changed.wait()
            self._inside += 1

    def leave(self) -> None:
        with self._changed:
            self._inside -= 1
            if self._shut:
                self._changed.notify_all()

    def shut(self, timeout_s: float) -> bool:
        """Let nobody in any more and wait until all have left; False if somebody is still inside after that time."""
        until = time.monotonic() + timeout_s
        with self._changed:
            self._shut = True
            while self._inside and time.monotonic() < until:
                self._changed.wait(until - time.monotonic())
            return not self._inside

    def open(self) -> None:
        with self._changed:
            self._shut = False
            self._changed.notify_all()
