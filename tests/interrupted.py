"""Interrupts at random moments, as Ctrl-C brings them; for tests of stores that must live through them."""

from __future__ import annotations

import gc
import random
import signal
from collections.abc import Callable


class Interrupted(BaseException):
    """What the signal raises."""


def interrupted(work: Callable[[int], object], times: int, longest_s: float) -> int:
    """Do `work` with growing numbers, interrupting it `times` times; how often it came to its end."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    gc.disable()  # what is raised in a callback of the collector is lost, and reported as somebody else's
    before = signal.signal(signal.SIGALRM, interrupt)
    chance = random.Random(7)
    done = met = number = 0
    try:
        while met < times:
            number += 1
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, longest_s))
                work(number)
                signal.setitimer(signal.ITIMER_REAL, 0)
                done += 1
            except Interrupted:
                met += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    return done
