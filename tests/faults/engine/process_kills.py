"""The engine: a process is killed before and after every command of a workflow that uses everything; another goes on.

The points are counted in an undisturbed life; then each is a case of its own: killed there, and taken on by another
process until the run has ended. If there are kills left, processes are killed twice: there, and again while another
takes the run on. The same for a rollback that undoes three effects. On SQLite and PostgreSQL, `def` and `async def`.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator
from typing import Final

import holdfast
from tests.faults.core.report import Figures
from tests.faults.engine import everything as story
from tests.faults.engine import rollbacks, world
from tests.faults.engine.lives import KILLED, LIFE_S, Case, Site, everything, live_all, site
from tests.faults.engine.oracle import PROBLEMS, Oracle

MUTANTS: Final = {
    "effect_without_intent": ("unannounced", "repeated"),
    "doubt_ignored": ("repeated", "doubt"),
    "recorded_steps_ignored": ("repeated", "wrong_result"),
    "other_key_after_a_crash": ("repeated",),
    "undo_not_recorded": ("undos",),
    "child_not_looked_for": ("stranded", "stuck"),
}

_OF_ROLLBACKS: Final = {"undo_not_recorded"}
_MUTANT_S: Final = 5.0
_PARTS: Final = [(kind, rollback) for rollback in (False, True) for kind in story.KINDS]


def run(kills: int, seed: int, mutant: str | None = None, sites: tuple[str, ...] = ("sqlite", "postgres")) -> Figures:
    """Kill so many processes, the same number in each part; 0 means once at every point."""
    figures = Figures("engine_kills", seed, mutant)
    figures.expect("kills", "points", "lives", *PROBLEMS, "undos")
    sites = sites[:1] if mutant else sites
    for name in sites:
        with site(name) as at:
            for kind, rollback in _PARTS:
                if mutant is None or rollback == (mutant in _OF_ROLLBACKS):
                    part = _Part(at, kind, rollback, figures, seed)
                    part.run(-(-kills // (len(sites) * len(_PARTS))) if kills else 0)
            with holdfast.open(at.url) as store:
                problems = store.verify().problems
                if problems:
                    figures.problem("unsound", f"{name}: {problems[:3]}")
    return figures


class _Part:
    """One workflow on one store."""

    def __init__(self, at: Site, kind: str, rollback: bool, figures: Figures, seed: int) -> None:
        self._site = at
        self._kind = kind
        self._rollback = rollback
        self._figures = figures
        self._chance = random.Random(f"{seed} {at.name} {kind} {rollback}")
        self._seed = seed
        self._numbers = itertools.count()
        self._oracles: dict[str, Oracle] = {}
        self._counted = 0

    def run(self, kills: int) -> None:
        with holdfast.open(self._site.url) as self._store:
            self._live(iter([self._case(())]))
            if self._counted:
                self._figures.add("points", self._counted)
                self._live(self._cases(kills or self._counted))

    def _cases(self, kills: int) -> Iterator[Case]:
        """Every point once, or evenly spread ones if there are fewer kills; the kills left go two by two."""
        apart = max(1, -(-self._counted // kills))
        singles = list(range(self._seed % apart, self._counted, apart))
        if self._figures.mutant:
            self._chance.shuffle(singles)
        for at in singles:
            if self._figures.mutant and self._figures.found(MUTANTS[self._figures.mutant]):
                return
            yield self._case((at,))
        for _ in range((kills - len(singles)) // 2):
            yield self._case((self._chance.randrange(self._counted), self._chance.randrange(self._counted)))

    def _case(self, kills: tuple[int, ...]) -> Case:
        name = f"{'back' if self._rollback else 'run'}-{self._kind}-{next(self._numbers)}"
        return Case(self._site, name, self._kind, kills, self._figures.mutant)

    def _live(self, cases: Iterator[Case]) -> None:
        act = rollbacks.there_and_back if self._rollback else everything

        def live(case: Case) -> None:
            register = functools.partial(rollbacks.register, case=case) if self._rollback else story.register
            case.live(act, register)

        live_all(cases, self._site.at_once, live, self._ended, _MUTANT_S if self._figures.mutant else LIFE_S)

    def _ended(self, case: Case, status: int | None) -> bool:
        """A life has ended. Whether the case has another."""
        figures = self._figures
        figures.add("lives")
        oracle = self._oracles.get(case.run_id)
        if oracle is None:
            kind = rollbacks.RollbackOracle if self._rollback else Oracle
            oracle = self._oracles[case.run_id] = kind(case, figures, self._store)
        if status == KILLED:
            figures.add("kills")
            oracle.look()
            return True
        oracle.look()
        del self._oracles[case.run_id]
        if status != 0:
            oracle.problem("stuck" if status is None else "failed", f"its process ended with {status}")
        else:
            oracle.end()
        if not case.kills:
            self._counted = max([line.arg for line in world.lines(case.place) if line.kind == "life"], default=0)
        return False
