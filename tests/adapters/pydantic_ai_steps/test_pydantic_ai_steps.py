"""The harness' `StepStore` on Holdfast, compared with the harness' own."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai_harness")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    InMemoryStepStore,
    RunRecord,
    StepEvent,
    StepPersistence,
    StepStore,
    ToolEffectRecord,
    continue_run,
)

import holdfast
from holdfast.adapters.pydantic_ai_steps import HoldfastStepStore
from tests.adapters.pydantic_ai.material import Script

_BEGAN = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
_RUNS = ("one", "two")


async def _act(store: Any, draw: random.Random, number: int) -> None:
    """One random write, the same for every store that is given an equal `draw`."""
    run_id, moment = draw.choice(_RUNS), _BEGAN + dt.timedelta(seconds=draw.randrange(9))
    key = draw.choice([None, f"{draw.randrange(6)}:{draw.choice('ab')}", draw.choice("xyz")])
    match draw.randrange(4):
        case 0:
            record = RunRecord(run_id=run_id, conversation_id=draw.choice("cd"), metadata={"n": str(number)})
            record.started_at = moment
            await store.register_run(record)
        case 1:
            event = StepEvent(run_id=run_id, kind="run_started", step_index=number, timestamp=moment)
            event.idempotency_key = key
            await store.append_event(event)
        case 2:
            messages: list[Any] = [ModelRequest([UserPromptPart(f"hi {number}", timestamp=moment)], timestamp=moment)]
            snapshot = ContinuableSnapshot(run_id=run_id, step_index=number, messages=messages, timestamp=moment)
            snapshot.state = draw.choice(["complete", "interrupted"])
            snapshot.idempotency_key = key
            await store.save_snapshot(snapshot)
        case _:
            status: Any = draw.choice(["started", "completed", "failed"])
            effect = ToolEffectRecord(tool_call_id=draw.choice("tuv"), tool_name="pay", run_id=run_id, status=status)
            effect.started_at = moment
            await store.record_tool_effect(effect)


async def _see(store: Any) -> list[Any]:
    """What a store answers to every question."""
    found: list[Any] = [await store.list_runs(), await store.list_runs(conversation_id="c")]
    for run_id in (*_RUNS, "none"):
        found.append(await store.get_run(run_id=run_id))
        found.append(await store.list_events(run_id=run_id))
        found += [await store.get_tool_effect(run_id=run_id, tool_call_id=tool) for tool in "tuv"]
        unresolved = await store.list_unresolved_tool_effects(run_id=run_id)
        found.append(sorted(unresolved, key=lambda effect: effect.tool_call_id))
        for interrupted in (False, True):
            found.append(await store.latest_snapshot(run_id=run_id, include_interrupted=interrupted))
            found.append(await store.list_snapshots(run_id=run_id, include_interrupted=interrupted))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_every_answer_is_that_of_the_store_in_memory(seed: int) -> None:
    async def compare() -> None:
        theirs, ours = InMemoryStepStore(), HoldfastStepStore("memory:")
        assert isinstance(ours, StepStore)
        for number in range(60):
            for store in (theirs, ours):
                await _act(store, random.Random(f"{seed} {number}"), number)
        expected = await _see(theirs)
        assert await _see(ours) == expected
        assert await _see(HoldfastStepStore(ours.store)) == expected

    asyncio.run(compare())


def test_an_agent_continues_from_a_snapshot_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'steps.db'}"
    script = Script([("look", {}, "c1")], "done", "more")

    def make(steps: HoldfastStepStore) -> Agent[None, str]:
        agent = Agent(script.model, name="agent", capabilities=[StepPersistence(store=steps)])

        @agent.tool_plain
        def look() -> int:
            return 7

        return agent

    steps = HoldfastStepStore(url)
    first = asyncio.run(make(steps).run("go"))
    steps.close()

    async def go_on() -> str:
        again = HoldfastStepStore(url)
        (record,) = await again.list_runs()
        assert (await again.list_events(run_id=record.run_id))[-1].kind == "run_completed"
        effect = await again.get_tool_effect(run_id=record.run_id, tool_call_id="c1")
        assert effect is not None
        assert effect.status == "completed"
        history = await continue_run(again, run_id=record.run_id)
        assert len(history) == len(first.all_messages())
        output = (await make(again).run("and now?", message_history=history)).output
        again.close()
        return output

    assert asyncio.run(go_on()) == "more"


def test_a_claimed_agent_run_is_not_continued_by_another_process(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'steps.db'}"
    event = StepEvent(run_id="r", kind="run_started", step_index=0)

    async def compete() -> None:
        one, two = HoldfastStepStore(url), HoldfastStepStore(url)
        async with one.claim("r"):
            await one.append_event(event)
            with pytest.raises(holdfast.errors.RunClaimed):
                await asyncio.create_task(two.append_event(event))
        await two.append_event(event)
        assert len(await one.list_events(run_id="r")) == 2
        one.close()
        two.close()

    asyncio.run(compete())


def test_a_pruned_snapshot_is_passed_over() -> None:
    async def prune() -> None:
        steps = HoldfastStepStore("memory:")
        for number in range(3):
            snapshot = ContinuableSnapshot(run_id="r", step_index=number, messages=[])
            await steps.save_snapshot(snapshot)
        await steps.store.aio.prune("steps of r", holdfast.Keep(last=1))
        assert [found.step_index for found in await steps.list_snapshots(run_id="r")] == [2]
        latest = await steps.latest_snapshot(run_id="r")
        assert latest is not None
        assert latest.step_index == 2

    asyncio.run(prune())
