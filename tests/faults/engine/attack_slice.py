"""Random workflows under random actions and crashes, on all stores; see `tests/attack`.

Proves: effects are in the world as the ledgers say, results are those of undisturbed runs, no run is stuck, forks and
copies are independent of their source, and pruning changes no outcome.
"""

from __future__ import annotations

from typing import Final

from tests.attack import mutants
from tests.attack.campaign import cases, caught
from tests.attack.campaign import run as run_cases
from tests.attack.deployment import scratch
from tests.attack.shrink import explain
from tests.faults.core.report import Figures

MUTANTS: Final = dict.fromkeys(mutants.MUTANTS, ("mutant_caught",))


def run(count: int, seed: int, mutant: str | None = None) -> Figures:
    """Carry out so many cases, or find a mutant."""
    figures = Figures("attack", seed, mutant)
    figures.expect("cases")
    with scratch() as place:
        if mutant is not None:
            found, what = caught(mutant, place)
            figures.problem("mutant_caught" if found else "mutant_missed", what)
            return figures
        figures.add("cases", count)
        for case, outcome in run_cases(cases(seed * 1_000_000, count), place):
            figures.problem(outcome.problems[0][0], explain(case, outcome, place))
    return figures
