"""The day, which decides the part of each long campaign that `make test` runs.

The process that starts the others chooses the day, so a test run that passes midnight does not change its tests.
`HOLDFAST_TEST_DAY=20774 make test` repeats what was run on that day; `make torture` runs what other days run, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import pytest

_VARIABLE: Final = "HOLDFAST_TEST_DAY"

TODAY: Final = int(os.environ.setdefault(_VARIABLE, str(int(time.time() // 86_400))))

Part = TypeVar("Part")
Tests = TypeVar("Tests", bound=type)


def select_daily(parts: Sequence[Part], count: int, day: int = TODAY) -> list[Part]:
    """Return about `count` parts, spread over all of them; on each day others, until all had their turn."""
    step = -(-len(parts) // count) if count else len(parts) + 1
    return list(parts[day % step :: step])


def every(days: int, turn: int) -> Callable[[Tests], Tests]:
    """Decorate a class of tests that has its turn every so many days; `make torture` always runs it."""
    return (lambda tests: tests) if TODAY % days == turn else pytest.mark.torture


def matrix_params(pairs: Sequence[tuple[str, str]], daily: Sequence[Sequence[tuple[str, str]]]) -> list[Any]:
    """The pairs as parameters. Of those in `daily`, one group has its turn each day; `make torture` runs the others."""
    others = [pair for group in daily for pair in group if group is not daily[TODAY % len(daily)]]
    marks = dict.fromkeys(others, (pytest.mark.torture,))
    return [pytest.param(pair, id="-".join(pair), marks=marks.get(pair, ())) for pair in pairs]
