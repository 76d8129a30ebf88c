"""A workflow that uses everything a run can do, as `def` and as `async def`, and what it must come to."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import holdfast
from tests.faults.engine import world

RETRY: Final = holdfast.Retry(attempts=3, initial_delay=0.001, jitter=0)
SLEEP_S: Final = 0.02


def everything(run: holdfast.Run, place: str, box: str) -> dict[str, Any]:
    """Everything, one after the other."""
    facts: dict[str, Any] = {"now": run.now(), "chance": run.random().random(), "uuid": str(run.uuid())}
    facts["version"] = run.version("plan", 2)
    run.log("began", place=place)
    facts["flaky"] = run.step(world.flaky, place, retry=RETRY)
    facts["paid"] = run.effect(world.pay, place, 7, undo=world.take_back)
    facts["mailed"] = run.effect(world.mail, place, "a", in_doubt="retry")
    facts["booked"] = run.effect(world.book, place, 3, check=world.booked)
    run.state["booked"] = facts["booked"]
    run.checkpoint()
    facts["yes"] = run.ask("Go on?", {"yes": bool})["yes"]
    facts["mapped"] = run.map(world.double, [[place, 1], [place, 2]])
    facts["gathered"] = run.gather(
        lambda branch: branch.step(world.double, [place, 4]),
        lambda branch: branch.ask("How many?", {"number": int})["number"],
        lambda branch: branch.effect(world.mail, place, "b", in_doubt="retry"),
    )
    run.sleep(SLEEP_S)
    facts["event"] = run.wait_for("go", timeout=600)
    run.send(box, "note", "hello")
    facts["kid"] = run.child("kid", place, 5)
    facts["asker"] = run.child("asker", place, 6)
    for turn in run.loop():
        run.state["sum"] = run.state.get("sum", 0) + run.step(world.double, [place, 10 + turn])
        run.effect(world.mail, place, f"turn {turn}", in_doubt="retry")
        if turn == 2:
            break
    facts["deposited"] = run.transaction(world.bank(place), world.deposit, 9)
    facts["sum"] = run.state["sum"]
    return facts


async def everything_async(run: holdfast.AsyncRun, place: str, box: str) -> dict[str, Any]:
    """The same, awaited."""
    facts: dict[str, Any] = {"now": await run.now(), "chance": (await run.random()).random()}
    facts["uuid"] = str(await run.uuid())
    facts["version"] = await run.version("plan", 2)
    await run.log("began", place=place)
    facts["flaky"] = await run.step(world.flaky, place, retry=RETRY)
    facts["paid"] = await run.effect(world.pay, place, 7, undo=world.take_back)
    facts["mailed"] = await run.effect(world.mail, place, "a", in_doubt="retry")
    facts["booked"] = await run.effect(world.book, place, 3, check=world.booked)
    run.state["booked"] = facts["booked"]
    await run.checkpoint()
    facts["yes"] = (await run.ask("Go on?", {"yes": bool}))["yes"]
    facts["mapped"] = await run.map(world.double_async, [[place, 1], [place, 2]], name="double")

    async def number(branch: holdfast.AsyncRun) -> Any:
        return (await branch.ask("How many?", {"number": int}))["number"]

    facts["gathered"] = await run.gather(
        lambda branch: branch.step(world.double, [place, 4]),
        number,
        lambda branch: branch.effect(world.mail, place, "b", in_doubt="retry"),
    )
    await run.sleep(SLEEP_S)
    facts["event"] = await run.wait_for("go", timeout=600)
    await run.send(box, "note", "hello")
    facts["kid"] = await run.child("kid", place, 5)
    facts["asker"] = await run.child("asker", place, 6)
    async for turn in run.loop():
        run.state["sum"] = run.state.get("sum", 0) + await run.step(world.double, [place, 10 + turn])
        await run.effect(world.mail, place, f"turn {turn}", in_doubt="retry")
        if turn == 2:
            break
    facts["deposited"] = await run.transaction(world.bank(place), world.deposit, 9)
    facts["sum"] = run.state["sum"]
    return facts


async def kid(run: holdfast.AsyncRun, place: str, number: int) -> int:
    """A child that simply runs."""
    return int(await run.step(world.double, [place, number]))


def asker(run: holdfast.Run, place: str, number: int) -> int:
    """A child that waits for an answer."""
    found = run.step(world.double, [place, number])
    return int(found + run.ask("And the child?", {"number": int})["number"])


def box(run: holdfast.Run) -> Any:
    """Waits for what `everything` sends, and tells how often it came."""
    first = run.wait_for("note")
    return [first]


KINDS: Final = ("def", "async")
WORKFLOWS: Final = {"def": "everything", "async": "everything_async"}


def register(app: holdfast.App) -> None:
    """Make the app know the workflows and undos."""
    for workflow in (everything, everything_async, kid, asker, box):
        app.workflow(workflow)
    app.undo(world.take_back)


# --- what it must come to --------------------------------------------------------------------------------------------

RESULT: Final = {
    "version": 2, "flaky": "steady", "paid": "paid 7", "mailed": "mailed a", "booked": "booked 3", "yes": True,
    "mapped": [2, 4], "gathered": [8, 3, "mailed b"], "event": 42, "kid": 10, "asker": 15, "deposited": 9, "sum": 46,
}  # fmt: skip
"""Of the result, what is the same in every run."""

ANSWERS: Final[dict[str, Any]] = {
    "Go on?": {"yes": True},
    "How many?": {"number": 3},
    "And the child?": {"number": 3},
}

KID: Final = "/child:kid#1"
ASKER: Final = "/child:asker#1"

STEPS: Final = {
    ("", "flaky#1"): ("flaky", None),
    ("", "map#1[0]/double#1"): ("double", 1),
    ("", "map#1[1]/double#1"): ("double", 2),
    ("", "gather#1[0]/double#1"): ("double", 4),
    ("", "loop#1[1]/double#1"): ("double", 11),
    ("", "loop#1[2]/double#1"): ("double", 12),
    (KID, "double#1"): ("double", 5),
    (ASKER, "double#1"): ("double", 6),
}
"""The steps, by run (what its id has behind the parent's) and call: what they do in the world."""


class Effect(NamedTuple):
    """An effect, and what happens when it is in doubt."""

    name: str
    arg: Any
    policy: str


EFFECTS: Final = {
    "pay#1": Effect("pay", 7, "ask"),
    "mail#1": Effect("mail", "a", "retry"),
    "book#1": Effect("book", 3, "check"),
    "gather#1[2]/mail#1": Effect("mail", "b", "retry"),
    "loop#1[1]/mail#1": Effect("mail", "turn 1", "retry"),
    "loop#1[2]/mail#1": Effect("mail", "turn 2", "retry"),
}
