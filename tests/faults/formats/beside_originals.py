"""CAR's directory shared with the original: one process of ours and one that makes the original's calls claim at once.

In each round ours saves a run, and both claim it. One of them must get it. What the original got must be left to it by
a recovery with `foreign=False`, whether or not our process is still there; what ours got it must be able to complete.

    sidecar_first   a claim says whose the file is before it is renamed, and leaves that when the rename finds nothing
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import holdfast
from holdfast.formats import car
from tests.faults.core.report import Figures
from tests.faults.core.scratch import child, reap, scratch
from tests.formats import originals
from tests.formats.sample_files import paused

MUTANTS: Final = {"sidecar_first": ("stolen",)}
_WAIT_S: Final = 240.0
_COUNTS: Final = ("ours", "theirs", "both", "neither", "stolen", "refused")
_OURS, _THEIRS = range(2)


def run(rounds: int, seed: int, mutant: str | None = None) -> Figures:
    """Claim against the original for so many rounds."""
    figures = Figures("formats_beside", seed, mutant)
    figures.expect("rounds", *_COUNTS, "failed")
    barrier, counts = mmap.mmap(-1, 4096), mmap.mmap(-1, 4096)
    with scratch(fast=True) as place:
        pids = [child(work, place, rounds, barrier, counts, mutant) for work in (_work, _work_as_original)]
        for pid in pids:
            status = reap(pid, _WAIT_S + rounds)
            if status != 0:
                figures.problem("failed", f"a process that claims ended with {status}")
    figures.add("rounds", rounds)
    for at, name in enumerate(_COUNTS):
        (count,) = struct.unpack_from("=Q", counts, 8 * at)
        if name in ("ours", "theirs"):
            figures.add(name, count)
        elif count:
            figures.problem(name, f"in {count} of {rounds} rounds")
    return figures


def _work(place: Path, rounds: int, barrier: mmap.mmap, counts: mmap.mmap, mutant: str | None) -> None:
    tally = dict.fromkeys(_COUNTS, 0)
    with _mutated(mutant):
        for number in range(rounds):
            runs = car.Directory(place)
            runs.save(paused(f"run-{number}"))
            _meet(barrier, _OURS, 3 * number + 1)
            claimed = runs.claim(f"run-{number}")
            _meet(barrier, _OURS, 3 * number + 2)
            is_theirs = barrier[64] == 1
            won = ("both" if is_theirs else "ours") if claimed else ("theirs" if is_theirs else "neither")
            tally[won] += 1
            try:
                if claimed:
                    runs.complete(claimed)
            except holdfast.HoldfastError:
                tally["refused"] += 1
            runs.close()
            with car.Directory(place) as again:
                tally["stolen"] += again.recover_orphaned(foreign=False) if is_theirs else 0
            _meet(barrier, _OURS, 3 * number + 3)
    for at, name in enumerate(_COUNTS):
        struct.pack_into("=Q", counts, 8 * at, tally[name])


def _work_as_original(place: Path, rounds: int, barrier: mmap.mmap, _counts: mmap.mmap, _mutant: str | None) -> None:
    for number in range(rounds):
        _meet(barrier, _THEIRS, 3 * number + 1)
        barrier[64] = originals.car_claim(place, f"run-{number}") is not None
        _meet(barrier, _THEIRS, 3 * number + 2)
        _meet(barrier, _THEIRS, 3 * number + 3)
        for ending in (".inflight", ".json"):
            (place / f"run-{number}{ending}").unlink(missing_ok=True)


def _meet(barrier: mmap.mmap, me: int, number: int) -> None:
    """Wait until the other one has come here."""
    struct.pack_into("=Q", barrier, 8 * me, number)
    until = time.monotonic() + _WAIT_S
    while struct.unpack_from("=Q", barrier, 8 * (1 - me))[0] < number:
        if time.monotonic() > until:
            raise TimeoutError(f"process {me} waited in vain at {number}")
        os.sched_yield()


@contextlib.contextmanager
def _mutated(name: str | None) -> Iterator[None]:
    with mock.patch.object(car.Directory, "claim", _claim_sidecar_first) if name else contextlib.nullcontext():
        yield


def _claim_sidecar_first(self: Any, run_id: str) -> Any:
    folder, claims = self._folder, self._claims
    with folder.hold():
        content, identity = self._read(run_id, run_id + ".json"), folder.identity(run_id + ".json")
        if content is None or identity is None:
            return None
        claims.announce()
        sidecar = {"token": "first", "owner": claims.owner, **identity._asdict()}
        folder.put(json.dumps(sidecar).encode(), ".holdfast", "claims", run_id + ".json", sync=False)
        if not folder.rename((run_id + ".json",), (run_id + ".inflight",)):
            return None
        return car.Claimed(content, claims.take(run_id, content["workflow"]))
