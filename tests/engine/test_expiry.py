"""Gates that expire, and answers that come while somebody else has the run."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import threading
from typing import Any

import pydantic
import pytest

from holdfast import AsyncRun, RunFailed, field
from holdfast.errors import GateClosed, GateExpired
from tests.harness import Stage, until


@dataclasses.dataclass
class Decision:
    approve: bool
    note: str
    amount: int = 5


def asking(stage: Stage, fields: Any, **options: Any) -> list[Any]:
    """Start a run that asks so, with an hour's time; what it gets told is noted in the list."""
    seen: list[Any] = []

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        seen.append(await run.ask("What?", fields, expires=3600, **options))
        await run.ask("more?", bool)

    stage.start(flow)
    return seen


@pytest.mark.parametrize(
    ("fields", "options", "expected"),
    [
        ({"approve": bool, "note": str}, {}, {"approve": False, "note": ""}),
        (bool, {}, False),
        (Decision, {}, Decision(False, "", 5)),
        ({"n": int}, {"expired": {"n": 7}}, {"n": 7}),
        (str, {"expired": "silence"}, "silence"),
    ],
)
def test_a_gate_that_expires_has_its_declared_outcome(
    stage: Stage, fields: Any, options: dict[str, Any], expected: Any
) -> None:
    seen = asking(stage, fields, **options)
    stage.app.resume(stage.run_id)
    assert seen == []
    stage.clock.advance(3601)
    stage.restart()
    stage.app.resume(stage.run_id)
    assert seen == [expected]
    assert [gate.state for gate in stage.app.gates(stage.run_id, state=None)] == ["expired", "open"]
    stage.restart()
    stage.app.answer(stage.run_id, True).result(240)
    assert seen == [expected, expected]
    first = stage.journal("answered")[0]
    assert first["expired"] is True


def test_a_gate_may_be_declared_to_fail(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        try:
            await run.ask("What?", str, expires=10, expired="fail")
        except GateExpired as error:
            return [error.gate, await run.ask("And now?", str)]

    stage.start(flow)
    stage.clock.advance(11)
    stage.app.resume(stage.run_id)
    stage.restart()
    assert stage.app.answer(stage.run_id, "go on").result(240) == ["ask#1", "go on"]


def test_a_gate_that_fails_fails_the_run_if_nobody_minds(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> None:
        await run.ask("What?", str, expires=10, expired="fail")

    handle = local.start(flow)
    local.clock.advance(11)
    with pytest.raises(RunFailed, match="GateExpired: gate 'ask#1' of run"):
        handle.result(240)


def test_an_answer_after_expiry_is_refused_even_if_no_timer_has_fired(stage: Stage) -> None:
    seen = asking(stage, bool)
    stage.clock.advance(3601)
    (gate,) = stage.app.gates(stage.run_id)
    assert gate.state == "open", "nobody has looked yet"
    with pytest.raises(GateClosed, match="expired"):
        stage.app.answer(stage.run_id, True)
    stage.app.resume(stage.run_id)
    assert seen == [False]
    with pytest.raises(GateClosed, match="expired"):
        stage.app.answer(stage.run_id, True, gate="ask#1")


def test_an_answer_in_time_beats_the_expiry_however_late_it_is_read(stage: Stage) -> None:
    seen = asking(stage, bool)
    stage.app.answer(stage.run_id, True, enqueue=True)
    stage.clock.advance(3601)
    stage.app.resume(stage.run_id)
    assert seen == [True]


def test_an_answer_while_another_app_holds_the_run_is_not_lost(stage: Stage) -> None:
    inside, go = threading.Event(), threading.Event()

    def slow() -> str:
        inside.set()
        assert go.wait(10)
        return "slow"

    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        async def asks(inner: AsyncRun) -> Any:
            return await inner.ask("ok?", bool)

        async def works(inner: AsyncRun) -> str:
            return await inner.step(slow)

        return await run.gather(asks, works)

    first = stage.app
    thread = threading.Thread(target=lambda: first.start("flow", run_id=stage.run_id))
    thread.start()
    assert inside.wait(10)
    until(lambda: bool(stage.onlooker.port.gates("open", 100) and first.gates(stage.run_id)), "the gate is open")
    second = stage.open()
    assert second.answer(stage.run_id, True, by="ana").status() == "running"
    assert stage.journal("answered") == []
    go.set()
    thread.join(240)
    assert second.handle(stage.run_id).result(240) == [True, "slow"]
    assert len(stage.journal("answered")) == 1


class Tone(enum.Enum):
    PLAIN = "plain"
    PROUD = "proud"


class Booking(pydantic.BaseModel):
    approve: bool
    day: dt.date


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"approve": bool, "tone": field(str, choices=["plain", "proud"])}, "tone"),
        ({"approve": bool, "tone": Tone}, "tone"),
        ({"approve": bool, "why": field(str, min_length=3)}, "why"),
        (Booking, "day"),
    ],
)
def test_a_field_that_would_have_no_value_at_expiry_is_named_when_it_is_asked(
    local: Stage, fields: Any, name: str
) -> None:
    asking(local, fields)
    with pytest.raises(RunFailed, match=rf"field '{name}' would have no value that fits .*give expired= or a default"):
        local.app.handle(local.run_id).result(240)
    assert local.app.gates(local.run_id, state=None) == []


def test_with_a_default_or_an_answer_for_expiry_it_is_asked(local: Stage) -> None:
    asking(local, {"approve": bool, "tone": field(str, choices=["plain", "proud"], default="plain")})
    assert local.status() == "waiting"


def test_a_gate_without_a_yes_or_no_names_its_fields(local: Stage) -> None:
    asking(local, {"amount": int})
    with pytest.raises(RunFailed, match=r"none of its fields \('amount'\) is a yes/no question"):
        local.app.handle(local.run_id).result(240)
