"""Sleeping, waiting for events, sending them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from holdfast import AsyncRun, InvalidInput, NotFinished, Retry
from holdfast.model.commit import Commit
from holdfast.model.rows import MessageRow, TimerRow
from tests.harness import Stage


def test_a_short_sleep_is_slept_here_and_only_once(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> float:
        before = await run.now()
        await run.sleep(0.03)
        between = (await run.now()) - before
        await run.ask("more?", bool)
        return between.total_seconds()

    stage.start(flow)
    stage.restart()
    assert 0.03 <= stage.app.answer(stage.run_id, True).result(240) < 30
    assert len(stage.journal("sleep")) == 1


@pytest.mark.parametrize("until", [False, True])
def test_a_long_sleep_gives_the_run_back_until_its_time_has_come(stage: Stage, until: bool) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> str:
        if until:
            await run.sleep_until(await run.now() + dt.timedelta(hours=2))
        else:
            await run.sleep(dt.timedelta(hours=2))
        return await run.step(str, "awake")

    handle = stage.start(flow)
    assert handle.status() == "waiting"
    assert handle.info().owner is None
    stage.clock.advance(3600)
    assert stage.app.resume(stage.run_id).status() == "waiting"
    stage.restart()
    stage.clock.advance(3601)
    assert stage.app.handle(stage.run_id).result(240) == "awake"
    assert stage.onlooker.port.rows(TimerRow, _number(stage)) == []


def _number(stage: Stage) -> int:
    row = stage.onlooker.port.run(stage.run_id)
    assert row is not None
    return row.run


def test_a_moment_that_has_passed_is_not_waited_for(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> str:
        await run.sleep_until(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        await run.sleep(0)
        return "on"

    assert local.start(flow).result(240) == "on"


def test_times_that_make_no_sense_are_refused(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> int:
        refused = 0
        for seconds in (-1, True, "1", float("nan"), None):
            with pytest.raises(InvalidInput):
                await run.sleep(seconds)  # type: ignore[arg-type]
            refused += 1
        with pytest.raises(InvalidInput):
            await run.sleep_until(dt.datetime(2030, 1, 1))  # noqa: DTZ001 - that is the mistake
        return refused

    assert local.start(flow).result(240) == 5


def test_an_event_wakes_the_run_and_gives_its_value(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        got = await run.wait_for("shipped")
        await run.ask("more?", bool)
        return got

    stage.start(flow)
    stage.app.send(stage.run_id, "other", 1)
    assert stage.app.gates(stage.run_id) == []
    stage.restart()
    stage.app.send(stage.run_id, "shipped", {"parcel": 3}, by="depot")
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == {"parcel": 3}
    (entry,) = stage.journal("received")
    assert (entry["event"], entry["value"], entry["by"]) == ("shipped", {"parcel": 3}, "depot")


def test_an_event_may_come_before_anybody_waits_for_it(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        await run.ask("go?", bool)
        return [await run.wait_for("a"), await run.wait_for("b")]

    stage.start(flow)
    stage.app.send(stage.run_id, "b", 2)
    stage.app.send(stage.run_id, "a", 1)
    assert stage.app.answer(stage.run_id, True).result(240) == [1, 2]


def test_events_of_one_name_come_in_the_order_they_were_sent(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        found = [await run.wait_for("n") for _ in range(5)]
        await run.ask("more?", bool)
        return found

    stage.start(flow)
    for number in range(5):
        stage.app.send(stage.run_id, "n", number, enqueue=True)
    stage.restart()
    stage.app.resume(stage.run_id)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == [0, 1, 2, 3, 4]


def test_an_event_sent_again_under_its_key_counts_once(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        return [await run.wait_for("paid"), await run.wait_for("paid")]

    stage.start(flow)
    stage.app.send(stage.run_id, "paid", 1, key="payment-1")
    stage.app.send(stage.run_id, "paid", 1, key="payment-1")
    stage.restart()
    stage.app.send(stage.run_id, "paid", 1, key="payment-1")
    assert stage.status() == "waiting"
    assert stage.app.send(stage.run_id, "paid", 2, key="payment-2").result(240) == [1, 2]


def test_an_event_that_is_late_gives_the_default(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        first = await run.wait_for("n", timeout=60, default="late")
        await run.ask("more?", bool)
        return [first, await run.wait_for("n", timeout=60, default="late")]

    stage.start(flow)
    stage.clock.advance(61)
    stage.restart()
    stage.app.resume(stage.run_id)
    stage.app.send(stage.run_id, "n", "too late for the first")
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == ["late", "too late for the first"]


def test_an_event_in_time_drops_the_timer(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        got = await run.wait_for("n", timeout=60)
        await run.ask("more?", bool)
        return got

    stage.start(flow)
    assert len(stage.onlooker.port.rows(TimerRow, _number(stage))) == 1
    stage.app.send(stage.run_id, "n", 1)
    assert stage.onlooker.port.rows(TimerRow, _number(stage)) == []
    stage.clock.advance(61)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) == 1


def test_a_run_sends_to_another_and_wakes_it(stage: Stage) -> None:
    other = f"{stage.run_id}-other"

    @stage.flow
    async def waits(run: AsyncRun) -> Any:
        return [await run.wait_for("hello"), await run.wait_for("hello", timeout=60, default="no second")]

    @stage.flow
    async def sends(run: AsyncRun) -> str:
        await run.send(other, "hello", {"from": run.run_id})
        await run.step(note)
        return "sent"

    def note() -> None:
        stage.calls.append("note")
        if len(stage.calls) == 1:
            stage.die()

    stage.start(waits, run_id=other)
    stage.start_and_die(sends)
    assert stage.resume().result(240) == "sent"
    assert stage.status(other) == "waiting", "the sender died before it delivered"
    stage.redeliver()
    stage.app.resume(other)
    assert [entry["kind"] for entry in stage.journal(run_id=other)] == ["started", "wait", "received", "wait"]
    assert stage.onlooker.port.due(MessageRow, 1000) == []
    stage.clock.advance(61)
    assert stage.app.handle(other).result(240) == [{"from": stage.run_id}, "no second"]


def test_what_a_run_sends_is_delivered_and_wakes_the_other_at_once(stage: Stage) -> None:
    other = f"{stage.run_id}-other"

    @stage.flow
    async def waits(run: AsyncRun) -> Any:
        return await run.wait_for("hello")

    @stage.flow
    async def sends(run: AsyncRun) -> None:
        await run.send(other, "hello", [1, 2])

    stage.start(waits, run_id=other)
    stage.start(sends)
    assert stage.status(other) == "completed"
    assert stage.app.handle(other).result(240) == [1, 2]


def test_what_a_child_run_sends_wakes_the_other_too(stage: Stage) -> None:
    other = f"{stage.run_id}-other"

    @stage.flow
    async def waits(run: AsyncRun) -> Any:
        return await run.wait_for("hello")

    @stage.flow
    async def sends(run: AsyncRun) -> None:
        await run.send(other, "hello", [1, 2])

    @stage.flow
    async def parent(run: AsyncRun) -> None:
        await run.child("sends")

    stage.start(waits, run_id=other)
    stage.start(parent)
    assert stage.status(other) == "completed"


def test_what_cannot_be_delivered_does_not_hold_the_sender_up(stage: Stage) -> None:
    @stage.flow
    async def sends(run: AsyncRun) -> str:
        await run.send(f"{run.run_id}-nobody", "hello")
        return "sent"

    assert stage.start(sends).result(240) == "sent"


def test_an_event_just_before_the_run_waits_wakes_it(stage: Stage) -> None:
    """The race: it comes in after the run has looked, and before the commit by which it waits."""

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.step(str, "before")
        return await run.wait_for("n")

    other = stage.app
    stage.open()

    def meanwhile(commit: Commit) -> None:
        if commit.status == "waiting" and not stage.calls:
            stage.calls.append("sent")
            other.send(stage.run_id, "n", "just in time", enqueue=True)

    stage.wire.before = meanwhile
    assert stage.start(flow).status() == "completed"
    assert stage.app.handle(stage.run_id).result(240) == "just in time"
    assert stage.calls == ["sent"]


def test_an_event_just_before_branches_wait_wakes_the_run(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        async def branch(inner: AsyncRun) -> Any:
            return await inner.wait_for("n")

        async def other_branch(inner: AsyncRun) -> Any:
            return await inner.step(str, "done")

        return await run.gather(branch, other_branch)

    other = stage.app
    stage.open()

    def meanwhile(commit: Commit) -> None:
        if commit.status == "waiting" and not stage.calls:
            stage.calls.append("sent")
            other.send(stage.run_id, "n", "just in time", enqueue=True)

    stage.wire.before = meanwhile
    assert stage.start(flow).result(240) == ["just in time", "done"]


def test_a_wait_for_a_result_that_was_too_long_says_what_the_run_waits_for(stage: Stage) -> None:
    def fetch() -> None:
        raise OSError("no route")

    @stage.flow
    async def asks(run: AsyncRun) -> Any:
        return await run.ask("ok?", bool)

    @stage.flow
    async def sleeps(run: AsyncRun) -> Any:
        return await run.sleep(500)

    @stage.flow
    async def retries(run: AsyncRun) -> Any:
        return await run.step(fetch, retry=Retry(attempts=3, initial_delay=50, max_delay=50))

    @stage.flow
    async def parent(run: AsyncRun) -> Any:
        return await run.child("asks")

    question = r"an answer to 'ok\?' \(gate 'ask'\)$"
    for name, waits in {
        "asks": question,
        "sleeps": r"the timer 'sleep#1' at \d{4}-\d\d-\d\dT",
        "retries": r"the next attempt of 'fetch#1' at \d{4}-\d\d-\d\dT",
        "parent": rf"child run '.*/child:asks#1', which waits for {question}",
    }.items():
        handle = stage.start(name, run_id=f"{stage.run_id}-{name}")
        with pytest.raises(NotFinished, match=rf"is still waiting after 0 s; it waits for {waits}"):
            handle.result(0)
