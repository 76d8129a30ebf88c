"""Progress: told to a callback, or shown on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

Tell = Callable[[int, int], object]
"""Is told how many checkpoints are done, and of how many."""

_BAR: Final = 32
_BAR_PAUSE_S: Final = 0.1
_LINE_PAUSE_S: Final = 10.0


def teller(progress: Tell | bool | None) -> Tell:
    """What to tell progress to."""
    if callable(progress):
        return progress
    return _Shown(sys.stderr) if progress else _nothing


def _nothing(done: int, total: int) -> None:
    """Nobody wants to know."""


class _Shown:
    """A bar where there is a terminal; elsewhere, in a log, a line now and then."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._bar = out.isatty()
        self._began = time.monotonic()
        self._last = self._began if not self._bar else 0.0
        self._ended = False

    def __call__(self, done: int, total: int) -> None:
        now, end = time.monotonic(), done >= total
        if self._ended or (not end and now - self._last < (_BAR_PAUSE_S if self._bar else _LINE_PAUSE_S)):
            return
        self._last, self._ended = now, end
        share = done / total if total else 1.0
        pace = done / max(now - self._began, 1e-6)
        text = f"{share:4.0%} {done}/{total} checkpoints, {pace:.0f}/s"
        if self._bar:
            full = int(share * _BAR)
            self._out.write(f"\r\x1b[2K{'█' * full}{'░' * (_BAR - full)} {text}" + ("\n" if end else ""))
        else:
            self._out.write(f"migrate: {text}\n")
        self._out.flush()
