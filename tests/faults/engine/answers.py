"""The engine: eight processes answer one gate at the same instant, and each would move the run on.

One of them wins, and only it; the others are told who. What comes after the gate is done once.
"""

from __future__ import annotations

import mmap
import os
import time
from collections import Counter
from pathlib import Path
from typing import Final

import holdfast
from tests.faults.core.report import Figures
from tests.faults.core.scratch import child, reap
from tests.faults.engine import world
from tests.faults.engine.lives import Site, site
from tests.faults.engine.mutants import engine_mutated

MUTANTS: Final = {"answers_not_guarded": ("double_answers",)}

_PROCESSES: Final = 8
_WAIT_S: Final = 240.0


def gated(run: holdfast.Run, place: str, number: int) -> int:
    """An effect behind a gate."""
    answer = run.ask("Who?", {"who": int})
    run.effect(world.mail, place, f"{number}", in_doubt="fail")
    return int(answer["who"])


async def gated_async(run: holdfast.AsyncRun, place: str, number: int) -> int:
    """The same, awaited."""
    answer = await run.ask("Who?", {"who": int})
    await run.effect(world.mail, place, f"{number}", in_doubt="fail")
    return int(answer["who"])


_WORKFLOWS: Final = (gated, gated_async)


def run(rounds: int, seed: int, mutant: str | None = None, sites: tuple[str, ...] = ("sqlite", "postgres")) -> Figures:
    """Contend for so many gates."""
    figures = Figures("engine_answers", seed, mutant)
    figures.expect("rounds", "won", "already_answered", "double_answers", "repeated", "misnamed", "stranded", "failed")
    sites = sites[:1] if mutant else sites
    for name in sites:
        with site(name) as at:
            _contend(at, -(-rounds // len(sites)), figures)
    return figures


def _app(at: Site) -> holdfast.App:
    app = holdfast.App(at.url, lease_s=30)
    for workflow in _WORKFLOWS:
        app.workflow(workflow)
    return app


def _place(at: Site) -> str:
    return str(at.folder / "world")


def _contend(at: Site, rounds: int, figures: Figures) -> None:
    barrier = mmap.mmap(-1, 4 * _PROCESSES)
    pids = [child(_make, at, rounds)]
    if reap(pids[0], _WAIT_S) != 0:
        figures.problem("failed", "the runs could not be made")
        return
    pids = [child(_answer_all, at, rounds, number, barrier, figures.mutant) for number in range(_PROCESSES)]
    for pid in pids:
        status = reap(pid, _WAIT_S + rounds)
        if status != 0:
            figures.problem("failed", f"{at.name}: a process that answers ended with {status}")
    _check(at, rounds, figures)


def _make(at: Site, rounds: int) -> None:
    with _app(at) as app:
        for number in range(rounds):
            app.start(_WORKFLOWS[number % 2].__name__, _place(at), number, run_id=f"run {number}")


def _answer_all(at: Site, rounds: int, me: int, barrier: mmap.mmap, mutant: str | None) -> None:
    place = _place(at)
    with engine_mutated(mutant):
        app = _app(at)
        app.gates("run 0")  # connect, before it counts
        for number in range(rounds):
            _meet(barrier, me, number + 1)
            try:
                app.answer(f"run {number}", {"who": me}, by=f"process {me}")
                world.note(place, "won", str(number), me)
            except holdfast.AlreadyAnswered as answered:
                world.note(place, "lost", str(number), answered.by)
            except holdfast.HoldfastError as error:
                world.note(place, "error", str(number), repr(error))


def _meet(barrier: mmap.mmap, me: int, number: int) -> None:
    """Go on when all are here."""
    barrier[4 * me : 4 * me + 4] = number.to_bytes(4, "little")
    until = time.monotonic() + _WAIT_S
    while any(int.from_bytes(barrier[4 * i : 4 * i + 4], "little") < number for i in range(_PROCESSES)):
        if time.monotonic() > until:
            os._exit(3)
        time.sleep(0)


def _check(at: Site, rounds: int, figures: Figures) -> None:
    lines = world.lines(Path(_place(at)))
    effects = Counter(line.arg for line in lines if line.kind == "effect")
    with holdfast.open(at.url) as store:
        for number in range(rounds):
            name, said = f"{at.name} run {number}", [line for line in lines if line.name == str(number)]
            won = [line.arg for line in said if line.kind == "won"]
            lost = [line.arg for line in said if line.kind == "lost"]
            figures.add("rounds")
            figures.add("won", len(won))
            figures.add("already_answered", len(lost))
            if len(won) != 1:
                figures.problem("double_answers", f"{name} was won by {won}")
                continue
            if lost != [f"process {won[0]}"] * (_PROCESSES - 1):
                errors = [line.arg for line in said if line.kind == "error"]
                figures.problem("misnamed", f"{name} was won by {won[0]}; the others were told {lost} {errors}")
            if effects[str(number)] != 1:
                figures.problem("repeated", f"{name}: the effect was performed {effects[str(number)]} times")
            entries = store.journal(f"run {number}")
            kinds = Counter(entry.kind for entry in entries)
            if (kinds["answered"], kinds["outcome"], kinds["completed"]) != (1, 1, 1):
                figures.problem("repeated", f"{name} has {dict(kinds)}")
            elif entries[-1].data["result"] != won[0]:
                figures.problem("double_answers", f"{name} was won by {won[0]}, its result is {entries[-1].data}")
        problems = store.verify().problems
        if problems:
            figures.problem("stranded", f"{at.name}: {problems[:3]}")
