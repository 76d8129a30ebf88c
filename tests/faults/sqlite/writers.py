"""Eight writing processes, several threads each: nobody is ever told that the database is locked, and nothing is lost.

All of them open the store at the same moment, when it is not there yet, and write to runs of their own and to one they
share. That moment is also repeated by itself, once for each second, on new files. Meanwhile another process holds a
half-read `history` iterator: it must neither block a writer nor keep the WAL from being copied back, and reads the rest
correctly afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Final

import apsw

import holdfast
from tests.faults.core.operations import text
from tests.faults.core.report import Figures
from tests.faults.core.scratch import child, kill, reap, scratch
from tests.faults.sqlite.mutants import mutated

MUTANTS: Final = {"no_patience": ("told_busy",), "reads_stay_open": ("iterator_in_the_way",)}

_PROCESSES: Final = 8
_THREADS: Final = 3
_PAUSED_CHECKPOINTS: Final = 450
"""More than two pages of `history`."""
_PATIENCE_S: Final = 90.0
_TOLD_BUSY: Final = 6
_IN_THE_WAY: Final = 7
"""Exit status of the reader whose iterator keeps the WAL from being copied back."""


def run(seconds: float, seed: int, mutant: str | None = None) -> Figures:
    """Write for so long."""
    figures = Figures("writers", seed, mutant)
    figures.expect("processes", "threads", "openings", "acknowledged", "writes_per_s", "longest_wait_s")
    figures.expect("told_busy", "iterator_in_the_way", "errors", "lost")
    with mutated(mutant):
        with scratch() as place:
            _Crowd(place, seed, figures).run(seconds)
        for _ in range(0 if mutant else int(seconds)):
            with scratch() as place:
                _open_at_once(place, figures)
    return figures


def _open_at_once(place: Path, figures: Figures) -> None:
    """Let all processes create the same store at the same moment."""

    def opened(gate: int, go: int) -> None:
        os.close(go)
        os.read(gate, 1)
        try:
            holdfast.open(f"sqlite:{place / 'runs.db'}").close()
        except holdfast.errors.StorageBusy:
            os._exit(_TOLD_BUSY)

    gate, go = os.pipe()
    pids = [child(opened, gate, go) for _ in range(_PROCESSES)]
    os.close(gate)
    os.close(go)
    for pid in pids:
        status = reap(pid, _PATIENCE_S)
        figures.add("openings")
        if status == _TOLD_BUSY:
            figures.problem("told_busy", "a process that created the store together with others")
        elif status != 0:
            figures.problem("errors", f"a process that created the store together with others ended with {status}")


class _Crowd:
    """The processes and what they report."""

    def __init__(self, place: Path, seed: int, figures: Figures) -> None:
        self._place = place
        self._path = place / "runs.db"
        self._seed = seed
        self._figures = figures
        self._reports = [place / f"{number}.json" for number in range(_PROCESSES)]

    def run(self, seconds: float) -> None:
        gate, go = os.pipe()
        pids = [child(self._write, number, seconds, gate, go) for number in range(_PROCESSES)]
        reader = child(self._pause, gate, go)
        os.close(gate)
        os.close(go)  # all of them wait for this
        try:
            for pid in pids:
                if reap(pid, seconds + _PATIENCE_S) != 0:
                    self._figures.problem("errors", "a writing process broke down or hung")
            (self._place / "written").touch()
            status = reap(reader, _PATIENCE_S)
            if status == _IN_THE_WAY:
                self._figures.problem(
                    "iterator_in_the_way", "a half-read iterator keeps the WAL from being copied back"
                )
            elif status != 0:
                self._figures.problem("errors", f"the reading process ended with {status}, see above")
        finally:
            for pid in (reader, *pids):
                kill(pid)
        self._check(seconds)

    def _write(self, number: int, seconds: float, gate: int, go: int) -> None:
        os.close(go)
        os.read(gate, 1)
        try:
            store = holdfast.open(f"sqlite:{self._path}")
        except holdfast.errors.StorageBusy as busy:
            self._reports[number].write_text(json.dumps([{**_Writer.NOTHING, "error": repr(busy)}]))
            return
        with store:
            writers = [_Writer(store, f"{self._seed} {number} {thread}", seconds) for thread in range(_THREADS)]
            threads = [threading.Thread(target=writer.run) for writer in writers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        reports = [writer.report() for writer in writers]
        self._reports[number].write_text(json.dumps(reports))

    def _pause(self, gate: int, go: int) -> None:
        """Read one checkpoint of a long history, wait until all is written, and read on."""
        os.close(go)
        os.read(gate, 1)
        with holdfast.open(f"sqlite:{self._path}") as store:
            for step in range(1, _PAUSED_CHECKPOINTS + 1):
                store.save("paused", {"step": step}, step=step)
            history = store.history("paused")
            steps = [next(history).step]
            while not (self._place / "written").exists():
                time.sleep(0.02)
            if not self._copied_back():
                os._exit(_IN_THE_WAY)
            steps += [info.step for info in history]
            assert steps == list(range(1, _PAUSED_CHECKPOINTS + 1)), "the iterator lost its place"

    def _copied_back(self) -> bool:
        """Whether the whole WAL can be copied back, and emptied: not if anybody holds a snapshot."""
        with contextlib.closing(apsw.Connection(str(self._path))) as other:
            other.set_busy_timeout(2000)
            other.execute("SELECT count(*) FROM runs").fetchall()  # only now does it know of the WAL
            try:
                other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.BusyError:
                return False
        return (self._place / "runs.db-wal").stat().st_size == 0

    def _check(self, seconds: float) -> None:
        """Everything that was acknowledged is there, and as often as that."""
        figures = self._figures
        figures.counts["processes"], figures.counts["threads"] = _PROCESSES, _PROCESSES * _THREADS
        shared: list[str] = []
        with holdfast.open(f"sqlite:{self._path}") as store:
            for path in self._reports:
                for report in json.loads(path.read_text()) if path.exists() else []:
                    _check_writer(store, report, figures)
                    shared += [f"{report['name']} {i}" for i in range(report["shared"])]
            found = [entry["by"] for entry in store.journal("shared")] if shared else []
            if sorted(found) != sorted(shared):
                figures.problem("lost", f"the shared journal has {len(found)} entries, {len(shared)} were acknowledged")
            problems = store.verify().problems
            if problems:
                figures.problem("lost", f"verify: {problems[:3]}")
        figures.counts["writes_per_s"] = round(figures.counts["acknowledged"] / seconds)


def _check_writer(store: holdfast.Store, report: dict[str, object], figures: Figures) -> None:
    name, count = str(report["name"]), int(str(report["own"]))
    figures.add("acknowledged", count * 3 + int(str(report["shared"])))
    figures.most("longest_wait_s", round(float(str(report["longest"])), 3))
    if report["error"]:
        kind = "told_busy" if "StorageBusy" in str(report["error"]) else "errors"
        figures.problem(kind, f"writer {name} was told {report['error']}")
    if not count:
        return
    journal = [entry["i"] for entry in store.journal(name)]
    steps = [info.step for info in store.history(name)]
    marks = [effect.key for effect in store.effects(name)]
    # What a writer was about to do when it met an error is allowed to be there.
    for found in (journal, steps, marks):
        if not count <= len(found) <= count + bool(report["error"]):
            figures.problem("lost", f"writer {name} did {count} of each, found {len(found)}")
    loaded = store.load(name, step=count)
    if journal[:count] != list(range(1, count + 1)) or loaded is None or loaded.state["i"] != count:
        figures.problem("lost", f"writer {name} finds other content than it wrote")


class _Writer:
    """One thread: saves, appends and marks on a run of its own, now and then an entry in the shared run."""

    NOTHING: Final[dict[str, object]] = {"name": "", "own": 0, "shared": 0, "longest": 0.0, "error": ""}

    def __init__(self, store: holdfast.Store, name: str, seconds: float) -> None:
        self._store = store
        self._name = name
        self._seconds = seconds
        self._own = self._shared = 0
        self._longest = 0.0
        self._error = ""

    def report(self) -> dict[str, object]:
        facts = {"name": self._name, "own": self._own, "shared": self._shared}
        return {**self.NOTHING, **facts, "longest": self._longest, "error": self._error}

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._error = repr(error)

    def _work(self) -> None:
        store, name, chance = self._store, self._name, random.Random(self._name)
        messages: list[str] = []
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            i = self._own + 1
            messages = [*messages[-40:], text(chance, 40)]
            before = time.monotonic()
            store.save(name, {"i": i, "messages": messages}, step=i)
            saved = time.monotonic()
            store.append(name, [{"kind": "note", "i": i}])
            appended = time.monotonic()
            store.mark_done(name, f"effect {i}", result=i)
            marked = time.monotonic()
            self._longest = max(self._longest, saved - before, appended - saved, marked - appended)
            self._own = i
            if chance.random() < 0.3:
                store.append("shared", [{"kind": "note", "by": f"{name} {self._shared}"}])
                self._shared += 1
