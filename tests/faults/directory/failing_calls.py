"""A failing disk below the directory store: each call of its files fails once, or from then on; and full disks.

`tests.faults.core.failing_calls` says what must hold. A full disk refuses saves; with a reserve, prune, delete and
release still work, and the space that they free can be used again.
"""

from __future__ import annotations

import contextlib
import logging
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import holdfast
from holdfast.files import durable as rooms
from holdfast.files.durable import DurableDirectory
from holdfast.state.json_preview import Readable
from holdfast.store.directory.directory_store import DirectoryStore
from tests.faults.core.failing_calls import BATCH, Injection, Trial, select_injections
from tests.faults.core.model import Picture, observe
from tests.faults.core.operations import Operation, text
from tests.faults.core.replay import is_enough, share
from tests.faults.core.report import Figures
from tests.faults.core.scratch import SeededIds, StillClock, scratch
from tests.faults.directory.faulty_files import KINDS, FaultyFiles
from tests.faults.sqlite.disk_full import _Disk

MUTANTS: Final = {
    "sync_tried_again": ("handles_reused",),
    "nothing_taken_back": ("came_back",),
    "reserve_ignored": ("reserve_used_up",),
}

_NAME: Final = "runs"
_KIB: Final = 1024
_RESERVE: Final = 2 * _KIB * _KIB


def run(faults: int, seed: int, mutant: str | None = None, workers: int = 2) -> Figures:
    """Inject so many failures, chosen at random, 0 means every one there is; and fill some disks."""
    figures = Figures("dir_faults", seed, mutant)
    figures.expect(
        "injections", "hits", "errors", "absorbed", "disks_filled", "lost", "came_back", "raw", "unfit", "stuck",
        "reserve_used_up", "handles_reused",
    )  # fmt: skip

    def work(worker: int, found: Figures) -> None:
        logging.disable(logging.WARNING)  # torn tails are to be expected
        with mutated(mutant):
            for number in range(1 + (faults == 0) * 4):
                _fill(found, f"{seed} {worker} {number}")
            for injection in [] if mutant == "reserve_ignored" else _plan(seed, faults)[worker::workers]:
                with scratch(fast=True) as place:
                    _Trial(place, injection, seed, found).run()
                if is_enough(found):
                    return

    share(figures, workers, work)
    return figures


def _plan(seed: int, faults: int) -> list[Injection]:
    counted, figures = FaultyFiles(), Figures("", seed)
    with scratch(fast=True) as place:
        _Trial(place, None, seed, figures, counted).run()
    assert not figures.problems, figures.problems
    return select_injections(KINDS, counted.calls, seed, faults)


def _operations(seed: int) -> list[Operation]:
    """One of everything, small: each call is one injection."""
    chance = random.Random(f"{seed} faults")
    talk = [text(chance, 60) for _ in range(5)]
    note = {"kind": "note", "text": text(chance, 20)}
    return [
        Operation("save", "a", {"state": {"small": 1}}),
        Operation("save", "a", {"state": {"messages": talk}, "checkpoint_id": "named"}),
        Operation("append", "a", {"entries": [note, note]}),
        Operation("mark_done", "a", {"key": "effect", "result": "done"}),
        Operation("attach", "a", {"checkpoint_id": "named", "key": "k", "value": text(chance, 400)}),
        Operation("claim", "a", {"owner": "worker"}),
        Operation("save", "a", {"state": {"messages": [*talk, text(chance, 60)]}}),
        Operation("release", "a", {"status": None}),
        Operation("fork", "a", {"new_run_id": "b"}),
        Operation(BATCH, "", {"run_ids": ["d", "e"], "entry": note}),
        Operation("prune", "a", {"last": 1}),
        Operation("delete", "b", {}),
        Operation("delete", "d", {}),
        Operation("save", "c", {"state": {"small": 2}}),
    ]


