"""Random operations on a recorded store, and what it may show after a cut at each stage of them."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from typing import Final, NamedTuple

import holdfast
from tests.faults.core.model import Model, Picture, observe
from tests.faults.core.operations import Claims, Operation, Sizes, carry_out, next_operation

OPERATIONS: Final = 36
_SIZES: Final = Sizes(messages=6, words=60)
_IN_STEPS: Final = ("prune", "delete", "recover_expired")
"""Verbs of several commits: after an error some of it may be done."""


def mixed(before: Picture, after: Picture) -> list[Picture]:
    """What is shown while some runs have changed and others have not."""
    changed = [run_id for run_id in before if before[run_id] != after[run_id]]
    choices = itertools.product((before, after), repeat=len(changed))
    return [{**before, **{name: side[name] for name, side in zip(changed, sides, strict=True)}} for sides in choices]


class Stage(NamedTuple):
    """What is known at a moment of the workload."""

    acknowledged: int
    allowed: tuple[Picture, ...]
    about: str


class Workload:
    """Random operations, with a close and a new start in the middle."""

    def __init__(self, seed: str, open_store: Callable[[int], holdfast.Store], mark: Callable[[int], None]) -> None:
        self._open_store = open_store
        self._mark = mark
        self._chance = random.Random(f"{seed} operations")
        self._model = Model()
        self._acknowledged = 0
        self.stages: list[Stage] = []
        self.past: list[Picture] = []
        """What the store showed before: to find one of these is to have lost something."""
        self.failed: list[Picture] = []
        """What it would have shown, had an operation not failed."""
        self._halfway: tuple[Picture, ...] = ()
        """What may also be shown until the next acknowledgement, because a verb of several commits failed."""

    def run(self) -> None:
        number = 0
        for boot in range(2):
            self.stage("opening", self._model.shown())
            self._model.restart()
            store = self._opened(boot)
            claims: Claims = {}
            for _ in range(OPERATIONS // 2):
                self._one(store, claims, number)
                number += 1
            store.close()

    def stage(self, about: str, *allowed: Picture) -> None:
        self.stages.append(Stage(self._acknowledged, allowed, about))
        self._mark(len(self.stages) - 1)

    def _opened(self, boot: int) -> holdfast.Store:
        """The store; a disk that failed once is tried again, as its user would."""
        for _ in range(3):
            try:
                return self._open_store(boot)
            except holdfast.StorageError:
                continue
        raise AssertionError("a disk that fails once cannot keep the store from being opened")

    def _one(self, store: holdfast.Store, claims: Claims, number: int) -> None:
        operation = next_operation(self._chance, self._model, number, _SIZES)
        before, later = self._model.shown(), copy.deepcopy(self._model)
        later.apply(*operation[:2], **operation.values)
        after = later.shown()
        between = mixed(before, after) if operation.verb == "recover_expired" else ()  # a commit for each run
        self.stage(f"in {operation}", before, after, *between, *self._halfway)
        try:
            carry_out(store, claims, operation)
        except holdfast.StorageError:
            self._after_failure(store, operation, (before, after, *between), later)
            return
        self._acknowledged += 1
        self._halfway = ()
        self._model = later
        self.past.append(before)
        self.stage(f"after {operation}", after)

    def _after_failure(
        self, store: holdfast.Store, operation: Operation, allowed: tuple[Picture, ...], later: Model
    ) -> None:
        before, after, *_ = allowed
        if operation.verb in _IN_STEPS:
            if observe(store) == after:
                self._model = later
            self._halfway = allowed
            self.stage(f"after {operation} failed in the middle", *allowed)
        else:
            self.failed.append(after)
            self.stage(f"after {operation} failed", before)
