"""Approvals: several people, excluded people, escalation and reassignment."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import AlreadyAnswered, App, AsyncRun, InvalidAnswer, InvalidInput
from holdfast.errors import Conflict, GateClosed, InvalidId, LimitExceeded
from holdfast.limits import ASSIGNMENTS_MAX
from holdfast.model.rows import ItemRow
from holdfast.model.views import GateInfo
from holdfast.operations import gates
from holdfast.runtime import answers
from tests.harness import Stage


def ask_for(stage: Stage, fields: Any = bool, **options: Any) -> None:
    """Start a run that asks, and returns the answer."""

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("Pay?", fields, **options)

    stage.start(flow)


def test_n_different_people_must_approve(stage: Stage) -> None:
    ask_for(stage, {"note": str, "pay": bool}, approvals=3)
    for number, name in enumerate(["ana", "ben"], 1):
        answer = {"note": name, "pay": True}
        assert stage.app.answer(stage.run_id, answer, by=name, via="web").status() == "waiting"
        (gate,) = stage.app.gates(stage.run_id)
        assert (gate.approvals, len(gate.approved), gate.state) == (3, number, "open")
    assert [(one.by, one.via, one.answer) for one in gate.approved] == [
        ("ana", "web", {"note": "ana", "pay": True}),
        ("ben", "web", {"note": "ben", "pay": True}),
    ]
    assert gate.may_answer("ana") == "'ana' has already approved it; another person must"
    assert gate.may_answer("cho") is None
    with pytest.raises(InvalidAnswer, match="'ana' has already approved it; another person must"):
        stage.app.answer(stage.run_id, {"note": "", "pay": True}, by="ana")
    stage.restart()
    last = {"note": "cho", "pay": True}
    assert stage.app.answer(stage.run_id, last, by="cho", via="cli").result(240) == last
    (entry,) = stage.journal("answered")
    assert (entry["by"], entry["via"], entry["answer"]) == ("cho", "cli", last)
    assert [(one["by"], one["via"], one["answer"]["note"]) for one in entry["approved"]] == [
        ("ana", "web", "ana"),
        ("ben", "web", "ben"),
        ("cho", "cli", "cho"),
    ]
    assert stage.onlooker.verify().problems == []


def test_a_no_decides_at_once(stage: Stage) -> None:
    ask_for(stage, approvals=2)
    stage.app.answer(stage.run_id, True, by="ana")
    assert stage.app.answer(stage.run_id, False, by="ben").result(240) is False
    (entry,) = stage.journal("answered")
    assert (entry["by"], [one["by"] for one in entry["approved"]]) == ("ben", ["ana"])
    with pytest.raises(AlreadyAnswered):
        stage.app.answer(stage.run_id, True, by="cho")


def test_one_approval_leaves_journal_and_gate_as_they_were_before_there_were_several(local: Stage) -> None:
    ask_for(local)
    local.app.answer(local.run_id, True, by="ana").result(240)
    asked, answered = local.journal("asked", "answered")
    assert sorted(asked) == ["call", "gate", "kind", "prompt"]
    assert sorted(answered) == ["answer", "at_us", "by", "call", "gate", "kind"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields": str, "approvals": 2}, "needs a yes/no field"),
        ({"approvals": 0}, "approvals must be 1 to 20"),
        ({"approvals": 21}, "approvals must be 1 to 20"),
        ({"approvals": True}, "approvals must be 1 to 20"),
        ({"escalate": [(5, "ben")]}, "escalate needs who"),
        ({"who": "ana", "escalate": [(5, [])]}, "escalate must be a list"),
        ({"who": "ana", "escalate": [5]}, "escalate must be a list"),
        ({"who": "ana", "escalate": [(0, "ben")]}, "above 0"),
        ({"who": "ana", "escalate": [(n + 1, "ben") for n in range(21)]}, "at most 20"),
        ({"who": ["group:"]}, "who must be a name"),
        ({"not_by": [3]}, "not_by must be a name"),
    ],
)
def test_rules_that_cannot_work_are_refused_before_anything_is_written(
    local: Stage, options: dict[str, Any], message: str
) -> None:
    ask_for(local, **options)
    with pytest.raises(holdfast.RunFailed, match=message):
        local.app.handle(local.run_id).result(240)
    assert local.journal("asked") == []
    assert local.app.gates(local.run_id, state=None) == []


def test_people_and_groups_may_be_admitted_and_excluded(stage: Stage) -> None:
    ask_for(stage, who=["ana", "group:finance"], not_by=["ana", "group:interns"])
    for by, groups, message in [
        ("ana", (), "it must be answered by others than ana"),
        ("ben", (), "it is for ana, group:finance"),
        ("ben", ("sales",), "it is for ana, group:finance"),
        ("ben", ("finance", "interns"), "it must be answered by others than group:interns"),
        ("group:finance", (), "it is for ana, group:finance"),
    ]:
        with pytest.raises(InvalidAnswer, match=message):
            stage.app.answer(stage.run_id, True, by=by, groups=groups)
    with pytest.raises(InvalidInput, match="groups must be a list of names"):
        stage.app.answer(stage.run_id, True, by="ben", groups="finance")
    assert stage.app.answer(stage.run_id, True, by="ben", groups=("finance",)).result(240) is True


def test_escalation_admits_more_people_as_time_passes(stage: Stage) -> None:
    ask_for(stage, who="ana", escalate=[(dt.timedelta(hours=2), ["dan", "ana"]), (3600, ("ben", "group:boss"))])
    (gate,) = stage.app.gates(stage.run_id)
    assert gate.who == ("ana",)
    assert [(level.who, level.due) for level in gate.escalations] == [
        (("ben", "group:boss"), False),
        (("dan", "ana"), False),
    ]
    assert gate.escalations[0].at == gate.opened_at + dt.timedelta(hours=1)
    with pytest.raises(InvalidAnswer, match="it is for ana"):
        stage.app.answer(stage.run_id, True, by="ben")
    stage.clock.advance(3601)
    (gate,) = stage.app.gates(stage.run_id)
    assert gate.who == ("ana", "ben", "group:boss")
    assert [level.due for level in gate.escalations] == [True, False]
    stage.clock.advance(3600)
    assert stage.app.gates(stage.run_id)[0].who == ("ana", "ben", "group:boss", "dan")
    assert stage.app.answer(stage.run_id, True, by="eve", groups=["boss"]).result(240) is True


def test_a_reassigned_gate_is_for_others(stage: Stage) -> None:
    ask_for(stage, who="ana", escalate=[(60, "ben"), (3600, "cho")])
    stage.clock.advance(61)
    gate = stage.app.reassign(stage.run_id, ["dan"], by="eve", reason="on holiday", via="web")
    assert (gate.who, gate.state) == (("dan",), "open")
    assert [level.who for level in gate.escalations] == [("cho",)]
    assert [(one.by, one.via, one.who, one.reason) for one in gate.assigned] == [("eve", "web", ("dan",), "on holiday")]
    for name in ("ana", "ben", "cho"):
        with pytest.raises(InvalidAnswer, match="it is for dan"):
            stage.app.answer(stage.run_id, True, by=name)
    stage.clock.advance(3600)
    assert stage.app.gates(stage.run_id)[0].who == ("dan", "cho")
    with pytest.raises(InvalidInput, match="at least one name"):
        stage.app.reassign(stage.run_id, [])
    assert stage.app.answer(stage.run_id, True, by="dan").result(240) is True
    with pytest.raises((AlreadyAnswered, Conflict)):
        stage.app.reassign(stage.run_id, "ben")
    assert len(stage.app.gates(stage.run_id, state=None)[0].assigned) == 1


def test_reassigning_is_bounded(local: Stage) -> None:
    ask_for(local)
    for _ in range(ASSIGNMENTS_MAX):
        local.app.reassign(local.run_id, "ana")
    with pytest.raises(LimitExceeded, match="already reassigned"):
        local.app.reassign(local.run_id, "ana")


def test_approvals_and_assignments_survive_a_dead_process_a_copy_and_an_archive(stage: Stage) -> None:
    ask_for(stage, approvals=2, not_by="zoe", expires=3600)
    stage.app.answer(stage.run_id, True, by="ana")
    stage.app.reassign(stage.run_id, ["ana", "ben", "cho", "zoe"], by="dan")
    stage.restart()
    store, copied = stage.app.store, f"{stage.run_id}-copy"
    store.copy(stage.run_id, copied)
    other = holdfast.open("memory:", clock=stage.clock)
    other.import_run(store.export_run(stage.run_id))
    with App(other) as there:
        for app, run_id in ((stage.app, stage.run_id), (stage.app, copied), (there, stage.run_id)):
            (gate,) = app.gates(run_id)
            assert [one.by for one in gate.approved] == ["ana"]
            assert [one.by for one in gate.assigned] == ["dan"]
            with pytest.raises(InvalidAnswer, match="others than zoe"):
                app.answer(run_id, True, by="zoe")
            assert app.answer(run_id, True, by="ben").status() in ("completed", "ready")
    assert other.verify().problems == []
    assert stage.app.handle(copied).result(240) is True


def test_a_rollback_and_a_fork_begin_with_no_approvals(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.step(len, "x")
        return await run.ask("Pay?", bool, approvals=2)

    stage.start(flow)
    stage.app.answer(stage.run_id, True, by="ana")
    fork = stage.app.fork(stage.run_id, f"{stage.run_id}-fork", at=2, by="zoe", via="web")
    assert [gate.approved for gate in fork.gates()] == [()]
    (forked,) = stage.journal("forked", run_id=fork.run_id)
    assert (forked["by"], forked["via"]) == ("zoe", "web")
    stage.app.rollback(stage.run_id, to=2, by="zoe", via="api")
    assert stage.journal("rolling_back")[0]["via"] == "api"
    (gate,) = stage.app.gates(stage.run_id)
    assert (gate.approved, gate.approvals) == ((), 2)
    for run_id in (stage.run_id, fork.run_id):
        stage.app.answer(run_id, True, by="ana")
        assert stage.app.handle(run_id).status() == "waiting"
        assert stage.app.answer(run_id, True, by="ben").result(240) is True
    assert stage.onlooker.verify().problems == []


def test_a_gate_that_expires_between_two_approvals_is_denied(stage: Stage) -> None:
    ask_for(stage, approvals=2, expires=60)
    stage.app.answer(stage.run_id, True, by="ana")
    stage.clock.advance(61)
    with pytest.raises(GateClosed, match="expired"):
        stage.app.answer(stage.run_id, True, by="ben")
    with pytest.raises(GateClosed, match="expired"):
        stage.app.reassign(stage.run_id, "ben")
    assert stage.app.resume(stage.run_id).result(240) is False
    (entry,) = stage.journal("answered")
    assert (entry["expired"], [one["by"] for one in entry["approved"]]) == (True, ["ana"])


def test_a_gate_of_a_child_takes_approvals(stage: Stage) -> None:
    @stage.flow
    async def inner(run: AsyncRun) -> Any:
        return await run.ask("Pay?", bool, approvals=2, not_by="ana")

    @stage.flow
    async def outer(run: AsyncRun) -> Any:
        return await run.child("inner")

    stage.start(outer)
    (gate,) = [gate for gate in stage.app.gates() if gate.run_id.startswith(f"{stage.run_id}/")]
    stage.app.answer(gate.run_id, True, by="ben")
    stage.app.answer(gate.run_id, True, by="cho")
    assert stage.app.handle(stage.run_id).result(240) is True


def together(*acts: Any) -> list[BaseException | None]:
    """Do these on threads of their own, at once; what each raised."""
    barrier, raised = threading.Barrier(len(acts)), [None] * len(acts)

    def do(index: int, act: Any) -> None:
        barrier.wait()
        try:
            act()
        except BaseException as error:
            raised[index] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=do, args=each) for each in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    return raised  # type: ignore[return-value]


def test_concurrent_approvals_are_n_distinct_ones_and_one_answer(stage: Stage) -> None:
    ask_for(stage, approvals=4)
    apps = [stage.app, stage.open(), stage.open()]
    names = [f"p{number}" for number in range(8)]
    raised = together(
        *[
            lambda app=apps[at % 3], by=name: app.answer(stage.run_id, True, by=by, enqueue=True)
            for at, name in enumerate([*names, *names[:2]])
        ]
    )
    assert sum(error is None for error in raised) == 4
    for error in raised:
        assert error is None or isinstance(error, (AlreadyAnswered, InvalidAnswer)), error
    row = stage.onlooker.port.run(stage.run_id)
    assert row is not None
    assert [item.kind for item in stage.onlooker.port.rows(ItemRow, row.run)] == ["answer"]
    assert stage.app.resume(stage.run_id).result(240) is True
    (entry,) = stage.journal("answered")
    approved = [one["by"] for one in entry["approved"]]
    assert len(approved) == len(set(approved)) == 4


def change_after_reading(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let another process change the gate between the moment it is read and the commit."""
    real = gates.gate_info
    changing: list[bool] = []

    def late(*of: Any) -> GateInfo:
        found = real(*of)
        if not changing:
            changing.append(True)
            change()
            changing.clear()
        return found

    monkeypatch.setattr(answers, "gate_info", late)


def test_a_person_that_was_replaced_while_answering_is_refused(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_for(stage, who="ana")
    app, beside = stage.app, stage.open()
    change_after_reading(monkeypatch, lambda: beside.reassign(stage.run_id, "ben", by="cho"))
    with pytest.raises(InvalidAnswer, match="'ana' may not answer it; it is for ben"):
        app.answer(stage.run_id, True, by="ana")
    monkeypatch.undo()
    assert beside.handle(stage.run_id).status() == "waiting"
    assert beside.answer(stage.run_id, True, by="ben").result(240) is True


def test_a_gate_that_changes_all_the_time_is_a_conflict(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_for(stage, who="ana", approvals=2)
    app, beside = stage.app, stage.open()
    change_after_reading(monkeypatch, lambda: beside.reassign(stage.run_id, "ana", by="cho"))
    with pytest.raises(Conflict, match="was changed by another process"):
        app.answer(stage.run_id, True, by="ana")


def test_an_unfit_via_is_refused(local: Stage) -> None:
    ask_for(local)
    for via in ("a/b", "Web", "x" * 33, 3):
        with pytest.raises(InvalidId, match="via must be"):
            local.app.answer(local.run_id, True, via=via)  # type: ignore[arg-type]