def opened(path: Path, clock: StillClock, files: FaultyFiles | None, **more: Any) -> holdfast.Store:
    """A directory store over these files."""
    port = DirectoryStore(str(path), clock, renderer=Readable(), files=files, **{"reserve_bytes": 0, **more})
    return holdfast.Store(port, clock=clock, ids=SeededIds("faults"))


class _Trial(Trial[FaultyFiles]):
    """The workload with one injection."""

    kinds = KINDS

    def new_disk(self) -> FaultyFiles:
        return FaultyFiles()

    def operations(self) -> list[Operation]:
        return _operations(self.seed)

    def open(self) -> holdfast.Store:
        return opened(self.place / _NAME, StillClock("boot"), self.disk)

    def copy_to(self, place: Path) -> None:
        shutil.copytree(self.place / _NAME, place / _NAME)

    def look(self, place: Path) -> Picture | str:
        try:
            with opened(place / _NAME, StillClock("later"), None) as store:
                problems = store.verify().problems
                return str(problems[:2]) if problems else observe(store)
        except holdfast.HoldfastError as error:
            return repr(error)


# --- full disks ------------------------------------------------------------------------------------------------------


def _fill(figures: Figures, seed: str) -> None:
    """Fill a disk without a reserve, and one with."""
    chance = random.Random(seed)
    files = FaultyFiles()
    with scratch(fast=True) as place, opened(place / _NAME, StillClock("boot"), files) as store:
        disk = _Disk(store, figures, seed)
        files.quota_bytes = chance.randrange(200 * _KIB, 500 * _KIB)
        disk.fill()
        disk.compare("on a full disk")
        files.quota_bytes = None
        disk.must("save after room was made", lambda: disk.save("more"))
        disk.compare("after room was made")
    figures.add("disks_filled", 2)
    _fill_reserved(figures, seed, chance.randrange(3 * _KIB, 4 * _KIB) * _KIB)


def _fill_reserved(figures: Figures, seed: str, quota: int) -> None:
    files = FaultyFiles()

    def free_bytes(path: str) -> int:
        return quota - files.used_bytes()

    room = mock.patch.object(rooms, "free_bytes", free_bytes)
    clock = StillClock("boot")
    with room, scratch(fast=True) as place, opened(place / _NAME, clock, files, reserve_bytes=_RESERVE) as store:
        files.quota_bytes = quota
        _Disk(store, figures, seed).use_reserve()
    if files.hits:
        figures.problem("reserve_used_up", f"{files.hits} writes met a full disk (seed {seed!r})")


# --- mutants ---------------------------------------------------------------------------------------------------------


def mutated(mutant: str | None) -> Any:
    """Put a broken variant in for a while."""
    return _MUTANTS.get(mutant or "", contextlib.nullcontext)()


@contextlib.contextmanager
def _sync_tried_again() -> Iterator[None]:
    """After a failed sync the same handle is synced once more, which says that all is well."""

    def append(disk: DurableDirectory, path: str, size: int, data: bytes) -> None:
        handle = disk.files.open_for_append(path)
        try:
            disk.files.write(handle, data)
            try:
                disk.files.sync(handle)
            except OSError:
                disk.files.sync(handle)
        finally:
            disk.files.close(handle)

    with mock.patch.object(DurableDirectory, "append", append):
        yield


@contextlib.contextmanager
def _nothing_taken_back() -> Iterator[None]:
    """A line whose sync failed stays in the file."""

    def append(disk: DurableDirectory, path: str, size: int, data: bytes) -> None:
        handle = disk.files.open_for_append(path)
        try:
            disk.files.write(handle, data)
            disk.files.sync(handle)
        finally:
            disk.files.close(handle)

    with mock.patch.object(DurableDirectory, "append", append):
        yield


def _reserve_ignored() -> Any:
    return mock.patch.object(rooms.DiskReserve, "check", return_value=None)


_MUTANTS: Final[dict[str, Callable[[], Any]]] = {
    "sync_tried_again": _sync_tried_again,
    "nothing_taken_back": _nothing_taken_back,
    "reserve_ignored": _reserve_ignored,
}
