"""A workload in which the n-th call of a kind fails, once or from then on; the harnesses of both file stores use it.

* Every error that is raised is one of Holdfast's that fits, and no success is reported for something that failed.
* A failed operation changed nothing, neither now nor after a crash at that moment; acknowledged data is intact.
* A handle whose sync failed is not used again.
* Once the disk works again, so does the same store. After it was closed and opened, all data passes `verify`.

If the disk keeps failing, the store cannot find out the outcome of the failed operation; then both are allowed.
"""

from __future__ import annotations

import asyncio
import copy
import random
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import holdfast
from holdfast.errors import StorageFailed, StorageFull
from tests.faults.core.model import Model, Picture, difference, observe
from tests.faults.core.operations import Claims, Operation, carry_out, text
from tests.faults.core.report import Figures

BATCH: Final = "several appends at once"
_FAILED_MAX: Final = 3
"""After so many failed operations on a disk that keeps failing, the trial ends."""
_IN_STEPS: Final = ("prune", "delete", "recover_expired")


class Injection(NamedTuple):
    """The n-th call of a kind fails."""

    kind: str
    at: int
    sticky: bool

    def __str__(self) -> str:
        return f"{self.kind} at {self.at}{' and from then on' if self.sticky else ''}"


class FailingDisk(Protocol):
    """What a harness can make fail, and what happened."""

    calls: Any
    hits: int
    reused: int

    def fail(self, kind: Any, at: int, *, sticky: bool) -> None: ...

    def heal(self) -> None: ...


Disk = TypeVar("Disk", bound=FailingDisk)


def select_injections(kinds: Mapping[str, Any], calls: Mapping[str, int], seed: int, count: int) -> list[Injection]:
    """`count` of all possible failures, chosen at random; 0 means all. `calls` were counted in a run without any."""
    plan = [
        Injection(name, at, sticky)
        for name, kind in kinds.items()
        for at in range(1, calls[kind.call] + 1)
        for sticky in (False, True)
    ]
    random.Random(f"{seed} plan").shuffle(plan)
    return plan[: count or None]


