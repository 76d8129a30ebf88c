"""Runs of workflows, for the golden stores: every kind of journal entry, gate, ledger line, inbox item and timer."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import App, Keep
from holdfast.testing import ManualClock
from tests.golden.flows import HOUR, World, price, register
from tests.golden.graphs import GRAPHS

APPROVAL = {"ok": True, "tone": "plain", "copies": 3}
NESTED = "/loop#1[7]/child:order/nested#1"
"""What the id of the run inside a run of the graph "order" ends in."""


def write_runs(app: App, world: World, clock: ManualClock) -> None:
    """All runs but the one that is under way when the golden store is taken."""
    register(app, world)
    _write_reviews(app)
    _write_rollbacks(app, world)
    _write_effects(app, world, clock)
    _write_graphs(app, clock)
    _write_waits(app, world, clock)
    _write_families(app)


def interrupt() -> None:
    """A hook that ends the process, as far as a run can tell."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def interrupted(world: World, name: str) -> Any:
    """The process ends while the function of that name is under way."""
    with hooked(world, name, interrupt), pytest.raises(KeyboardInterrupt):
        yield


@contextlib.contextmanager
def hooked(world: World, name: str, hook: Callable[[], object]) -> Any:
    """The function of that name meets the hook."""
    world.hooks[name] = hook
    try:
        yield
    finally:
        del world.hooks[name]


def refuse_connection() -> None:
    """A hook that makes a function fail."""
    raise ConnectionRefusedError("try again")


def _write_reviews(app: App) -> None:
    for name in ("waiting", "ready", "second", "completed", "paused"):
        app.start("review", name, urgent=name == "second", run_id=f"review-{name}", metadata={"team": name})
    app.answer("review-ready", APPROVAL, by="ana", enqueue=True)
    for name in ("second", "completed"):
        app.answer(f"review-{name}", APPROVAL | {"tags": ["a"], "extra": {"n": 1}, "share": 0.5}, by="ben")
    app.answer("review-completed", True, by="ana")
    app.pause("review-paused", by="ana")
    app.start("review", "unknown here", run_id="review-started", enqueue=True)
    app.fork("review-second", "fork-reuse", at="charge#1")
    app.fork("review-second", "fork-perform", at="charge#1", effects="perform")
    app.fork("review-second", "fork-ask", at="charge#1", effects="ask")
    app.fork("review-second", "fork-let-go", at="charge#1")
    app.rollback("fork-let-go", to="ask#1", by="ana")
    for name, workflow in (("cancelled", "tidying"), ("cancelled-badly", "stumbling")):
        app.start(workflow, run_id=name)
        app.cancel(name, by="ben")
    app.start("failing", "on purpose", run_id="failed")
    app.start("refusals", run_id="refusals")


def _write_rollbacks(app: App, world: World) -> None:
    for name in ("rolled-back", "rollback-begun", "rollback-stuck"):
        app.start("review", name, run_id=name)
        app.answer(name, APPROVAL, by="ana")
    app.rollback("rolled-back", to="charge#1", by="ana")
    with interrupted(world, "refund"):
        app.rollback("rollback-begun", to="charge#1", by="ana")
    with hooked(world, "refund", refuse_connection), pytest.raises(holdfast.errors.RollbackFailed):
        app.rollback("rollback-stuck", to="charge#1", by="ana")
    app.start("irreversible", run_id="rollback-forced")
    app.rollback("rollback-forced", to="charge#1", by="ana", force=True)


def _write_effects(app: App, world: World, clock: ManualClock) -> None:
    with hooked(world, "flaky", refuse_connection):
        app.start("effects", run_id="effects")
        clock.advance(HOUR)
        app.resume("effects")
    clock.advance(2 * HOUR)
    with interrupted(world, "answered"):
        app.resume("effects")
    app.resume("effects")
    with interrupted(world, "charge"):
        app.answer("effects", {"outcome": "happened", "result": {"by": "hand"}}, by="ana")
    with interrupted(world, "retried"):
        app.resume("effects")
    with interrupted(world, "doubted"):
        app.resume("effects")
    app.resume("effects")
    app.fork("effects", "effects-in-doubt")
    with interrupted(world, "unknown"):
        app.answer("effects-in-doubt", True, by="ana")
    app.resume("effects-in-doubt")
    with hooked(world, "flaky", refuse_connection):
        app.start("retrying", "R", run_id="retrying")
    _interrupt_transaction(app, world)


