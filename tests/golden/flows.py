"""The workflows whose runs are in the golden stores.

Stored runs are replayed with this code, so existing workflows must not change. A new version adds new ones.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast
from holdfast import App, Run
from tests.golden.graphs import GRAPHS

HOUR = 3600.0
REVIEW_FIELDS = {
    "ok": bool,
    "tone": holdfast.field(
        str, choices=["plain", "proud"], default="plain", label="Which tone?", help="Readers see it"
    ),
    "copies": holdfast.field(int, minimum=1, maximum=9, default=2),
    "share": holdfast.field(float, required=False),
    "note": holdfast.field(str, multiline=True, max_length=200, default=""),
    "tags": holdfast.field(list[str], required=False, min_length=1),
    "extra": holdfast.field(dict[str, Any] | None, default=None),
}
JSON_SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer", "minimum": 0}, "when": {"type": "string", "format": "date"}},
    "required": ["count"],
}


class World:
    """What the functions of the workflows touch. A hook may interrupt a function, or make it fail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[tuple[Any, ...]] = []
        self.hooks: dict[str, Callable[[], object]] = {}
        self.shop: Callable[[], sqlite3.Connection] = lambda: sqlite3.connect(folder / "shop.db", isolation_level=None)

    def touch(self, name: str, *facts: Any) -> None:
        self.calls.append((name, *facts))
        self.hooks.get(name, lambda: None)()


def register(app: App, world: World) -> None:
    """Make the workflows and all their functions known to an app."""
    _register_functions(app, world)
    for flows in (_register_gates, _register_effects, _register_waits, _register_families, _register_loops):
        flows(app, world)
    for graph in GRAPHS.values():
        app.graph(graph)


def price(order: str) -> int:
    return 10 * len(order)


def search(turn: int) -> dict[str, Any]:
    return {"turn": turn, "text": f"found in turn {turn}; " * 40}


def _register_functions(app: App, world: World) -> None:
    @app.function(name="price")
    def price_of(order: str) -> int:
        return price(order)

    @app.function
    def charge(order: str, amount: int, idempotency_key: str) -> dict[str, Any]:
        del idempotency_key
        world.touch("charge", order)
        return {"receipt": f"{order}-{amount}"}

    @app.function
    def was_charged(order: str, amount: int) -> Any:
        world.touch("was_charged", order)
        return holdfast.Happened({"receipt": f"{order}-{amount}"})

    @app.function
    def fail(reason: str) -> None:
        raise ValueError(reason)

    @app.function
    def size(item: Any) -> int:
        return len(item)

    @app.undo
    def refund(receipt: Any, order: str, amount: int, idempotency_key: str) -> None:
        del receipt, amount, idempotency_key
        world.touch("refund", order)

    @app.undo
    def refuse(receipt: Any, order: str, amount: int) -> None:
        del receipt, amount
        world.touch("refuse", order)
        raise PermissionError("the bank refuses")


def _register_gates(app: App, world: World) -> None:
    charge = app.registry.functions["charge"]

    @app.workflow(version=2)
    def review(run: Run, order: str, *, urgent: bool = False) -> Any:
        amount = run.step(price, order)
        run.log("priced", level="warning", amount=amount)
        run.state["order"] = {"id": order, "urgent": urgent, "amount": amount}
        answer = run.ask("Approve?", REVIEW_FIELDS, show={"order": order}, who=["ana", "ben"], expires=720 * HOUR)
        receipt = run.effect(charge, order, amount=amount, undo="refund", target="bank")
        run.state["receipt"] = receipt
        run.checkpoint(metadata={"stage": "paid"})
        sent = run.ask("Send it?", bool)
        return {"answer": answer, "receipt": receipt, "sent": sent}

    @app.workflow
    def expiring(run: Run) -> Any:
        found: list[Any] = [run.ask("Denied?", {"ok": bool}, expires=HOUR)]
        found.append(run.ask("By default?", {"n": int}, expires=HOUR, expired={"n": 7}))
        try:
            run.ask("Failing?", bool, expires=HOUR, expired="fail")
        except holdfast.errors.GateExpired as error:
            found.append(error.gate)
        return found

    @app.workflow
    def refusals(run: Run) -> Any:
        found: list[Any] = [run.effect(charge, "A", 1, key="once")]
        calls: list[Callable[[], Any]] = [
            lambda: run.effect(charge, "B", 2, key="once"),
            lambda: run.ask("Nothing to deny?", {"n": int}, expires=HOUR),
            lambda: run.child("nothing", object()),
        ]
        for call in calls:
            try:
                call()
            except (holdfast.InvalidInput, holdfast.Conflict) as error:
                found.append(type(error).__name__)
        found.append(run.effect(charge, "A", 1, key="once"))
        found.append(run.ask("By a JSON Schema?", JSON_SCHEMA, key="by schema"))
        return found


