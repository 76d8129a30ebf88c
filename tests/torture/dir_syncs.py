"""Failing syncs and power cuts together, on the directory store: a sync that failed is never built upon.

One sync of the recording fails, of a file or of a directory. What a file's sync should have written is lost for good,
although later syncs say that all is well, for that is what systems do. Then the power is cut, at every boundary. What
was acknowledged must be there, and what was refused must not come back.
"""

from __future__ import annotations

import logging
import random
from typing import Any, Final, cast

import holdfast
from holdfast.store.directory.store import DirectoryStore
from tests.torture.dir_crashes import NAME, Recorded, Replay
from tests.torture.dir_recorder import Recorder
from tests.torture.dir_workload import mixed
from tests.torture.figures import Figures
from tests.torture.model import Picture, observe
from tests.torture.replay import enough, share
from tests.torture.scratch import SeededIds, StillClock, scratch
from tests.torture.workload import Workload

MUTANTS: Final = {"sync_errors_swallowed": ("lost", "damaged")}


class DirectoryWorkload(Workload):
    """The operations of the SQLite harnesses, on a directory."""

    def __init__(self, seed: str, recorder: Recorder, path: Any) -> None:
        super().__init__(seed, path, cast(Any, recorder))
        self._files = recorder

    def _stage(self, about: str, *allowed: Picture) -> None:
        if about.startswith("in recover_expired"):  # a commit for each run
            allowed = (*allowed, *mixed(*allowed[:2]))
        super()._stage(about, *allowed)

    def _opened(self, boot: int) -> holdfast.Store:
        """The store; a disk that failed once is tried again, as its user would."""
        clock, ids = StillClock(f"boot {boot}"), SeededIds((self._seed, boot))
        for _ in range(3):
            try:
                port = DirectoryStore(str(self._path), clock, reserve_bytes=0, files=self._files)
                return holdfast.Store(port, clock=clock, ids=ids)
            except holdfast.StorageError:
                continue
        raise AssertionError("a disk that fails once cannot keep the store from being opened")


def run(syncs: int, seed: int, mutant: str | None = None, images_each: int = 150, workers: int = 2) -> Figures:
    """Let so many syncs fail, each in a recording of its own: all syncs of one workload, then those of the next."""
    figures = Figures("dir_syncs", seed, mutant)
    figures.expect(
        "failing_syncs", "boundaries", "images", "acknowledged", "lost", "torn", "came_back", "damaged", "unopenable"
    )

    def work(worker: int, found: Figures) -> None:
        logging.disable(logging.WARNING)  # torn tails are to be found here, and are counted
        chance = random.Random(f"{seed} {worker}")
        with scratch(fast=True) as place:
            for name, failing in _plan(seed, syncs)[worker::workers]:
                recorded, _ = _recorded(name, failing, shown=mutant != "sync_errors_swallowed")
                found.add("failing_syncs")
                Replay(recorded, place, found, chance).check(images_each)
                if enough(found):
                    return

    share(figures, workers, work)
    return figures


def _recorded(seed: str, failing: int | None, *, shown: bool) -> tuple[Recorded, int]:
    """A recording in which a sync fails, and how many syncs it has."""
    with scratch(fast=True) as place:
        recorder = Recorder(place, failing_sync=failing, failure_shown=shown)
        work = DirectoryWorkload(seed, recorder, place / NAME)
        work.run()
    about = f"seed {seed!r}, failing sync {failing}"
    return Recorded(about, recorder.calls, work.stages, work.past, work.failed, observe), recorder.sync_count


def _plan(seed: int, syncs: int) -> list[tuple[str, int]]:
    """Which sync of which workload is to fail. Every one of a workload, in random order, before the next workload."""
    plan: list[tuple[str, int]] = []
    number = 0
    while len(plan) < syncs:
        name = f"{seed} syncs {number}"
        _, count = _recorded(name, None, shown=True)
        order = list(range(1, count + 1))
        random.Random(name).shuffle(order)
        plan += [(name, failing) for failing in order]
        number += 1
    return plan[:syncs]
