"""Every way in which a run can wait: how it comes there, and how it goes on to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast import App, AsyncRun, Handle, Retry, Store
from tests.harness import Stage

Reach = Callable[[Stage], None]
GoOn = Callable[[Stage, App, str], Handle]


class Wait(NamedTuple):
    """A wait: `reach` brings the stage's run there, `go_on` brings any run that stands there to its end."""

    reach: Reach
    go_on: GoOn
    result: Any


def _elsewhere(stage: Stage) -> App:
    """An app that knows no workflow: what it delivers stays unread."""
    return App(Store(stage.app.store.port, clock=stage.clock))


def _flow(stage: Stage, flow: Any, **more: Any) -> None:
    stage.flow(flow, **more)
    stage.start(flow)


# --- gates -----------------------------------------------------------------------------------------------------------


def _ask(stage: Stage, expires: float | None = None) -> None:
    async def asking(run: AsyncRun) -> Any:
        first = await run.step(str, 1)
        return [first, await run.ask("ok?", bool, expires=expires)]

    _flow(stage, asking)


def _answer(_stage: Stage, app: App, run_id: str) -> Handle:
    return app.answer(run_id, True)


def _ask_and_answer(stage: Stage) -> None:
    _ask(stage)
    _elsewhere(stage).answer(stage.run_id, True)
    assert stage.status() == "ready"


def _resume(_stage: Stage, app: App, run_id: str) -> Handle:
    return app.resume(run_id)


def _resume_late(stage: Stage, app: App, run_id: str) -> Handle:
    stage.clock.advance(1000)
    return app.resume(run_id)


def _ask_twice(stage: Stage) -> None:
    async def asking(run: AsyncRun) -> Any:
        async def one(branch: AsyncRun) -> Any:
            return await branch.ask("one?", str)

        async def two(branch: AsyncRun) -> Any:
            return await branch.ask("two?", str)

        return await run.gather(one, two)

    _flow(stage, asking)


def _answer_both(_stage: Stage, app: App, run_id: str) -> Handle:
    for gate in app.gates(run_id):
        app.answer(run_id, gate.prompt, gate=gate.gate)
    return app.handle(run_id)


# --- time and events -------------------------------------------------------------------------------------------------


def _sleep(stage: Stage) -> None:
    async def sleeping(run: AsyncRun) -> str:
        await run.sleep(500)
        return "awake"

    _flow(stage, sleeping)


def _wait_for(stage: Stage, timeout: float | None = None) -> None:
    async def waiting(run: AsyncRun) -> Any:
        return await run.wait_for("paid", timeout=timeout, default="nothing")

    _flow(stage, waiting)


def _send(_stage: Stage, app: App, run_id: str) -> Handle:
    return app.send(run_id, "paid", 30)


def _wait_for_what_came(stage: Stage) -> None:
    _wait_for(stage, 500)
    _elsewhere(stage).send(stage.run_id, "paid", 30, key="once")


def _send_again(_stage: Stage, app: App, run_id: str) -> Handle:
    return app.send(run_id, "paid", 99, key="once")


def _retry(stage: Stage) -> None:
    def unsteady(run_id: str) -> str:
        stage.calls.append(run_id)
        if len(stage.calls) == 1:
            raise ConnectionError("not yet")
        return "done"

    async def retrying(run: AsyncRun) -> Any:
        return await run.step(unsteady, "a", retry=Retry(attempts=3, initial_delay=500, jitter=0))

    _flow(stage, retrying)


def _pause(stage: Stage) -> None:
    _ask(stage)
    stage.app.pause(stage.run_id)
    assert stage.status() == "paused"


def _resume_and_answer(_stage: Stage, app: App, run_id: str) -> Handle:
    app.resume(run_id)
    return app.answer(run_id, True)


# --- children --------------------------------------------------------------------------------------------------------


def _child(stage: Stage) -> None:
    @stage.flow
    async def below(run: AsyncRun, text: str) -> Any:
        return [text, await run.ask("of the child?", str)]

    async def above(run: AsyncRun) -> Any:
        return [await run.step(str, "s"), await run.child("below", "a"), await run.step(str, "after")]

    _flow(stage, above)


def _answer_inside(_stage: Stage, app: App, run_id: str) -> Handle:
    for gate in [gate for gate in app.gates() if gate.run_id.startswith(f"{run_id}/")]:
        app.answer(gate.run_id, "yes")
    return app.handle(run_id)


def _grandchild(stage: Stage) -> None:
    @stage.flow
    async def lowest(run: AsyncRun) -> Any:
        return await run.ask("of the grandchild?", str)

    @stage.flow
    async def middle(run: AsyncRun) -> Any:
        return ["middle", await run.child("lowest")]

    async def highest(run: AsyncRun) -> Any:
        return ["highest", await run.child("middle")]

    _flow(stage, highest)


def _child_and_gate(stage: Stage) -> None:
    @stage.flow
    async def beside(run: AsyncRun) -> Any:
        return await run.ask("of the child?", str)

    @stage.flow
    async def finished(run: AsyncRun) -> str:
        return "at once"

    async def both(run: AsyncRun) -> Any:
        async def one(branch: AsyncRun) -> Any:
            return await branch.child("beside")

        async def two(branch: AsyncRun) -> Any:
            return await branch.ask("two?", str)

        return [await run.child("finished"), await run.gather(one, two)]

    _flow(stage, both)


def _answer_all(stage: Stage, app: App, run_id: str) -> Handle:
    app.answer(run_id, "two")
    return _answer_inside(stage, app, run_id)


WAITS: dict[str, Wait] = {
    "gate": Wait(_ask, _answer, ["1", True]),
    "answered gate": Wait(_ask_and_answer, _resume, ["1", True]),
    "gate that expires": Wait(lambda stage: _ask(stage, 500), _resume_late, ["1", False]),
    "two gates": Wait(_ask_twice, _answer_both, ["one?", "two?"]),
    "sleep": Wait(_sleep, _resume_late, "awake"),
    "event": Wait(_wait_for, _send, 30),
    "event or time": Wait(lambda stage: _wait_for(stage, 500), _resume_late, "nothing"),
    "unread event": Wait(_wait_for_what_came, _send_again, 30),
    "retry": Wait(_retry, _resume_late, "done"),
    "pause": Wait(_pause, _resume_and_answer, ["1", True]),
    "child": Wait(_child, _answer_inside, ["s", ["a", "yes"], "after"]),
    "grandchild": Wait(_grandchild, _answer_inside, ["highest", ["middle", "yes"]]),
    "child and gate": Wait(_child_and_gate, _answer_all, ["at once", ["yes", "two"]]),
}
