"""Cuts in a recording: every image a cut could leave is opened with the plain store and compared with the model.

A picture is taken once for each distinct image; cuts that may leave the same image share it. The harnesses of a store
say how to record it, how to open an image, and what else to look at.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import holdfast
from tests.faults.core.calls import MARK, Call
from tests.faults.core.images import Disk, Image, fingerprint, lay_out
from tests.faults.core.model import Picture, difference, observe
from tests.faults.core.report import Figures
from tests.faults.core.scratch import child, reap, scratch
from tests.faults.core.workload import Stage

COUNTED: Final = (
    *("recordings", "boundaries", "images", "acknowledged"),
    *("lost", "torn", "came_back", "damaged", "unopenable"),
)
_PROBLEMS_ENOUGH: Final = 10
_RANDOM_VARIANTS: Final = 6


class Recorded(NamedTuple):
    """A recording, and what may be found after a cut in it."""

    about: str
    calls: list[Call]
    sync_count: int
    stages: Sequence[Stage]
    past: list[Picture]
    failed: list[Picture]
    """What would have been shown, had an operation not failed."""


class Replay:
    """Cuts in one recording. The harnesses of a store derive from it."""

    disk: ClassVar[type[Disk]] = Disk

    def __init__(self, recorded: Recorded, place: Path, figures: Figures, chance: random.Random) -> None:
        self.recorded = recorded
        self.place = place / "image"
        self.figures = figures
        self.chance = chance
        self._seen: dict[bytes, Picture | str] = {}

    # --- what a store's harness says ---------------------------------------------------------------------------------

    def open_store(self) -> holdfast.Store:
        """Open the image with the plain store."""
        raise NotImplementedError

    def picture_of(self, store: holdfast.Store) -> Picture:
        """All that the store shows."""
        return observe(store)

    def weight(self, call: Call) -> int:
        """How many times as often a cut behind this call is looked at."""
        return 1

    def look_again(self, store: holdfast.Store) -> str:
        """Look at something else in a store that was found sound, and close it; what is wrong."""
        store.close()
        return ""

    def compared(self, image: Image, stage: Stage) -> None:
        """An image of the recording was compared."""

    # --- cuts --------------------------------------------------------------------------------------------------------

    def check(self, images_max: int, caught: Sequence[str] = ()) -> None:
        """Cut at every boundary; if there are more images than wanted, a random part of them at each.

        A problem of a kind in `caught` shows that the mutant was noticed, and ends the check.
        """
        calls, stage = self.recorded.calls, self.recorded.stages[0]
        self.figures.add("recordings")
        self.figures.add("acknowledged", self.recorded.stages[-1].acknowledged)
        each = images_max / sum(map(self.weight, calls))
        disk = self.disk(self.chance)
        for call in calls:
            if call.kind == MARK:
                stage = self.recorded.stages[call.offset]
            disk.add(call)
            self.figures.add("boundaries")
            for image in self.choose(disk, each * self.weight(call)):
                self.compare(image, stage)
                self.compared(image, stage)
            if is_enough(self.figures, caught):
                return

    def choose(self, disk: Disk, each: float) -> Iterator[Image]:
        """At every boundary: nothing pending arrived, and everything did; and as many others as there is time for."""
        nothing, everything, *others = disk.variants(_RANDOM_VARIANTS)
        plain = [nothing, everything] if self.chance.random() < each else []
        count = int(each) + (self.chance.random() < each - int(each))
        for variant in (*plain, *self.chance.sample(others, min(count, len(others)))):
            yield disk.image(variant)

    def compare(self, image: Image, stage: Stage) -> None:
        """Take the picture of an image, and compare it with what may be found at this stage."""
        key = fingerprint(image)
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = self._take(image)
            self.figures.add("images")
        if isinstance(found, str):
            kind, _, words = found.partition(": ")
        elif found in stage.allowed:
            return
        else:
            words = difference(found, stage.allowed[0])
            if found in self.recorded.failed:
                kind = "came_back"
            else:
                kind = "lost" if found in self.recorded.past else "torn"
        self.figures.problem(kind, f"{stage.about}: {words} ({self.recorded.about})")

    def _take(self, image: Image) -> Picture | str:
        """What the plain store shows of an image, or what is wrong with it."""
        lay_out(image, self.place)
        try:
            return self._look()
        except holdfast.DamagedData as error:
            return f"damaged: {error!r}"
        except holdfast.HoldfastError as error:
            return f"unopenable: {error!r}"

    def _look(self) -> Picture | str:
        with self.open_store() as store:
            problems = store.verify().problems
            if problems:
                return f"damaged: {problems[:2]}"
            picture = self.picture_of(store)
            for run_id in ("after the cut", *list(picture)[:1]):
                store.save(run_id, {"goes": "on", "long": ["x" * 300] * 10}, checkpoint_id="after the cut")
                assert store.load(run_id, checkpoint_id="after the cut") is not None
            return self.look_again(store) or picture


Record = Callable[[str, int | None], Recorded]
"""Record the workload of a name; the sync of that number fails."""
MakeReplay = Callable[[Recorded, Path, Figures, random.Random], Replay]


def cut_power(
    figures: Figures,
    cuts: int,
    workers: int,
    record: Record,
    replay: MakeReplay,
    *,
    images_per_recording: int,
    caught: Sequence[str] = (),
    around: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> None:
    """Look at so many distinct images, or a few more, of recordings in which no call fails."""

    def work(worker: int, found: Figures) -> None:
        chance = random.Random(f"{figures.seed} {worker}")
        with scratch(fast=True) as place, around():
            number = 0
            while (left := cuts / workers - found.counts.get("images", 0)) > 0 and not is_enough(found, caught):
                recorded = record(f"{figures.seed} {worker} {number}", None)
                replay(recorded, place, found, chance).check(min(int(left) + 1, images_per_recording), caught)
                number += 1

    share(figures, workers, work)


def fail_syncs(
    figures: Figures,
    syncs: int,
    workers: int,
    record: Record,
    replay: MakeReplay,
    *,
    images_each: int,
    caught: Sequence[str] = (),
) -> None:
    """Let so many syncs fail, each in a recording of its own: all syncs of one workload, then those of the next."""

    def work(worker: int, found: Figures) -> None:
        chance = random.Random(f"{figures.seed} {worker}")
        with scratch(fast=True) as place:
            for name, failing in _plan_syncs(figures.seed, syncs, record)[worker::workers]:
                found.add("failing_syncs")
                replay(record(name, failing), place, found, chance).check(images_each, caught)
                if is_enough(found, caught):
                    return

    share(figures, workers, work)


def _plan_syncs(seed: int, syncs: int, record: Record) -> list[tuple[str, int]]:
    """Which sync of which workload is to fail. Every one of a workload, in random order, before the next workload."""
    plan: list[tuple[str, int]] = []
    number = 0
    while len(plan) < syncs:
        name = f"{seed} syncs {number}"
        order = list(range(1, record(name, None).sync_count + 1))
        random.Random(name).shuffle(order)
        plan += [(name, failing) for failing in order]
        number += 1
    return plan[:syncs]


def share(figures: Figures, workers: int, work: Callable[[int, Figures], None]) -> None:
    """Let several processes work and put together what they find; `work(worker, figures)` is done in each."""
    with scratch() as place:
        pids = {}
        for worker in range(workers):
            out = place / f"{worker}.json"

            def alone(worker: int = worker, out: Path = out) -> None:
                logging.disable(logging.WARNING)  # torn tails are to be found here, and are counted
                found = Figures(figures.harness, figures.seed, figures.mutant)
                work(worker, found)
                out.write_text(found.to_json())

            pids[child(alone)] = out
        for pid, out in pids.items():
            if reap(pid, 24 * 3600) == 0:
                figures.merge(Figures.from_json(out.read_text()))
            else:
                figures.problem("failed", "a worker broke down")


def is_enough(figures: Figures, caught: Sequence[str] = ()) -> bool:
    """Whether so much is wrong that more of it says nothing, or a mutant was caught."""
    return figures.problem_count >= _PROBLEMS_ENOUGH or (figures.mutant is not None and figures.found(caught))
