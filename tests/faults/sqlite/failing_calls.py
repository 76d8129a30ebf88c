"""A failing disk: every n-th call fails, once or for good, and every failure is a clear error.

A short workload runs on the real store over a VFS that fails (`faulty`). For each kind of call and each n:

* what is raised is an error of Holdfast's that fits, never one of SQLite's, and no success is reported that is none;
* a verb that failed changed nothing, neither now nor after a crash at that moment; what was acknowledged is intact;
* a handle whose sync failed is not relied upon again;
* once the disk works again, so does the same store, and after closing and opening everything is there and sound;
* a read that comes back short without a word yields the truth or an error, never anything else.

If the disk goes on failing the store cannot find out what became of the verb it failed in; then either is allowed.
"""

from __future__ import annotations

import asyncio
import copy
import random
import shutil
from pathlib import Path
from typing import Any, Final, NamedTuple

import holdfast
from holdfast.errors import StorageBusy, StorageFailed, StorageFull
from tests.faults.core.model import Model, Picture, difference, observe
from tests.faults.core.operations import Claims, Operation, carry_out, text
from tests.faults.core.replay import is_enough, share
from tests.faults.core.report import Figures
from tests.faults.core.scratch import SeededIds, StillClock, scratch
from tests.faults.sqlite.faulty_vfs import KINDS, Faults, faulty
from tests.faults.sqlite.mutants import mutated

MUTANTS: Final = {"commit_errors_swallowed": ("lost",)}

_NAME: Final = "runs.db"
_SHORT: Final = "read is short"
_BATCH: Final = "several appends at once"
_CHECKPOINT_PAGES: Final = 20
_FAILED_MAX: Final = 3
"""After so many failed verbs of a disk that stays broken, nothing more is tried."""
_ERRORS: Final = (
    StorageFailed,
    StorageFull,
    StorageBusy,
    holdfast.DamagedData,
)
_FITTING: Final[dict[str, tuple[type[holdfast.HoldfastError], ...]]] = {"disk full": (StorageFull,)}
_IN_STEPS: Final = ("prune", "delete", "recover_expired")


class Injection(NamedTuple):
    """The n-th call of a kind fails."""

    kind: str
    at: int
    sticky: bool

    def __str__(self) -> str:
        return f"{self.kind} at {self.at}{' and from then on' if self.sticky else ''}"


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
    """All failures there can be, counted in a run without any."""
    counted = Faults()
    figures = Figures("", seed)
    with scratch(fast=True) as place:
        _Trial(place, None, seed, figures, counted).run()
    assert not figures.problems, figures.problems
    plan = [
        Injection(name, at, sticky)
        for name, kind in KINDS.items()
        if name != _SHORT
        for at in range(1, counted.calls[kind.call] + 1)
        for sticky in (False, True)
    ]
    random.Random(f"{seed} plan").shuffle(plan)
    return plan[: faults or None]


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
        Operation(_BATCH, "", {"run_ids": ["d", "e", "f"], "entry": note}),
        Operation("prune", "a", {"last": 1}),
        Operation("delete", "b", {}),
        Operation("save", "c", {"state": {"small": 2}}),
    ]


