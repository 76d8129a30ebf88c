"""Many cases: on all stores, with or without a known defect."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from tests.attack.attack import Outcome
from tests.attack.comparison import attack
from tests.attack.corpus import case_named
from tests.attack.deployment import STORES, Scratch
from tests.attack.generator import Case, case_of
from tests.attack.mutants import MUTANTS, Mutant, mutated

_WEIGHTS: Final = {"memory": 12, "sqlite": 4, "dir": 3, "postgres": 1}
"""How many of twenty cases each store gets: what is not about the store is found on the quickest one."""
_CASES_MAX: Final = 250
"""So many cases must show every mutant."""


def cases(first: int, count: int, stores: tuple[str, ...] = STORES) -> Iterator[Case]:
    """Cases of consecutive seeds, spread over the stores."""
    order = [store for store in stores for _ in range(_WEIGHTS[store])]
    for seed in range(first, first + count):
        yield case_of(seed, order[seed * 7 % len(order)])


def run(found: Iterator[Case], scratch: Scratch) -> Iterator[tuple[Case, Outcome]]:
    """Carry out cases; gives those that failed."""
    with silence():
        for case in found:
            outcome = attack(case, scratch)
            if outcome.problems:
                yield case, outcome


def caught(mutant: str, scratch: Scratch) -> tuple[bool, str]:
    """Whether the mutant is found by a problem it must show, where there is none without it; and what was found."""
    made = MUTANTS[mutant]
    seen: set[str] = set()
    with silence():
        for case in _cases_against(made):
            with mutated(mutant):
                problems = attack(case, scratch).problems
            seen |= {kind for kind, _ in problems}
            if problems and problems[0][0] in made.kinds and not attack(case, scratch).problems:
                return True, f"seed {case['seed']}: {problems[0]}"
    return False, f"{_CASES_MAX} cases show {sorted(seen) or 'nothing'}"


def _cases_against(made: Mutant) -> Iterator[Case]:
    """Cases that should show a mutant: drawn ones, unless chance seldom leads there."""
    if made.case:
        yield case_named(made.case, "memory")
    for seed in range(1, _CASES_MAX + 1):
        yield case_of(seed, "memory", made.without, made.often)


class silence:
    """Without the log lines of runs that stop, which here they do all the time."""

    def __enter__(self) -> None:
        self._before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)

    def __exit__(self, *_: object) -> None:
        logging.disable(self._before)
