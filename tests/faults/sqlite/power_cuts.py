"""Power cuts: after a cut at any instant the file opens, what was acknowledged is there and equal, the operation in
flight is whole or absent, nothing is damaged, and a further save works.

The file calls of the real store are recorded once (`recorder`), with database creation, checkpoints of the WAL, prune
and sweep, fork, delete, a close and a new start. For every boundary between two calls the images a cut could leave are
built (`core.images`) and opened (`core.replay`).
"""

from __future__ import annotations

from typing import Final

from tests.faults.core.replay import COUNTED, Recorded, cut_power
from tests.faults.core.report import Figures
from tests.faults.sqlite.recorder import Recorder
from tests.faults.sqlite.replay import SqliteReplay, record

MUTANTS: Final = {
    "synchronous_normal": ("lost",),
    "synchronous_off": ("lost", "damaged"),
    "rollback_journal": ("lost",),
    "sync_does_nothing": ("lost", "damaged"),
}

_IMAGES_PER_RECORDING: Final = 4000


def run(cuts: int, seed: int, mutant: str | None = None, workers: int = 2) -> Figures:
    """Look at so many distinct images, or a few more."""
    figures = Figures("cuts", seed, mutant)
    figures.expect(*COUNTED)

    def recorded(name: str, _failing: int | None) -> Recorded:
        return record(name, Recorder(sync_works=mutant != "sync_does_nothing"), mutant)

    caught = MUTANTS.get(mutant or "", ())
    cut_power(figures, cuts, workers, recorded, SqliteReplay, images_per_recording=_IMAGES_PER_RECORDING, caught=caught)
    return figures
