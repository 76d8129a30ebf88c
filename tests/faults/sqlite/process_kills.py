"""SIGKILL at random instants: what was acknowledged is there, the operation in flight is whole or absent.

A child works on the real store and writes an intent before and an acknowledgement after each operation into a pipe
that the parent holds, outside the store. The parent kills it, opens the store and compares it with the model. Two of
three children do random operations one after another; the third appends from many tasks at once, so that commits
travel in batches. SIGKILL cannot see a missing fsync; `cuts` does.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
import zlib
from pathlib import Path
from typing import Final

import holdfast
from tests.faults.core.model import Model, Picture, difference, observe
from tests.faults.core.operations import Claims, Operation, Sizes, carry_out, next_operation, text
from tests.faults.core.report import Figures
from tests.faults.core.scratch import SeededIds, StillClock, child, reap, scratch
from tests.faults.sqlite.mutants import mutated

MUTANTS: Final = {"early_acknowledgement": ("lost", "torn"), "no_transaction": ("torn",)}

_KILLS_PER_STORE: Final = 12
_OPERATIONS_MAX: Final = 2000
_TASKS: Final = 6
_SIZES: Final = Sizes(messages=30, words=60)
_RECORD: Final = 9


def run(kills: int, seed: int, mutant: str | None = None) -> Figures:
    """Kill so many children."""
    figures = Figures("kills", seed, mutant)
    figures.expect("kills", "in_flight", "acknowledged", "lost", "torn", "failed")
    store_number = 0
    with scratch() as place, mutated(mutant):
        while figures.counts["kills"] < kills and not (mutant and figures.problems):
            count = min(_KILLS_PER_STORE, kills - int(figures.counts["kills"]))
            _Campaign(place / f"{store_number}.db", f"{seed} {store_number}", figures, mutant).run(count)
            store_number += 1
    return figures


class _Campaign:
    """Kills on one store."""

    def __init__(self, path: Path, seed: str, figures: Figures, mutant: str | None) -> None:
        self._url = f"sqlite:{path}"
        self._seed = seed
        self._figures = figures
        self._early = mutant == "early_acknowledgement"
        self._chance = random.Random(seed)
        self._model = Model()
        self._number = 0
        self._appended = [0] * _TASKS

    def run(self, count: int) -> None:
        for boot in range(count):
            crowded = boot % 3 == 2
            self._model.restart()
            ledger = self._kill(boot, crowded=crowded)
            self._figures.add("kills")
            ok = self._check_crowd(ledger) if crowded else self._check_alone(boot, ledger)
            if not ok:
                return

    def _kill(self, boot: int, *, crowded: bool) -> bytes:
        """Start a child, kill it at a random instant, and give what it wrote into the pipe."""
        read, write = os.pipe()

        def work() -> None:
            os.close(read)
            store = self._open(boot)
            if crowded:
                asyncio.run(_crowd(store, write, list(self._appended)))
            else:
                self._work(store, boot, write)
            time.sleep(60)

        pid = child(work)
        os.close(write)
        try:
            time.sleep(self._chance.uniform(0, 0.08))
            os.kill(pid, signal.SIGKILL)
            status = reap(pid, 30)
            if status != -signal.SIGKILL:
                self._figures.problem("failed", f"the child ended by itself with {status} (seed {self._seed!r})")
            return _read_all(read)
        finally:
            os.close(read)

    def _open(self, boot: int) -> holdfast.Store:
        return holdfast.open(self._url, clock=StillClock(f"boot {boot}"), ids=SeededIds((self._seed, boot)))

    def _work(self, store: holdfast.Store, boot: int, ledger: int) -> None:
        claims: Claims = {}
        chance = self._operations(boot)
        for number in range(self._number, self._number + _OPERATIONS_MAX):
            operation = next_operation(chance, self._model, number, _SIZES)
            _note(ledger, b"I", operation, number)
            if self._early:
                _note(ledger, b"A", operation, number)
            carry_out(store, claims, operation)
            if not self._early:
                _note(ledger, b"A", operation, number)
            self._model.apply(*operation[:2], **operation.values)

    def _operations(self, boot: int) -> random.Random:
        return random.Random(f"{self._seed} operations {boot}")

    def _check_alone(self, boot: int, ledger: bytes) -> bool:
        """Do in the model what was acknowledged; the store must show that, or that and the operation in flight."""
        chance = self._operations(boot)
        pending: Operation | None = None
        for at in range(0, len(ledger) - len(ledger) % _RECORD, _RECORD):
            record = ledger[at : at + _RECORD]
            if record[:1] == b"I":
                pending = next_operation(chance, self._model, self._number, _SIZES)
                assert record[1:5] == _sign(pending), "the parent must see the operations the child did"
                self._number += 1
            else:
                assert pending is not None
                self._model.apply(*pending[:2], **pending.values)
                self._figures.add("acknowledged")
                pending = None
        found = self._observed(boot)
        if found is None:
            return False
        wanted = self._model.shown()
        if pending is not None:
            self._figures.add("in_flight")
            if found != wanted:
                self._model.apply(*pending[:2], **pending.values)
                after = self._model.shown()
                if pending[0] == "recover_expired" and found != after and _between(found, wanted, after):
                    return False  # each run is a commit of its own; the model cannot follow half of them
                wanted = after if found == after else wanted
        if found == wanted:
            return True
        kind = "lost" if _has_less(found, wanted) else "torn"
        text = f"{difference(found, wanted)} (in flight: {pending}, seed {self._seed!r}, boot {boot})"
        self._figures.problem(kind, text)
        return False

    def _check_crowd(self, ledger: bytes) -> bool:
        """Every task's journal is 1, 2, 3 … up to what was acknowledged, or one more."""
        acknowledged, intended = list(self._appended), list(self._appended)
        for at in range(0, len(ledger) - len(ledger) % _RECORD, _RECORD):
            task, number = ledger[at + 1], int.from_bytes(ledger[at + 5 : at + 9], "big")
            (intended if ledger[at : at + 1] == b"I" else acknowledged)[task] = number
        self._figures.add("acknowledged", sum(acknowledged) - sum(self._appended))
        self._figures.add("in_flight", int(intended != acknowledged))
        try:
            with holdfast.open(self._url) as store:
                for task in range(_TASKS):
                    journal = [entry["number"] for entry in store.journal(f"crowd {task}")] if intended[task] else []
                    if journal != list(range(1, len(journal) + 1)) or len(journal) > intended[task]:
                        self._figures.problem("torn", f"crowd {task} has {journal[-3:]} of {intended[task]}")
                    if len(journal) < acknowledged[task]:
                        self._figures.problem("lost", f"crowd {task} has {len(journal)} of {acknowledged[task]}")
                    self._appended[task] = len(journal)
        except holdfast.errors.RunNotFound as error:
            if any(acknowledged):
                self._figures.problem("lost", repr(error))
        return self._observed(-1) is not None

    def _observed(self, boot: int) -> Picture | None:
        """What the store shows, without what the crowd wrote; None if it cannot be read or is damaged."""
        try:
            with holdfast.open(self._url) as store:
                problems = store.verify().problems
                if problems:
                    self._figures.problem("torn", f"verify: {problems[:2]} (seed {self._seed!r}, boot {boot})")
                    return None
                picture = observe(store)
        except holdfast.HoldfastError as error:
            self._figures.problem("torn", f"{error!r} (seed {self._seed!r}, boot {boot})")
            return None
        return {run_id: shown for run_id, shown in picture.items() if not run_id.startswith("crowd")}


