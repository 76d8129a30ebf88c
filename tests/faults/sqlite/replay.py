"""Records workloads on SQLite, and opens the images that a power cut could leave."""

from __future__ import annotations

from typing import Final

import holdfast
from tests.faults.core.replay import Recorded, Replay
from tests.faults.core.scratch import SeededIds, StillClock, scratch
from tests.faults.core.workload import Workload
from tests.faults.sqlite.mutants import mutated
from tests.faults.sqlite.recorder import Recorder, recording

_NAME: Final = "runs.db"
_CHECKPOINT_PAGES: Final = 24


def record(seed: str, recorder: Recorder, mutant: str | None) -> Recorded:
    """Record the workload that the seed gives."""
    with scratch(fast=True) as place, mutated(mutant), recording(place, recorder, _CHECKPOINT_PAGES):

        def open_store(boot: int) -> holdfast.Store:
            clock, ids = StillClock(f"boot {boot}"), SeededIds((seed, boot))
            return holdfast.open(f"sqlite:{place / _NAME}", clock=clock, ids=ids, reserve_bytes=0)

        work = Workload(seed, open_store, recorder.mark)
        work.run()
    about = f"seed {seed!r}" + (f", failing sync {recorder.failing_sync}" if recorder.failing_sync else "")
    return Recorded(about, recorder.calls, recorder.sync_count, work.stages, work.past, work.failed)


class SqliteReplay(Replay):
    """Cuts in a recording of SQLite."""

    def open_store(self) -> holdfast.Store:
        return holdfast.open(f"sqlite:{self.place / _NAME}", clock=StillClock("after"), reserve_bytes=0)
