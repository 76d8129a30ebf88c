"""Cases: one run that is moved on by one process after the other, all but the last of which are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import holdfast
from holdfast.model.rows import TERMINAL, TimerRow
from tests.faults.core.scratch import child, kill, scratch
from tests.faults.engine import everything as story
from tests.faults.engine import world
from tests.faults.engine.crash_points import Points
from tests.faults.engine.mutants import engine_mutated
from tests.store.postgres.server import running

LIFE_S: Final = 25.0
"""No life may take as long."""


class Site(NamedTuple):
    """A store, and how long claims last on it."""

    name: str
    url: str
    folder: Path
    lease_s: float
    at_once: int
    """So many cases at a time: where a dead process's lease must be waited for, others go on meanwhile."""


@contextlib.contextmanager
def site(name: str) -> Iterator[Site]:
    """A store of that kind."""
    with scratch(fast=True) as folder:
        if name == "sqlite":
            yield Site(name, f"sqlite:{folder / 'runs.db'}", folder, 60.0, 3)
        elif name == "dir":
            yield Site(name, f"dir:{folder / 'runs'}", folder, 60.0, 3)
        else:
            with running(fast=True) as server:
                yield Site(name, server.url(durability="relaxed"), folder, 1.2, 12)


class Case:
    """One run and the processes that move it on. `kills` says at which point each of them dies; the last lives."""

    def __init__(self, at: Site, name: str, kind: str, kills: tuple[int, ...], mutant: str | None = None) -> None:
        self.site = at
        self.run_id = name
        self.kind = kind
        self.kills = kills
        self.mutant = mutant
        self.place = str(at.folder / name)
        self.lives = 0

    def __str__(self) -> str:
        return f"{self.site.name} {self.kind} killed at {', '.join(map(str, self.kills)) or 'no point'}"

    @property
    def at(self) -> int | None:
        """Where the process that lives now dies."""
        return self.kills[self.lives] if self.lives < len(self.kills) else None

    def live(self, act: Callable[[holdfast.App, Case, Points], None], register: Callable[[holdfast.App], None]) -> None:
        """One life. What it notes at its end is how many points it came to."""
        with engine_mutated(self.mutant):
            points = Points(self.at).install()
            app = holdfast.App(self.site.url, lease_s=self.site.lease_s)
            register(app)
            act(app, self, points)
            world.note(self.place, "life", "ended", len(points.names))


def everything(app: holdfast.App, case: Case, points: Points) -> None:
    """Bring the run to its end, doing what people around it do."""
    box = f"{case.run_id}-box"
    app.start("box", run_id=box)
    app.start(story.WORKFLOWS[case.kind], case.place, box, run_id=case.run_id)
    handle = app.handle(case.run_id)
    while (status := handle.status()) not in TERMINAL:
        if _attended(app, case, status):
            continue
        if status != "waiting" or not app.store.port.rows(TimerRow, _number(app, case.run_id)):
            resumed(app, case.run_id)
        elif handle.status() == "waiting":
            with contextlib.suppress(holdfast.NotFinished, holdfast.RunFailed):
                handle.result(timeout=0.005)
    app.handle(box).result(timeout=240)


def resumed(app: holdfast.App, run_id: str) -> None:
    """Resume a run, as soon as nobody else holds it."""
    try:
        app.resume(run_id)
    except holdfast.RunClaimed as claimed:
        time.sleep(min(0.05, max(0.005, claimed.left_s)))
    except holdfast.errors.RunEnded:
        pass


def _number(app: holdfast.App, run_id: str) -> int:
    row = app.store.port.run(run_id)
    assert row is not None
    return row.run


def _attended(app: holdfast.App, case: Case, status: str) -> bool:
    """Answer and send what the run waits for; whether there was anything."""
    for run_id in (case.run_id, case.run_id + story.ASKER):
        if app.store.port.run(run_id) is None:
            continue
        for gate in app.gates(run_id):
            app.answer(run_id, _answer(case, gate), by="ana", gate=gate.gate)
            return True
    kinds = [entry.kind for entry in app.store.journal(case.run_id)]
    if status == "waiting" and "wait" in kinds and "received" not in kinds:
        app.send(case.run_id, "go", 42, key="go")
        return True
    return False


def _answer(case: Case, gate: holdfast.GateInfo) -> Any:
    if gate.purpose == "ask":
        return story.ANSWERS[gate.prompt]
    world.note(case.place, "gate", gate.gate)
    if world.done(case.place, "effect", "pay", 7):
        return {"outcome": "happened", "result": "paid 7"}
    return {"outcome": "did not happen"}


# --- many cases ------------------------------------------------------------------------------------------------------


class Waiting(NamedTuple):
    """A life under way."""

    case: Case
    until: float


def live_all(
    cases: Iterator[Case],
    at_once: int,
    live: Callable[[Case], None],
    ended: Callable[[Case, int | None], bool],
    life_s: float = LIFE_S,
) -> None:
    """Let the cases live, some at a time. `ended` looks at what a life left and says whether there is another."""
    active: dict[int, Waiting] = {}
    again: list[Case] = []
    try:
        while True:
            while len(active) < at_once and (case := again.pop() if again else next(cases, None)) is not None:
                active[child(live, case)] = Waiting(case, time.monotonic() + life_s)
            if not active:
                return
            for pid, one in list(active.items()):
                status = _status(pid, one.until)
                if status == _ALIVE:
                    continue
                del active[pid]
                one.case.lives += 1
                if ended(one.case, status):
                    again.insert(0, one.case)
            time.sleep(0.001)
    finally:
        for pid in active:
            kill(pid)


_ALIVE: Final = 1000
KILLED: Final = -signal.SIGKILL


def _status(pid: int, until: float) -> int | None:
    """How a process ended; None if it took too long."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if found:
        return os.waitstatus_to_exitcode(status)
    if time.monotonic() > until:
        kill(pid)
        return None
    return _ALIVE
