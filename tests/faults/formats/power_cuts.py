"""Power cuts and kills below the five directories of `holdfast.formats`.

Their operations are used at random while every file call is recorded (`recorder`). For every boundary between two calls
the trees a cut could leave are built (`core.images`) and read with the plain directories: what was acknowledged is
there, what a verb was changing is as before or as after it, whole, nothing is damaged, and a further change works.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import holdfast
from holdfast.files.os_files import Files
from holdfast.formats import brainwires, car, clawdia, mur, simple_agents
from holdfast.formats.car.workflow_records import read as car_read
from holdfast.formats.folder import Folder
from tests.faults.core.calls import MARK, Call
from tests.faults.core.images import Image, fingerprint, lay_out
from tests.faults.core.replay import is_enough, share
from tests.faults.core.report import Figures
from tests.faults.core.scratch import scratch
from tests.faults.directory.images import DirectoryDisk
from tests.faults.directory.recorder import Recorder
from tests.formats.sample_files import EXECUTION, before_step, covering, paused, record, scope

MUTANTS: Final = {
    "no_fsync": ("lost", "damaged"),
    "no_directory_fsync": ("lost", "damaged"),
    "in_place": ("lost", "damaged"),
}
_VERBS: Final = 60
_RANDOM_VARIANTS: Final = 4
_EACH: Final = 2
"""About so many new images are found at a boundary."""
_NAMES: Final = ("a", "b")

Picture = dict[str, Any]
"""What the directories hold, by what it is about: a run, a task, a step. A verb changes each of these at once."""


class Five:
    """The five directories below one place."""

    def __init__(self, place: Path, files: Files | None = None) -> None:
        self.car = car.Directory(place / "car", files=files)
        self.simple = simple_agents.Directory(place / "simple", files=files)
        self.tasks = brainwires.Directory(place / "tasks", files=files)
        self.mur = mur.Directory(place / "mur", files=files)
        self.clawdia = clawdia.Directory(place / "clawdia", files=files)
        self._place = place

    def picture(self) -> Picture:
        """All that is there. Raises DamagedFile if anything cannot be read."""
        found: Picture = {}
        for name in _NAMES:
            claimed = self._place / "car" / f"{name}.inflight"
            content = car_read(claimed.read_bytes(), name, str(claimed)) if claimed.exists() else None
            found[f"car {name}"] = (self.car.load(name), content)
            found[f"simple {name}"] = self.simple.load(name)
            task = self.tasks.load_checkpoint(name)
            uses = task["completed_tool_ids"] if task else []
            found[f"task {name}"] = (task, [self.tasks.result(name, use) for use in uses])
            found[f"journal {name}"] = self.clawdia.records(name)
            found |= {f"checkpoint {name} {c['checkpoint_id']}": c for c in self.clawdia.list(name)}
            problems = self.clawdia.problems(name)
            if problems:
                raise holdfast.errors.DamagedFile(problems[0].place, problems[0].reason)
        return found | {f"step {step}": self.mur.load(EXECUTION, step) for step in self.mur.steps(EXECUTION)}

    def go_on(self) -> None:
        """Change something everywhere: whatever a cut has left must not be in the way."""
        self.car.recover_orphaned()
        for name in _NAMES:
            self.tasks.mark_step_complete(name, "after", brainwires.side_effect("after", "t"), result=1)
            self.clawdia.append({**record(None, run_id=name), "record_id": "after"})
            self.simple.save(scope(name))
        self.mur.save(before_step(99))
        assert self.mur.load_latest(EXECUTION) == before_step(99)

    def close(self) -> None:
        for directory in (self.car, self.simple, self.tasks, self.mur, self.clawdia):
            directory.close()


class Verbs:
    """Verbs at random, with a size that makes files of more than one sector."""

    def __init__(self, five: Five, chance: random.Random) -> None:
        self._five = five
        self._chance = chance
        self._held: set[str] = set()
        self._count = 0

    def one(self) -> str:
        """Do something; what it was."""
        self._count += 1
        name, text = self._chance.choice(_NAMES), "x" * self._chance.choice((10, 600, 3000))
        verbs = (self._car, self._car, self._simple, self._task, self._mur, self._journal, self._checkpoint)
        return self._chance.choice(verbs)(name, text)

    def _car(self, name: str, text: str) -> str:
        runs = self._five.car
        if name in self._held:
            if self._chance.random() < 0.5:
                runs.save(paused(name, wf_state={"n": self._count, "text": text}))
                return f"car save {name} again"
            runs.complete(name)
            self._held.discard(name)
            return f"car complete {name}"
        if runs.load(name) is None:
            runs.save(paused(name, wf_state={"n": self._count, "text": text}))
            return f"car save {name}"
        if self._chance.random() < 0.2:
            runs.remove(name)
            return f"car remove {name}"
        runs.claim(name)
        self._held.add(name)
        return f"car claim {name}"

    def _simple(self, name: str, text: str) -> str:
        if self._chance.random() < 0.2:
            self._five.simple.delete(name)
            return f"simple delete {name}"
        self._five.simple.save(scope(name, step=self._count, scope_snapshot=text))
        return f"simple save {name}"

    def _task(self, name: str, text: str) -> str:
        if self._chance.random() < 0.15:
            self._five.tasks.delete_checkpoint(name)
            return f"task delete {name}"
        use = f"use-{self._count}"
        effect = brainwires.side_effect(use, "tool", text[:500])
        effect["completed_at"] = self._count  # images do not keep the dates of files, which tell younger tasks apart
        self._five.tasks.mark_step_complete(name, use, effect, result=text)
        return f"task mark {name}"

    def _mur(self, _name: str, text: str) -> str:
        steps = self._five.mur.steps(EXECUTION)
        if len(steps) > 2 and self._chance.random() < 0.3:
            self._five.mur.roll_back(EXECUTION, self._chance.choice(steps))
            return "mur roll back"
        step = steps[-1] + self._chance.randrange(2) if steps else 0
        self._five.mur.save(before_step(step, variables={"n": str(self._count), "text": text}))
        return "mur save"

    def _journal(self, name: str, text: str) -> str:
        new = {**record(None, run_id=name), "record_id": f"r{self._count}", "tags": [text]}
        self._five.clawdia.append(new)
        return f"clawdia append {name}"

    def _checkpoint(self, name: str, text: str) -> str:
        runs, last = self._five.clawdia, self._five.clawdia.latest_journal_seq(name)
        if self._chance.random() < 0.2:
            runs.prune(name, clawdia.PrunePolicy(prune_covered_before=last))
            return f"clawdia prune {name}"
        number = self._chance.randrange(4)
        more = {"created_at_millis": self._count, "writer_id": text}
        runs.save(covering(self._chance.randint(0, last), number, name, **more))
        return f"clawdia save {name}"


class Recorded(NamedTuple):
    """The calls, and what was there when each mark was set: before a verb, and at the end."""

    calls: list[Call]
    pictures: list[Picture]
    about: list[str]


def run(cuts: int, seed: int, mutant: str | None = None, workers: int = 2) -> Figures:
    """Look at so many distinct images, or a few more."""
    figures = Figures("formats_cuts", seed, mutant)
    figures.expect("recordings", "boundaries", "images", "acknowledged", "lost", "damaged", "stuck")

    def work(worker: int, found: Figures) -> None:
        chance = random.Random(f"{seed} {worker}")
        with scratch(fast=True) as place, _mutated(mutant):
            number = 0
            while found.counts.get("images", 0) < cuts / workers and not is_enough(
                found, MUTANTS.get(mutant or "", ())
            ):
                left = cuts / workers - found.counts.get("images", 0)
                _look(_record(f"{seed} {worker} {number}", mutant), place / "image", found, chance, left)
                number += 1

    share(figures, workers, work)
    return figures


def _record(seed: str, mutant: str | None) -> Recorded:
    with scratch(fast=True) as place:
        recorder = Recorder(place, syncs=mutant != "no_fsync", directory_syncs=mutant != "no_directory_fsync")
        five = Five(place, recorder)
        verbs = Verbs(five, random.Random(seed))
        pictures, about = [five.picture()], []
        for number in range(_VERBS):
            recorder.mark(number)
            about.append(verbs.one())
            pictures.append(five.picture())
        five.close()
    return Recorded(recorder.calls, pictures, about)


def _look(recorded: Recorded, place: Path, figures: Figures, chance: random.Random, images_max: float) -> None:
    figures.add("recordings")
    figures.add("acknowledged", len(recorded.about))
    disk, number, seen = DirectoryDisk(chance), 0, set[bytes]()
    part = 1.0 if figures.mutant else (images_max + 1) / (_EACH * len(recorded.calls))
    for call in recorded.calls:
        number = call.offset if call.kind == MARK else number
        disk.add(call)
        if chance.random() > part:
            continue
        figures.add("boundaries")
        nothing, everything, *others = disk.variants(_RANDOM_VARIANTS)
        for variant in (nothing, everything, *chance.sample(others, min(3, len(others)))):
            image = disk.image(variant)
            if fingerprint(image) in seen:
                continue
            seen.add(fingerprint(image))
            figures.add("images")
            wrong = _wrong(image, place, recorded.pictures[number], recorded.pictures[number + 1])
            if wrong:
                figures.problem(wrong[0], f"{recorded.about[number]}: {wrong[1]}")
        if is_enough(figures, MUTANTS.get(figures.mutant or "", ())):
            return


def _wrong(image: Image, place: Path, before: Picture, after: Picture) -> tuple[str, str] | None:
    lay_out(image, place)
    five = Five(place)
    try:
        found = five.picture()
        for name in {*before, *after, *found}:
            if found.get(name) not in (before.get(name), after.get(name)):
                return "lost", f"{name} is {str(found.get(name))[:200]}"
        five.go_on()
    except holdfast.DamagedData as error:
        return "damaged", str(error)
    except holdfast.HoldfastError as error:
        return "stuck", repr(error)
    finally:
        five.close()
    return None


# --- mutants ---------------------------------------------------------------------------------------------------------


def _mutated(mutant: str | None) -> Any:
    return mock.patch.object(Folder, "put", _put_in_place) if mutant == "in_place" else contextlib.nullcontext()


def _put_in_place(self: Folder, data: bytes, *name: str, sync: bool = True, **_choices: Any) -> bool:
    """A file is written where it stands, as three of the originals do, and synced."""
    files, path = self.files, self.at(*name)
    self.make(*name[:-1])
    there = files.identity(path) is not None
    handle = files.open_for_append(path) if there else files.create(path)
    try:
        if there:
            files.truncate(handle, 0)
        files.write(handle, data)
        if sync:
            files.sync(handle)
    finally:
        files.close(handle)
    self.sync(*name[:-1])
    return True
