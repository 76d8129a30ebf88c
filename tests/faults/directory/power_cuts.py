"""Power cuts and kills of the directory store: after a cut before or after any file operation the directory opens, what
was acknowledged is there and equal, the operation in flight is whole or absent, nothing is damaged, and a further save
works.

The file calls of the real store are recorded once (`recorder`) while every operation is used (`workload`). For every
boundary between two calls the trees a cut could leave are built (`core.images`), opened with the plain store and
compared (`core.replay`). Some are cut a second time, while the store repairs what the first cut has left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final
from unittest import mock

import msgspec

import holdfast
from holdfast.files.durable import DurableDirectory as StoreDisk
from holdfast.model.commit import Commit
from holdfast.state.json_preview import Readable
from holdfast.store.decide import Decision
from holdfast.store.directory import run_journal
from holdfast.store.directory.directory_store import DirectoryStore
from holdfast.store.directory.paths import add_chunks
from holdfast.store.directory.run_journal import RunJournal
from tests.faults.core.calls import WRITE, Call
from tests.faults.core.images import Image, lay_out
from tests.faults.core.model import Picture, difference
from tests.faults.core.replay import COUNTED, Recorded, Replay, cut_power
from tests.faults.core.report import Figures
from tests.faults.core.scratch import StillClock, scratch
from tests.faults.core.workload import Stage
from tests.faults.directory.images import DirectoryDisk
from tests.faults.directory.recorder import Recorder
from tests.faults.directory.workload import Clock, Workload, picture_of

MUTANTS: Final = {
    "no_fsync": ("lost", "damaged"),
    "no_directory_fsync": ("lost", "damaged"),
    "rewrite_in_place": ("damaged", "torn"),
    "checksum_ignored": ("damaged", "torn"),
    "line_before_chunks": ("damaged",),
}

NAME: Final = "runs"
_IMAGES_PER_RECORDING: Final = 2500
_WRITES_COUNT: Final = 3
"""A cut behind a write, which can be torn, is looked at so many times as often as one behind another call."""
_CUT_AGAIN: Final = 0.02
"""So many of the images are also cut while they are being repaired."""
_OPENED_AGAIN: Final = 0.2
"""So many of the images are also closed and opened once more: nothing may change by that."""


def run(cuts: int, seed: int, mutant: str | None = None, workers: int = 2) -> Figures:
    """Look at so many distinct images, or a few more."""
    figures = Figures("dir_crashes", seed, mutant)
    figures.expect(*COUNTED, "cut_again", "torn_tails")

    def recorded(name: str, _failing: int | None) -> Recorded:
        return record(name, mutant)

    cut_power(
        figures,
        cuts,
        workers,
        recorded,
        EverythingReplay,
        images_per_recording=_IMAGES_PER_RECORDING,
        caught=MUTANTS.get(mutant or "", ()),
        around=lambda: mutated(mutant),
    )
    return figures


def record(seed: str, mutant: str | None) -> Recorded:
    """Record the workload that the seed gives."""
    with scratch(fast=True) as place:
        recorder = Recorder(place, syncs=mutant != "no_fsync", directory_syncs=mutant != "no_directory_fsync")

        def open_port(clock: Clock) -> DirectoryStore:
            return DirectoryStore(str(place / NAME), clock, reserve_bytes=0, renderer=Readable(), files=recorder)

        work = Workload(seed, open_port, recorder.mark)
        work.run()
    return Recorded(f"seed {seed!r}", recorder.calls, recorder.sync_count, work.stages, work.past, [])


class DirectoryReplay(Replay):
    """Cuts in a recording of a directory, some of them while the store repairs what an earlier cut has left."""

    disk = DirectoryDisk

    def open_store(self, files: Recorder | None = None) -> holdfast.Store:
        clock = StillClock("after")
        port = DirectoryStore(str(self.place / NAME), clock, reserve_bytes=0, files=files)
        self.figures.add("torn_tails", len(port.repairs))
        return holdfast.Store(port, clock=clock)

    def weight(self, call: Call) -> int:
        return _WRITES_COUNT if call.kind == WRITE else 1

    def compared(self, image: Image, stage: Stage) -> None:
        """Cut once more, while the store is being opened and repairs what the first cut has left."""
        if self.chance.random() > _CUT_AGAIN:
            return
        lay_out(image, self.place)
        recorder, disk = Recorder(self.place), DirectoryDisk(self.chance)
        disk.adopt(image, recorder.adopt(image.files))
        with contextlib.suppress(holdfast.HoldfastError):  # the first cut was judged before
            self.open_store(recorder).close()
        self.figures.add("cut_again")
        for call in recorder.calls:
            disk.add(call)
            for later in self.choose(disk, 1):
                self.compare(later, stage)

    def look_again(self, store: holdfast.Store) -> str:
        """Nothing may change by closing and opening."""
        if self.chance.random() > _OPENED_AGAIN:
            return ""
        last = self.picture_of(store)
        store.close()
        with self.open_store() as opened:
            again, repairs = self.picture_of(opened), repairs_of(opened)
        return f"torn: opened again: {repairs} {difference(again, last)}" if repairs or again != last else ""


class EverythingReplay(DirectoryReplay):
    """Also looks at what passes between runs and the outside."""

    def picture_of(self, store: holdfast.Store) -> Picture:
        return picture_of(store)


def repairs_of(store: holdfast.Store) -> tuple[str, ...]:
    """What a directory store has repaired."""
    assert isinstance(store.port, DirectoryStore)
    return store.port.repairs


# --- mutants ---------------------------------------------------------------------------------------------------------


def mutated(mutant: str | None) -> Any:
    """Put a broken variant in for a while; None, or one that is the recorder's, changes nothing."""
    return _MUTANTS.get(mutant or "", contextlib.nullcontext)()


def _rewrite_in_place() -> Any:
    """A file is written where it stands, and synced."""

    def put(disk: StoreDisk, path: str, data: bytes) -> None:
        there = disk.files.identity(path) is not None
        handle = disk.files.open_for_append(path) if there else disk.files.create(path)
        try:
            if there:
                disk.files.truncate(handle, 0)
            disk.files.write(handle, data)
            disk.files.sync(handle)
        finally:
            disk.files.close(handle)

    return mock.patch.object(StoreDisk, "put", put)


def _checksum_ignored() -> Any:
    return mock.patch.object(run_journal, "has_valid_checksum", return_value=True)


def _line_before_chunks() -> Any:
    """The line is written and synced first."""
    write = DirectoryStore._write

    def line_first(store: DirectoryStore, file: RunJournal | None, made: Decision, commit: Commit) -> int:
        size = write(store, file, made, msgspec.structs.replace(commit, chunks=()))
        family = store._index.family(made.run.family)
        assert family is not None
        store._make_directories(family, chunks=bool(commit.chunks))
        return size + add_chunks(store._disk, family.chunks, commit.chunks, family.packs.names())

    return mock.patch.object(DirectoryStore, "_write", line_first)


_MUTANTS: Final[dict[str, Callable[[], Any]]] = {
    "rewrite_in_place": _rewrite_in_place,
    "checksum_ignored": _checksum_ignored,
    "line_before_chunks": _line_before_chunks,
}
