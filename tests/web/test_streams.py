"""Streams end when the server stops and when their user loses access."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.web.streams import Streams


def test_a_stream_ends_when_the_server_stops_or_its_user_loses_access() -> None:
    async def endless(closed: list[bool]) -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    async def read(streams: Streams, *, is_allowed: bool, stop: bool) -> tuple[list[int], list[bool]]:
        closed: list[bool] = []
        items: list[int] = []

        async def allowed() -> bool:
            return is_allowed

        async for item in streams.guard(endless(closed), allowed):
            items.append(item)
            if stop:
                asyncio.get_running_loop().call_soon(streams.close)
        while not closed:
            await asyncio.sleep(0)
        return items, closed

    assert asyncio.run(read(Streams(600.0), is_allowed=True, stop=True)) == ([1], [True])
    streams = Streams(0.001)
    assert asyncio.run(read(streams, is_allowed=False, stop=False)) == ([1], [True])
    assert len(streams) == 0


def test_a_busy_stream_ends_as_well_when_its_user_loses_access() -> None:
    async def busy() -> AsyncIterator[int]:
        for number in range(5_000):
            yield number
            await asyncio.sleep(0.001)

    async def forbidden() -> bool:
        return False

    async def read() -> int:
        return len([item async for item in Streams(0.01).guard(busy(), forbidden)])

    assert asyncio.run(read()) < 5_000


def test_a_stream_that_ends_or_fails_by_itself_does_so() -> None:
    async def some(fails: bool) -> AsyncIterator[int]:
        yield 1
        if fails:
            raise ValueError("gone")

    async def allowed() -> bool:
        return True

    async def read(fails: bool) -> list[int]:
        return [item async for item in Streams().guard(some(fails), allowed)]

    assert asyncio.run(read(False)) == [1]
    with pytest.raises(ValueError, match="gone"):
        asyncio.run(read(True))
