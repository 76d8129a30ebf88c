"""A fork with another state, and a state saved by hand: the run goes on with it, on every replay."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import AsyncRun, InvalidInput, Keep
from holdfast.errors import RunError
from holdfast.testing import replay
from tests.harness import Stage


def letter(stage: Stage) -> None:
    """A run that writes a draft, asks, and sends what is in its state."""

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        draft = await run.step(str.upper, "draft")
        run.state["draft"] = draft
        run.state["to"] = {"name": "ana"}
        answer = await run.ask("Send it?", {"ok": bool})
        sent = await run.step(lambda text: f"sent {text}", run.state["draft"], name="send")
        await run.ask("Really?", {"ok": bool})
        return [sent, run.state["to"]["name"], answer["ok"], run.state.get("note")]


def finish(stage: Stage, run_id: str) -> Any:
    for _ in range(2):
        gate = stage.app.gates(run_id)[0].gate
        handle = stage.app.answer(run_id, {"ok": True}, gate=gate)
        assert replay(stage.app, run_id).run_id == run_id
        stage.restart()
    assert stage.onlooker.verify().problems == []
    return stage.app.handle(handle.run_id).result(240)


def test_a_fork_goes_on_with_the_state_it_is_given(stage: Stage) -> None:
    letter(stage)
    stage.start("flow")
    fork = f"{stage.run_id}-fork"
    stage.app.fork(stage.run_id, fork, at="ask#1", state={"draft": "better", "to": {"name": "ben"}})
    assert finish(stage, fork) == ["sent better", "ben", True, None]
    assert finish(stage, stage.run_id) == ["sent DRAFT", "ana", True, None], "the source is as it was"
    assert stage.onlooker.load(fork).state["draft"] == "better"  # type: ignore[union-attr]


def test_a_fork_goes_on_with_values_set_in_its_state(stage: Stage) -> None:
    letter(stage)
    stage.start("flow")
    fork = f"{stage.run_id}-fork"
    stage.app.fork(stage.run_id, fork, at="ask#1", update={"to.name": "ben", "/note": [1]})
    again = f"{fork}-fork"
    stage.app.fork(fork, again, update={"to.name": "eva"})
    assert finish(stage, fork) == ["sent DRAFT", "ben", True, [1]]
    assert finish(stage, again) == ["sent DRAFT", "eva", True, [1]]


def test_a_state_saved_by_hand_on_a_waiting_run_is_what_it_goes_on_with(stage: Stage) -> None:
    letter(stage)
    stage.start("flow")
    claim = stage.onlooker.claim(stage.run_id, "editor")
    assert claim is not None
    claim.save({"draft": "by hand", "to": {"name": "ben"}})
    claim.release("waiting")
    stage.onlooker.prune(stage.run_id, Keep())
    assert finish(stage, stage.run_id) == ["sent by hand", "ben", True, None]


def test_a_rollback_behind_an_edit_keeps_it_and_before_it_does_not(stage: Stage) -> None:
    letter(stage)
    stage.start("flow")
    fork = f"{stage.run_id}-fork"
    stage.app.fork(stage.run_id, fork, at="ask#1", state={"draft": "better", "to": {"name": "ben"}})
    gate = stage.app.gates(fork)[0].gate
    stage.app.answer(fork, {"ok": True}, gate=gate)
    stage.app.rollback(fork, to="ask#1")
    assert finish(stage, fork) == ["sent better", "ben", True, None]
    stage.app.rollback(fork, to=1)
    assert finish(stage, fork) == ["sent DRAFT", "ana", True, None]


def chat(stage: Stage) -> None:
    """A loop whose body reads its state before its first call."""

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        run.state["messages"] = []
        async for turn in run.loop():
            messages = run.state["messages"]
            messages.append(await run.step(lambda n, m: f"{n}:{len(m)}", turn, list(messages), name="reply"))
            if turn == 4:
                break
        return run.state["messages"]


def test_a_fork_between_turns_begins_the_next_turn_with_its_state(stage: Stage) -> None:
    chat(stage)
    stage.start("flow").result(240)
    turns = [checkpoint for checkpoint in stage.onlooker.history(stage.run_id) if checkpoint.step <= 2]
    fork = f"{stage.run_id}-fork"
    stage.app.fork(stage.run_id, fork, checkpoint_id=turns[-1].checkpoint_id, state={"messages": ["edited"] * 5})
    assert stage.app.handle(fork).result(240) == ["edited"] * 5 + ["3:5", "4:6"]
    assert replay(stage.app, fork).status == "completed"
    assert stage.app.rollback(fork, to=turns[-1].covers).result(240)[:1] == ["1:0"], "before the fork there was no edit"


def test_an_edit_that_does_not_fit_makes_no_fork_or_pauses_one_that_a_worker_executes(stage: Stage) -> None:
    letter(stage)
    stage.start("flow")
    for wrong in ({"state": [1]}, {"update": ["a"]}, {"update": {"": 1}}, {"update": {"a..b": 1}}):
        with pytest.raises(InvalidInput):
            stage.app.fork(stage.run_id, f"{stage.run_id}-no", **wrong)
    with pytest.raises(InvalidInput, match="one of them"):
        stage.app.fork(stage.run_id, f"{stage.run_id}-no", state={}, update={"a": 1})
    fork = f"{stage.run_id}-fork"
    with pytest.raises(InvalidInput, match="draft"):
        stage.app.fork(stage.run_id, fork, at="ask#1", update={"draft.x.y": 1})
    stage.app.answer(stage.run_id, {"ok": True})
    with pytest.raises(InvalidInput, match="draft"):  # after a call, only a replay finds the state
        stage.app.fork(stage.run_id, fork, at="send", update={"draft.x.y": 1})
    assert stage.onlooker.port.run(fork) is None
    with pytest.raises(RunError, match="draft"):
        stage.app.resume(stage.app.fork(stage.run_id, fork, at="send", update={"draft.x.y": 1}, enqueue=True).run_id)
    assert stage.app.cancel(fork).status() == "cancelled"


def test_a_path_that_the_saved_state_does_not_have_makes_no_fork(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        run.state["order"] = {"amount": 10}
        await run.checkpoint()
        await run.ask("ok?", bool)
        return dict(run.state)

    stage.start(flow)
    fork = f"{stage.run_id}-fork"
    with pytest.raises(InvalidInput, match=r"the state has no 'order\.amount\.x'"):
        stage.app.fork(stage.run_id, fork, at="ask#1", update={"order.amount.x": 3})
    stage.app.fork(stage.run_id, fork, at="ask#1", update={"order.amount": 3})
    assert stage.app.answer(fork, True).result(240) == {"order": {"amount": 3}}
