"""Claims contested as fast as they can be: eight processes, few runs, and memory all of them share as the referee.

Whoever holds a run writes its number into the run's slot, and must find it there before giving the run back. Leases are
long, so there is never a reason for two owners.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path
from typing import Final

import holdfast
from tests.faults.core.report import Figures
from tests.faults.core.scratch import child, reap

_WORKERS: Final = 8
_RUNS: Final = 4
_LEASE_S: Final = 600.0
_COUNTS: Final = struct.Struct("=QQQ")
"""Of each worker: claims it got, claims it did not get, and how often another was in its slot."""


def run(place: Path, seconds: float, figures: Figures) -> None:
    """Claim and release for so long."""
    url = f"sqlite:{place / 'runs.db'}"
    slots = mmap.mmap(-1, 4096)
    counts = mmap.mmap(-1, 4096)
    try:
        with holdfast.open(url) as store:
            for number in range(_RUNS):
                store.save(f"run {number}", {})
        pids = [child(_work, worker, url, seconds, slots, counts) for worker in range(_WORKERS)]
        for pid in pids:
            status = reap(pid, seconds + 60)
            if status != 0:
                figures.problem("failed", f"a process that contends ended with {status}")
        granted = _count(counts, figures, url)
    finally:
        slots.close()
        counts.close()
    figures.add("claims_per_s", round(granted / max(seconds, 0.001)))


def _work(worker: int, url: str, seconds: float, slots: mmap.mmap, counts: mmap.mmap) -> None:
    got = missed = doubled = turn = 0
    end = time.monotonic() + seconds
    with holdfast.open(url) as store:
        while time.monotonic() < end:
            turn += 1
            slot = (worker + turn) % _RUNS
            claim = store.claim(f"run {slot}", f"worker {worker}", _LEASE_S)
            if claim is None:
                missed += 1
                continue
            got += 1
            doubled += slots[slot] != 0
            slots[slot] = worker + 1
            try:
                claim.append([{"kind": "held", "worker": worker, "fence": claim.fence}])
                doubled += slots[slot] != worker + 1
                slots[slot] = 0
                claim.release()
            except holdfast.errors.ClaimLost:
                doubled += 1
    _COUNTS.pack_into(counts, worker * _COUNTS.size, got, missed, doubled)


def _count(counts: mmap.mmap, figures: Figures, url: str) -> int:
    """Add up what the workers counted, and compare it with the runs' own fences and journals."""
    granted = 0
    for worker in range(_WORKERS):
        got, missed, doubled = _COUNTS.unpack_from(counts, worker * _COUNTS.size)
        granted += got
        figures.add("grants", got)
        figures.add("contested_claims", missed)
        if doubled:
            figures.problem("double_owners", f"worker {worker} met another owner {doubled} times")
    with holdfast.open(url) as store:
        rows = [store.port.run(f"run {number}") for number in range(_RUNS)]
        for row in rows:
            assert row is not None
            fences = [entry["fence"] for entry in store.journal(row.run_id)]
            if fences != list(range(1, row.fence + 1)):
                figures.problem("stale_writes", f"{row.run_id} has {len(fences)} entries for {row.fence} claims")
        if sum(row.fence for row in rows if row) != granted:
            figures.problem(
                "lost", f"{granted} claims were granted, the runs count {[row.fence for row in rows if row]}"
            )
    return granted
