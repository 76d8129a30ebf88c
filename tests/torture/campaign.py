"""Which harnesses there are, and how much of each is done: in `make torture`, or in the slice of `make test`."""

from __future__ import annotations

import importlib
from typing import Any, Final, NamedTuple

from tests.torture.alone import run_alone
from tests.torture.figures import Figures

_TRIES: Final = 4


class Harness(NamedTuple):
    """A harness: the argument that says how much, and how much is enough to catch a mutant."""

    name: str
    argument: str
    to_catch: float
    """As much as this must show every mutant."""
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed

    @property
    def mutants(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = importlib.import_module(f"tests.torture.{self.name}").MUTANTS
        return found

    def run(self, amount: float, seed: int, timeout_s: float) -> Figures:
        """Run it against the store as it is."""
        return run_alone(self.name, timeout_s, **{self.argument: amount, "seed": seed}, **self.more)

    def catches(self, mutant: str, seed: int) -> tuple[bool, Figures]:
        """Run it against a broken variant; whether it noticed, and by the right sign.

        What is broken shows by chance, more rarely on a busy machine, so it is given a few tries.
        """
        for attempt in range(_TRIES):
            arguments: dict[str, Any] = {self.argument: self.to_catch, "seed": seed + 1000 * attempt, "mutant": mutant}
            figures = run_alone(self.name, **arguments, **self.more)
            if figures.found(self.mutants[mutant]):
                return True, figures
        return False, figures


HARNESSES: Final = {
    harness.name: harness
    for harness in (
        Harness("kills", "kills", 100),
        Harness("cuts", "cuts", 2000),
        Harness("syncs", "syncs", 40, {"images_each": 100}),
        Harness("faults", "faults", 200),
        Harness("full", "trials", 3),
        Harness("claims", "seconds", 5),
        Harness("writers", "seconds", 2),
        Harness("forks", "forks", 6),
        Harness("races", "races", 60),
        Harness("dir_crashes", "cuts", 500),
        Harness("dir_syncs", "syncs", 12, {"images_each": 60}),
        Harness("dir_faults", "faults", 250),
        Harness("pg_chaos", "seconds", 2),
        Harness("engine_kills", "kills", 0),
        Harness("engine_stops", "stops", 20),
        Harness("engine_answers", "rounds", 5),
        Harness("engine_workers", "runs", 80),
        Harness("formats_claims", "rounds", 150),
        Harness("formats_beside", "rounds", 400),
        Harness("formats_cuts", "cuts", 300),
        Harness("attack", "count", 0),
    )
}
