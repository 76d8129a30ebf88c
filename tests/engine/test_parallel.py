"""Side by side: map and gather, with identities that survive a crash."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from holdfast import AsyncRun, RunFailed, StepFailed
from holdfast.errors import Diverged
from tests.harness import Stage


def test_after_a_crash_in_the_middle_of_a_map_only_unfinished_items_run_again(stage: Stage) -> None:
    lock = threading.Lock()
    died: list[bool] = []

    def double(number: int) -> int:
        with lock:
            stage.calls.append(number)
            if len(stage.calls) == 50 and not died:
                died.append(True)
                stage.die()
        return number * 2

    @stage.flow
    async def flow(run: AsyncRun) -> list[int]:
        return await run.map(double, range(100), limit=4)

    stage.start_and_die(flow)
    finished = {entry["in"]: entry["result"] for entry in stage.journal("step")}
    assert 40 <= len(finished) < 50
    before, stage.calls[:] = list(stage.calls), []
    assert stage.resume().result(240) == [n * 2 for n in range(100)]
    assert sorted(stage.calls) == sorted(set(range(100)) - {result // 2 for result in finished.values()})
    assert set(before) | set(stage.calls) == set(range(100))
    places = {entry["in"]: entry["result"] for entry in stage.journal("step")}
    assert places == {f"map#1[{n}]": n * 2 for n in range(100)}


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_than_the_limit_go_on_at_a_time(local: Stage, limit: int) -> None:
    lock = threading.Lock()
    now, most = 0, 0
    together = threading.Barrier(limit)

    def slow(number: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(10)
        with lock:
            now -= 1
        together.wait(10)
        return number

    @local.flow
    async def flow(run: AsyncRun) -> list[int]:
        return await run.map(slow, range(12), limit=limit)

    assert local.start(flow).result(240) == list(range(12))
    assert most == limit


def test_the_error_of_one_branch_is_raised_when_the_others_have_finished(stage: Stage) -> None:
    def fails() -> None:
        raise KeyError("first")

    def slow() -> str:
        time.sleep(0.05)
        stage.calls.append("slow")
        return "slow"

    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        async def bad(inner: AsyncRun) -> None:
            await inner.step(fails)

        async def worse(inner: AsyncRun) -> None:
            raise OSError("of the branch itself")

        async def good(inner: AsyncRun) -> str:
            return await inner.step(slow)

        try:
            await run.gather(good, bad, worse)
        except StepFailed as error:
            stage.calls.append("caught")
            await run.ask("more?", bool)
            return [error.call, error.error_type]
        return []

    stage.start(flow)
    assert stage.calls == ["slow", "caught"]
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == ["gather#1[1]/fails#1", "KeyError"]
    assert stage.calls == ["slow", "caught", "caught"]


def test_a_map_raises_the_first_error_in_order(local: Stage) -> None:
    def odd(number: int) -> int:
        if number % 2:
            raise ValueError(number)
        return number

    @local.flow
    async def flow(run: AsyncRun) -> list[int]:
        return await run.map(odd, range(6))

    with pytest.raises(RunFailed, match=r"map#1\[1\]/odd#1"):
        local.start(flow).result(240)
    assert len(local.journal("step")) == 6


def test_branches_nest(stage: Stage) -> None:
    def note(text: str) -> str:
        stage.calls.append(text)
        return text

    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        async def outer(inner: AsyncRun) -> list[Any]:
            async def leaf(deep: AsyncRun) -> list[str]:
                return await deep.map(note, ["x", "y"])

            first = await inner.step(note, "first")
            return [first, *await inner.gather(leaf, leaf), await inner.step(note, "last")]

        found = await run.gather(outer, outer)
        await run.ask("more?", bool)
        return found

    stage.start(flow)
    stage.restart()
    one = ["first", ["x", "y"], ["x", "y"], "last"]
    assert stage.app.answer(stage.run_id, True).result(240) == [one, one]
    assert len(stage.calls) == 12
    assert "gather#1[1]/gather#1[0]/map#1[1]" in {entry.get("in") for entry in stage.journal("step")}


def test_a_branch_may_ask_while_the_others_go_on(stage: Stage) -> None:
    def note(text: str) -> str:
        stage.calls.append(text)
        return text

    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        async def asks(inner: AsyncRun) -> Any:
            return [await inner.ask("ok?", bool), await inner.step(note, "after")]

        async def works(inner: AsyncRun) -> list[str]:
            return [await inner.step(note, text) for text in "abc"]

        return await run.gather(asks, works)

    assert stage.start(flow).status() == "waiting"
    assert stage.calls == ["a", "b", "c"]
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == [[True, "after"], ["a", "b", "c"]]
    assert stage.calls == ["a", "b", "c", "after"]


def test_a_loop_in_a_branch_is_refused(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> None:
        async def branch(inner: AsyncRun) -> None:
            async for _ in inner.loop():
                return

        await run.gather(branch)

    with pytest.raises(RunFailed, match="belongs in the main flow of a run"):
        local.start(flow).result(240)


def test_other_branches_than_recorded_are_a_divergence(stage: Stage) -> None:
    async def flow(run: AsyncRun) -> Any:
        await run.map(len, ["a", "b", "c"])
        return await run.ask("more?", bool)

    async def changed(run: AsyncRun) -> Any:
        await run.map(len, ["a", "b"])
        return await run.ask("more?", bool)

    stage.flow(flow)
    stage.start(flow)
    stage.change(changed, name="flow")
    with pytest.raises(Diverged):
        stage.app.answer(stage.run_id, True)
    assert stage.status() == "paused"


def test_what_a_branch_drew_by_chance_is_the_same_after_a_crash(stage: Stage) -> None:
    def note(drawn: Any) -> Any:
        stage.calls.append(drawn)
        if len(stage.calls) == 1:
            stage.die()
        return drawn

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async def draws(inner: AsyncRun) -> list[Any]:
            return [await inner.uuid(), await inner.now(), (await inner.random()).random()]

        drawn = await run.gather(draws, draws)
        await run.step(len, drawn)
        return await run.step(note, drawn)

    stage.start_and_die(flow)
    assert stage.resume().result(240) == stage.calls[0] == stage.calls[1]


def test_events_that_branches_received_stay_theirs_after_a_crash(stage: Stage) -> None:
    def note(got: Any) -> Any:
        stage.calls.append(got)
        if len(stage.calls) == 1:
            stage.die()
        return got

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async def receives(inner: AsyncRun) -> Any:
            return await inner.wait_for("n")

        got = await run.gather(*[receives] * 4)
        await run.step(len, got)
        return await run.step(note, got)

    stage.start(flow)
    for number in range(3):
        stage.app.send(stage.run_id, "n", number, enqueue=True)
    with pytest.raises(Exception, match="the wire was cut"):
        stage.app.send(stage.run_id, "n", 3)
    assert stage.resume().result(240) == stage.calls[0]
    assert sorted(stage.calls[0]) == [0, 1, 2, 3]
    assert len(stage.journal("received")) == 4


def test_a_branch_that_swallows_its_suspension_does_not_let_the_run_go_on(stage: Stage) -> None:
    def pay() -> str:
        stage.calls.append("paid")
        return "paid"

    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        async def swallows(inner: AsyncRun) -> Any:
            try:
                return await inner.ask("ok?", str)
            except BaseException:
                return "swallowed"

        (answer,) = await run.gather(swallows)
        return [answer, await run.effect(pay)]

    assert stage.start(flow).status() == "waiting"
    assert stage.calls == []
    assert stage.app.answer(stage.run_id, "yes").result(240) == ["yes", "paid"]


def test_nothing_side_by_side_is_an_empty_list(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> list[Any]:
        return [await run.gather(), await run.map(len, [])]

    assert local.start(flow).result(240) == [[], []]
