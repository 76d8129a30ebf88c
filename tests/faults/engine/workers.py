"""The engine: four workers move many runs on; a fifth process answers their gates; workers are killed and replaced.

Runs are `def` and `async def`, some have children, some a gate in a branch beside a step that takes a while, so that
the answer comes before the run waits. At the end each run has one end and each of its steps once, whoever did them.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import holdfast
from holdfast.model.rows import TERMINAL, RunRow
from holdfast.store.port import RunQuery
from tests.faults.core.report import Figures
from tests.faults.core.scratch import child, kill, reap
from tests.faults.engine import world
from tests.faults.engine.lives import Site, site
from tests.faults.engine.mutants import engine_mutated

MUTANTS: Final = {
    "wakes_slept_through": ("stranded",),
    "parents_not_woken": ("stranded",),
}

_WORKERS: Final = 4
_LEASE_S: Final = 1.5
_STALL_S: Final = 20.0
"""Nothing ended for so long: what has not ended is stranded."""


def plain(run: holdfast.Run, place: str, number: int) -> int:
    """Steps and an effect."""
    first = run.step(world.double, [place, number])
    run.effect(world.mail, place, f"{number}", in_doubt="retry")
    return int(run.step(int, first))


async def plain_async(run: holdfast.AsyncRun, place: str, number: int) -> int:
    """The same, awaited."""
    first = await run.step(world.double, [place, number])
    await run.effect(world.mail, place, f"{number}", in_doubt="retry")
    return int(await run.step(int, first))


def parent(run: holdfast.Run, place: str, number: int) -> int:
    """Children of each kind, one of which waits for an answer, and something behind them."""
    first = run.child("plain", place, 1_000_000 + number)
    second = run.child("plain_async", place, 2_000_000 + number)
    third = run.child("gated", place, 3_000_000 + number)
    run.step(int, second + third)
    return int(first) // 2 - 1_000_000


def gated(run: holdfast.Run, place: str, number: int) -> int:
    """A gate in a branch, and a step beside it: half of the time it is answered before the run waits, or after that."""

    def slowly(branch: Any) -> Any:
        return branch.step(_slow, place, number)

    answers = run.gather(lambda branch: branch.ask("Go on?", {"yes": bool})["yes"], slowly)
    return number if answers[0] else -1


def _slow(place: str, number: int) -> int:
    time.sleep(0.05 if number % 8 < 4 else 0)
    world.note(place, "step", "slow", number)
    return number


_WORKFLOWS: Final = (plain, plain_async, parent, gated)
_STEPS: Final = {"plain": 2, "plain_async": 2, "parent": 1, "gated": 1}


def run(
    runs: int, seed: int, mutant: str | None = None, sites: tuple[str, ...] = ("sqlite", "postgres"), kills: bool = True
) -> Figures:
    """Move so many runs on, on each store."""
    figures = Figures("engine_workers", seed, mutant)
    figures.expect("runs", "children", "answers", "kills")
    figures.expect("repeated", "stranded", "wrong_result", "unsound", "failed")
    for name in sites[:1] if mutant else sites:
        with site(name) as at:
            _Arena(at, runs, figures, seed, kills=kills and not mutant).run()
    return figures


def make_app(at: Site) -> holdfast.App:
    app = holdfast.App(at.url, lease_s=_LEASE_S)
    for workflow in _WORKFLOWS:
        app.workflow(workflow)
    return app


class _Arena:
    """One store, its workers, the one who answers, and the one who kills."""

    def __init__(self, at: Site, runs: int, figures: Figures, seed: int, *, kills: bool) -> None:
        self._site = at
        self._runs = runs
        self._figures = figures
        self._kills = kills
        self._chance = random.Random(f"{seed} workers {at.name}")
        self._place = str(at.folder / "world")
        self._workers: list[int] = []

    def run(self) -> None:
        others = [child(self._make), child(self._answer)]
        began = time.monotonic()
        try:
            self._workers = [child(self._work) for _ in range(_WORKERS)]
            self._watch()
            self._figures.add(f"per_s_on_{self._site.name}", round(self._runs / (time.monotonic() - began)))
            self._end()
        finally:
            for pid in (*others, *self._workers):
                kill(pid)
        self._check()

    def _make(self) -> None:
        with make_app(self._site) as app:
            for number in range(self._runs):
                name = _WORKFLOWS[number % len(_WORKFLOWS)].__name__
                app.start(name, self._place, number, run_id=f"{name} {number}", enqueue=True)

    def _work(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # until the worker listens itself
        with engine_mutated(self._figures.mutant):
            app = make_app(self._site)
            app.worker(concurrency=8, drain_s=5).run()

    def _answer(self) -> None:
        app = make_app(self._site)
        while True:
            for gate in app.gates(limit=200):
                with contextlib.suppress(holdfast.AlreadyAnswered, holdfast.errors.RunEnded):
                    app.answer(gate.run_id, {"yes": True}, by="ana", gate=gate.gate, enqueue=True)
                    world.note(self._place, "answer", gate.run_id)
            time.sleep(0.002)

    def _watch(self) -> None:
        """Until all runs have ended, or nothing has for long."""
        with holdfast.open(self._site.url) as store:
            ended, since, chance = -1, time.monotonic(), 1.0  # once on a quick machine, too
            while time.monotonic() - since < (_STALL_S if not self._figures.mutant else 4):
                now = self._ended(store)
                if now >= self._runs:
                    return
                if now != ended:
                    ended, since = now, time.monotonic()
                if self._kills and self._chance.random() < chance:
                    self._replace()
                chance = 0.12
                time.sleep(0.05)

    def _ended(self, store: holdfast.Store) -> int:
        return sum("/" not in row.run_id for row in store.port.runs(RunQuery(tuple(TERMINAL), limit=10 * self._runs)))

    def _replace(self) -> None:
        pid = self._chance.choice(self._workers)
        kill(pid)
        self._workers.remove(pid)
        self._workers.append(child(self._work))
        self._figures.add("kills")

    def _end(self) -> None:
        """Workers end when they are asked to."""
        for pid in self._workers:
            os.kill(pid, signal.SIGTERM)
        for pid in self._workers:
            status = reap(pid, 15)
            if status != 0:
                self._figures.problem("failed", f"{self._site.name}: a worker ended with {status}")
        self._workers = []

    def _check(self) -> None:
        lines = world.lines(Path(self._place))
        self._figures.add("answers", sum(line.kind == "answer" for line in lines))
        performed: dict[str, list[str]] = {}
        for line in lines:
            if line.kind == "effect":
                performed.setdefault(line.arg, []).append(line.key)
        for text, keys in performed.items():
            if len(set(keys)) != 1 or (len(keys) > 1 and not self._kills):
                self._problem("repeated", f"effect {text} was performed with the keys {keys}")
        with holdfast.open(self._site.url) as store:
            found = store.port.runs(RunQuery((), limit=10 * self._runs))
            children = sum("/" in row.run_id for row in found)
            self._figures.add("children", children)
            self._figures.add("runs", len(found) - children)
            if children != 3 * ((self._runs + 1) // 4) or len(found) - children != self._runs:
                self._problem("stranded", f"there are {len(found) - children} runs with {children} children")
            for row in found:
                self._check_run(store, row)
            problems = store.verify().problems
            if problems:
                self._problem("unsound", f"{problems[:3]}")

    def _check_run(self, store: holdfast.Store, row: RunRow) -> None:
        entries = store.journal(row.run_id)
        kinds = Counter(entry.kind for entry in entries)
        if row.status != "completed":
            self._problem("stranded", f"{row.run_id} is {row.status}: {dict(kinds)}")
            return
        steps = Counter((e.data.get("in", ""), e.data["call"]) for e in entries if e.kind == "step")
        if kinds["completed"] != 1 or len(steps) != steps.total() or steps.total() != _STEPS[row.workflow]:
            self._problem("repeated", f"{row.run_id} has {dict(kinds)}, {dict(steps)}")
        number = int(entries[0].data["args"][1])
        wanted = number * 2 if row.workflow.startswith("plain") else number
        if entries[-1].data["result"] != wanted:
            self._problem("wrong_result", f"{row.run_id} has the result {entries[-1].data['result']}")

    def _problem(self, kind: str, words: str) -> None:
        self._figures.problem(kind, f"{self._site.name}: {words}")
