"""A full disk: a clear error, earlier saves intact, reads go on, and room for prune.

Without a reserve the disk is filled until a write fails, at another byte each time: the save that met it is refused
whole, everything before it is there, and when room is made the same store goes on. With a reserve saves are refused
before the disk is full, and prune, delete and the release of a claim still work; what they free can be used again.

The disk is a quota on the files of the real store; if mounting is allowed, also a small real one.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from unittest import mock

import holdfast
from holdfast.files import durable as rooms
from tests.faults.core.model import Model, difference, observe
from tests.faults.core.operations import Operation, carry_out
from tests.faults.core.report import Figures
from tests.faults.core.scratch import SeededIds, StillClock, scratch
from tests.faults.sqlite.faulty_vfs import Faults, faulty
from tests.faults.sqlite.mutants import mutated

MUTANTS: Final = {"commit_errors_swallowed": ("lost",), "reserve_ignored": ("reserve_used_up",)}

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
_CHECKPOINT_PAGES: Final = 200
_RESERVE: Final = 2 * _MIB
_NAME: Final = "runs.db"


def run(trials: int, seed: int, mutant: str | None = None) -> Figures:
    """Fill so many disks of random sizes, and as many with a reserve."""
    figures = Figures("full", seed, mutant)
    figures.expect("disks_filled", "real_disks", "acknowledged", "lost", "unfit", "reserve_used_up", "stuck")
    chance = random.Random(f"{seed} full")
    with mutated(mutant):
        for number in range(trials):
            if mutant != "reserve_ignored":
                _fill_quota(figures, f"{seed} {number}", chance.randrange(600 * _KIB, 1100 * _KIB))
            _fill_reserved_quota(figures, f"{seed} {number}", chance.randrange(6 * _MIB, 8 * _MIB))
            if mutant and figures.problems:
                return figures
        _fill_real_disk(figures, f"{seed} real")
    return figures


def _fill_quota(figures: Figures, seed: str, quota: int) -> None:
    faults = Faults()
    with _faulty_store(seed, faults, reserve_bytes=0) as store:
        disk = _Disk(store, figures, seed)
        faults.quota_bytes = quota
        disk.fill()
        disk.compare("on a full disk")
        faults.quota_bytes = None
        disk.must("save after room was made", lambda: disk.save("more"))
        disk.compare("after room was made")
    figures.add("disks_filled")


def _fill_reserved_quota(figures: Figures, seed: str, quota: int) -> None:
    faults = Faults()

    def free_bytes(path: str) -> int:
        return quota - faults.used_bytes()

    room = mock.patch.object(rooms, "free_bytes", free_bytes)
    with room, _faulty_store(seed, faults, reserve_bytes=_RESERVE) as store:
        faults.quota_bytes = quota
        _Disk(store, figures, seed).use_reserve()
    if faults.hits:
        figures.problem("reserve_used_up", f"{faults.hits} writes met a full disk (seed {seed!r})")
    figures.add("disks_filled")


@contextlib.contextmanager
def _faulty_store(seed: str, faults: Faults, *, reserve_bytes: int) -> Iterator[holdfast.Store]:
    with (
        scratch(fast=True) as place,
        faulty(place, faults, _CHECKPOINT_PAGES),
        _opened(place, seed, reserve_bytes=reserve_bytes) as store,
    ):
        yield store


def _fill_real_disk(figures: Figures, seed: str) -> None:
    with _small_disk(12 * _MIB) as place:
        if place is not None:
            with _opened(place, seed, reserve_bytes=4 * _MIB) as store:
                _Disk(store, figures, seed).use_reserve()
            figures.add("real_disks")


@contextlib.contextmanager
def _small_disk(size: int) -> Iterator[Path | None]:
    """A file system of its own in memory; None where it cannot be mounted."""
    with scratch() as place:
        disk = place / "disk"
        disk.mkdir()
        if os.geteuid() != 0 or not _did("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)):
            yield None
            return
        try:
            yield disk
        finally:
            _did("umount", str(disk))


def _did(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=240, check=False).returncode == 0
    except OSError:
        return False


@contextlib.contextmanager
def _opened(place: Path, seed: str, *, reserve_bytes: int) -> Iterator[holdfast.Store]:
    url = f"sqlite:{place / _NAME}"
    with holdfast.open(url, clock=StillClock("boot"), ids=SeededIds(seed), reserve_bytes=reserve_bytes) as store:
        yield store


class _Disk:
    """A store on a disk that fills up, and what must be on it."""

    def __init__(self, store: holdfast.Store, figures: Figures, seed: str) -> None:
        self._store = store
        self._figures = figures
        self._seed = seed
        self._chance = random.Random(seed)
        self._model = Model()
        self._number = 0

    def save(self, run_id: str) -> None:
        """Save a state that does not compress."""
        self._number += 1
        pieces = [self._chance.randbytes(3000).hex() for _ in range(self._chance.randrange(1, 6))]
        self._do(Operation("save", run_id, {"state": {"number": self._number, "pieces": pieces}}))

    def _do(self, operation: Operation) -> None:
        carry_out(self._store, {}, operation)
        self._model.apply(*operation[:2], **operation.values)
        self._figures.add("acknowledged")

    def fill(self) -> None:
        """Save until there is no room."""
        for _ in range(5000):
            try:
                self.save(self._chance.choice(("a", "b")))
            except holdfast.errors.StorageFull:
                return
            except Exception as error:
                self._problem("unfit", f"a full disk was reported as {error!r}")
                return
        self._problem("unfit", "the disk never became full")

    def use_reserve(self) -> None:
        """Fill the disk up to the reserve, and do everything that must still work; then save again."""
        store = self._store
        for run_id in ("a", "b", "held"):
            self.save(run_id)
        claim = store.claim("held", "worker", 60)
        assert claim is not None
        self.fill()
        self._model.claim("held", "worker")
        self.compare("with only the reserve left")
        self.must("release", claim.release)
        self._model.release("held", None)
        self.must("prune", lambda: self._do(Operation("prune", "a", {"last": 1})))
        self.must("delete", lambda: self._do(Operation("delete", "b", {})))
        self.compare("after prune and delete")
        self.must("save after prune and delete", lambda: self.save("a"), kind="stuck")
        self.compare("after saving again")

    def must(self, verb: str, work: Callable[[], None], kind: str = "unfit") -> None:
        """Something that has to work on a full disk."""
        try:
            work()
        except holdfast.HoldfastError as error:
            self._problem(kind, f"{verb} raised {error!r}")

    def compare(self, when: str) -> None:
        """Everything is there, and sound."""
        found, wanted = observe(self._store), self._model.shown()
        if found != wanted:
            self._problem("lost", f"{when}: {difference(found, wanted)}")
        problems = self._store.verify().problems
        if problems:
            self._problem("lost", f"{when}: {problems[:2]}")

    def _problem(self, kind: str, words: str) -> None:
        self._figures.problem(kind, f"{words} (seed {self._seed!r})")
