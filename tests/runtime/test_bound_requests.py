"""Requests that are bound to what a person has read: a question, the plan of a rollback, the place of a fork."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import GateClosed, InvalidInput, PlanChanged


class World:
    """An app with a payment, a run that pays inside a child, and what was done."""

    def __init__(self, url: str) -> None:
        self.app = holdfast.App(url)
        self.did: list[str] = []

        @self.app.undo
        def take_back(result: str) -> None:
            self.did.append(f"undo {result}")

        def pay(name: str) -> str:
            self.did.append(name)
            return name

        @self.app.workflow
        def child(run: holdfast.Run) -> None:
            run.effect(lambda: pay("one"), key="one", undo=take_back)
            run.ask("Pay two?", bool, key="two?")
            run.effect(lambda: pay("two"), key="two", undo=take_back)
            run.ask("Done?", bool, key="done?")

        @self.app.workflow
        def parent(run: holdfast.Run) -> None:
            run.child(child, key="c")

        @self.app.workflow
        def question(run: holdfast.Run, amount: int) -> bool:
            return run.ask(f"Pay {amount}?", bool, key="pay?", who=["cho", "group:finance"])


@pytest.fixture(params=["memory", "sqlite"])
def w(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    found = World("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/runs.db")
    with found.app:
        yield found


def test_a_rollback_with_a_plan_is_refused_after_a_child_has_gone_on(w: World) -> None:
    w.app.start("parent", run_id="p")
    plan = w.app.rollback_plan("p", to=1)
    assert [effect.key for effect in plan.undo] == ["one"]
    w.app.answer("p/c", True)
    assert w.did == ["one", "two"]
    with pytest.raises(PlanChanged, match="make the plan again"):
        w.app.rollback("p", to=1, basis=plan.basis)
    assert w.did == ["one", "two"]
    w.app.rollback("p", to=1, basis=w.app.rollback_plan("p", to=1).basis)
    assert w.did[2:4] == ["undo two", "undo one"]


def test_a_plan_serves_one_rollback(w: World) -> None:
    w.app.start("child", run_id="c")
    basis = w.app.rollback_plan("c", to=1).basis
    w.app.rollback("c", to=1, basis=basis)
    with pytest.raises(PlanChanged):
        w.app.rollback("c", to=1, basis=basis)
    assert w.did == ["one", "undo one", "one"]


def test_a_fork_with_a_plan_is_refused_after_its_source_has_gone_on(w: World) -> None:
    w.app.start("child", run_id="c")
    end = w.app.rollback_plan("c", to=None).basis
    since = w.app.rollback_plan("c", to=1).basis
    w.app.fork("c", "f0", basis=end, enqueue=True)
    w.app.answer("c", True, gate="two?")
    for at, basis in ((None, end), (1, since)):
        with pytest.raises(PlanChanged):
            w.app.fork("c", "f1", at=at, basis=basis, effects="perform")
    assert [run.run_id for run in w.app.store.runs(prefix="f")] == ["f0"]


def test_an_answer_to_a_question_does_not_count_for_another(w: World) -> None:
    w.app.start("question", 10, run_id="q")
    (gate,) = w.app.gates("q")
    w.app.cancel("q")
    w.app.store.delete("q")
    w.app.start("question", 1_000_000, run_id="q")
    with pytest.raises(GateClosed, match="another question"):
        w.app.answer("q", True, gate=gate.gate, by="cho", question=gate.question)
    (now,) = w.app.gates("q")
    assert now.question != gate.question
    assert w.app.answer("q", True, by="cho", question=now.question).result() is True


def test_only_a_person_that_may_answer_reassigns_if_its_groups_are_given(w: World) -> None:
    w.app.start("question", 10, run_id="q")
    with pytest.raises(InvalidInput, match="only a person that may answer it"):
        w.app.reassign("q", ["mallory"], by="mallory", groups=())
    w.app.reassign("q", ["dan"], by="ben", groups=("finance",))
    with pytest.raises(InvalidInput, match="only a person that may answer it"):
        w.app.reassign("q", ["ben"], by="ben", groups=("finance",))
    assert w.app.gates("q")[0].who == ("dan",)
    w.app.reassign("q", ["cho"], by="operator")
    assert w.app.gates("q")[0].who == ("cho",)