async def _crowd(store: holdfast.Store, ledger: int, appended: list[int]) -> None:
    async def one(task: int) -> None:
        chance = random.Random(task)
        for number in range(appended[task] + 1, appended[task] + _OPERATIONS_MAX // _TASKS):
            entry = {"kind": "note", "number": number, "text": text(chance, 20)}
            record = bytes([task]) + bytes(3) + number.to_bytes(4, "big")
            os.write(ledger, b"I" + record)
            await store.aio.append(f"crowd {task}", [entry])
            os.write(ledger, b"A" + record)

    await asyncio.gather(*[one(task) for task in range(_TASKS)])


def _note(ledger: int, kind: bytes, operation: Operation, number: int) -> None:
    os.write(ledger, kind + _sign(operation) + number.to_bytes(4, "big"))


def _sign(operation: Operation) -> bytes:
    return zlib.crc32(repr(operation).encode()).to_bytes(4, "big")


def _read_all(pipe: int) -> bytes:
    parts = []
    while part := os.read(pipe, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def _has_less(found: Picture, wanted: Picture) -> bool:
    def size(picture: Picture) -> int:
        return sum(len(repr(run)) for run in picture.values())

    return size(found) < size(wanted)


def _between(found: Picture, before: Picture, after: Picture) -> bool:
    """Whether each run is as it was before, or as it is after."""
    return found.keys() == before.keys() and all(found[name] in (before[name], after.get(name)) for name in found)
