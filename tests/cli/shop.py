"""Apps for the command to load: an App made for a URL, and workflows that stop in every way."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import holdfast


def note(line: str) -> None:
    """Write a line where the test can read it."""
    place = os.environ.get("SHOP_NOTES")
    if place:
        with Path(place).open("a") as file:
            file.write(f"{line}\n")


def refund(run: holdfast.Run, order: str) -> dict[str, Any]:
    """Ask, pay, ask again."""
    price = run.step(lambda: 40, name="price")
    answer = run.ask("Refund this order?", {"approve": bool, "note": str}, show={"order": order, "price": price})
    if not answer["approve"]:
        return {"paid": None}
    receipt = run.effect(pay, order, undo=take_back)
    run.ask("Is the customer content?", {"content": bool})
    return {"paid": receipt}


def pay(order: str) -> str:
    note(f"pay {order}")
    return f"receipt of {order}"


def take_back(receipt: str, order: str) -> None:
    note(f"take back {order}")


def mail(run: holdfast.Run, whom: str) -> str:
    """An effect that cannot be undone, then a wait for an event."""
    run.step(whom.upper, name="write")
    run.effect(lambda: note(f"mail {whom}"), name="send")
    return str(run.wait_for("read"))


def talk(run: holdfast.Run) -> int:
    """Print to standard output, and end."""
    print("the workflow talks")
    return run.step(lambda: 7, name="seven")


def agent(run: holdfast.Run, turns: int) -> int:
    """A durable loop, one checkpoint for each turn."""
    for turn in run.loop():
        run.state.setdefault("messages", []).append(f"turn {turn} " + "words " * 200)
        if len(run.state["messages"]) >= turns:
            break
    return len(run.state["messages"])


def grumpy(run: holdfast.Run) -> str:
    """Fail after an answer or an event."""
    if run.ask("Shall it fail?", {"fail": bool})["fail"]:
        raise ValueError("so be it")
    run.wait_for("doom")
    raise ValueError("doomed")


def family(run: holdfast.Run) -> Any:
    """A child that asks."""
    return run.child("refund", "A-1", key="one")


def slow(run: holdfast.Run) -> str:
    """A step that takes longer than anybody waits."""
    return run.step(sleep_long)


def sleep_long() -> str:
    note("began")
    time.sleep(60)
    return "late"


def make(url: str) -> holdfast.App:
    """The app for a store."""
    app = holdfast.App(url)
    for workflow in (refund, mail, talk, agent, grumpy, family, slow):
        app.workflow(workflow)
    app.undo(take_back)
    return app


def broken(url: str) -> holdfast.App:
    raise RuntimeError("no such shop")


not_an_app = 7