class Trial(ABC, Generic[Disk]):
    """The workload with one injection."""

    kinds: Mapping[str, Any]

    def __init__(
        self, place: Path, injection: Injection | None, seed: int, figures: Figures, disk: Disk | None = None
    ) -> None:
        self.place = place
        self.injection = injection
        self.seed = seed
        self.figures = figures
        self.disk = disk or self.new_disk()
        self._sticky = injection is not None and injection.sticky
        self._models = [Model()]
        """The allowed contents. More than one only after a failure whose outcome the store could not know."""
        self._claims: Claims = {}
        self._failed = 0

    @abstractmethod
    def new_disk(self) -> Disk: ...

    @abstractmethod
    def operations(self) -> list[Operation]:
        """At least one operation of each kind."""

    @abstractmethod
    def open(self) -> holdfast.Store:
        """Open the store on the failing disk."""

    @abstractmethod
    def look(self, place: Path) -> Picture | str:
        """What a store on a sound disk shows of the data in `place`, or the problem it reports."""

    @abstractmethod
    def copy_to(self, place: Path) -> None:
        """Copy the data to `place`, as a power cut at this moment would leave it if all writes reached the disk."""

    def failing(self) -> AbstractContextManager[object]:
        """Inside, the disk of this trial is in use."""
        return nullcontext()

    def end_operation(self, *, failed: bool) -> None:
        """Called after each operation."""

    def check_reopened(self) -> None:
        """Called after the store was opened again, because opening it failed."""

    def run(self) -> None:
        with self.failing():
            if self.injection is not None:
                self.disk.fail(self.kinds[self.injection.kind], self.injection.at, sticky=self._sticky)
                self.figures.add("injections")
            store = self._open()
            try:
                for operation in self.operations():
                    if self._failed < _FAILED_MAX and self._is_possible(operation):
                        self._apply(store, operation)
                self.figures.add("hits", self.disk.hits)
                self.disk.heal()
                self._check_healed(store)
            finally:
                store.close()
        if self.disk.reused:
            self.problem("handles_reused", f"{self.disk.reused} calls on a handle whose sync had failed")
        self._compare("opened again", self.look(self.place))

    def problem(self, kind: str, words: str) -> None:
        self.figures.problem(kind, f"{words} ({self.injection}, seed {self.seed})")

    def _open(self) -> holdfast.Store:
        """Open the store. If that fails it must be with a clear error, and the next attempt must start from scratch."""
        try:
            return self.open()
        except Exception as error:
            self._failure("open", error)
        self.disk.heal()
        store = self.open()
        self.check_reopened()
        return store

    def _is_possible(self, operation: Operation) -> bool:
        """Whether what the operation needs was done before."""
        run = self._models[0].runs.get(operation.run_id)
        if operation.verb in ("renew", "release"):
            return operation.run_id in self._claims
        if operation.verb == "fork":
            return run is not None and "" in run.heads
        return run is not None or operation.verb not in ("prune", "pack", "delete", "claim", "mark_done")

    def _apply(self, store: holdfast.Store, operation: Operation) -> None:
        if operation.verb == BATCH:
            self._append_to_several(store, **operation.values)
            return
        hits = self.disk.hits
        afters = [_applied(model, operation) for model in self._models]
        try:
            carry_out(store, self._claims, operation)
        except Exception as error:
            self.end_operation(failed=True)
            self._failure(str(operation), error)
            self._failed += 1
            if self._sticky or operation.verb in _IN_STEPS:
                self._models += afters
            if not self._sticky:
                self._check_crash(f"a crash after {operation} failed")
                self._settle(store)
            return
        self.end_operation(failed=False)
        self._models = afters
        if self.disk.hits > hits:
            self.figures.add("absorbed")
            self._check_crash(f"a crash after {operation}")

    def _append_to_several(self, store: holdfast.Store, run_ids: list[str], entry: dict[str, Any]) -> None:
        """Append to several runs in one batch; each append succeeds or fails by itself."""

        async def append_all() -> list[int | BaseException]:
            appends = [store.aio.append(run_id, [entry]) for run_id in run_ids]
            return await asyncio.gather(*appends, return_exceptions=True)

        hits = self.disk.hits
        results = asyncio.run(append_all())
        failed = any(isinstance(result, Exception) for result in results)
        self.end_operation(failed=failed)
        for run_id, result in zip(run_ids, results, strict=True):
            afters = [_applied(model, Operation("append", run_id, {"entries": [entry]})) for model in self._models]
            if not isinstance(result, Exception):
                self._models = afters
                continue
            self._failure(f"append to {run_id!r} among others", result)
            if self._sticky:
                self._models += afters
        if (failed or self.disk.hits > hits) and not self._sticky:
            self._check_crash("a crash after several appends")
            self._settle(store)
        self._failed += failed

    def _settle(self, store: holdfast.Store) -> None:
        """What the store shows now must remain."""
        found = observe(store)
        matching = [model for model in self._models if model.shown() == found]
        self._compare("the same store after a failure", found)
        self._models = matching or self._models[:1]

    def _check_healed(self, store: holdfast.Store) -> None:
        try:
            if self._sticky:
                self._settle(store)
            else:
                self._compare("the same store at the end", observe(store))
            operation = Operation("save", "healed", {"state": {"works": [text(random.Random(1), 50)] * 9}})
            carry_out(store, self._claims, operation)
            self._models = [_applied(model, operation) for model in self._models]
        except Exception as error:
            self.problem("unfit", f"the same store does not work again: {error!r}")

    def _failure(self, verb: str, error: Exception) -> None:
        """Check an error: it must be one of Holdfast's that fits, and there must be a reason for it."""
        self.figures.add("errors")
        if isinstance(error, holdfast.Conflict) and len(self._models) > 1:
            return  # an operation that failed before may have been applied, and conflicts now
        is_full = self.injection is not None and self.injection.kind == "disk full"
        if not isinstance(error, holdfast.StorageError):
            self.problem("raw", f"{verb} raised {error!r}")
        elif not self.disk.hits or not isinstance(error, StorageFull if is_full else StorageFailed):
            self.problem("unfit", f"{verb} raised {error!r}")

    def _check_crash(self, when: str) -> None:
        crashed = self.place / "crashed"
        shutil.rmtree(crashed, ignore_errors=True)
        crashed.mkdir()
        self.copy_to(crashed)
        self._compare(when, self.look(crashed))

    def _compare(self, when: str, found: Picture | str) -> None:
        pictures = [model.shown() for model in self._models]
        if isinstance(found, str):
            self.problem("lost", f"{when}: {found}")
        elif found not in pictures:
            kind = "came_back" if len(repr(found)) > len(repr(pictures[0])) else "lost"
            self.problem(kind, f"{when}: {difference(found, pictures[0])}")


def _applied(model: Model, operation: Operation) -> Model:
    after = copy.deepcopy(model)
    after.apply(operation.verb, operation.run_id, **operation.values)
    return after
