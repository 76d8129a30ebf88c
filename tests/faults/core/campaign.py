"""Which harnesses there are, and how much of each is done: in `make torture`, or in the slice of `make test`."""

from __future__ import annotations

import importlib
from typing import Any, Final, NamedTuple

from tests.faults.core.alone import run_alone
from tests.faults.core.report import Figures

_TRIES: Final = 4


class Harness(NamedTuple):
    """A harness: the argument that says how much, and how much is enough to catch a mutant."""

    name: str
    module: str
    argument: str
    to_catch: float
    """As much as this must show every mutant."""
    more: dict[str, Any] = {}  # noqa: RUF012 - never changed

    @property
    def mutants(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = importlib.import_module(f"tests.faults.{self.module}").MUTANTS
        return found

    def run(self, amount: float, seed: int, timeout_s: float, **more: Any) -> Figures:
        """Run it against the store as it is."""
        return run_alone(self.module, timeout_s, **{self.argument: amount, "seed": seed, **self.more, **more})

    def catches(self, mutant: str, seed: int) -> tuple[bool, Figures]:
        """Run it against a broken variant; whether it noticed, and by the right sign.

        What is broken shows by chance, more rarely on a busy machine, so it is given a few tries.
        """
        for attempt in range(_TRIES):
            arguments: dict[str, Any] = {self.argument: self.to_catch, "seed": seed + 1000 * attempt, "mutant": mutant}
            figures = run_alone(self.module, **arguments, **self.more)
            if figures.found(self.mutants[mutant]):
                return True, figures
        return False, figures


HARNESSES: Final = {
    harness.name: harness
    for harness in (
        Harness("kills", "sqlite.process_kills", "kills", 100),
        Harness("cuts", "sqlite.power_cuts", "cuts", 2000),
        Harness("syncs", "sqlite.failed_syncs", "syncs", 40, {"images_each": 100}),
        Harness("faults", "sqlite.failing_calls", "faults", 200),
        Harness("full", "sqlite.disk_full", "trials", 3),
        Harness("claims", "sqlite.claims", "seconds", 5),
        Harness("writers", "sqlite.writers", "seconds", 2),
        Harness("forks", "sqlite.forks", "forks", 6),
        Harness("races", "sqlite.races", "races", 60),
        Harness("dir_crashes", "directory.power_cuts", "cuts", 500),
        Harness("dir_syncs", "directory.failed_syncs", "syncs", 12, {"images_each": 60}),
        Harness("dir_faults", "directory.failing_calls", "faults", 250),
        Harness("pg_chaos", "postgres.chaos", "seconds", 2),
        Harness("engine_kills", "engine.process_kills", "kills", 0),
        Harness("engine_stops", "engine.stops", "stops", 20),
        Harness("engine_answers", "engine.answers", "rounds", 5),
        Harness("engine_workers", "engine.workers", "runs", 80),
        Harness("formats_claims", "formats.claims", "rounds", 150),
        Harness("formats_beside", "formats.beside_originals", "rounds", 400),
        Harness("formats_cuts", "formats.power_cuts", "cuts", 300),
        Harness("attack", "engine.attack_slice", "count", 0),
    )
}
