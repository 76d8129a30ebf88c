"""A failing disk below the directory store: every n-th call of every kind fails, once or for good; and full disks.

* What is raised is an error of Holdfast's that fits, and no success is reported that is none;
* a verb that failed changed nothing, neither now nor after a crash at that moment; what was acknowledged is intact;
* a handle whose sync failed is never used again;
* once the disk works again, so does the same store, and after closing and opening everything is there and sound;
* a full disk refuses saves, and with a reserve prune, delete and release still work; what they free can be used again.

If the disk goes on failing the store cannot find out what became of the verb it failed in; then either is allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
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
from tests.faults.core.model import Model, Picture, difference, observe
from tests.faults.core.operations import Claims, Operation, carry_out, text
from tests.faults.core.replay import is_enough, share
from tests.faults.core.report import Figures
from tests.faults.core.scratch import SeededIds, StillClock, scratch
from tests.faults.directory.faulty_files import KINDS, FaultyFiles
from tests.faults.sqlite.disk_full import _Disk
from tests.faults.sqlite.failing_calls import Injection

MUTANTS: Final = {
    "sync_tried_again": ("handles_reused",),
    "nothing_taken_back": ("came_back",),
    "reserve_ignored": ("reserve_used_up",),
}

_BATCH: Final = "several appends at once"
_NAME: Final = "runs"
_FAILED_MAX: Final = 3
"""After so many failed verbs of a disk that stays broken, nothing more is tried."""
_IN_STEPS: Final = ("prune", "delete", "recover_expired")
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
    """All failures there can be, counted in a run without any."""
    counted, figures = FaultyFiles(), Figures("", seed)
    with scratch(fast=True) as place:
        _Trial(place, None, seed, figures, counted).run()
    assert not figures.problems, figures.problems
    plan = [
        Injection(name, at, sticky)
        for name, kind in KINDS.items()
        for at in range(1, counted.calls[kind.call] + 1)
        for sticky in (False, True)
    ]
    random.Random(f"{seed} plan").shuffle(plan)
    return plan[: faults or None]


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
        Operation(_BATCH, "", {"run_ids": ["d", "e"], "entry": note}),
        Operation("prune", "a", {"last": 1}),
        Operation("delete", "b", {}),
        Operation("delete", "d", {}),
        Operation("save", "c", {"state": {"small": 2}}),
    ]


def opened(path: Path, clock: StillClock, files: FaultyFiles | None, **more: Any) -> holdfast.Store:
    """A directory store over these files."""
    port = DirectoryStore(str(path), clock, renderer=Readable(), files=files, **{"reserve_bytes": 0, **more})
    return holdfast.Store(port, clock=clock, ids=SeededIds("faults"))


class _Trial:
    """The workload with one injection."""

    def __init__(
        self, place: Path, injection: Injection | None, seed: int, figures: Figures, files: FaultyFiles | None = None
    ) -> None:
        self._path = place / _NAME
        self._injection = injection
        self._sticky = injection is not None and injection.sticky
        self._seed = seed
        self._figures = figures
        self._files = files or FaultyFiles()
        self._models = [Model()]
        """What may be there. More than one only after a failure whose outcome the store could not know."""
        self._claims: Claims = {}
        self._failed = 0

    def run(self) -> None:
        if self._injection is not None:
            self._files.fail(KINDS[self._injection.kind], self._injection.at, sticky=self._sticky)
            self._figures.add("injections")
        store = self._opened()
        try:
            for operation in _operations(self._seed):
                if self._failed < _FAILED_MAX and self._makes_sense(operation):
                    self._one(store, operation)
            self._figures.add("hits", self._files.hits)
            self._files.heal()
            self._check_healed(store)
        finally:
            store.close()
        if self._files.reused:
            self._problem("handles_reused", f"{self._files.reused} calls on a handle whose sync had failed")
        self._compare("opened again", self._look(self._path), self._models)

    def _opened(self) -> holdfast.Store:
        """The store. If the failure falls into opening, it must be a clear one, and the next try must do all anew."""
        try:
            return opened(self._path, StillClock("boot"), self._files)
        except Exception as error:
            self._failure("open", error)
        self._files.heal()
        return opened(self._path, StillClock("boot"), self._files)

    def _makes_sense(self, operation: Operation) -> bool:
        """Whether what the operation needs was done before."""
        run = self._models[0].runs.get(operation.run_id)
        if operation.verb == "release":
            return operation.run_id in self._claims
        if operation.verb == "fork":
            return run is not None and "" in run.heads
        return run is not None or operation.verb not in ("prune", "delete", "claim")

    def _one(self, store: holdfast.Store, operation: Operation) -> None:
        if operation.verb == _BATCH:
            self._several(store, **operation.values)
            return
        hits = self._files.hits
        afters = [_applied(model, operation) for model in self._models]
        try:
            carry_out(store, self._claims, operation)
        except Exception as error:
            self._failure(str(operation), error)
            self._failed += 1
            if self._sticky or operation.verb in _IN_STEPS:
                self._models += afters
            if not self._sticky:
                self._check_crash(f"a crash after {operation} failed")
                self._settle(store)
            return
        self._models = afters
        if self._files.hits > hits:
            self._figures.add("absorbed")
            self._check_crash(f"a crash after {operation}")

    def _several(self, store: holdfast.Store, run_ids: list[str], entry: dict[str, Any]) -> None:
        """Appends to several runs that travel together; each stands for itself."""

        async def appended() -> list[int | BaseException]:
            appends = [store.aio.append(run_id, [entry]) for run_id in run_ids]
            return await asyncio.gather(*appends, return_exceptions=True)

        hits = self._files.hits
        results = asyncio.run(appended())
        for run_id, result in zip(run_ids, results, strict=True):
            afters = [_applied(model, Operation("append", run_id, {"entries": [entry]})) for model in self._models]
            if not isinstance(result, Exception):
                self._models = afters
                continue
            self._failure(f"append to {run_id!r} among others", result)
            self._failed += 1
            if self._sticky:
                self._models += afters
        if self._files.hits > hits and not self._sticky:
            self._check_crash("a crash after several appends")
            self._settle(store)

    def _settle(self, store: holdfast.Store) -> None:
        """What the store shows now is what holds from now on."""
        found = observe(store)
        self._models = [model for model in self._models if model.shown() == found] or self._models[:1]
        self._compare("the same store after a failure", found, self._models)

    def _check_healed(self, store: holdfast.Store) -> None:
        try:
            self._settle(store)
            operation = Operation("save", "healed", {"state": {"works": [text(random.Random(1), 50)] * 9}})
            carry_out(store, self._claims, operation)
            self._models = [_applied(model, operation) for model in self._models]
        except Exception as error:
            self._problem("unfit", f"the same store does not work again: {error!r}")

    def _failure(self, verb: str, error: Exception) -> None:
        """A verb raised: it must be one of our errors, one that fits, and there must be a reason for it."""
        self._figures.add("errors")
        if isinstance(error, holdfast.Conflict) and len(self._models) > 1:
            return  # what failed before may have been done after all, and be in the way now
        if not isinstance(error, holdfast.StorageError):
            self._problem("raw", f"{verb} raised {error!r}")
            return
        full = self._injection is not None and self._injection.kind == "disk full"
        fits = isinstance(error, holdfast.errors.StorageFull if full else holdfast.errors.StorageFailed)
        if not self._files.hits or not fits:
            self._problem("unfit", f"{verb} raised {error!r}")

    def _check_crash(self, when: str) -> None:
        """What would be found if the machine's power were cut now and everything written had reached the disk."""
        crashed = self._path.parent / "crashed"
        shutil.rmtree(crashed, ignore_errors=True)
        shutil.copytree(self._path, crashed)
        self._compare(when, self._look(crashed), self._models)

    def _look(self, path: Path) -> Picture | str:
        """What the plain store shows, or what is wrong."""
        try:
            with opened(path, StillClock("later"), None) as store:
                problems = store.verify().problems
                return str(problems[:2]) if problems else observe(store)
        except holdfast.HoldfastError as error:
            return repr(error)

    def _compare(self, when: str, found: Picture | str, models: list[Model]) -> None:
        pictures = [model.shown() for model in models]
        if isinstance(found, str):
            self._problem("lost", f"{when}: {found}")
        elif found not in pictures:
            kind = "came_back" if len(repr(found)) > len(repr(pictures[0])) else "lost"
            self._problem(kind, f"{when}: {difference(found, pictures[0])}")

    def _problem(self, kind: str, words: str) -> None:
        self._figures.problem(kind, f"{words} ({self._injection}, seed {self._seed})")


def _applied(model: Model, operation: Operation) -> Model:
    after = copy.deepcopy(model)
    after.apply(*operation[:2], **operation.values)
    return after


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