class _Trial:
    """The workload with one injection."""

    def __init__(
        self, place: Path, injection: Injection | None, seed: int, figures: Figures, faults: Faults | None = None
    ) -> None:
        self._place = place
        self._injection = injection
        self._seed = seed
        self._figures = figures
        self._faults = faults or Faults()
        self._models = [Model()]
        """What may be there. More than one only after a failure whose outcome the store could not know."""
        self._claims: Claims = {}
        self._failed = 0

    def run(self) -> None:
        faults, injection = self._faults, self._injection
        with faulty(self._place, faults, _CHECKPOINT_PAGES):
            if injection is not None:
                faults.fail(KINDS[injection.kind], injection.at, sticky=injection.sticky)
                self._figures.add("injections")
            store = self._opened()
            try:
                for operation in _operations(self._seed):
                    if self._failed < _FAILED_MAX and self._makes_sense(operation):
                        self._one(store, operation)
                self._figures.add("hits", faults.hits)
                faults.heal()
                self._check_healed(store)
            finally:
                store.close()
        if faults.reused:
            self._problem("handles_reused", f"{faults.reused} calls on a handle whose sync had failed")
        self._compare("opened again", self.look(self._place), self._models)

    def _makes_sense(self, operation: Operation) -> bool:
        """Whether what the operation needs was done before."""
        model = self._models[0]
        if operation.verb in ("renew", "release"):
            return operation.run_id in self._claims
        if operation.verb in ("prune", "fork", "delete", "claim"):
            run = model.runs.get(operation.run_id)
            return run is not None and (operation.verb != "fork" or "" in run.heads)
        if operation.verb == "mark_done":
            return operation.run_id in model.runs
        return True

    def _opened(self) -> holdfast.Store:
        """The store. If the failure falls into opening, it must be a clear one, and the next try must do all anew."""
        url, clock, ids = f"sqlite:{self._place / _NAME}", StillClock("boot"), SeededIds(self._seed)
        try:
            return holdfast.open(url, clock=clock, ids=ids, reserve_bytes=0)
        except Exception as error:
            self._failure("open", error)
        self._faults.heal()
        synced = self._faults.calls["directory"]
        store = holdfast.open(url, clock=clock, ids=ids, reserve_bytes=0)
        if synced and synced == self._faults.calls["directory"]:
            self._problem("lost", "the directory was not synced again after its sync had failed")
        return store

    def _several(self, store: holdfast.Store, run_ids: list[str], entry: dict[str, Any]) -> None:
        """Appends to several runs that travel together; each stands for itself."""
        results = asyncio.run(_appended(store, run_ids, entry))
        failed = [result for result in results if isinstance(result, Exception)]
        self._faults.verb_ended(failed=bool(failed))
        for run_id, result in zip(run_ids, results, strict=True):
            afters = [_applied(model, ("append", run_id, {"entries": [entry]})) for model in self._models]
            if not isinstance(result, Exception):
                self._models = afters
                continue
            self._failure(f"append to {run_id!r} among others", result)
            if self._injection is not None and self._injection.sticky:
                self._models += afters
        if failed and not (self._injection and self._injection.sticky):
            self._check_crash("a crash after some of several appends failed", self._models)
            self._settle(store)
        self._failed += bool(failed)

    def _one(self, store: holdfast.Store, operation: Operation) -> None:
        if operation.verb == _BATCH:
            self._several(store, **operation.values)
            return
        hits = self._faults.hits
        afters = [_applied(model, operation) for model in self._models]
        try:
            carry_out(store, self._claims, operation)
        except Exception as error:
            self._faults.verb_ended(failed=True)
            self._failure(str(operation), error)
            self._failed += 1
            sticky = self._injection is not None and self._injection.sticky
            if sticky or operation.verb in _IN_STEPS:
                self._models += afters
            if not sticky:
                self._check_crash(f"a crash after {operation} failed", self._models)
                self._settle(store)
            return
        self._faults.verb_ended(failed=False)
        self._models = afters
        if self._faults.hits > hits:
            self._figures.add("absorbed")
            self._check_crash(f"a crash after {operation}", self._models)

    def _settle(self, store: holdfast.Store) -> None:
        """What the store shows now is what holds from now on."""
        found = observe(store)
        self._models = [model for model in self._models if model.shown() == found] or self._models[:1]
        self._compare("the same store after a failure", found, self._models)

    def _check_healed(self, store: holdfast.Store) -> None:
        try:
            if self._injection is not None and self._injection.sticky:
                self._settle(store)
            else:
                self._compare("the same store at the end", observe(store), self._models)
            operation = Operation("save", "healed", {"state": {"works": [text(random.Random(1), 50)] * 9}})
            carry_out(store, self._claims, operation)
            self._models = [_applied(model, operation) for model in self._models]
        except Exception as error:
            self._problem("unfit", f"the same store does not work again: {error!r}")

    def _failure(self, verb: str, error: Exception) -> None:
        """A verb raised: it must be one of our errors, one that fits, and there must be a reason for it."""
        self._figures.add("errors")
        kind = self._injection.kind if self._injection else ""
        if isinstance(error, holdfast.Conflict) and len(self._models) > 1:
            return  # what failed before may have been done after all, and be in the way now
        if not isinstance(error, _ERRORS):
            self._problem("raw", f"{verb} raised {error!r}")
        elif not self._faults.hits or not isinstance(error, _FITTING.get(kind, StorageFailed)):
            self._problem("unfit", f"{verb} raised {error!r}")

    def _check_crash(self, when: str, models: list[Model]) -> None:
        """What would be found if the machine's power were cut now and everything written had reached the disk."""
        crashed = self._place / "crashed"
        shutil.rmtree(crashed, ignore_errors=True)
        crashed.mkdir()
        for suffix in ("", "-wal", "-journal"):
            if (self._place / f"{_NAME}{suffix}").exists():
                shutil.copyfile(self._place / f"{_NAME}{suffix}", crashed / f"{_NAME}{suffix}")
        self._compare(when, self.look(crashed), models)

    def look(self, place: Path) -> Picture | str:
        """What the plain store shows, or what is wrong."""
        try:
            with holdfast.open(f"sqlite:{place / _NAME}", clock=StillClock("later"), reserve_bytes=0) as store:
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


async def _appended(store: holdfast.Store, run_ids: list[str], entry: dict[str, Any]) -> list[int | BaseException]:
    return await asyncio.gather(*[store.aio.append(run_id, [entry]) for run_id in run_ids], return_exceptions=True)


def _applied(model: Model, operation: tuple[str, str, dict[str, Any]]) -> Model:
    verb, run_id, values = operation
    after = copy.deepcopy(model)
    after.apply(verb, run_id, **values)
    return after
