"""Where an action came from: recorded with every action of a person."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import AsyncRun, RunCancelled
from holdfast.inspect.timeline import timeline
from tests.harness import Stage


def test_answers_events_pauses_and_resumes_record_where_they_came_from(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        await run.ask("ok?", bool)
        await run.wait_for("go")
        await run.wait_for("go")
        return await run.ask("more?", bool)

    stage.start(flow)
    stage.app.answer(stage.run_id, True, by="ana", via="web")
    stage.app.send(stage.run_id, "go", by="ben", via="api")
    stage.app.pause(stage.run_id, by="cho", via="cli")
    stage.app.resume(stage.run_id, by="dan", via="mcp")
    stage.app.send(stage.run_id, "go", by="ben", key="api/x", via="web")
    stage.app.answer(stage.run_id, True, by="ana")
    kinds = ("answered", "received", "paused", "resumed")
    assert [(entry["kind"], entry["by"], entry.get("via")) for entry in stage.journal(*kinds)] == [
        ("answered", "ana", "web"),
        ("received", "ben", "api"),
        ("paused", "cho", "cli"),
        ("resumed", "dan", "mcp"),
        ("received", "ben", None),
        ("answered", "ana", None),
    ]
    rows = timeline(stage.onlooker, stage.run_id).rows
    assert [(row.kind, row.by, row.via) for row in rows if row.by and row.via] == [
        ("ask", "ana", "web"),
        ("wait", "ben", "api"),
        ("paused", "cho", "cli"),
        ("resumed", "dan", "mcp"),
    ]


def test_a_resume_of_code_is_not_recorded(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("ok?", bool)

    local.start(flow)
    local.app.pause(local.run_id)
    local.app.resume(local.run_id)
    assert local.journal("resumed") == []


def test_a_paused_run_that_is_resumed_by_somebody_without_its_code_records_it_once(local: Stage) -> None:
    @local.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("ok?", bool)

    local.start(flow)
    local.app.pause(local.run_id, by="ana", via="web")
    local.app.resume(local.run_id, by="ben", via="web", enqueue=True)
    local.app.resume(local.run_id, by="ben", via="web")
    assert [entry["by"] for entry in local.journal("resumed")] == ["ben"]
    assert local.app.answer(local.run_id, True).result(240) is True


def test_a_cancel_and_a_retry_record_where_they_came_from(stage: Stage) -> None:
    @stage.flow
    async def flow(run: AsyncRun) -> Any:
        return await run.ask("ok?", bool)

    @stage.flow
    async def failing(run: AsyncRun) -> Any:
        return await run.step(int, "x")

    stage.start(flow)
    stage.app.cancel(stage.run_id, by="ana", via="web")
    with pytest.raises(RunCancelled):
        stage.app.handle(stage.run_id).result(240)
    assert {entry.get("via") for entry in stage.journal("cancelling", "cancelled")} == {"web"}
    other = f"{stage.run_id}-failing"
    stage.start(failing, run_id=other)
    stage.app.retry(other, by="ben", via="api")
    (entry,) = stage.journal("rolling_back", run_id=other)
    assert (entry["by"], entry["via"]) == ("ben", "api")
    (row,) = [row for row in timeline(stage.onlooker, other).rows if row.kind == "rollback"]
    assert (row.by, row.via) == ("ben", "api")
