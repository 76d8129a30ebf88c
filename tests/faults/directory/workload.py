"""Every verb on the recorded directory store, and what the store may show after a cut at each stage.

The plain model says what random operations do. Verbs it does not know (copy, export and import, gates, timers, inbox
and outbox, the queue of ready runs) are done on a store in memory beside it, and what that one shows is what must be
found.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from typing import Any, Final

import holdfast
from holdfast.clock import LeaseTime
from holdfast.model.commit import OUTSIDER, Commit, Committed, Guard, NewGate, NewItem, NewMessage, NewRun, Timer
from holdfast.model.rows import GateRow, ItemRow, MessageRow, TimerRow
from holdfast.store.memory import MemoryStore
from holdfast.store.port import StorePort
from tests.faults.core.model import Model, Picture, difference, observe
from tests.faults.core.operations import Claims, Sizes, carry_out, next_operation
from tests.faults.core.scratch import SeededIds
from tests.faults.core.workload import Stage, mixed

OPERATIONS: Final = 40
_SIZES: Final = Sizes(messages=4, words=60)
_GATE: Final = "approve"


class Clock:
    """Time that moves only by being looked at, on a machine that can be started again."""

    def __init__(self) -> None:
        self.boot = "boot 0"
        self._us = 1_700_000_000_000_000

    def now_us(self) -> int:
        self._us += 1
        return self._us

    def lease_time(self) -> LeaseTime:
        return LeaseTime(self.boot, 1_000_000)


def picture_of(store: holdfast.Store) -> Picture:
    """All a store shows: runs, and what passes between them and the outside."""
    picture: Picture = observe(store)
    port = store.port
    for run_id, shown in picture.items():
        row = port.run(run_id)
        assert row is not None
        shown["gates"] = {gate.gate: (gate.state, gate.answered_by) for gate in port.rows(GateRow, row.run)}
        shown["timers"] = {timer.timer: timer.due_us for timer in port.rows(TimerRow, row.run)}
        shown["inbox"] = [(item.number, item.key, item.body) for item in port.rows(ItemRow, row.run)]
        shown["outbox"] = [(m.number, m.key, m.body) for run, m in port.due(MessageRow, 1000) if run.run_id == run_id]
    return picture


class Side:
    """A store with the claims it gave out."""

    def __init__(self, port: StorePort, clock: Clock, seed: object) -> None:
        self.store = holdfast.Store(port, clock=clock, ids=SeededIds(seed))
        self.claims: Claims = {}
        self.queue: list[holdfast.Claim] = []


Step = Callable[[Side], object]


class Workload:
    """Random operations, with a close and a new start in the middle."""

    def __init__(self, seed: str, open_port: Callable[[Clock], StorePort], mark: Callable[[int], None]) -> None:
        self._seed = seed
        self._open_port = open_port
        self._mark = mark
        self._chance = random.Random(f"{seed} operations")
        self._model = Model()
        self._numbers = itertools.count()
        self._clock, self._memory_clock = Clock(), Clock()
        self._memory = Side(MemoryStore(self._memory_clock), self._memory_clock, (seed, "memory"))
        self._extra: list[str] = []
        """Runs the model does not know."""
        self._shown: Picture = {}
        self._acknowledged = 0
        self.stages: list[Stage] = []
        self.past: list[Picture] = []
        """What the store showed before: to find one of these is to have lost something."""

    def run(self) -> None:
        for boot in range(2):
            self._stage("opening", self._shown)
            self._clock.boot = self._memory_clock.boot = f"boot {boot}"
            self._model.restart()
            self._memory.claims.clear()
            self._memory.queue.clear()
            side = Side(self._open_port(self._clock), self._clock, (self._seed, boot))
            for _ in range(OPERATIONS // 2):
                self._one(side)
            side.store.close()

    def _stage(self, about: str, *allowed: Picture) -> None:
        self.stages.append(Stage(self._acknowledged, allowed, about))
        self._mark(len(self.stages) - 1)

    def _one(self, side: Side) -> None:
        about, step = self._other_verb() if self._chance.random() < 0.35 else self._known_verb()
        before = self._shown
        step(self._memory)
        after = self._shown = picture_of(self._memory.store)
        for run_id, wanted in self._model.shown().items():
            found = {name: after[run_id][name] for name in wanted}
            assert found == wanted, f"{about}: {difference({run_id: found}, {run_id: wanted})}"
        between = mixed(before, after) if about.startswith("recover_expired") else ()  # a commit for each run
        self._stage(f"in {about}", before, after, *between)
        step(side)
        self._acknowledged += 1
        self.past.append(before)
        self._stage(f"after {about}", after)

    def _known_verb(self) -> tuple[str, Step]:
        operation = next_operation(self._chance, self._model, next(self._numbers), _SIZES)
        self._model.apply(*operation[:2], **operation.values)
        return str(operation), lambda side: carry_out(side.store, side.claims, operation)

    def _other_verb(self) -> tuple[str, Step]:
        number = next(self._numbers)
        makers = (self._another, self._another, self._pass_on, self._pass_on, self._queue, self._let_go)
        return self._chance.choice(makers)(number)

    def _another(self, number: int) -> tuple[str, Step]:
        """A copy of a run, or one that went through an archive."""
        known = list(self._model.runs)
        if not known:
            return self._pass_on(number)
        run_id, new_id = self._chance.choice(known), f"copy/{number}"
        self._extra.append(new_id)
        if number % 2:
            return f"copy {run_id!r}", lambda side: side.store.copy(run_id, new_id)
        return f"import {run_id!r}", lambda side: side.store.import_run(side.store.export_run(run_id), run_id=new_id)

    def _let_go(self, number: int) -> tuple[str, Step]:
        if not self._extra:
            return self._another(number)
        run_id = self._extra.pop(self._chance.randrange(len(self._extra)))
        return f"delete {run_id!r}", lambda side: side.store.delete(run_id)

    def _queue(self, number: int) -> tuple[str, Step]:
        """Runs of a workflow of their own: made, taken from the queue, completed."""
        if self._memory.queue:
            return "complete a run of the queue", lambda side: side.queue.pop().complete()
        if f"queue {number % 2}" in self._shown:
            return "claim_ready", lambda side: side.queue.extend(side.store.claim_ready("w", limit=1, workflows=["q"]))
        return "save to the queue", lambda side: side.store.save(f"queue {number % 2}", number, workflow="q")

    def _pass_on(self, number: int) -> tuple[str, Step]:
        """A commit with gates, timers, inbox and outbox."""
        run_id = f"outside {number % 2}"
        parts: dict[str, Any] = {}
        if run_id not in self._shown:
            parts = {"guard": Guard(), "create": NewRun(), "gates": (NewGate(_GATE, b"\x00\xa4form"),), **_sent(number)}
        elif self._shown[run_id]["gates"][_GATE][0] == "open" and self._chance.random() < 0.5:
            parts = {"deliver": (NewItem("answer", _GATE, f"answer {number}", "ana", b"\x00\xc3"),)}
        elif self._shown[run_id]["outbox"] and self._chance.random() < 0.5:
            parts = {"sent": (self._shown[run_id]["outbox"][0][0],)}
        elif self._shown[run_id]["inbox"] and self._chance.random() < 0.5:
            parts = {"guard": Guard(), "take_items": (self._shown[run_id]["inbox"][0][0],), "drop_timers": ("t",)}
        else:
            parts = {"guard": Guard(), **_sent(number)}
        commit = Commit(**{"run_id": run_id, "commit_id": number.to_bytes(8, "big"), "guard": Guard(OUTSIDER), **parts})
        return f"pass on with {sorted(parts)}", lambda side: _committed(side, commit)


def _sent(number: int) -> dict[str, Any]:
    return {
        "timers": (Timer("t", number), Timer(f"t{number % 3}", 2**40 + number)),
        "deliver": (NewItem("event", "n", f"item {number}", "ben", b"\x00\xa4text"),),
        "send": (NewMessage("somebody", "event", "n", f"message {number}", b"\x00\xa4text"),),
    }


def _committed(side: Side, commit: Commit) -> None:
    (outcome,) = side.store.port.commit([copy.copy(commit)])
    assert isinstance(outcome, Committed), outcome
