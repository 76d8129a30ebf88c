"""CAR's directory: four processes claim the same run at the same instant, over and over.

In each round one of them saves a run, and all claim it. Who gets it looks whether its file is there and is its own,
saves the next pause, which the others may claim at once, and completes; who does not get it tries to recover it. So it
goes through three pauses. Exactly one wins each pause; at no moment is the checkpoint gone.

    no_lock        claims are not serialised, so a claimant's sidecar may be another's
    remove_first   a claim removes what is in its way before it renames, as the original does
    unfenced       completing removes the marker, whoever's it is, as the original does
    steals         recovery takes runs from the living, as the original does
"""

from __future__ import annotations

import contextlib
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
from holdfast.formats.car.claims import Claims
from holdfast.formats.folder import Folder
from tests.faults.core.report import Figures
from tests.faults.core.scratch import child, reap, scratch
from tests.formats.sample_files import paused, raw

_WRONG: Final = ("lost", "double_owners", "taken_away", "refused")
MUTANTS: Final = {"no_lock": _WRONG, "remove_first": _WRONG, "unfenced": _WRONG, "steals": _WRONG}

PROCESSES: Final = 4
PAUSES: Final = 3
_WAIT_S: Final = 240.0
_LOST_S: Final = 5.0
_WORK_S: Final = 0.0002
_RARELY: Final = 5
_COUNTS: Final = struct.Struct("=QQQQ")
"""Of each process: claims it did not get, recoveries that took something, files that were gone, refusals."""


def run(rounds: int, seed: int, mutant: str | None = None) -> Figures:
    """Contend for so many rounds."""
    with scratch(fast=True) as place:
        return contend(place, rounds, seed, mutant)


def contend(place: Path, rounds: int, seed: int = 0, mutant: str | None = None) -> Figures:
    """Contend for so many rounds in this directory."""
    figures = Figures("formats_claims", seed, mutant)
    figures.expect("rounds", "won", "contested", "double_owners", "lost", "taken_away", "refused", "failed")
    barrier, counts = mmap.mmap(-1, 4096), mmap.mmap(-1, 4096)
    winners = mmap.mmap(-1, rounds * PAUSES * PROCESSES)
    pids = [child(_work, place, rounds, me, barrier, counts, winners, mutant) for me in range(PROCESSES)]
    for pid in pids:
        status = reap(pid, _WAIT_S + rounds)
        if status != 0:
            figures.problem("failed", f"a process that claims ended with {status}")
    for me in range(PROCESSES):
        contested, recovered, gone, refused = _COUNTS.unpack_from(counts, me * _COUNTS.size)
        figures.add("contested", contested)
        for kind, count in (("double_owners", recovered), ("taken_away", gone), ("refused", refused)):
            if count:
                figures.problem(kind, f"process {me}: {count} times")
    _check(rounds, winners, place, figures)
    return figures


def _check(rounds: int, winners: mmap.mmap, place: Path, figures: Figures) -> None:
    for at in range(rounds * PAUSES):
        number, pause = divmod(at, PAUSES)
        figures.add("rounds", pause == 0)
        won = sum(winners[at * PROCESSES : (at + 1) * PROCESSES])
        figures.add("won", won)
        if won == 0:
            figures.problem("lost", f"round {number}: nobody got pause {pause + 1}")
            return
        if won > 1:
            figures.problem("double_owners", f"round {number}: pause {pause + 1} was got {won} times")
    left = [path.name for path in place.iterdir() if path.suffix in (".json", ".inflight")]
    if left and not figures.problem_count:
        figures.problem("lost", f"left behind: {left[:5]}")


def _work(
    place: Path, rounds: int, me: int, barrier: mmap.mmap, counts: mmap.mmap, winners: mmap.mmap, mutant: str | None
) -> None:
    tally = [0, 0, 0, 0]
    with _mutated(mutant):
        runs = car.Directory(place)
        for number in range(rounds):
            run_id = f"run-{number}"
            if number % PROCESSES == me:
                runs.save(paused(run_id))
            _meet(barrier, me, 2 * number + 1)
            _contend(runs, run_id, place, me, memoryview(winners)[number * PAUSES * PROCESSES :], tally)
            _meet(barrier, me, 2 * number + 2)
            if not winners[(number * PAUSES + PAUSES - 1) * PROCESSES :][:PROCESSES].strip(b"\0"):
                break  # it was lost, which is enough to know
        runs.close()
    _COUNTS.pack_into(counts, me * _COUNTS.size, *tally)


def _contend(runs: car.Directory, run_id: str, place: Path, me: int, winners: memoryview, tally: list[int]) -> None:
    """Claim until somebody has had the last pause."""
    last, until = (PAUSES - 1) * PROCESSES, time.monotonic() + _LOST_S
    while not any(winners[last : last + PROCESSES]) and time.monotonic() < until:
        claimed = _tried(lambda: runs.claim(run_id))
        if claimed is None:
            tally[0] += 1
            if tally[0] % _RARELY == 0:
                tally[1] += int(_tried(runs.recover_orphaned) or 0)
            time.sleep(_WORK_S)
            continue
        pause = claimed["iterations"]
        winners[(pause - 1) * PROCESSES + me] += 1
        time.sleep(_WORK_S)  # whoever completes the pause before does so now
        with contextlib.suppress(OSError, ValueError):
            tally[2] -= raw(place / f"{run_id}.inflight") == dict(claimed)
        tally[2] += 1
        try:
            if pause < PAUSES:
                runs.save({**claimed, "iterations": pause + 1})
            runs.complete(claimed)
        except (holdfast.HoldfastError, OSError):
            tally[3] += 1


def _tried(verb: Any) -> Any:
    """What the verb gives; with a mutant in it anything may be in its way."""
    try:
        return verb()
    except (holdfast.HoldfastError, OSError):
        return None


def _meet(barrier: mmap.mmap, me: int, number: int) -> None:
    """Wait until all have come here."""
    struct.pack_into("=Q", barrier, 8 * me, number)
    until = time.monotonic() + _WAIT_S
    while any(struct.unpack_from("=Q", barrier, 8 * other)[0] < number for other in range(PROCESSES)):
        if time.monotonic() > until:
            raise TimeoutError(f"process {me} waited in vain at {number}")
        os.sched_yield()


# --- mutants ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _mutated(name: str | None) -> Iterator[None]:
    with _MUTATIONS[name]() if name else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _unheld(self: Folder) -> Iterator[None]:
    self.make(".holdfast")
    yield


def _removing(self: Folder, old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    if os.path.exists(self.at(*old)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.at(*new))
    try:
        os.rename(self.at(*old), self.at(*new))
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def _remove_first() -> Iterator[None]:
    with mock.patch.object(Folder, "hold", _unheld), mock.patch.object(Folder, "rename", _removing):
        yield


_MUTATIONS: Final[dict[str, Any]] = {
    "no_lock": lambda: mock.patch.object(Folder, "hold", _unheld),
    "remove_first": _remove_first,
    "unfenced": lambda: mock.patch.object(Claims, "is_held", return_value=True),
    "steals": lambda: mock.patch.object(Claims, "holder_is_alive", return_value=False),
}
