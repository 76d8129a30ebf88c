"""The verbs of Brainwires and MUR to await: the same as those that block."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import InvalidInput
from holdfast.formats import brainwires, mur
from tests.formats.sample_files import EXECUTION, before_step
from tests.formats.test_examples import verbs_of

TWINS = [
    (brainwires.AsyncDirectory, brainwires.Directory),
    (brainwires.AsyncMemory, brainwires.Memory),
    (mur.AsyncDirectory, mur.Directory),
]
INSTANT = {"default_path", "with_default_path", "place"}
"""These touch no file."""


@pytest.mark.parametrize(("twin", "blocking"), TWINS)
def test_every_verb_has_a_twin_with_the_same_arguments(twin: type, blocking: type) -> None:
    assert verbs_of(twin) == [verb for verb in verbs_of(blocking) if verb not in INSTANT]
    for verb in verbs_of(twin):
        ours, theirs = getattr(twin, verb), getattr(blocking, verb)
        assert inspect.iscoroutinefunction(ours)
        assert inspect.signature(ours) == inspect.signature(theirs)
        assert inspect.getdoc(ours) == inspect.getdoc(theirs)


@pytest.mark.parametrize("make", [brainwires.Directory, lambda at: brainwires.Memory()])
def test_marks_of_many_tasks_at_once_are_each_made_once(tmp_path: Path, make: Any) -> None:
    tasks: brainwires.Directory | brainwires.Memory = make(tmp_path)

    async def mark(number: int) -> bool:
        use = f"use-{number % 5}"
        return await tasks.aio.mark_step_complete("t", use, brainwires.side_effect(use, "w"), result=number % 5)

    async def work() -> None:
        await tasks.aio.save_checkpoint(brainwires.new_checkpoint("t", "a"))
        assert sum(await asyncio.gather(*(mark(number) for number in range(20)))) == 5
        found = await tasks.aio.load_checkpoint("t")
        assert found is not None
        assert found["step_index"] == 5
        assert [await tasks.aio.result("t", f"use-{number}") for number in range(5)] == [0, 1, 2, 3, 4]
        await tasks.aio.delete_checkpoint("t")
        assert await tasks.aio.load_checkpoint("t") is None
        with pytest.raises(InvalidInput):
            await tasks.aio.mark_step_complete("t", "use-1", {})

    asyncio.run(work())


def test_an_execution_of_mur_is_saved_loaded_rolled_back_and_removed(tmp_path: Path) -> None:
    async def work() -> None:
        executions = mur.Directory(tmp_path).aio
        for step in range(3):
            assert await executions.save(before_step(step)) == tmp_path / EXECUTION / f"{step}.json"
        assert (await executions.roll_back(EXECUTION, to=1))["step_index"] == 1
        assert await executions.load_latest(EXECUTION) == await executions.load(EXECUTION, 1)
        assert await executions.steps(EXECUTION) == [0, 1]
        await executions.cleanup(EXECUTION)
        assert await executions.executions() == []
        await executions.close()

    asyncio.run(work())


def test_the_loop_goes_on_while_a_verb_waits_for_the_lock(tmp_path: Path) -> None:
    held, may_end = threading.Event(), threading.Event()
    other = brainwires.Directory(tmp_path)

    def hold() -> None:
        with other._folder.hold():
            held.set()
            may_end.wait()

    async def work() -> bool:
        waiting = asyncio.create_task(
            brainwires.Directory(tmp_path, timeout_s=600).aio.mark_step_complete(
                "t", "use-1", brainwires.side_effect("use-1", "w")
            )
        )
        await asyncio.sleep(0)  # it begins
        await asyncio.sleep(0)
        assert not waiting.done()
        may_end.set()
        return await waiting

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    assert asyncio.run(work())
    holder.join()
