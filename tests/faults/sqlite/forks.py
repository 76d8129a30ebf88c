"""Fork: a process with an open store forks, parent and child both go on, nothing is lost and nobody hangs.

Quiet trials fork from one thread and close the store on one side while the other still writes. Busy trials fork while
other threads save large states, read, and await. Children tell through a pipe what was acknowledged to them.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import random
import threading
import time
import warnings
from pathlib import Path
from typing import Final

import holdfast
from tests.faults.core.operations import text
from tests.faults.core.report import Figures
from tests.faults.core.scratch import child, reap, scratch
from tests.faults.sqlite.mutants import mutated

MUTANTS: Final = {"fork_ignored": ("lost", "hung", "errors")}

_PATIENCE_S: Final = 15.0
_PATIENCE_WITH_MUTANTS_S: Final = 2.0
_CHILDREN: Final = 4
_THREADS: Final = 3


def run(forks: int, seed: int, mutant: str | None = None) -> Figures:
    """Do so many trials; every third is a busy one."""
    figures = Figures("forks", seed, mutant)
    figures.expect("trials", "forks", "acknowledged", "lost", "hung", "errors")
    with mutated(mutant), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        for number in range(forks):
            with scratch() as place:
                trial = _Trial(place, f"{seed} {number}", figures)
                (trial.child_closes_first, trial.parent_closes_first, trial.busy)[number % 3]()
            figures.add("trials")
            if figures.problem_count > (0 if mutant else 5):
                break
    return figures


class _Trial:
    """One store, a parent and children."""

    def __init__(self, place: Path, seed: str, figures: Figures) -> None:
        self._url = f"sqlite:{place / 'runs.db'}"
        self._seed = seed
        self._figures = figures
        self._store = holdfast.open(self._url)
        self._acknowledged: dict[str, int] = {}
        self._patience_s = _PATIENCE_WITH_MUTANTS_S if figures.mutant else _PATIENCE_S

    def parent_closes_first(self) -> None:
        """The child goes on writing after its parent has closed the store."""
        self._write_some("parent", self._store, 1, 4)
        pid, told, go = self._fork(lambda wait: self._child("child", wait))
        self._heard("child", told)
        self._store.close()
        os.write(go, b"x")
        self._end(pid, "child", told, go)
        self._check()

    def child_closes_first(self) -> None:
        """The parent goes on writing after its child has closed the store and ended."""
        self._write_some("parent", self._store, 1, 4)
        pid, told, go = self._fork(lambda wait: self._child("child", wait))
        os.write(go, b"x")
        self._write_some("parent", self._store, 5, 8)
        self._end(pid, "child", told, go)
        self._write_some("parent", self._store, 9, 12)
        self._store.close()
        self._check()

    def busy(self) -> None:
        """Children are forked at random moments while other threads use the store in every way."""
        self._write_some("parent", self._store, 1, 2)
        stop = threading.Event()
        workers = [_Busy(self._store, f"thread {number}", stop) for number in range(_THREADS)]
        threads = [threading.Thread(target=worker.run, daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        chance = random.Random(self._seed)
        for number in range(_CHILDREN):
            time.sleep(chance.uniform(0, 0.03))
            name = f"child {number}"
            pid, told, go = self._fork(lambda wait: self._child(name, wait))  # noqa: B023
            os.write(go, b"x")
            self._end(pid, name, told, go)
        stop.set()
        for thread, worker in zip(threads, workers, strict=True):
            thread.join(self._patience_s)
            if thread.is_alive():
                self._figures.problem("hung", f"a thread of the parent hangs (seed {self._seed!r})")
            if worker.error:
                self._figures.problem("errors", f"{worker.name}: {worker.error} (seed {self._seed!r})")
            self._acknowledged[worker.name] = worker.done
        self._store.close()
        self._check()

    def _fork(self, work: object) -> tuple[int, int, int]:
        """A child that does `work(wait, tell)`; gives its id, what it tells, and what lets it go on."""
        assert callable(work)
        told, tell = os.pipe()
        wait, go = os.pipe()

        def alone() -> None:
            os.close(told)
            os.close(go)
            self._tell = tell
            if not self._figures.mutant:
                faulthandler.dump_traceback_later(self._patience_s * 0.8)  # if it hangs, say where
            work(wait)

        pid = child(alone)
        self._figures.add("forks")
        os.close(tell)
        os.close(wait)
        return pid, told, go

    def _child(self, name: str, wait: int) -> None:
        """In the child: write through the inherited store, wait, write more, await some, read, and close."""
        store = self._store
        self._write_some(name, store, 1, 3)
        os.write(self._tell, bytes([3]))
        os.read(wait, 1)
        self._write_some(name, store, 4, 6)
        os.write(self._tell, bytes([6]))
        asyncio.run(_await_some(name, store, 7, 9))
        os.write(self._tell, bytes([9]))
        loaded = store.load(name)
        assert loaded is not None
        assert loaded.state["n"] == 9, f"{name} reads {loaded.state['n']} and wrote 9"
        store.close()

    def _write_some(self, name: str, store: holdfast.Store, first: int, last: int) -> None:
        for n in range(first, last + 1):
            store.save(name, _state(name, n))
            store.append(name, [{"kind": "note", "n": n}])
            self._acknowledged[name] = n

    def _heard(self, name: str, told: int) -> bool:
        """Wait for the next word of a child; False if it has ended."""
        word = os.read(told, 1)
        if word:
            self._acknowledged[name] = word[0]
        return bool(word)

    def _end(self, pid: int, name: str, told: int, go: int) -> None:
        status = reap(pid, self._patience_s)
        while self._heard(name, told):
            pass
        os.close(told)
        os.close(go)
        if status is None:
            self._figures.problem(
                "hung", f"{name} hangs after {self._acknowledged.get(name, 0)} writes (seed {self._seed!r})"
            )
        elif status:
            self._figures.problem("errors", f"{name} ended with {status} (seed {self._seed!r})")

    def _check(self) -> None:
        figures = self._figures
        with holdfast.open(self._url) as store:
            for name, n in self._acknowledged.items():
                figures.add("acknowledged", n)
                loaded = store.load(name) if n else None
                journal = [entry["n"] for entry in store.journal(name)] if loaded else []
                if n and (loaded is None or loaded.state["n"] < n or journal[:n] != list(range(1, n + 1))):
                    found = loaded.state["n"] if loaded else None
                    figures.problem(
                        "lost", f"{name} was told {n}, found {found} and {len(journal)} entries (seed {self._seed!r})"
                    )
            problems = store.verify().problems
            if problems:
                figures.problem("lost", f"verify: {problems[:2]} (seed {self._seed!r})")


def _state(name: str, n: int) -> dict[str, object]:
    chance = random.Random(f"{name} {n // 2}")
    return {"n": n, "messages": [text(chance, 120) for _ in range(30)]}


async def _await_some(name: str, store: holdfast.Store, first: int, last: int) -> None:
    for n in range(first, last + 1):
        await store.aio.save(name, _state(name, n))
        await store.aio.append(name, [{"kind": "note", "n": n}])
        await store.aio.load(name)


class _Busy:
    """A thread of the parent: saves, appends, loads and awaits without a pause."""

    def __init__(self, store: holdfast.Store, name: str, stop: threading.Event) -> None:
        self._store = store
        self._stop = stop
        self.name = name
        self.done = 0
        self.error = ""

    def run(self) -> None:
        try:
            while not self._stop.is_set():
                n = self.done + 1
                if n % 4:
                    self._store.save(self.name, _state(self.name, n))
                    self._store.append(self.name, [{"kind": "note", "n": n}])
                    self._store.load(self.name)
                else:
                    asyncio.run(_await_some(self.name, self._store, n, n))
                self.done = n
        except Exception as error:
            self.error = repr(error)