def _register_effects(app: App, world: World) -> None:
    charge, was_charged = app.registry.functions["charge"], app.registry.functions["was_charged"]

    def flaky(order: str) -> str:
        world.touch("flaky", order)
        return order

    def unstorable() -> Any:
        world.touch("unstorable")
        return object()

    def doubtful(name: str) -> str:
        world.touch(name)
        return name

    def insert(shop: sqlite3.Connection, name: str) -> int:
        world.touch("insert", name)
        shop.execute("CREATE TABLE IF NOT EXISTS bookings (name TEXT)")
        shop.execute("INSERT INTO bookings VALUES (?)", (name,))
        return 1

    def caught(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (holdfast.StepFailed, holdfast.EffectFailed, holdfast.EffectInDoubt) as error:
            return type(error).__name__

    @app.workflow
    def effects(run: Run) -> Any:
        again = holdfast.Retry(attempts=3, initial_delay=HOUR, max_delay=2 * HOUR, jitter=0)
        found: list[Any] = [run.effect(charge, "A", 1, undo="refund", target="bank", key="first charge")]
        found.append(caught(lambda: run.step(app.registry.functions["fail"], "a step fails")))
        found.append(caught(lambda: run.effect(app.registry.functions["fail"], "an effect fails", target="nowhere")))
        found.append(caught(lambda: run.effect(unstorable)))
        found.append(run.effect(flaky, "E", retry=again))
        found.append(run.effect(doubtful, "answered"))
        found.append(run.effect(charge, "C", 3, check=was_charged, undo="refund"))
        found.append(run.effect(doubtful, "retried", in_doubt="retry"))
        found.append(caught(lambda: run.effect(doubtful, "doubted", in_doubt="fail")))
        found.append(run.ask("Go on?", bool))
        found.append(run.effect(doubtful, "unknown"))
        return found

    @app.workflow
    def retrying(run: Run, order: str) -> Any:
        run.state["order"] = order
        return run.step(flaky, order, retry=holdfast.Retry(attempts=3, initial_delay=HOUR, max_delay=HOUR, jitter=0))

    @app.workflow
    def booking(run: Run, name: str) -> Any:
        shop = world.shop()
        try:
            return run.transaction(shop, insert, name)
        finally:
            shop.close()

    @app.workflow
    def irreversible(run: Run) -> Any:
        run.effect(charge, "I", 1)
        run.effect(charge, "J", 2, undo="refuse")
        return run.wait_for("go")

    @app.workflow
    def killed(run: Run) -> Any:
        run.send("event-of-the-killed", "shipped", {"parcel": 3})
        return run.effect(doubtful, "killed", check=lambda name: holdfast.Happened(f"{name}, and it happened"))


def _register_waits(app: App, world: World) -> None:
    @app.workflow
    def sleeper(run: Run) -> Any:
        started = run.now()
        run.sleep(HOUR)
        run.sleep_until(started.replace(year=started.year + 1), key="a year")
        return (run.now() - started).days

    @app.workflow
    def receiver(run: Run, event: str, timeout: float | None = None) -> Any:
        return run.wait_for(event, timeout=timeout, default="late")

    @app.workflow
    def sender(run: Run, target: str) -> None:
        run.send(target, "shipped", {"parcel": 2}, key="the parcel")

    @app.workflow
    def values(run: Run) -> Any:
        drawn = run.random().random()
        run.state.update(version=run.version("values", 3), uuid=run.uuid(), now=run.now(), drawn=drawn)
        run.checkpoint()
        run.log("done", items=(1, 2), size=b"\x00\xff")
        return run.state

    @app.workflow
    def guardian(run: Run) -> Any:
        return run.child("receiver", "never")

    @app.workflow
    def tidying(run: Run) -> Any:
        try:
            return run.ask("Stay?", bool)
        finally:
            run.step(world.touch, "tidied", name="clean_up")

    @app.workflow
    def stumbling(run: Run) -> Any:
        try:
            return run.ask("Stay?", bool)
        finally:
            raise ValueError("cleaning up failed")

    @app.workflow
    def failing(run: Run, reason: str) -> Any:
        run.state["reason"] = reason
        try:
            raise KeyError(reason)
        except KeyError as error:
            raise RuntimeError(f"it failed: {reason}") from error

    @app.workflow
    def changing(run: Run) -> Any:
        found = run.step(price, "order")
        return found, run.wait_for("go")


def _register_families(app: App, world: World) -> None:
    del world

    @app.workflow
    def small(run: Run, name: str) -> str:
        return run.step(str.upper, name)

    @app.workflow
    def asking(run: Run, name: str) -> Any:
        return run.ask(f"What of {name}?", str)

    @app.workflow
    def parent(run: Run) -> Any:
        found: list[Any] = [run.child(small, "first")]
        try:
            run.child("failing", "on purpose", key="the failing child")
        except holdfast.errors.ChildFailed as error:
            found.append(type(error).__name__)
        found.append(run.child(asking, "detached", detached=True))
        found.append(run.child(asking, "attached"))
        return found

    @app.workflow
    def parallel(run: Run) -> Any:
        sizes = run.map(len, ["a", "bb", "ccc"], limit=2)
        both = run.gather(
            lambda r: [r.step(len, "four"), r.wait_for("go")],
            lambda r: r.ask("In a branch?", {"ok": bool}),
            key="both",
        )
        return sizes, both


def _register_loops(app: App, world: World) -> None:
    @app.workflow
    def looping(run: Run, turns: int) -> Any:
        run.state.update(items=[], total=0, kind=("loop", frozenset({1, 2})))
        if not run.version("no log", 1):
            run.log("old")
        for turn in run.loop():
            run.state["items"].append(run.step(search, turn))
            for inner in run.loop():
                run.state["total"] += run.step(len, "x" * inner)
                if inner == 3:
                    break
            world.touch("turn", turn)
            if turn == 3:
                run.state["event"] = run.wait_for("go")
            if turn == turns:
                break
        return {"items": len(run.state["items"]), "total": run.state["total"], "event": run.state["event"]}
