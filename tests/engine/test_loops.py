"""The durable loop and the state: finished turns are skipped, and a resume costs the same however many there were."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import AsyncRun, RunFailed
from holdfast.errors import RunError
from tests.harness import Stage


def test_a_resume_skips_finished_turns_and_replays_the_current_one(stage: Stage) -> None:
    def work(turn: int, part: str) -> int:
        stage.calls.append((turn, part))
        if (turn, part) == (3, "b") and stage.calls.count((3, "b")) == 1:
            stage.die()
        return turn

    @stage.flow
    async def flow(run: AsyncRun) -> int:
        await run.step(work, 0, "before")
        async for turn in run.loop():
            for part in "ab":
                run.state["sum"] = run.state.get("sum", 0) + await run.step(work, turn, part)
            if turn == 5:
                break
        return int(run.state["sum"])

    stage.start_and_die(flow)
    before = list(stage.calls)
    assert stage.resume().result(240) == 30
    assert before == [(0, "before"), (1, "a"), (1, "b"), (2, "a"), (2, "b"), (3, "a"), (3, "b")]
    assert stage.calls[len(before) :] == [(3, "b"), (4, "a"), (4, "b"), (5, "a"), (5, "b")]


def test_the_state_of_a_turn_that_did_not_end_is_not_kept(stage: Stage) -> None:
    """It is replayed, so what it did to the state is done again, to the state the turn began with."""

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async for turn in run.loop():
            run.state.setdefault("turns", []).append(turn)
            if turn in (2, 4):
                await run.ask("more?", bool)
            if turn == 5:
                return run.state["turns"]
        return None

    stage.start(flow)
    for _ in range(2):
        stage.restart()
        stage.app.answer(stage.run_id, True)
    assert stage.app.handle(stage.run_id).result(240) == [1, 2, 3, 4, 5]


def test_a_loop_can_be_left_in_any_way(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> list[Any]:
        found: list[Any] = []
        async for turn in run.loop():
            if turn == 2:
                break
        found.append(turn)
        try:
            async for turn in run.loop():
                if turn == 3:
                    raise KeyError("out")
        except KeyError:
            found.append(turn)
        async for turn in run.loop(key="last"):
            found.append(await run.step(len, "x" * turn))
            if turn == 2:
                return found
        return []

    assert local.start(flow).result(240) == [2, 3, 1, 2]


def test_loops_nest_and_follow_each_other_over_crashes(stage: Stage) -> None:
    def note(*place: Any) -> Any:
        stage.calls.append(place)
        return place[-1]

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        log = run.state.setdefault("log", [])
        async for outer in run.loop():
            async for inner in run.loop():
                run.state["log"].append(await run.step(note, "nested", outer, inner))
                if inner == 2:
                    await run.ask("on?", bool)
                if inner == 3:
                    break
            if outer == 2:
                break
        async for turn in run.loop():
            run.state["log"].append(await run.step(note, "second", turn * 10))
            await run.ask("on?", bool)
            if turn == 2:
                break
        assert log is not None
        return run.state["log"]

    stage.start(flow)
    for _ in range(4):
        assert stage.status() == "waiting"
        stage.restart()
        stage.app.answer(stage.run_id, True)
    assert stage.app.handle(stage.run_id).result(240) == [1, 2, 3, 1, 2, 3, 10, 20]
    assert len(stage.calls) == len(set(stage.calls)) == 8, "nothing is done twice"


def test_the_state_is_restored_as_it_was(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async for turn in run.loop():
            if turn == 1:
                run.state.update(messages=["hi"], seen={1, 2}, pair=(1, "a"), gone="x")
            else:
                run.state["messages"].append(f"turn {turn}")
                run.state.pop("gone", None)
                await run.ask("more?", bool)
                return [run.state["messages"], sorted(run.state["seen"]), run.state["pair"], sorted(run.state)]
        return None

    stage.start(flow)
    stage.restart()
    expected = [["hi", "turn 2"], [1, 2], (1, "a"), ["messages", "pair", "seen"]]
    assert stage.app.answer(stage.run_id, True).result(240) == expected


def rows_read_on_resume(stage: Stage, run_id: str, turns: int) -> int:
    stage.start("agent", turns, run_id=run_id)
    stage.restart()
    before = stage.wire.rows_read
    assert stage.app.answer(run_id, True).status() == "completed"
    return stage.wire.rows_read - before


def test_a_resume_reads_as_much_of_the_journal_after_many_turns_as_after_few(stage: Stage) -> None:
    @stage.flow
    async def agent(run: AsyncRun, turns: int) -> int:
        await run.step(len, "before")
        async for turn in run.loop():
            run.state["n"] = await run.step(len, "x" * (turn % 7))
            if turn == turns:
                await run.ask("more?", bool)
                break
        return turns

    few = rows_read_on_resume(stage, f"{stage.run_id}-few", 5)
    many = rows_read_on_resume(stage, f"{stage.run_id}-many", 60)
    assert few == many
    assert many < 15


def test_a_resume_reads_little_of_nested_loops_too(local: Stage) -> None:
    @local.flow
    async def agent(run: AsyncRun, turns: int) -> None:
        async for outer in run.loop():
            async for inner in run.loop():
                await run.step(len, "x" * inner)
                if inner == 3:
                    break
            if outer == turns:
                await run.ask("more?", bool)
                break

    few = rows_read_on_resume(local, f"{local.run_id}-few", 3)
    many = rows_read_on_resume(local, f"{local.run_id}-many", 30)
    assert few == many


def test_a_checkpoint_keeps_history_and_never_shortens_the_replay(stage: Stage) -> None:
    def note(number: int) -> int:
        stage.calls.append(number)
        return number

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        for number in range(3):
            run.state["n"] = await run.step(note, number)
            await run.checkpoint(metadata={"number": number})
        run.state["n"] = "last"
        await run.ask("more?", bool)
        return run.state["n"]

    stage.start(flow)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == "last"
    assert stage.calls == [0, 1, 2]
    history = [info for info in stage.onlooker.history(stage.run_id) if "number" in info.metadata]
    assert sorted(info.metadata["number"] for info in history) == [0, 1, 2]
    for info in history:
        loaded = stage.onlooker.load(stage.run_id, checkpoint_id=info.checkpoint_id)
        assert loaded is not None
        assert loaded.state == {"n": info.metadata["number"]}
    assert len(stage.journal("saved")) == 3


def test_state_that_cannot_be_stored_fails_the_run_and_names_the_place(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> None:
        async for turn in run.loop():
            run.state["bad"] = [1, object()]
            if turn == 2:
                break

    with pytest.raises(RunFailed, match="bad"):
        local.start(flow).result(240)


def test_state_that_cannot_be_stored_at_a_gate_fails_the_run(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> None:
        run.state["bad"] = object()
        await run.ask("more?", bool)

    with pytest.raises(RunFailed, match="bad"):
        local.start(flow).result(240)


def test_what_was_drawn_and_noted_at_the_end_of_a_loop_is_written(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        async for _ in run.loop():
            await run.ask("ok?", bool)
            await run.log("the last word")
            return "left by return"
        return ""

    stage.start(flow)
    assert stage.app.answer(stage.run_id, True, by="ana").result(240) == "left by return"
    assert [entry["by"] for entry in stage.journal("answered")] == ["ana"]
    assert [entry["message"] for entry in stage.journal("log")] == ["the last word"]


def test_an_older_state_is_upgraded_or_the_run_is_paused(stage: Stage) -> None:
    async def flow(run: AsyncRun) -> Any:
        async for turn in run.loop():
            if turn == 1:
                run.state["name"] = "ana"
            else:
                await run.ask("more?", bool)
                return run.state
        return None

    stage.flow(flow, version=1)
    stage.start(flow)
    stage.change(flow, version=3)
    with pytest.raises(RunError, match="no upgrade of its state from version 1 to 2"):
        stage.app.answer(stage.run_id, True)
    assert stage.status() == "paused"
    stage.app.upgrade("flow", 1)(lambda state: {**state, "tags": []})
    stage.app.upgrade("flow", 2)(lambda state: {**state, "tags": ["old"]})
    assert stage.app.resume(stage.run_id).result(240) == {"name": "ana", "tags": ["old"]}