class _Interrupted(sqlite3.Connection):
    """A connection whose process ends just after its first commit."""

    def execute(self, *args: Any) -> sqlite3.Cursor:
        done = super().execute(*args)
        if args[0] == "COMMIT":
            interrupt()
        return done


def _interrupt_transaction(app: App, world: World) -> None:
    shop, path = world.shop, world.folder / "shop.db"
    app.start("booking", "ana", run_id="transaction-done")
    world.shop = lambda: sqlite3.connect(path, isolation_level=None, factory=_Interrupted)
    with pytest.raises(KeyboardInterrupt):
        app.start("booking", "ben", run_id="transaction-cut")
    world.shop = shop


def _write_graphs(app: App, clock: ManualClock) -> None:
    for name in ("nested", "breakpoint", "completed"):
        app.start("order", {"order": name}, run_id=f"graph-{name}")
    for name in ("breakpoint", "completed"):
        app.answer(f"graph-{name}{NESTED}", {"ok": True}, by="ana")
        app.send(f"graph-{name}", f"shipped-{name}", {"parcel": 1}, by="ana")
    clock.advance(HOUR + 1)
    for name in ("breakpoint", "completed"):
        app.resume(f"graph-{name}")
    app.resume("graph-completed")
    app.answer("graph-completed", {"ok": True, "why": "because"}, by="ana")
    app.start("compensated", {}, run_id="graph-compensated")
    app.resume("graph-defined-later")
    app.start("waiting", {}, run_id="graph-migrated")
    wait = {**GRAPHS["waiting"]["stages"][0], "timeout_s": 9 * HOUR, "default": "late"}
    app.migrate("graph-migrated", {**GRAPHS["waiting"], "stages": [wait]}, by="ana")


def write_started_elsewhere(app: App) -> None:
    """Runs of a declared workflow, started by a process that does not have its definition."""
    for name in ("graph-started-elsewhere", "graph-defined-later"):
        app.start("waiting", {}, run_id=name, enqueue=True)


def _write_waits(app: App, world: World, clock: ManualClock) -> None:
    app.start("expiring", run_id="expiring")
    for _ in range(2):
        clock.advance(2 * HOUR)
        app.resume("expiring")
    app.start("expiring", run_id="expired")
    for _ in range(3):
        clock.advance(2 * HOUR)
        app.resume("expired")
    app.start("sleeper", run_id="sleeping")
    app.start("receiver", "shipped", 9 * HOUR, run_id="event-waiting")
    app.send("event-waiting", "another", {"kept": True}, by="ana", key="once")
    app.start("receiver", "shipped", run_id="event-received")
    app.start("sender", "event-received", run_id="event-sender")
    app.start("receiver", "shipped", HOUR, run_id="event-late")
    app.start("receiver", "shipped", run_id="event-of-the-killed")
    clock.advance(HOUR)
    app.resume("event-late")
    app.start("values", run_id="values")
    _write_changed(app)
    app.start("looping", 5, run_id="looping")
    app.start("looping", 5, run_id="looping-pruned")
    app.store.prune("looping-pruned", Keep(last=1, journal=True))
    app.start("looping", 4, run_id="looping-done")
    app.send("looping-done", "go", "now", by="ana")
    app.store.prune("looping-done", Keep(last=1, journal=True))
    with interrupted(world, "turn"):
        app.start("looping", 3, run_id="looping-interrupted")


def _write_changed(app: App) -> None:
    """The code of a workflow changes under a run, which is paused."""
    app.start("changing", run_id="diverged")
    changed = App(app.store)

    @changed.workflow
    def changing(run: holdfast.Run) -> Any:
        return run.wait_for("go"), run.step(price, "order")

    with pytest.raises(holdfast.errors.Diverged):
        changed.send("diverged", "go", "after it diverged", by="ana")
    changed.close()


def _write_families(app: App) -> None:
    app.start("parent", run_id="parent-waiting")
    app.start("parent", run_id="parent-completed")
    app.answer("parent-completed/child:asking#2", "done", by="ana")
    app.start("guardian", run_id="parent-cancelled")
    app.cancel("parent-cancelled", by="ana")
    app.start("parallel", run_id="parallel-waiting")
    app.start("parallel", run_id="parallel-completed")
    app.send("parallel-completed", "go", 1, by="ana")
    app.answer("parallel-completed", {"ok": True}, by="ana")
