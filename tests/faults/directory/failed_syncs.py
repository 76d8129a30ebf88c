"""Failing syncs and power cuts together, on the directory store: a sync that failed is never built upon.

One sync of the recording fails, of a file or of a directory. What a file's sync should have written is lost for good,
although later syncs say that all is well, for that is what systems do. Then the power is cut, at every boundary. What
was acknowledged must be there, and what was refused must not come back.
"""

from __future__ import annotations

from typing import Final

import holdfast
from holdfast.store.directory.directory_store import DirectoryStore
from tests.faults.core.replay import COUNTED, Recorded, fail_syncs
from tests.faults.core.report import Figures
from tests.faults.core.scratch import SeededIds, StillClock, scratch
from tests.faults.core.workload import Workload
from tests.faults.directory.power_cuts import NAME, DirectoryReplay
from tests.faults.directory.recorder import Recorder

MUTANTS: Final = {"sync_errors_swallowed": ("lost", "damaged")}


def run(syncs: int, seed: int, mutant: str | None = None, images_each: int = 150, workers: int = 2) -> Figures:
    """Let so many syncs fail."""
    figures = Figures("dir_syncs", seed, mutant)
    figures.expect("failing_syncs", *COUNTED)

    def recorded(name: str, failing: int | None) -> Recorded:
        return _record(name, failing, shown=mutant != "sync_errors_swallowed")

    caught = MUTANTS.get(mutant or "", ())
    fail_syncs(figures, syncs, workers, recorded, DirectoryReplay, images_each=images_each, caught=caught)
    return figures


def _record(seed: str, failing: int | None, *, shown: bool) -> Recorded:
    """A recording in which a sync fails."""
    with scratch(fast=True) as place:
        recorder = Recorder(place, failing_sync=failing, failure_shown=shown)

        def open_store(boot: int) -> holdfast.Store:
            clock = StillClock(f"boot {boot}")
            port = DirectoryStore(str(place / NAME), clock, reserve_bytes=0, files=recorder)
            return holdfast.Store(port, clock=clock, ids=SeededIds((seed, boot)))

        work = Workload(seed, open_store, recorder.mark)
        work.run()
    about = f"seed {seed!r}, failing sync {failing}"
    return Recorded(about, recorder.calls, recorder.sync_count, work.stages, work.past, work.failed)
