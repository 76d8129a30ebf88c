"""Rollbacks whose processes are killed: three effects are undone, then done anew, and the run ends again."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import holdfast
from holdfast.model.rows import TERMINAL, EffectRow
from tests.faults.engine import world
from tests.faults.engine.crash_points import Points
from tests.faults.engine.lives import Case, resumed
from tests.faults.engine.oracle import Oracle, Picture, picture

_THINGS: Final = ("apple", "bread", "cheese")


def shopping(run: holdfast.Run, place: str) -> dict[str, Any]:
    """Three effects that can be undone."""
    run.state["price"] = run.step(world.double, [place, 1])
    run.checkpoint()
    bought = [run.effect(world.buy, place, thing, undo=world.give_back, in_doubt="retry") for thing in _THINGS]
    return {"bought": bought, "more": run.step(world.double, [place, 2])}


async def shopping_async(run: holdfast.AsyncRun, place: str) -> dict[str, Any]:
    """The same, awaited."""
    run.state["price"] = await run.step(world.double, [place, 1])
    await run.checkpoint()
    bought = [await run.effect(world.buy, place, thing, undo=world.give_back, in_doubt="retry") for thing in _THINGS]
    return {"bought": bought, "more": await run.step(world.double, [place, 2])}


RESULT: Final = {"bought": [f"bought {thing}" for thing in _THINGS], "more": 4}


def register(app: holdfast.App, case: Case) -> None:
    """Each case has a workflow of its own, so that its worker leaves other cases alone."""
    kinds: dict[str, Callable[..., Any]] = {"def": shopping, "async": shopping_async}
    app.workflow(name=case.run_id)(kinds[case.kind])
    app.undo(world.give_back)


def there_and_back(app: holdfast.App, case: Case, points: Points) -> None:
    """Let the run end, take it back, and let it end again. Points count from the rollback on."""
    points.armed = False
    if not case.lives:
        app.start(case.run_id, case.place, run_id=case.run_id)
    points.armed = True
    by_worker = sum(case.kills) % 2 == 1
    while not _is_over(app, case.run_id):
        # The dead one's lease has not ended yet; or the worker of another case found that ours had.
        with contextlib.suppress(holdfast.errors.ClaimLost):
            _go_on(app, case.run_id, by_worker=by_worker)
        time.sleep(0.005)


def _go_on(app: holdfast.App, run_id: str, *, by_worker: bool) -> None:
    kinds = [entry.kind for entry in app.store.journal(run_id)]
    if "rolling_back" not in kinds:
        app.rollback(run_id, to="buy#1", by="ana")
    elif by_worker:
        app.worker(workflows=[run_id]).run(until_idle=True)
    elif "rolled_back" not in kinds:
        app.rollback(run_id)
    else:
        resumed(app, run_id)


def _is_over(app: holdfast.App, run_id: str) -> bool:
    row = app.store.port.run(run_id)
    kinds = [entry.kind for entry in app.store.journal(run_id)]
    return row is not None and row.status in TERMINAL and "rolled_back" in kinds


class RollbackOracle(Oracle):
    """What must be true of a rollback."""

    def look(self) -> None:
        before, after = self._before, picture(self._store, self._case, ("",))
        new = Counter((line.kind, line.arg) for line in after.lines[len(before.lines) :])
        undone = _keys(before, "undone")
        for thing in _THINGS:
            if new["undo", thing] > (0 if any(_thing(key, before) == thing for key in undone) else 1):
                self.problem("undos", f"{thing} was given back {new['undo', thing]} times although that was recorded")
        steps = {"double#1": 1, "double#2": 2}
        for call, number in steps.items():
            finished = "step" in before.of(call) and (number == 1 or _is_back(before))
            if finished and new["step", number] > (0 if number == 1 else before.of(call).count("step") < 2):
                self.problem("repeated", f"step {call} ran again")
        self._before = after

    def end(self) -> None:
        entries, row = self._before.entries.get("", []), self._store.port.run(self._case.run_id)
        kinds = Counter(entry["kind"] for entry in entries)
        if row is None or row.status != "completed" or row.owner:
            self.problem("stranded", f"the run is {row.status if row else 'not there'}; it has {dict(kinds)}")
            return
        if entries[-1]["result"] != RESULT:
            self.problem("wrong_result", f"{entries[-1]}")
        if kinds["rolling_back"] != 1 or kinds["rolled_back"] != 1 or kinds["completed"] != 2:
            self.problem("undos", f"the journal has {dict(kinds)}")
        undone = _keys(self._before, "undone")
        if len(undone) != len(_THINGS) or len(set(undone)) != len(_THINGS):
            self.problem("undos", f"undone are {undone}")
        self._check_lines()
        states = Counter(effect.state for effect in self._store.port.rows(EffectRow, row.run))
        if states["done"] != len(_THINGS) or states.keys() - {"done", "undone"}:
            self.problem("undos", f"the ledger says {dict(states)}")

    def _check_lines(self) -> None:
        lines = self._before.lines
        order = list(dict.fromkeys(line.arg for line in lines if line.kind == "undo"))
        if order != list(reversed(_THINGS)):
            self.problem("undos", f"they were given back in the order {order}")
        for thing in _THINGS:
            undos = [line.key for line in lines if line.kind == "undo" and line.arg == thing]
            if not 1 <= len(undos) <= self._case.lives or len(set(undos)) != 1 or not undos[0]:
                self.problem("undos", f"{thing} was given back with the keys {undos}")
            bought = [line.key for line in lines if line.kind == "effect" and line.arg == thing]
            times = Counter(bought)
            if len(times) != 2 or times[bought[0]] != 1 or len(bought) > 1 + self._case.lives:
                self.problem("repeated", f"{thing} was bought with the keys {bought}")
            first_undo = next(i for i, line in enumerate(lines) if line.kind == "undo" and line.arg == thing)
            second = max(i for i, line in enumerate(lines) if line.kind == "effect" and line.arg == thing)
            if second < first_undo:
                self.problem("repeated", f"{thing} was bought again before it was given back")


def _keys(found: Picture, kind: str) -> list[str]:
    return [entry["key"] for entry in found.entries.get("", []) if entry["kind"] == kind]


def _thing(key: str, found: Picture) -> str:
    """What the effect of this key bought, by the order of the intents."""
    intents = [entry["key"] for entry in found.entries.get("", []) if entry["kind"] == "intent" and "key" in entry]
    return _THINGS[intents.index(key) % len(_THINGS)]


def _is_back(found: Picture) -> bool:
    return any(entry["kind"] == "rolled_back" for entry in found.entries.get("", []))
