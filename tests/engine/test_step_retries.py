"""Steps that fail: tried again by policy, timed out, and the same error live and on replay."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from holdfast import AsyncRun, InvalidInput, Retry, RunFailed, StepFailed
from tests.harness import Stage

SOON = Retry(attempts=5, initial_delay=0.001)


def failing(stage: Stage, times: int, error: Exception) -> Any:
    """A function that raises so many times and then gives the number of its calls."""

    def unsteady() -> int:
        stage.calls.append("call")
        if len(stage.calls) <= times:
            raise error
        return len(stage.calls)

    return unsteady


def test_a_step_is_tried_again_and_each_failed_attempt_is_recorded(stage: Stage) -> None:
    fn = failing(stage, 2, ConnectionError("away"))

    @stage.flow
    async def flow(run: AsyncRun) -> int:
        return await run.step(fn, retry=Retry(attempts=5, initial_delay=100, backoff=3, max_delay=1000, jitter=0.5))

    stage.start(flow)
    for longest in (150, 450):
        assert stage.status() == "waiting"
        stage.clock.advance(longest + 1)
        stage.app.resume(stage.run_id)
    assert stage.app.handle(stage.run_id).result(240) == 3
    attempts = stage.journal("attempt")
    assert [entry["number"] for entry in attempts] == [1, 2]
    assert [entry["error"]["message"] for entry in attempts] == ["away", "away"]
    assert stage.journal("step")[0]["attempts"] == 3
    at = [entry.created_at.timestamp() for entry in stage.onlooker.journal(stage.run_id) if entry.kind == "attempt"]
    waits = [entry["due_us"] / 1e6 - when for entry, when in zip(attempts, at, strict=True)]
    slow = 20  # seconds that the machine may take between deciding and writing
    assert 50 - slow < waits[0] < 150
    assert 150 - slow < waits[1] < 450


def test_attempts_go_on_counting_after_a_crash(stage: Stage) -> None:
    def unsteady() -> None:
        stage.calls.append("call")
        if len(stage.calls) == 2:
            stage.die()
        raise ConnectionError(f"call {len(stage.calls)}")

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        try:
            return await run.step(unsteady, retry=Retry(attempts=3, initial_delay=0.001))
        except StepFailed as error:
            return [error.attempts, str(error)]

    stage.start_and_die(flow)
    # the second attempt was under way when the process died, so it is made again
    assert stage.resume().result(240) == [
        3,
        "step 'unsteady#1' failed after 3 attempts: ConnectionError: call 4",
    ]


def test_a_long_wait_gives_the_run_back_until_its_time_has_come(stage: Stage) -> None:
    fn = failing(stage, 1, ConnectionError("away"))

    @stage.flow
    async def flow(run: AsyncRun) -> int:
        return await run.step(fn, retry=Retry(attempts=2, initial_delay=600, max_delay=600, jitter=0))

    handle = stage.start(flow)
    assert handle.status() == "waiting"
    assert handle.info().owner is None
    stage.restart()
    assert stage.app.resume(stage.run_id).status() == "waiting"
    assert len(stage.calls) == 1
    stage.clock.advance(601)
    assert stage.app.resume(stage.run_id).result(240) == 2


def test_only_errors_that_may_pass_are_tried_again(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> list[int]:
        found = []
        for name, retry in (
            ("on", Retry(attempts=3, initial_delay=0, on=(ConnectionError,))),
            ("other", Retry(attempts=3, initial_delay=0, on=(KeyError,))),
            ("never", Retry(attempts=3, initial_delay=0, never=(OSError,))),
            ("number", 1),
        ):
            try:
                await run.step(raises, name=name, retry=retry)
            except StepFailed as error:
                found.append(error.attempts)
        return found

    def raises() -> None:
        raise ConnectionError

    assert local.start(flow).result(240) == [3, 1, 1, 1]


def test_a_workflow_has_a_policy_for_steps_that_have_none(local: Stage) -> None:
    fn = failing(local, 2, ConnectionError("away"))

    async def flow(run: AsyncRun) -> int:
        return await run.step(fn)

    local.flow(flow, retry=SOON)
    assert local.start(flow).result(240) == 3


@pytest.mark.parametrize("jitter", [0.0, 0.2, 1.0])
def test_waits_stay_within_the_jitter(jitter: float) -> None:
    retry = Retry(initial_delay=2, backoff=3, max_delay=10, jitter=jitter)
    for failed, middle in ((1, 2), (2, 6), (3, 10), (500, 10)):
        low, high = retry.wait_us(failed, b"\0\0\0\0"), retry.wait_us(failed, b"\xff\xff\xff\xff")
        assert low == pytest.approx(middle * (1 - jitter) * 1e6, abs=2)
        assert high == pytest.approx(middle * (1 + jitter) * 1e6, abs=2 * middle)


def test_a_policy_that_makes_no_sense_is_refused() -> None:
    wrong: list[dict[str, Any]] = [{"attempts": 0}, {"initial_delay": -1}, {"backoff": 0.5}, {"jitter": 2}]
    for options in wrong:
        with pytest.raises(InvalidInput):
            Retry(**options)


def test_a_step_that_takes_too_long_fails_and_its_late_result_is_dropped(stage: Stage) -> None:
    go, over = threading.Event(), threading.Event()

    def slow() -> str:
        go.wait(5)
        over.set()
        return "late"

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        try:
            return await run.step(slow, timeout=0.05)
        except StepFailed as error:
            go.set()
            over.wait(5)
            return [error.error_type, error.error_message, await run.step(len, "ab")]

    expected = ["TimeoutError", "slow took longer than 0.05 s", 2]
    assert stage.start(flow).result(240) == expected
    assert len(stage.journal("step")) == 2
    assert "late" not in str(stage.journal())


def test_a_step_in_time_is_not_disturbed_by_its_timeout(stage: Stage) -> None:
    async def kind() -> str:
        return "in time"

    def raises() -> None:
        raise KeyError("mine")

    @stage.flow
    async def flow(run: AsyncRun) -> list[Any]:
        found: list[Any] = [await run.step(kind, timeout=5), await run.step(len, "abc", timeout=5)]
        with pytest.raises(StepFailed, match="KeyError"):
            await run.step(raises, timeout=5)
        return found

    assert stage.start(flow).result(240) == ["in time", 3]


def test_a_timeout_is_an_attempt(local: Stage) -> None:
    def slow_at_first() -> str:
        local.calls.append("call")
        if len(local.calls) == 1:
            time.sleep(0.1)
        return "quick"

    @local.flow
    async def flow(run: AsyncRun) -> str:
        return await run.step(slow_at_first, timeout=0.05, retry=SOON)

    assert local.start(flow).result(240) == "quick"
    assert local.journal("attempt")[0]["error"]["type"] == "TimeoutError"


def _raise_with_causes() -> None:
    try:
        try:
            raise KeyError("deep")
        except KeyError as error:
            raise ValueError("middle") from error
    except ValueError:
        raise RuntimeError("top")  # noqa: B904 - the context counts, too


def test_a_failed_step_raises_the_same_live_and_on_replay(stage: Stage) -> None:
    seen: list[StepFailed] = []

    @stage.flow
    async def flow(run: AsyncRun) -> str:
        try:
            await run.step(_raise_with_causes, retry=Retry(attempts=2, initial_delay=0))
        except StepFailed as error:
            seen.append(error)
        return str(await run.ask("more?", str))

    stage.start(flow)
    stage.restart()
    assert stage.app.answer(stage.run_id, "ok").result(240) == "ok"
    live, replayed = seen
    for error in seen:
        assert str(error) == "step '_raise_with_causes#1' failed after 2 attempts: RuntimeError: top"
        assert (error.error_type, error.error_message, error.attempts) == ("RuntimeError", "top", 2)
        assert [cause["type"] for cause in error.causes] == ["ValueError", "KeyError"]
        assert "_raise_with_causes" in error.trace
    assert live.failure == replayed.failure
    assert isinstance(live.__cause__, RuntimeError)
    assert replayed.__cause__ is None


def test_a_step_that_fails_for_good_fails_the_run(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.step(_raise_with_causes)

    handle = stage.start(flow)
    assert handle.status() == "failed"
    with pytest.raises(RunFailed) as caught:
        handle.result(240)
    failure = caught.value.failure
    assert failure["type"] == "StepFailed"
    assert failure["cause"]["type"] == "RuntimeError"
    assert failure["cause"]["cause"]["cause"]["type"] == "KeyError"


def test_a_result_that_cannot_be_stored_fails_the_step_at_once(stage: Stage) -> None:
    def unstorable() -> object:
        stage.calls.append("call")
        return {"a": [float("nan")]}

    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        try:
            return await run.step(unstorable, retry=SOON)
        except StepFailed as error:
            await run.ask("more?", bool)
            return [error.error_type, error.error_message]

    stage.start(flow)
    stage.restart()
    kind, message = stage.app.answer(stage.run_id, True).result(240)
    assert kind == "Unstorable"
    assert "a" in message
    assert stage.calls == ["call"]


def test_arguments_that_cannot_be_stored_may_go_into_a_step(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> bool:
        made = await run.step(callable, lambda: None)
        await run.ask("more?", bool)
        return made

    stage.start(flow)
    stage.restart()
    assert stage.app.answer(stage.run_id, True).result(240) is True
