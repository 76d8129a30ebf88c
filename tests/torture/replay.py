"""Cuts in a recording: every image a cut could leave is opened with the plain store and compared with the model.

A picture is taken once for each distinct image; cuts that may leave the same image share it.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import holdfast
from tests.torture.figures import Figures
from tests.torture.images import Disk, Image, fingerprint
from tests.torture.model import Picture, difference, observe
from tests.torture.mutants import mutated
from tests.torture.recorder import MARK, Call, Recorder, recording
from tests.torture.scratch import StillClock, child, reap, scratch
from tests.torture.workload import NAME, Stage, Workload

COUNTED: Final = (
    "recordings", "boundaries", "images", "acknowledged", "lost", "torn", "came_back", "damaged", "unopenable",
)  # fmt: skip

_CHECKPOINT_PAGES: Final = 24
_PROBLEMS_ENOUGH: Final = 10
_RANDOM_VARIANTS: Final = 6


class Recorded(NamedTuple):
    """A recording, and what may be found after a cut in it."""

    about: str
    calls: list[Call]
    stages: list[Stage]
    past: list[Picture]
    failed: list[Picture]


def record(seed: str, recorder: Recorder, mutant: str | None) -> Recorded:
    """Record the workload that the seed gives."""
    with scratch(fast=True) as place, mutated(mutant), recording(place, recorder, _CHECKPOINT_PAGES):
        work = Workload(seed, place / NAME, recorder)
        work.run()
    about = f"seed {seed!r}" + (f", failing sync {recorder.failing_sync}" if recorder.failing_sync else "")
    return Recorded(about, recorder.calls, work.stages, work.past, work.failed)


def share(figures: Figures, workers: int, work: object) -> None:
    """Let several processes work and put together what they find; `work(worker, figures)` is done in each."""
    assert callable(work)
    with scratch() as place:
        pids = {}
        for worker in range(workers):
            out = place / f"{worker}.json"

            def alone(worker: int = worker, out: Path = out) -> None:
                found = Figures(figures.harness, figures.seed, figures.mutant)
                work(worker, found)
                out.write_text(found.to_json())

            pids[child(alone)] = out
        for pid, out in pids.items():
            if reap(pid, 24 * 3600) == 0:
                figures.merge(Figures.from_json(out.read_text()))
            else:
                figures.problem("failed", "a worker broke down")


def enough(figures: Figures) -> bool:
    """Whether so much is wrong that more of it says nothing."""
    return figures.problem_count >= _PROBLEMS_ENOUGH


class Replay:
    """Cuts in one recording."""

    def __init__(self, recorded: Recorded, place: Path, figures: Figures, chance: random.Random) -> None:
        self._recorded = recorded
        self._place = place
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        self._figures = figures
        self._chance = chance
        self._seen: dict[bytes, Picture | str] = {}

    def check(self, images_max: int) -> None:
        """Cut at every boundary; if there are more images than wanted, a random part of them at each."""
        self._figures.add("recordings")
        self._figures.add("acknowledged", self._recorded.stages[-1].acknowledged)
        each = images_max / len(self._recorded.calls)
        disk, stage = Disk(self._chance), self._recorded.stages[0]
        for call in self._recorded.calls:
            if call.kind == MARK:
                stage = self._recorded.stages[call.offset]
            disk.add(call)
            self._figures.add("boundaries")
            for image in self._chosen(disk, each):
                self._compare(image, stage)
            if enough(self._figures):
                return

    def _chosen(self, disk: Disk, each: float) -> Iterator[Image]:
        variants = list(disk.variants(_RANDOM_VARIANTS))
        count = int(each) + (self._chance.random() < each - int(each))
        if count < len(variants):
            variants = variants[:2] * (self._chance.random() < each / 2) + self._chance.sample(variants, count)
        for variant in variants:
            yield disk.image(variant)

    def _compare(self, image: Image, stage: Stage) -> None:
        key = fingerprint(image)
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = self._taken(image)
            self._figures.add("images")
        if isinstance(found, str):
            kind, _, text = found.partition(": ")
        elif found in stage.allowed:
            return
        else:
            text = difference(found, stage.allowed[0])
            if found in self._recorded.failed:
                kind = "came_back"
            else:
                kind = "lost" if found in self._recorded.past else "torn"
        self._figures.problem(kind, f"{stage.about}: {text} ({self._recorded.about})")

    def _taken(self, image: Image) -> Picture | str:
        """What the plain store shows of an image, or what is wrong with it."""
        for file in os.scandir(self._place):
            os.unlink(file.path)
        for name, content in image.items():
            (self._place / name).write_bytes(content)
        try:
            with holdfast.open(f"sqlite:{self._place / NAME}", clock=StillClock("after"), reserve_bytes=0) as store:
                problems = store.verify().problems
                if problems:
                    return f"damaged: {problems[:2]}"
                picture = observe(store)
                for run_id in ("after the cut", *list(picture)[:1]):
                    store.save(run_id, {"goes": "on", "long": ["x" * 300] * 10}, checkpoint_id="after the cut")
                    assert store.load(run_id, checkpoint_id="after the cut") is not None
                return picture
        except holdfast.DamagedData as error:
            return f"damaged: {error!r}"
        except holdfast.HoldfastError as error:
            return f"unopenable: {error!r}"
