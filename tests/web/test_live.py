"""Live updates: one watcher per view, and no change is missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest
from starlette.responses import StreamingResponse

from holdfast.web import live
from holdfast.web.live import Live

WAIT_S = 240.0


class Source:
    """A mark that tests change."""

    def __init__(self, value: str = "1") -> None:
        self.value = value
        self.reads = 0
        self.fails = False

    def __call__(self) -> str:
        self.reads += 1
        if self.fails:
            raise OSError("no store")
        return self.value


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "WATCH_S", 0.001)


async def following(marks: AsyncIterator[str | None]) -> str:
    """The next mark."""
    async with asyncio.timeout(WAIT_S):
        while (found := await anext(marks)) is None:
            pass
    return found


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not true():
            await asyncio.sleep(0.001)


def test_a_change_before_the_connection_is_reported() -> None:
    async def main() -> None:
        views, source = Live(), Source("2")
        async with aclosing(views.marks("inbox", source, "1")) as marks:
            assert await following(marks) == "2"

    asyncio.run(main())


def test_all_readers_of_a_view_share_one_watcher() -> None:
    async def main() -> None:
        views, source = Live(), Source()
        readers = [views.marks("inbox", source, "1") for _ in range(50)]
        waiting = [asyncio.create_task(following(reader)) for reader in readers]
        await until(lambda: views.readers == 50)
        assert views.watched == 1
        tasks = len(asyncio.all_tasks())
        assert tasks < 50 * 2 + 5
        source.value = "2"
        assert await asyncio.gather(*waiting) == ["2"] * 50
        for reader in readers:
            await reader.aclose()
        assert (views.watched, views.readers) == (0, 0)

    asyncio.run(main())


def test_a_reader_that_comes_later_and_knows_less_is_told_at_once() -> None:
    async def main() -> None:
        views, source = Live(), Source("2")
        first = views.marks("inbox", source, "1")
        assert await following(first) == "2"
        second = views.marks("inbox", source, "1")
        assert await following(second) == "2"
        await first.aclose()
        await second.aclose()

    asyncio.run(main())


def test_a_store_that_fails_for_a_while_ends_no_stream() -> None:
    async def main() -> None:
        views, source = Live(), Source()
        source.fails = True
        marks = views.marks("inbox", source, "1")
        waiting = asyncio.create_task(following(marks))
        await until(lambda: source.reads >= 3)
        source.value, source.fails = "2", False
        assert await waiting == "2"
        await marks.aclose()

    asyncio.run(main())


def test_a_quiet_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "KEEP_ALIVE_S", 0.001)

    async def main() -> None:
        views = Live()
        marks = views.marks("inbox", Source(), "1")
        async with asyncio.timeout(WAIT_S):
            assert await anext(marks) is None
        await marks.aclose()

    asyncio.run(main())


def test_a_quiet_stream_repeats_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "KEEP_ALIVE_S", 0.001)

    async def main() -> None:
        source = Source("1 \n\nevent: changed")
        response = Live().response("inbox", source, source.value)
        assert isinstance(response, StreamingResponse)
        async with asyncio.timeout(WAIT_S), aclosing(aiter(response.body_iterator)) as lines:  # type: ignore[type-var]
            assert await anext(lines) == "retry: 1000\n\n"
            assert await anext(lines) == "event: mark\ndata: 1event:changed\n\n"
            source.value = "2"
            found = [await anext(lines)]
            while found[-1] != "event: mark\ndata: 2\n\n":
                found.append(await anext(lines))
            assert found[-2] == "event: changed\ndata: 2\n\n"

    asyncio.run(main())


def test_one_slow_read_does_not_stop_the_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_REST", 1e12)
    monkeypatch.setattr(live, "_REST_MAX_S", 0.001)

    async def main() -> None:
        views, source = Live(), Source()
        async with aclosing(views.marks("inbox", source, "1")) as marks:
            waiting = asyncio.create_task(following(marks))
            await until(lambda: source.reads > 0)
            source.value = "2"
            assert await waiting == "2"

    asyncio.run(main())


def test_closing_ends_all_streams() -> None:
    async def main() -> None:
        views = Live()

        async def read() -> list[str | None]:
            return [mark async for mark in views.marks("inbox", Source(), "1")]

        reading = [asyncio.create_task(read()) for _ in range(3)]
        await until(lambda: views.readers == 3)
        views.close()
        async with asyncio.timeout(WAIT_S):
            assert await asyncio.gather(*reading) == [[], [], []]
        assert views.watched == 0

    asyncio.run(main())


def test_too_many_streams_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "READERS_MAX", 0)
    assert Live().response("inbox", Source(), "1").status_code == 503


def test_many_readers_of_a_view_are_told_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "UPDATES_AT_ONCE", 2)
    monkeypatch.setattr(live, "UPDATES_PER_S", 1e-9)

    async def main() -> None:
        views, source = Live(), Source("2")
        readers = [views.marks("inbox", source, "1") for _ in range(6)]
        tasks = [asyncio.create_task(following(reader)) for reader in readers]
        await until(lambda: sum(task.done() for task in tasks) == 2)
        assert sum(task.done() for task in tasks) == 2
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for reader in readers:
            await reader.aclose()

    asyncio.run(main())
