"""Conversations as journals: concurrent writers, pops, and appends that a run repeats."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.adapters.shared.session_log import SessionLog


def _log(store: holdfast.Store) -> SessionLog:
    return SessionLog(store, "session:1", "sessions")


@pytest.fixture(params=["memory", "sqlite", "dir"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    url = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path}/runs.db", "dir": f"dir:{tmp_path}/runs"}[request.param]
    with holdfast.open(url) as found:
        yield found


def test_items_are_kept_in_order_and_limited_from_the_end(store: holdfast.Store) -> None:
    async def main() -> None:
        log = _log(store)
        assert await log.items() == []
        assert await log.pop() is None
        await log.add([{"n": 1}, {"n": 2}])
        await log.add([])
        await log.add([{"n": 3}])
        assert [item["n"] for item in await _log(store).items()] == [1, 2, 3]
        assert [item["n"] for item in await log.items(2)] == [2, 3]
        assert await log.items(0) == []
        assert len(await log.items(10)) == 3
        assert await _log(store).pop() == {"n": 3}
        assert await log.pop() == {"n": 2}
        await log.clear()
        assert await log.items() == []
        await log.add([{"n": 4}])
        assert await _log(store).items() == [{"n": 4}]

    asyncio.run(main())


def test_no_item_of_concurrent_writers_is_lost_and_none_is_popped_twice(store: holdfast.Store) -> None:
    async def main() -> None:
        logs = [_log(store) for _ in range(4)]
        await asyncio.gather(*[log.add([[number, n]]) for number, log in enumerate(logs) for n in range(5)])
        assert len(await _log(store).items()) == 20
        popped = await asyncio.gather(*[log.pop() for log in logs for _ in range(3)])
        assert len({str(item) for item in popped}) == 12
        assert len(await logs[0].items()) == 8

    asyncio.run(main())


def test_inside_a_run_a_replay_adds_nothing(store: holdfast.Store) -> None:
    app = holdfast.App(store)
    seen: list[Any] = []

    @app.workflow
    async def chat(run: holdfast.AsyncRun) -> list[Any]:
        log = _log(store)
        async for turn in run.loop():
            await log.add([f"question {turn}"])
            seen.append(await log.items())
            await run.ask("Go on?", bool, key="go")
            if turn == 2:
                await log.pop()
                return await log.items()
        return []

    app.start(chat, run_id="r")
    asyncio.run(_log(store).add(["from outside"]))
    app.answer("r", True)
    app.answer("r", True)
    assert app.handle("r").result() == ["question 1", "from outside"]
    assert seen[0] == seen[1] == ["question 1"], "a replay reads what was recorded"
    assert asyncio.run(_log(store).items()) == ["question 1", "from outside"]


def test_an_append_that_is_written_twice_counts_once(store: holdfast.Store) -> None:
    entry = {"kind": "items", "items": ["once"], "key": "r add 1"}
    for _ in range(2):  # by a process that was frozen, and by its successor
        store.append("session:1", [dict(entry)], workflow="sessions")
    assert asyncio.run(_log(store).items()) == ["once"]


def test_a_caller_that_changes_an_item_changes_nothing_else(store: holdfast.Store) -> None:
    async def main() -> None:
        log = _log(store)
        await log.add([{"n": 1}])
        (got,) = await log.items()
        got["n"] = 99
        assert await log.items() == [{"n": 1}]
        assert await log.pop() == {"n": 1}

    asyncio.run(main())


def test_a_session_that_was_deleted_and_begun_again_is_read_from_its_beginning(store: holdfast.Store) -> None:
    async def main() -> None:
        log, other = _log(store), _log(store)
        await log.add(["old 1"])
        await log.add(["old 2"])
        assert len(await log.items()) == 2
        await store.aio.delete("session:1")
        await other.add(["new 1"])
        await other.add(["new 2"])
        await other.add(["new 3"])
        assert await log.items() == ["new 1", "new 2", "new 3"]

    asyncio.run(main())
