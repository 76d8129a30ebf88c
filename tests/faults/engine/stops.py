"""The engine: a process is stopped (SIGSTOP) at every point, for longer than its lease; another takes over.

Then the first one goes on (SIGCONT). Whatever it tries is refused: the journal stays as it is, user code gets LeaseLost
at its next call, and no effect is begun any more. On a local store a stopped process still lives by its lock, so the
takeover waits for the lease there, too.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import holdfast
from tests.faults.core.report import Figures
from tests.faults.core.scratch import child, kill, reap
from tests.faults.engine import world
from tests.faults.engine.crash_points import Points
from tests.faults.engine.lives import Site, site
from tests.faults.engine.mutants import engine_mutated

MUTANTS: Final = {"lease_loss_swallowed": ("after_loss", "failed"), "no_fence": ("stale_writes", "repeated")}

_LEASE_S: Final = 0.4
_ROUND_S: Final = 30.0
_AT_ONCE: Final = 6


def guarded(run: holdfast.Run, place: str) -> str:
    """Steps and effects; what stops it is noted."""
    world.note(place, "user", "entered")
    try:
        found = run.step(world.double, [place, 1])
        first = run.effect(world.mail, place, "first", in_doubt="retry")
        run.gather(lambda branch: branch.step(world.double, [place, 2]), lambda branch: branch.step(int, 3))
        second = run.effect(world.mail, place, "second", in_doubt="retry")
        run.state["found"] = found
    except BaseException as error:
        world.note(place, "user", type(error).__name__)
        raise
    world.note(place, "user", "returned")
    return f"{first}, {second}"


async def guarded_async(run: holdfast.AsyncRun, place: str) -> str:
    """The same, awaited."""
    world.note(place, "user", "entered")
    try:
        found = await run.step(world.double, [place, 1])
        first = await run.effect(world.mail, place, "first", in_doubt="retry")
        await run.gather(lambda branch: branch.step(world.double, [place, 2]), lambda branch: branch.step(int, 3))
        second = await run.effect(world.mail, place, "second", in_doubt="retry")
        run.state["found"] = found
    except BaseException as error:
        world.note(place, "user", type(error).__name__)
        raise
    world.note(place, "user", "returned")
    return f"{first}, {second}"


_WORKFLOWS: Final[dict[str, Callable[..., Any]]] = {"def": guarded, "async": guarded_async}


def run(stops: int, seed: int, mutant: str | None = None, sites: tuple[str, ...] = ("sqlite", "postgres")) -> Figures:
    """Stop so many processes, as many in each part; 0 means one at every point."""
    figures = Figures("engine_stops", seed, mutant)
    figures.expect("stops", "points", "lease_lost", "stale_writes", "after_loss", "repeated", "stranded", "failed")
    sites = sites[:1] if mutant else sites
    for name in sites:
        with site(name) as at:
            for kind in _WORKFLOWS:
                _Part(at, kind, figures, seed).run(-(-stops // (2 * len(sites))))
            with holdfast.open(at.url) as store:
                problems = store.verify().problems
                if problems:
                    figures.problem("stale_writes", f"{name}: {problems[:3]}")
    return figures


class _Part:
    """One workflow on one store."""

    def __init__(self, at: Site, kind: str, figures: Figures, seed: int) -> None:
        self._site = at
        self._kind = kind
        self._figures = figures
        self._seed = seed

    def run(self, stops: int) -> None:
        self._store = holdfast.open(self._site.url)
        points = self._count()
        self._figures.add("points", points)
        apart = max(1, -(-points // stops)) if stops else 1
        rounds = iter(range(self._seed % apart, points, apart))
        active: list[Iterator[None]] = []
        while True:
            active += [self._round(at) for at in itertools.islice(rounds, _AT_ONCE - len(active))]
            if not active:
                break
            active = [one for one in active if next(one, self) is None]
            time.sleep(0.002)
        self._store.close()

    def _name(self, at: int | None) -> tuple[str, str]:
        name = f"{self._kind}-{at}"
        return name, str(self._site.folder / name)

    def _count(self) -> int:
        _, place = self._name(None)
        reap(child(self._move, None, True), _ROUND_S)
        return int(max([line.arg for line in world.lines(place) if line.kind == "points"], default=0))

    def _move(self, at: int | None, stopping: bool) -> None:
        """One process: starts the run, or takes it over, and moves it on."""
        run_id, place = self._name(at)
        with engine_mutated(self._figures.mutant):
            points = Points(at if stopping else None, lambda: _stop(app)).install()
            app = holdfast.App(self._site.url, lease_s=_LEASE_S)
            workflow = app.workflow(_WORKFLOWS[self._kind])
            try:
                app.start(workflow, place, run_id=run_id)
                while not stopping and app.handle(run_id).status() != "completed":
                    with contextlib.suppress(holdfast.RunClaimed, holdfast.errors.RunEnded):
                        app.resume(run_id)
                    time.sleep(0.02)
            except holdfast.errors.ClaimLost:
                world.note(place, "caller", "ClaimLost")
            world.note(place, "points", "points", len(points.names))

    def _round(self, at: int) -> Iterator[None]:
        """Stop one, let another finish, let the first go on. Yields while there is nothing to do but wait."""
        run_id, place = self._name(at)
        old = child(self._move, at, True)
        new = 0
        try:
            stopped = yield from _stopped(old)
            if not stopped:
                return  # it came to fewer points this time
            self._figures.add("stops")
            new = child(self._move, at, False)
            if (yield from _ended(new)) != 0:
                self._problem("stranded", at, "another process could not take the run over")
                return
            before = self._picture(run_id), len(world.lines(place))
            os.kill(old, signal.SIGCONT)
            status = yield from _ended(old)
            if status != 0:
                self._problem("failed", at, f"the process that was stopped ended with {status}")
            self._check(at, old, before)
        finally:
            kill(old)
            if new:
                kill(new)

    def _picture(self, run_id: str) -> list[tuple[int, str, Any]]:
        row = self._store.port.run(run_id)
        entries = [(entry.position, entry.kind, entry.data) for entry in self._store.journal(run_id)]
        return [*entries, (0, "row", (row.status, row.fence, row.owner, row.updated_us) if row else None)]

    def _check(self, at: int, old: int, before: tuple[list[tuple[int, str, Any]], int]) -> None:
        run_id, place = self._name(at)
        if self._picture(run_id) != before[0]:
            self._problem("stale_writes", at, f"the run changed: {before[0][-3:]} to {self._picture(run_id)[-3:]}")
        lines = world.lines(place)
        late = [line for line in lines[before[1] :] if line.kind == "effect"]
        if late:
            self._problem("after_loss", at, f"effects were begun after the claim was lost: {late}")
        user = [line.name for line in lines if line.kind == "user" and line.pid == old]
        if user == ["entered", "LeaseLost"]:
            self._figures.add("lease_lost")
        elif user not in ([], ["entered", "returned"]):
            self._problem("after_loss", at, f"user code saw {user}")
        kinds = Counter(kind for _, kind, _ in before[0])
        if (kinds["step"], kinds["outcome"], kinds["completed"]) != (3, 2, 1):
            self._problem("repeated", at, f"the journal has {dict(kinds)}")
        for text in ("first", "second"):
            keys = [line.key for line in lines if line.kind == "effect" and line.arg == text]
            if not 1 <= len(keys) <= 2 or len(set(keys)) != 1:
                self._problem("repeated", at, f"effect {text} was performed with the keys {keys}")

    def _problem(self, kind: str, at: int, words: str) -> None:
        self._figures.problem(kind, f"{self._site.name} {self._kind} stopped at {at}: {words}")


def _stop(app: holdfast.App) -> None:
    """Stop this process here and now: the signal goes to this very thread, which then does nothing more.

    No other thread may be in a transaction: on SQLite it would lock the file for all, on PostgreSQL the run's row until
    the server gives it up.
    """
    port: Any = app.store.port
    with getattr(port, "_changes", port)._lock:
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _stopped(pid: int) -> Any:
    """Wait until the process stops itself; False if it ends instead."""
    until = time.monotonic() + _ROUND_S
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if found:
            return os.WIFSTOPPED(status)
        yield
    return False


def _ended(pid: int) -> Any:
    """Wait until the process ends, and give its exit status; None if it does not."""
    until = time.monotonic() + _ROUND_S
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        yield
    return None
