"""`holdfast.current_run()`: the run that code belongs to, wherever it is called."""

from __future__ import annotations

import asyncio
from typing import Any

import holdfast
from holdfast import App, AsyncRun, Run, current_run
from tests.harness import Stage


def who() -> str | None:
    run = current_run()
    return None if run is None else run.run_id


async def who_async() -> str | None:
    await asyncio.sleep(0)
    return who()


def test_outside_of_a_run_there_is_none() -> None:
    assert current_run() is None


def test_it_is_the_very_run_the_workflow_got() -> None:
    with App("memory:") as app:
        found: list[Any] = []

        @app.workflow
        def plain(run: Run) -> None:
            found.append(current_run() is run)

        @app.workflow
        async def waiting(run: AsyncRun) -> None:
            found.append(current_run() is run)

        app.start(plain).result()
        app.start(waiting).result()
        assert found == [True, True]
        assert current_run() is None


def test_steps_effects_and_branches_find_their_run(local: Stage) -> None:
    async def branch(run: AsyncRun) -> Any:
        inner = current_run()
        assert inner is not None
        return [await run.step(who), inner.scope.path]

    @local.flow
    async def flow(run: AsyncRun) -> Any:
        called = [
            await run.step(who), await run.step(who_async), await run.effect(who), await run.effect(who_async),
            await run.step(who, timeout=60), await run.step(who_async, timeout=60), *await run.map(_who_of, [1, 2]),
        ]  # fmt: skip
        return called, await run.gather(branch, branch), await run.step(who)

    called, branches, last = local.start(flow).result()
    assert {*called, last} == {local.run_id}
    assert branches == [[local.run_id, "gather#1[0]"], [local.run_id, "gather#1[1]"]]
    assert current_run() is None


def _who_of(_: int) -> str | None:
    return who()


def test_a_child_finds_its_own_and_its_parent_finds_itself_again(local: Stage) -> None:
    @local.flow
    async def inner(run: AsyncRun) -> Any:
        return await run.step(who)

    @local.flow
    async def outer(run: AsyncRun) -> Any:
        child = await run.child("inner", key="c")
        return [child, await run.step(who), who()]

    assert local.start(outer).result() == [f"{local.run_id}/c", local.run_id, local.run_id]


def test_a_parent_of_one_kind_and_a_child_of_the_other_do_not_mix_their_runs() -> None:
    with App("memory:") as app:

        @app.workflow
        async def waiting(run: AsyncRun) -> Any:
            return await run.step(who_async)

        @app.workflow
        def plain(run: Run) -> Any:
            return [run.child(waiting, key="c"), run.step(who_async), who()]

        @app.workflow
        async def top(run: AsyncRun) -> Any:
            return [await run.child(plain, key="d"), who()]

        assert app.start(top, run_id="t").result() == [["t/d/c", "t/d", "t/d"], "t"]


def test_an_awaiting_app_is_closed_by_close_or_with_its_block() -> None:
    async def use() -> list[str]:
        found = []
        async with App("memory:").aio as app:

            @app._app.workflow
            async def waiting(run: AsyncRun) -> str:
                return await run.step(str.upper, "a")

            found.append(await (await app.start(waiting)).result())
        try:
            await app.runs()
        except holdfast.errors.StoreClosed:
            found.append("closed")
        other = App("memory:").aio
        await other.close()
        await other.close()
        return found

    assert asyncio.run(use()) == ["A", "closed"]
