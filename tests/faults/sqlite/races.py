"""Prune, sweep, fork and delete race writers of the same family: no chunk that a checkpoint needs is ever gone.

Writers (two processes, two threads each) save large states that go back to earlier content, so that chunks are re-used
from the writer's memory when the sweep has just deleted them or is about to; they replace named checkpoints and
attachments. One process prunes without a pause, another forks, loads and deletes. At the end every checkpoint there is
loads equal to what was saved under its id, and nothing is damaged; nobody was told of damage on the way.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import holdfast
from holdfast.operations.packs import pack_loose
from tests.faults.core.model import digest
from tests.faults.core.operations import text
from tests.faults.core.report import Figures
from tests.faults.core.scratch import child, kill, reap, scratch
from tests.faults.sqlite.mutants import mutated

MUTANTS: Final = {"no_epoch": ("torn", "false_damage"), "late_roots_ignored": ("torn", "false_damage")}

_WRITERS: Final = 2
_THREADS: Final = 2
_NAMES: Final = tuple(f"run {writer} {thread}" for writer in range(_WRITERS) for thread in range(_THREADS))
_SAVES: Final = 40
_PATIENCE_S: Final = 240.0
_STOPS_AT: Final = (holdfast.errors.RunNotFound, holdfast.errors.CheckpointNotFound, holdfast.errors.RunExists)
"""What a forker may be told beside others who delete and prune."""


def run(races: int, seed: int, mutant: str | None = None) -> Figures:
    """Run so many races, each on a store of its own."""
    figures = Figures("races", seed, mutant)
    figures.expect(
        "races", "saves", "prunes", "packs", "chunks_swept", "forks", "lost", "torn", "false_damage", "errors"
    )
    with mutated(mutant):
        for number in range(races):
            with scratch(fast=True) as place:
                _Race(place, f"{seed} {number}", figures).run()
            figures.add("races")
            if figures.problem_count > 10 or (mutant and figures.problem_count):
                break
    return figures


class _Race:
    """One store, its processes, and the ledger of what was saved."""

    def __init__(self, place: Path, seed: str, figures: Figures) -> None:
        self._url = f"sqlite:{place / 'runs.db'}"
        self._ledger = place / "ledger"
        self._done = place / "done"
        self._seed = seed
        self._figures = figures
        self._variants = {name: _variants(seed, name) for name in ("base", *_NAMES)}

    def run(self) -> None:
        with holdfast.open(self._url) as store:
            store.save("base", self._variants["base"][0], checkpoint_id="base")
            for name in _NAMES:
                store.fork("base", name)
        writers = [child(self._in_process, self._write, w) for w in range(_WRITERS)]
        others = [child(self._in_process, work) for work in (self._prune, self._fork)]
        try:
            self._reap(writers)
            self._done.touch()
            self._reap(others)
        finally:
            for pid in (*writers, *others):
                kill(pid)
        self._check()

    def _reap(self, pids: list[int]) -> None:
        for pid in pids:
            status = reap(pid, _PATIENCE_S)
            if status != 0:
                self._figures.problem("errors", f"a process ended with {status} (seed {self._seed!r})")

    def _in_process(self, work: Callable[..., None], *arguments: object) -> None:
        self._file = os.open(self._ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            work(*arguments)
        except holdfast.DamagedData as damage:
            self._note("D", repr(damage))

    def _note(self, *facts: object) -> None:
        os.write(self._file, ("\t".join(str(fact) for fact in facts) + "\n").encode())

    def _write(self, writer: int) -> None:
        with holdfast.open(self._url) as store:
            threads = [
                threading.Thread(target=self._in_thread, args=(store, f"run {writer} {thread}"))
                for thread in range(_THREADS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _in_thread(self, store: holdfast.Store, name: str) -> None:
        try:
            self._save_all(store, name)
        except holdfast.DamagedData as damage:
            self._note("D", name, repr(damage))
        except Exception as error:
            self._note("X", name, repr(error))

    def _save_all(self, store: holdfast.Store, name: str) -> None:
        chance, variants = random.Random(f"{self._seed} {name}"), self._variants[name]
        for number in range(_SAVES):
            state = {**chance.choice(variants), "number": number if chance.random() < 0.5 else 0}
            again = chance.random() < 0.2
            checkpoint_id = "replaced" if again else f"saved {number}"
            self._note("I", name, checkpoint_id, digest(state))
            store.save(name, state, checkpoint_id=checkpoint_id, replace=again)
            self._note("A", name, checkpoint_id, digest(state))
            if chance.random() < 0.3:
                store.attach(name, checkpoint_id, "beside", chance.choice(variants), replace=True)
            if chance.random() < 0.3:
                loaded = store.load(name)
                if loaded is None or digest(loaded.state) != digest(state):
                    newest = loaded.checkpoint_id if loaded else None
                    if newest == checkpoint_id or not again:
                        self._note("T", name, f"loaded {newest} after saving {checkpoint_id}")

    def _prune(self) -> None:
        chance = random.Random(f"{self._seed} prune")
        with holdfast.open(self._url) as store:
            while not self._done.exists():
                name = chance.choice([info.run_id for info in store.runs()])
                try:
                    pruned = store.prune(name, holdfast.Keep(last=chance.choice((1, 1, 2))))
                    self._note("P", pruned.chunks, pruned.damage or "")
                except holdfast.errors.RunNotFound:
                    continue
                row = store.port.run(name)
                if row is not None and pack_loose(store.access.core, row.family, 2, chunks_min=2):
                    self._note("K")
                time.sleep(chance.uniform(0, 0.002))

    def _fork(self) -> None:
        chance = random.Random(f"{self._seed} fork")
        number = 0
        with holdfast.open(self._url) as store:
            while not self._done.exists():
                number += 1
                source = chance.choice(("base", *_NAMES))
                name = f"fork {number}"
                try:
                    store.fork(source, name)
                    loaded = store.load(name)
                    assert loaded is not None
                    store.save(name, {**loaded.state, "fork": number})
                    store.attachments(name, loaded.checkpoint_id)
                    self._note("F", name)
                    if chance.random() < 0.8:
                        store.delete(name)
                except _STOPS_AT:
                    continue

    def _check(self) -> None:
        """Compare what is there with the ledger."""
        saved: dict[tuple[str, str], set[str]] = {}
        last: dict[str, str] = {}
        for kind, *facts in [line.split("\t") for line in self._ledger.read_text().splitlines()]:
            self._take_in(kind, facts, saved, last)
        try:
            with holdfast.open(self._url) as store:
                problems = store.verify().problems
                if problems:
                    self._figures.problem("torn", f"verify: {problems[:2]} (seed {self._seed!r})")
                for name in _NAMES:
                    self._check_run(store, name, saved, last.get(name))
        except holdfast.DamagedData as damage:
            self._figures.problem("torn", f"{damage!r} (seed {self._seed!r})")

    def _take_in(
        self, kind: str, facts: list[str], saved: dict[tuple[str, str], set[str]], last: dict[str, str]
    ) -> None:
        figures, seed = self._figures, self._seed
        if kind == "I":
            saved.setdefault((facts[0], facts[1]), set()).add(facts[2])
        elif kind == "A":
            figures.add("saves")
            saved[facts[0], facts[1]] = {facts[2]}
            if facts[1] != "replaced":
                last[facts[0]] = facts[1]
        elif kind == "P":
            figures.add("prunes")
            figures.add("chunks_swept", int(facts[0]))
            if facts[1]:
                figures.problem("false_damage", f"prune: {facts[1]} (seed {seed!r})")
        elif kind in ("F", "K"):
            figures.add("forks" if kind == "F" else "packs")
        else:
            name = {"D": "false_damage", "T": "torn", "X": "errors"}[kind]
            figures.problem(name, f"{' '.join(facts)} (seed {seed!r})")

    def _check_run(
        self, store: holdfast.Store, name: str, saved: dict[tuple[str, str], set[str]], last: str | None
    ) -> None:
        there = set()
        for info in store.history(name):
            loaded = store.load(name, checkpoint_id=info.checkpoint_id)
            assert loaded is not None
            there.add(info.checkpoint_id)
            wanted = saved.get((name, info.checkpoint_id))
            if wanted is not None and digest(loaded.state) not in wanted:
                self._figures.problem(
                    "torn", f"{name} {info.checkpoint_id!r} is not what was saved (seed {self._seed!r})"
                )
            for value in store.attachments(name, info.checkpoint_id).values():
                if value not in self._variants[name]:
                    self._figures.problem("torn", f"an attachment of {name} is not what was kept (seed {self._seed!r})")
        if last is not None and last not in there and "replaced" not in there:
            self._figures.problem("lost", f"{name} has {sorted(there)}, not {last!r} (seed {self._seed!r})")


def _variants(seed: str, name: str) -> list[dict[str, Any]]:
    """States of a run that have much in common, also with those of other runs, and much that is their own."""
    shared, own = random.Random(f"{seed} shared"), random.Random(f"{seed} {name} variants")
    common = [text(shared, 60) for _ in range(25)]
    return [
        {"messages": [*common[:10], *[text(own, 60) for _ in range(12)], *common[10:]], "note": text(own, 300)}
        for _ in range(3)
    ]
