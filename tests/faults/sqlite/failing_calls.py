"""A failing disk below the SQLite store: each call of its VFS fails once, or from then on.

`tests.faults.core.failing_calls` says what must hold. Here reads may also be short without an error; then the
store returns the right data or raises an error.
"""

from __future__ import annotations

import random
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import holdfast
from tests.faults.core.failing_calls import BATCH, Injection, Trial, select_injections
from tests.faults.core.model import Picture, difference, observe
from tests.faults.core.operations import Operation, text
from tests.faults.core.replay import is_enough, share
from tests.faults.core.report import Figures
from tests.faults.core.scratch import SeededIds, StillClock, scratch
from tests.faults.sqlite.faulty_vfs import KINDS, Faults, faulty
from tests.faults.sqlite.mutants import mutated

MUTANTS: Final = {"commit_errors_swallowed": ("lost",)}

_NAME: Final = "runs.db"
_SHORT: Final = "read is short"
_CHECKPOINT_PAGES: Final = 20


def run(faults: int, seed: int, mutant: str | None = None, workers: int = 2) -> Figures:
    """Inject so many failures, chosen at random; 0 means every one there is."""
    figures = Figures("faults", seed, mutant)
    figures.expect(
        "injections", "short_reads", "hits", "errors", "absorbed", "lost", "came_back", "raw", "unfit", "handles_reused"
    )

    def work(worker: int, found: Figures) -> None:
        plan = _plan(seed, faults)[worker::workers]
        for injection in plan:
            with scratch(fast=True) as place, mutated(mutant):
                _Trial(place, injection, seed, found).run()
            if is_enough(found):
                return

    share(figures, workers, work)
    if not mutant:
        _check_short_reads(figures, seed, faults)
    return figures


def _check_short_reads(figures: Figures, seed: int, faults: int) -> None:
    """Read everything from a store that was closed, with the first, the second, … read being short."""
    with scratch(fast=True) as place:
        trial = _Trial(place, None, seed, figures)
        trial.run()
        wanted, injected, at = trial.look(place), Faults(), 0
        while not faults or at < faults // 10:
            at += 1
            with faulty(place, injected, _CHECKPOINT_PAGES):
                injected.fail(KINDS[_SHORT], at, sticky=False)
                try:
                    found = trial.look(place)
                except Exception as error:
                    figures.problem("raw", f"{error!r} (read {at} is short, seed {seed})")
                    found = ""
            if not injected.hits:
                break
            figures.add("short_reads")
            if found != wanted and not isinstance(found, str):
                figures.problem("lost", f"{difference(found, wanted)} (read {at} is short, seed {seed})")  # type: ignore[arg-type]
        if trial.look(place) != wanted:
            figures.problem("lost", f"something is changed by having been read (seed {seed})")


def _plan(seed: int, faults: int) -> list[Injection]:
    counted, figures = Faults(), Figures("", seed)
    with scratch(fast=True) as place:
        _Trial(place, None, seed, figures, counted).run()
    assert not figures.problems, figures.problems
    kinds = {name: kind for name, kind in KINDS.items() if name != _SHORT}
    return select_injections(kinds, counted.calls, seed, faults)


def _operations(seed: int) -> list[Operation]:
    """One of everything."""
    chance = random.Random(f"{seed} faults")
    talk = [text(chance, 60) for _ in range(8)]
    edited = [*talk[:3], text(chance, 60), *talk[4:], text(chance, 60)]
    note = {"kind": "note", "text": text(chance, 20)}
    return [
        Operation("save", "a", {"state": {"small": 1}}),
        Operation("save", "a", {"state": {"messages": talk}}),
        Operation("append", "a", {"entries": [note, note]}),
        Operation("mark_intent", "a", {"key": "effect"}),
        Operation("mark_done", "a", {"key": "effect", "result": "done"}),
        Operation("save", "a", {"state": {"messages": edited}, "checkpoint_id": "named"}),
        Operation("attach", "a", {"checkpoint_id": "named", "key": "k", "value": text(chance, 400)}),
        Operation("claim", "a", {"owner": "worker"}),
        Operation("save", "a", {"state": {"messages": [*talk, *edited]}}),
        Operation("renew", "a", {}),
        Operation("append", "a", {"entries": [note]}),
        Operation("release", "a", {"status": None}),
        Operation("fork", "a", {"new_run_id": "b"}),
        Operation("save", "b", {"state": {"messages": edited[::-1]}}),
        Operation(BATCH, "", {"run_ids": ["d", "e", "f"], "entry": note}),
        Operation("prune", "a", {"last": 1}),
        Operation("delete", "b", {}),
        Operation("save", "c", {"state": {"small": 2}}),
    ]


class _Trial(Trial[Faults]):
    """The workload with one injection."""

    kinds = KINDS

    def new_disk(self) -> Faults:
        return Faults()

    def operations(self) -> list[Operation]:
        return _operations(self.seed)

    def failing(self) -> AbstractContextManager[object]:
        return faulty(self.place, self.disk, _CHECKPOINT_PAGES)

    def end_operation(self, *, failed: bool) -> None:
        self.disk.verb_ended(failed=failed)

    def open(self) -> holdfast.Store:
        self._synced = self.disk.calls["directory"]
        url, clock, ids = f"sqlite:{self.place / _NAME}", StillClock("boot"), SeededIds(self.seed)
        return holdfast.open(url, clock=clock, ids=ids, reserve_bytes=0)

    def check_reopened(self) -> None:
        if self._synced and self._synced == self.disk.calls["directory"]:
            self.problem("lost", "the directory was not synced again after its sync had failed")

    def copy_to(self, place: Path) -> None:
        for suffix in ("", "-wal", "-journal"):
            if (self.place / f"{_NAME}{suffix}").exists():
                shutil.copyfile(self.place / f"{_NAME}{suffix}", place / f"{_NAME}{suffix}")

    def look(self, place: Path) -> Picture | str:
        try:
            with holdfast.open(f"sqlite:{place / _NAME}", clock=StillClock("later"), reserve_bytes=0) as store:
                problems = store.verify().problems
                return str(problems[:2]) if problems else observe(store)
        except holdfast.HoldfastError as error:
            return repr(error)
