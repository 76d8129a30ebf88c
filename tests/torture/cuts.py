"""Power cuts: after a cut at any instant the file opens, what was acknowledged is there and equal, the operation in
flight is whole or absent, nothing is damaged, and a further save works.

The file calls of the real store are recorded once (`recorder`), with database creation, checkpoints of the WAL, prune
and sweep, fork, delete, a close and a new start. For every boundary between two calls the images a cut could leave are
built (`images`) and looked at (`replay`).
"""

from __future__ import annotations

import random
from typing import Final

from tests.torture.figures import Figures
from tests.torture.recorder import Recorder
from tests.torture.replay import COUNTED, Replay, enough, record, share
from tests.torture.scratch import scratch

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

    def work(worker: int, found: Figures) -> None:
        chance = random.Random(f"{seed} {worker}")
        with scratch(fast=True) as place:
            number = 0
            while (left := cuts / workers - found.counts.get("images", 0)) > 0 and not enough(found):
                recorder = Recorder(sync_works=mutant != "sync_does_nothing")
                recorded = record(f"{seed} {worker} {number}", recorder, mutant)
                images_max = min(int(left) + 1, _IMAGES_PER_RECORDING)
                Replay(recorded, place / "image", found, chance).check(images_max)
                number += 1

    share(figures, workers, work)
    return figures
