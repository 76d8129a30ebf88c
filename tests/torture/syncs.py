"""Failing syncs and power cuts together: a sync that failed is never built upon.

One sync of the recording fails. What it should have written is lost for good, although later syncs say that all is
well, for that is what systems do. Then the power is cut, at every boundary. What was acknowledged must be there, and
what was refused must not come back.
"""

from __future__ import annotations

import random
from typing import Final

from tests.torture.figures import Figures
from tests.torture.recorder import SYNC, Recorder
from tests.torture.replay import COUNTED, Replay, enough, record, share
from tests.torture.scratch import scratch

MUTANTS: Final = {"sync_errors_swallowed": ("lost", "damaged")}


def run(syncs: int, seed: int, mutant: str | None = None, images_each: int = 300, workers: int = 2) -> Figures:
    """Let so many syncs fail, each in a recording of its own: all syncs of one workload, then those of the next."""
    figures = Figures("syncs", seed, mutant)
    figures.expect("failing_syncs", *COUNTED)

    def work(worker: int, found: Figures) -> None:
        chance = random.Random(f"{seed} {worker}")
        plan = _plan(seed, worker, workers, syncs, chance)
        with scratch(fast=True) as place:
            for name, failing in plan:
                recorder = Recorder(failing_sync=failing, failure_shown=mutant != "sync_errors_swallowed")
                recorded = record(name, recorder, mutant)
                found.add("failing_syncs")
                Replay(recorded, place / "image", found, chance).check(images_each)
                if enough(found):
                    return

    share(figures, workers, work)
    return figures


def _plan(seed: int, worker: int, workers: int, syncs: int, chance: random.Random) -> list[tuple[str, int]]:
    """Which sync of which workload is to fail. Every one of a workload, in random order, before the next workload."""
    plan: list[tuple[str, int]] = []
    number = 0
    while len(plan) < syncs:
        name = f"{seed} syncs {number}"
        whole = record(name, Recorder(), None)
        count = sum(call.kind == SYNC for call in whole.calls)
        order = list(range(1, count + 1))
        random.Random(name).shuffle(order)
        plan += [(name, failing) for failing in order]
        number += 1
    return plan[:syncs][worker::workers]
