"""Failing syncs and power cuts together: a sync that failed is never built upon.

One sync of the recording fails. What it should have written is lost for good, although later syncs say that all is
well, for that is what systems do. Then the power is cut, at every boundary. What was acknowledged must be there, and
what was refused must not come back.
"""

from __future__ import annotations

from typing import Final

from tests.faults.core.replay import COUNTED, Recorded, fail_syncs
from tests.faults.core.report import Figures
from tests.faults.sqlite.recorder import Recorder
from tests.faults.sqlite.replay import SqliteReplay, record

MUTANTS: Final = {"sync_errors_swallowed": ("lost", "damaged")}


def run(syncs: int, seed: int, mutant: str | None = None, images_each: int = 300, workers: int = 2) -> Figures:
    """Let so many syncs fail."""
    figures = Figures("syncs", seed, mutant)
    figures.expect("failing_syncs", *COUNTED)

    def recorded(name: str, failing: int | None) -> Recorded:
        return record(name, Recorder(failing_sync=failing, failure_shown=mutant != "sync_errors_swallowed"), mutant)

    caught = MUTANTS.get(mutant or "", ())
    fail_syncs(figures, syncs, workers, recorded, SqliteReplay, images_each=images_each, caught=caught)
    return figures
