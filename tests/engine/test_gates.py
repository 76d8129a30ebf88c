"""Gates: what may be asked, who may answer, and that an answer is never lost."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from typing import Any, Literal

import pydantic
import pytest

from holdfast import AlreadyAnswered, AsyncRun, InvalidAnswer, InvalidInput, NotFound, field
from holdfast.errors import GateClosed, RunEnded
from tests.harness import Stage


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclasses.dataclass
class Decision:
    approve: bool
    note: str = "none"


class Ticket(pydantic.BaseModel):
    title: str = pydantic.Field(min_length=3)
    urgent: bool = False


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}

SPECS: list[tuple[Any, Any, Any]] = [
    ({"approve": bool, "note": str}, {"approve": True, "note": "ok"}, {"approve": True, "note": "ok"}),
    (Decision, {"approve": True}, Decision(True, "none")),
    (Decision, Decision(False, "why"), Decision(False, "why")),
    (Ticket, {"title": "broken"}, Ticket(title="broken")),
    (SCHEMA, {"n": 3}, {"n": 3}),
    (bool, True, True),
    (str, "text", "text"),
    (int, {"answer": 4}, 4),
    (Size, "l", Size.LARGE),
    (Literal["a", "b"], "b", "b"),
    (list[int], [1, 2], [1, 2]),
    (dt.date, "2026-03-01", dt.date(2026, 3, 1)),
    (None, {"anything": [1, None]}, {"anything": [1, None]}),
    ({"size": field(Size, label="How big?", default=Size.SMALL)}, {}, {"size": Size.SMALL}),
    ({"n": field(int, required=False)}, {}, {"n": None}),
    ({"pick": field(str, choices={"x": "The X", "y": "The Y"})}, {"pick": "y"}, {"pick": "y"}),
]


def test_every_kind_of_question_gets_its_answer_typed_live_and_after_replay(stage: Stage) -> None:
    seen: list[Any] = []

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        seen.append([await run.ask("What?", spec) for spec, _, _ in SPECS])
        await run.ask("more?", bool)

    stage.start(flow)
    for _, given, _ in SPECS:
        stage.app.answer(stage.run_id, given)
    stage.restart()
    stage.app.answer(stage.run_id, True).result(240)
    expected = [answer for _, _, answer in SPECS]
    assert seen == [expected, expected]
    for answers in seen:
        assert [type(answer) for answer in answers] == [type(answer) for answer in expected]


def test_a_bad_answer_lists_all_problems_and_leaves_the_gate_open(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("What?", {"approve": bool, "n": field(int, minimum=1), "size": Size, "note": str})

    stage.start(flow)
    with pytest.raises(InvalidAnswer) as caught:
        stage.app.answer(stage.run_id, {"approve": "perhaps", "n": 0, "size": "xl", "extra": 1})
    for name in ("approve", "n", "size", "note", "extra"):
        assert any(problem.startswith(name) for problem in caught.value.problems), name
    assert len(caught.value.problems) == 5
    assert stage.status() == "waiting"
    (gate,) = stage.app.gates(stage.run_id)
    assert gate.state == "open"
    assert stage.journal("answered") == []
    good = {"approve": True, "n": 1, "size": "s", "note": ""}
    assert stage.app.answer(stage.run_id, good).result(240) == {**good, "size": "s"}


def test_only_those_named_may_answer(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("What?", bool, who=["ana", "ben"])

    stage.start(flow)
    with pytest.raises(InvalidAnswer, match="'eve' may not answer it; it is for ana, ben"):
        stage.app.answer(stage.run_id, True, by="eve")
    assert stage.app.answer(stage.run_id, True, by="ben").result(240) is True


def test_the_first_answer_counts_and_the_second_is_told_of_it(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        first = await run.ask("What?", str)
        await run.ask("more?", bool)
        return first

    stage.start(flow)
    (gate,) = stage.app.gates(stage.run_id)
    stage.app.answer(stage.run_id, "mine", by="ana", gate=gate.gate, enqueue=True)
    with pytest.raises(AlreadyAnswered, match="'ana'") as caught:
        stage.app.answer(stage.run_id, "mine too", by="ben", gate=gate.gate)
    assert (caught.value.by, caught.value.gate) == ("ana", gate.gate)
    with pytest.raises(AlreadyAnswered):
        stage.app.answer(stage.run_id, "without a name", by="ben")
    stage.app.resume(stage.run_id)
    with pytest.raises(AlreadyAnswered):
        stage.app.answer(stage.run_id, "late", by="ben", gate=gate.gate)
    assert stage.app.answer(stage.run_id, True).result(240) == "mine"


def test_who_when_and_what_are_in_the_journal(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("What?", {"ok": bool})

    stage.start(flow)
    before = stage.clock.now_us()
    stage.app.answer(stage.run_id, {"ok": True}, by="ana")
    (entry,) = stage.journal("answered")
    assert (entry["by"], entry["answer"], entry["gate"]) == ("ana", {"ok": True}, "ask#1")
    assert before <= entry["at_us"] <= stage.clock.now_us()
    (asked,) = stage.journal("asked")
    assert (asked["prompt"], asked["gate"]) == ("What?", "ask#1")
    (gate,) = stage.app.gates(stage.run_id, state=None)
    assert (gate.state, gate.answered_by) == ("answered", "ana")
    assert gate.answered_at is not None
    assert gate.answered_at.timestamp() * 1e6 == pytest.approx(entry["at_us"], abs=1)


def test_a_gate_tells_everything_a_person_needs(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        show = {"amount": 30, "when": dt.date(2026, 1, 1)}
        return await run.ask(
            "Refund?", {"ok": field(bool, label="OK?")}, show=show, who="ana", expires=60, key="refund"
        )

    handle = stage.start(flow)
    (gate,) = handle.gates()
    assert (gate.run_id, gate.workflow, gate.gate, gate.state) == (stage.run_id, "flow", "refund", "open")
    assert (gate.prompt, gate.who, gate.purpose) == ("Refund?", ("ana",), "ask")
    assert gate.show["amount"] == 30
    assert gate.form.fields[0].label == "OK?"
    assert gate.expires_at is not None
    assert abs((gate.expires_at - gate.opened_at).total_seconds() - 60) < 5
    assert (gate.answered_at, gate.answered_by) == (None, None)
    assert gate in stage.app.gates()


def test_gates_come_one_after_the_other(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> list[int]:
        return [await run.ask(f"number {n}?", int) for n in range(3)]

    stage.start(flow)
    for number in range(3):
        stage.restart()
        assert [gate.prompt for gate in stage.app.gates(stage.run_id)] == [f"number {number}?"]
        stage.app.answer(stage.run_id, number * 7)
    assert stage.app.handle(stage.run_id).result(240) == [0, 7, 14]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_gates_of_branches_are_answered_in_any_order(stage: Stage, order: tuple[int, ...]) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> list[str]:
        def asks(number: int) -> Any:
            async def branch(inner: AsyncRun) -> str:
                first: str = await inner.ask(f"{number}?", str)
                return first + await inner.step(str.upper, first)

            return branch

        return await run.gather(*[asks(number) for number in range(3)])

    stage.start(flow)
    gates = {gate.prompt: gate.gate for gate in stage.app.gates(stage.run_id)}
    assert sorted(gates) == ["0?", "1?", "2?"]
    with pytest.raises(InvalidInput, match="has 3 open gates; choose one with gate="):
        stage.app.answer(stage.run_id, "x")
    for number in order:
        stage.restart()
        assert stage.status() == "waiting"
        stage.app.answer(stage.run_id, f"a{number}", gate=gates[f"{number}?"])
    assert stage.app.handle(stage.run_id).result(240) == ["a0A0", "a1A1", "a2A2"]
    assert len(stage.journal("answered")) == 3


def test_an_answer_that_ends_a_branch_is_in_the_journal_too(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async def branch(inner: AsyncRun) -> Any:
            return await inner.ask("ok?", bool)

        return await run.gather(branch)

    stage.start(flow)
    assert stage.app.answer(stage.run_id, True, by="ana").result(240) == [True]
    assert [entry["by"] for entry in stage.journal("answered")] == ["ana"]


def test_an_answer_goes_to_a_gate_that_is_there(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("What?", bool)

    @stage.flow
    async def silent(run: AsyncRun) -> None:
        """Asks nothing."""

    stage.start(flow)
    with pytest.raises(GateClosed, match="has no gate"):
        stage.app.answer(stage.run_id, True, gate="another")
    with pytest.raises(NotFound):
        stage.app.answer(f"{stage.run_id}-nobody", True)
    stage.start(silent, run_id=f"{stage.run_id}-silent")
    with pytest.raises(RunEnded, match="completed"):
        stage.app.answer(f"{stage.run_id}-silent", True)
    stage.app.cancel(stage.run_id)
    with pytest.raises((RunEnded, GateClosed)):
        stage.app.answer(stage.run_id, True)
    with pytest.raises((RunEnded, GateClosed)):
        stage.app.answer(stage.run_id, True, gate="ask#1")
    assert [gate.state for gate in stage.app.gates(stage.run_id, state=None)] == ["closed"]


def test_a_question_that_makes_no_sense_is_refused_before_a_gate_is_opened(local: Stage) -> None:
    wrong: list[dict[str, Any]] = [
        {"fields": bool, "who": [""]}, {"fields": bool, "expires": -1}, {"fields": object()},
        {"fields": str, "expires": 5}, {"fields": bool, "expires": 5, "expired": "no bool"},
        {"fields": bool, "show": object()},
    ]  # fmt: skip

    @local.flow
    async def flow(run: AsyncRun) -> list[str]:
        refused = []
        for options in wrong:
            try:
                await run.ask("What?", options.pop("fields"), **options)
            except InvalidInput as error:
                refused.append(str(error))
        return refused

    assert len(local.start(flow).result(240)) == len(wrong)
    assert local.app.gates(local.run_id, state=None) == []
