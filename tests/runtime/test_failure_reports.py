"""A failure can be seen: in the log, in the error that `result()` raises, and at a worker's end."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest

from holdfast import AsyncRun, EffectFailed, RunFailed, StepFailed
from holdfast.errors import ChildFailed
from tests.harness import Stage

SECRET = "sesame-4711"


def _charge(card: str) -> None:
    raise ValueError("the bank said no")


def _failures(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno == logging.ERROR]


def test_a_failed_run_is_logged_with_its_step_and_the_line_of_the_user(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    @stage.flow
    async def flow(run: AsyncRun, card: str) -> None:
        await run.step(_charge, card)

    with caplog.at_level(logging.INFO, logger="holdfast"):
        stage.start(flow, SECRET)
    (record,) = _failures(caplog)
    line = _charge.__code__.co_firstlineno + 1
    assert record.getMessage() == (
        f"run {stage.run_id!r} of workflow 'flow' failed at '_charge#1': StepFailed: step '_charge#1' failed: "
        f"ValueError: the bank said no ({__file__}:{line} in _charge)"
    )
    facts = vars(record)
    assert (facts["run_id"], facts["workflow"], facts["call"]) == (stage.run_id, "flow", "_charge#1")
    assert "in _charge" in facts["trace"]
    assert SECRET not in caplog.text + facts["trace"]
    assert any("'_charge#1' of run" in one.getMessage() for one in caplog.records if one.levelno == logging.INFO)


def test_a_failure_of_the_workflow_itself_names_its_own_line(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> None:
        nothing: dict[str, str] = {}
        nothing["missing"]

    with caplog.at_level(logging.ERROR, logger="holdfast"):
        stage.start(flow)
    (record,) = _failures(caplog)
    assert "failed: KeyError: 'missing'" in record.getMessage()
    assert f"{__file__}:" in record.getMessage()
    assert vars(record)["call"] == ""


def test_the_error_of_a_failed_run_prints_the_recorded_traceback(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun, card: str) -> None:
        await run.step(_charge, card)

    stage.start(flow, SECRET)
    for app in (stage.app, stage.open()):
        with pytest.raises(RunFailed) as raised:
            app.handle(stage.run_id).result(240)
        printed = "".join(traceback.format_exception(raised.value))
        assert f'File "{__file__}"' in raised.value.trace
        assert "in _charge\n    raise ValueError(" in raised.value.trace
        assert raised.value.trace in printed
        assert raised.value.trace.index("ValueError: the bank") < raised.value.trace.index("StepFailed: step")
        assert "holdfast/runtime" not in raised.value.trace, "the library's frames are left out"


def test_what_a_replay_raises_again_carries_its_traceback(stage: Stage) -> None:
    printed: list[str] = []

    @stage.flow
    async def child(run: AsyncRun) -> None:
        _charge("")

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        seen: list[BaseException] = []
        for attempt in (run.step(_charge, ""), run.effect(_charge, ""), run.child("child")):
            try:
                await attempt
            except (StepFailed, EffectFailed, ChildFailed) as error:
                seen.append(error)
        printed[:] = ["".join(traceback.format_exception(error)) for error in seen]
        await run.wait_for("go")

    stage.start(flow)
    live = list(printed)
    stage.restart().send(stage.run_id, "go")
    for text in (*live, *printed):
        assert text.count("raise ValueError(") == 1, "the traceback is there, once"
    assert len(printed) == len(live) == 3


def test_a_replayed_failure_is_recorded_as_it_was_live(stage: Stage) -> None:
    """The note of a replayed error does not find its way into what is recorded of it."""

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        try:
            await run.step(_charge, "")
        except StepFailed as error:
            await run.wait_for("go")
            raise RuntimeError("on top") from error

    stage.start(flow)
    stage.restart().send(stage.run_id, "go")
    with pytest.raises(RunFailed) as raised:
        stage.app.handle(stage.run_id).result(240)
    assert raised.value.trace.count("raise ValueError(") == 1
    assert raised.value.failure["cause"]["call"] == "_charge#1"


def test_a_worker_counts_what_failed_and_says_so(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    @stage.flow
    async def good(run: AsyncRun) -> None:
        """Nothing."""

    @stage.flow
    async def bad(run: AsyncRun) -> Any:
        raise ValueError("no")

    for number in (1, 2):
        stage.start(good, run_id=f"{stage.run_id}-good-{number}", enqueue=True)
        stage.start(bad, run_id=f"{stage.run_id}-bad-{number}", enqueue=True)
    worker = stage.app.worker(workflows=["good", "bad"])
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        worker.run(until_idle=True)
    assert worker.failed == 2
    assert {vars(record)["run_id"] for record in _failures(caplog)} == {f"{stage.run_id}-bad-{n}" for n in (1, 2)}
    assert "2 of the runs that this worker executed failed" in caplog.messages


def test_the_logged_line_is_the_users_when_a_library_raised_with_a_cause_of_its_own(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    source = (
        "def ask():\n    try:\n        int('x')\n    except ValueError as error:\n        raise OSError from error\n"
    )
    client: dict[str, Any] = {}
    exec(compile(source, "/somewhere/site-packages/client.py", "exec"), client)

    def pay() -> None:
        client["ask"]()

    @stage.flow
    async def flow(run: AsyncRun) -> None:
        await run.step(pay)

    with caplog.at_level(logging.ERROR, logger="holdfast"):
        stage.start(flow)
    (record,) = _failures(caplog)
    assert vars(record)["where"] == f"{__file__}:{pay.__code__.co_firstlineno + 1} in pay"
