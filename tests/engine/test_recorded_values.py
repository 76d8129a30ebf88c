"""Small recorded things: time, chance, ids, log lines, versions."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from holdfast import AsyncRun, InvalidInput
from tests.harness import Stage


def test_time_and_chance_are_the_same_after_replay(stage: Stage) -> None:
    seen: list[list[Any]] = []

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        drawn: list[Any] = [await run.now(), await run.uuid(), await run.uuid()]
        dice = await run.random()
        drawn += [dice.random(), dice.randint(1, 10**9)]
        await run.step(len, "x")
        drawn += [await run.now(), (await run.random()).random()]
        seen.append(drawn)
        await run.ask("more?", bool)

    stage.start(flow)
    stage.clock.advance(1000)
    stage.restart()
    stage.app.answer(stage.run_id, True).result(240)
    assert seen[0] == seen[1]
    assert seen[0][0].tzinfo == dt.UTC
    assert seen[0][1].version == 4
    assert len({str(value) for value in seen[0]}) == 7


def test_what_was_drawn_before_a_crash_and_not_used_is_drawn_anew(stage: Stage) -> None:
    def note(drawn: Any) -> Any:
        stage.calls.append(drawn)
        if len(stage.calls) == 1:
            stage.die()
        return drawn

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.step(note, await run.uuid())

    stage.start_and_die(flow)
    found = stage.resume().result(240)
    assert found == stage.calls[1] != stage.calls[0], "nothing that depended on it was recorded"


def test_a_log_line_is_noted_once(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.log("begun", order="A-17")
        await run.step(len, "x")
        await run.log("priced", level="warning")
        await run.ask("more?", bool)
        await run.log("over")

    stage.start(flow)
    for _ in range(2):
        stage.restart()
        stage.app.resume(stage.run_id)
    stage.app.answer(stage.run_id, True).result(240)
    lines = [(entry["message"], entry["level"], entry.get("data")) for entry in stage.journal("log")]
    assert lines == [("begun", "info", {"order": "A-17"}), ("priced", "warning", None), ("over", "info", None)]


def test_log_lines_may_be_added_and_removed(stage: Stage) -> None:
    async def flow(run: AsyncRun) -> None:
        await run.log("old")
        await run.step(len, "x")
        await run.ask("more?", bool)

    async def changed(run: AsyncRun) -> None:
        await run.step(len, "x")
        await run.log("new")
        await run.log("newer")
        await run.ask("more?", bool)

    stage.flow(flow)
    stage.start(flow)
    stage.change(changed, name="flow")
    assert stage.app.answer(stage.run_id, True).status() == "completed"


def test_a_level_nobody_knows_is_refused(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> None:
        with pytest.raises(InvalidInput):
            await run.log("x", level="loud")
        with pytest.raises(InvalidInput):
            await run.version("x", 0)

    assert local.start(flow).status() == "completed"


async def _old(run: AsyncRun) -> str:
    first = await run.step(str, "old way")
    await run.ask("more?", bool)
    return first


async def _new(run: AsyncRun) -> str:
    if await run.version("rewrite", 2) >= 2:
        first = await run.step(str.upper, "new way")
    else:
        first = await run.step(str, "old way")
    await run.ask("more?", bool)
    return f"{first} {await run.version('rewrite', 2)}"


def test_older_runs_take_the_old_way_and_new_ones_the_new(stage: Stage) -> None:
    stage.flow(_old, name="flow")
    stage.start("flow")
    stage.change(_new, name="flow")
    assert stage.app.answer(stage.run_id, True).result(240) == "old way 0"
    other = f"{stage.run_id}-new"
    stage.start("flow", run_id=other)
    stage.restart()
    assert stage.app.answer(other, True).result(240) == "NEW WAY 2"


def test_a_run_that_waits_exactly_at_the_gate_takes_the_old_way_before_it_and_the_new_behind_it(stage: Stage) -> None:
    async def old(run: AsyncRun) -> list[Any]:
        return [await run.ask("first?", str)]

    async def new(run: AsyncRun) -> list[Any]:
        before = await run.version("before", 1)
        first = await run.ask("first?", str)
        behind = await run.version("behind", 1)
        return [before, first, behind]

    stage.flow(old, name="flow")
    stage.start("flow")
    stage.change(new, name="flow")
    assert stage.app.answer(stage.run_id, "hi").result(240) == [0, "hi", 1]


def test_a_version_given_once_stays_when_the_number_grows(stage: Stage) -> None:
    def at(number: int) -> Any:
        async def flow(run: AsyncRun) -> int:
            found = await run.version("x", number)
            await run.ask("more?", bool)
            return found

        return flow

    stage.flow(at(1), name="flow")
    stage.start("flow")
    stage.change(at(5), name="flow")
    assert stage.app.answer(stage.run_id, True).result(240) == 1


def test_a_version_taken_in_an_earlier_turn_holds_in_later_ones(stage: Stage) -> None:
    def note(text: str) -> str:
        stage.calls.append(text)
        return text

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async for turn in run.loop():
            way = "new" if await run.version("x", 1) else "old"
            run.state.setdefault("ways", []).append(await run.step(note, way, name=way))
            await run.ask("more?", bool)
            if turn == 3:
                return run.state["ways"]
        return None

    stage.start(flow)
    for _ in range(3):
        stage.restart()
        stage.app.answer(stage.run_id, True)
    assert stage.app.handle(stage.run_id).result(240) == ["new"] * 3
    assert stage.calls == ["new"] * 3


def test_an_older_run_stays_with_the_old_way_in_all_turns_of_its_loop(stage: Stage) -> None:
    def at(changed: bool) -> Any:
        async def flow(run: AsyncRun) -> Any:
            async for turn in run.loop():
                way = "new" if changed and await run.version("x", 1) else "old"
                run.state.setdefault("ways", []).append(await run.step(str, way, name=way))
                await run.ask("more?", bool)
                if turn == 3:
                    return run.state["ways"]
            return None

        return flow

    stage.flow(at(False), name="flow")
    stage.start("flow")
    stage.change(at(True), name="flow")
    stage.app.answer(stage.run_id, True)
    stage.app.answer(stage.run_id, True)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == ["old"] * 3
