"""Power cuts and kills of the directory store: after a cut before or after any file operation the directory opens, what
was acknowledged is there and equal, the operation in flight is whole or absent, nothing is damaged, and a further save
works.

The file calls of the real store are recorded once (`dir_recorder`) while every verb is used (`dir_workload`). For every
boundary between two calls the trees a cut could leave are built (`dir_images`), opened with the plain store and
compared. Some are cut a second time, while the store repairs what the first cut has left.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import msgspec

import holdfast
from holdfast.model.commit import Commit
from holdfast.state.readable import Readable
from holdfast.store.decide import Decision
from holdfast.store.directory import lines
from holdfast.store.directory.chunks import add_chunks
from holdfast.store.directory.disk import Disk as StoreDisk
from holdfast.store.directory.runfile import RunFile
from holdfast.store.directory.store import DirectoryStore
from tests.torture.dir_images import Disk, Image, fingerprint
from tests.torture.dir_recorder import MARK, WRITE, Call, Recorder
from tests.torture.dir_workload import Clock, Stage, Workload, picture_of
from tests.torture.figures import Figures
from tests.torture.model import Picture, difference
from tests.torture.replay import enough, share
from tests.torture.scratch import StillClock, scratch
from tests.torture.workload import Stage as PlainStage

MUTANTS: Final = {
    "no_fsync": ("lost", "damaged"),
    "no_directory_fsync": ("lost", "damaged"),
    "rewrite_in_place": ("damaged", "torn"),
    "checksum_ignored": ("damaged", "torn"),
    "line_before_chunks": ("damaged",),
}

NAME: Final = "runs"
_IMAGES_PER_RECORDING: Final = 2500
_RANDOM_VARIANTS: Final = 6
_WRITES_COUNT: Final = 3
"""A cut behind a write, which can be torn, is looked at so many times as often as one behind another call."""
_CUT_AGAIN: Final = 0.02
"""So many of the images are also cut while they are being repaired."""
_OPENED_AGAIN: Final = 0.2
"""So many of the images are also closed and opened once more: nothing may change by that."""


class Recorded(NamedTuple):
    """A recording, and what may be found after a cut in it."""

    about: str
    calls: list[Call]
    stages: Sequence[Stage | PlainStage]
    past: list[Picture]
    failed: list[Picture]
    """What would have been shown, had an operation not failed."""
    shown: Callable[[holdfast.Store], Picture]


def run(cuts: int, seed: int, mutant: str | None = None, workers: int = 2) -> Figures:
    """Look at so many distinct images, or a few more."""
    figures = Figures("dir_crashes", seed, mutant)
    figures.expect(
        "recordings",
        "boundaries",
        "images",
        "cut_again",
        "acknowledged",
        "torn_tails",
        "lost",
        "torn",
        "damaged",
        "unopenable",
    )

    def work(worker: int, found: Figures) -> None:
        logging.disable(logging.WARNING)  # torn tails are to be found here, and are counted
        chance = random.Random(f"{seed} {worker}")
        with scratch(fast=True) as place, mutated(mutant):
            number = 0
            while (left := cuts / workers - found.counts.get("images", 0)) > 0 and not is_enough(found):
                recorded = record(f"{seed} {worker} {number}", mutant)
                Replay(recorded, place, found, chance).check(min(int(left) + 1, _IMAGES_PER_RECORDING))
                number += 1

    share(figures, workers, work)
    return figures


def record(seed: str, mutant: str | None) -> Recorded:
    """Record the workload that the seed gives."""
    with scratch(fast=True) as place:
        recorder = Recorder(place, syncs=mutant != "no_fsync", directory_syncs=mutant != "no_directory_fsync")

        def open_port(clock: Clock) -> DirectoryStore:
            return DirectoryStore(str(place / NAME), clock, reserve_bytes=0, renderer=Readable(), files=recorder)

        work = Workload(seed, open_port, recorder.mark)
        work.run()
    return Recorded(f"seed {seed!r}", recorder.calls, work.stages, work.past, [], picture_of)


class Replay:
    """Cuts in one recording."""

    def __init__(self, recorded: Recorded, place: Path, figures: Figures, chance: random.Random) -> None:
        self._recorded = recorded
        self._place = place / "image"
        self._figures = figures
        self._chance = chance
        self._seen: dict[bytes, Picture | str] = {}

    def check(self, images_max: int) -> None:
        """Cut at every boundary; if there are more images than wanted, a random part of them at each."""
        self._figures.add("recordings")
        self._figures.add("acknowledged", self._recorded.stages[-1].acknowledged)
        calls = self._recorded.calls
        each = images_max / (len(calls) + (_WRITES_COUNT - 1) * sum(call.kind == WRITE for call in calls))
        disk, stage = Disk(self._chance), self._recorded.stages[0]
        for call in calls:
            if call.kind == MARK:
                stage = self._recorded.stages[call.offset]
            disk.add(call)
            self._figures.add("boundaries")
            for image in self._chosen(disk, each * _WRITES_COUNT if call.kind == WRITE else each):
                self._compare(image, stage)
                if self._chance.random() < _CUT_AGAIN:
                    self._cut_again(image, stage)
            if is_enough(self._figures):
                return

    def _chosen(self, disk: Disk, each: float) -> Iterator[Image]:
        """At every boundary: nothing pending arrived, and everything did; and as many others as there is time for."""
        nothing, everything, *others = disk.variants(_RANDOM_VARIANTS)
        plain = [nothing, everything] if self._chance.random() < each else []
        count = int(each) + (self._chance.random() < each - int(each))
        for variant in (*plain, *self._chance.sample(others, min(count, len(others)))):
            yield disk.image(variant)

    def _cut_again(self, image: Image, stage: Stage | PlainStage) -> None:
        """Cut once more, while the store is being opened and repairs what the first cut has left."""
        self._lay_out(image)
        recorder, disk = Recorder(self._place), Disk(self._chance)
        disk.adopt(image, recorder.adopt(image.files))
        with contextlib.suppress(holdfast.HoldfastError):  # the first cut was judged before
            self._opened(recorder).close()
        self._figures.add("cut_again")
        for call in recorder.calls:
            disk.add(call)
            for later in self._chosen(disk, 1):
                self._compare(later, stage)

    def _compare(self, image: Image, stage: Stage | PlainStage) -> None:
        key = fingerprint(image)
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = self._taken(image)
            self._figures.add("images")
        if isinstance(found, str):
            kind, _, words = found.partition(": ")
        elif found in stage.allowed:
            return
        else:
            words = difference(found, stage.allowed[0])
            if found in self._recorded.failed:
                kind = "came_back"
            else:
                kind = "lost" if found in self._recorded.past else "torn"
        self._figures.problem(kind, f"{stage.about}: {words} ({self._recorded.about})")

    def _taken(self, image: Image) -> Picture | str:
        """What the plain store shows of an image, or what is wrong with it."""
        self._lay_out(image)
        try:
            return self._look()
        except holdfast.DamagedData as error:
            return f"damaged: {error!r}"
        except holdfast.HoldfastError as error:
            return f"unopenable: {error!r}"

    def _lay_out(self, image: Image) -> None:
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir()
        for directory in image.directories:
            os.mkdir(self._place / directory)
        for name, content in image.files.items():
            (self._place / name).write_bytes(content)

    def _look(self) -> Picture | str:
        with self._opened() as store:
            self._figures.add("torn_tails", len(repairs_of(store)))
            problems = store.verify().problems
            if problems:
                return f"damaged: {problems[:2]}"
            shown = self._recorded.shown
            picture = shown(store)
            for run_id in ("after the cut", *list(picture)[:1]):
                store.save(run_id, {"goes": "on", "long": ["x" * 300] * 10}, checkpoint_id="after the cut")
                assert store.load(run_id, checkpoint_id="after the cut") is not None
            if self._chance.random() > _OPENED_AGAIN:
                return picture
            last = shown(store)
        with self._opened() as store:
            again = shown(store)
            if repairs_of(store) or again != last:
                return f"torn: opened again: {repairs_of(store)} {difference(again, last)}"
        return picture

    def _opened(self, files: Recorder | None = None) -> holdfast.Store:
        clock = StillClock("after")
        port = DirectoryStore(str(self._place / NAME), clock, reserve_bytes=0, files=files)
        return holdfast.Store(port, clock=clock)


def is_enough(figures: Figures) -> bool:
    """Whether so much is wrong that more of it says nothing, or a mutant was caught."""
    return enough(figures) or figures.found(MUTANTS.get(figures.mutant or "", ()))


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
    return mock.patch.object(lines, "sum_holds", return_value=True)


def _line_before_chunks() -> Any:
    """The line is written and synced first."""
    write = DirectoryStore._write

    def line_first(store: DirectoryStore, file: RunFile | None, made: Decision, commit: Commit) -> int:
        size = write(store, file, made, msgspec.structs.replace(commit, chunks=()))
        family = store._tree.family(made.run.family)
        assert family is not None
        store._make(family, chunks=bool(commit.chunks))
        return size + add_chunks(store._disk, family.chunks, commit.chunks)

    return mock.patch.object(DirectoryStore, "_write", line_first)


_MUTANTS: Final[dict[str, Callable[[], Any]]] = {
    "rewrite_in_place": _rewrite_in_place,
    "checksum_ignored": _checksum_ignored,
    "line_before_chunks": _line_before_chunks,
}
