"""Open event streams: they end when the server stops, and when their user loses access."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

REVIEW_S: Final = 10.0
"""How often the access of an open stream is checked again."""


class Streams:
    """The streams that are open now."""

    def __init__(self, review_s: float = REVIEW_S) -> None:
        self._review_s = review_s
        self._ends: set[asyncio.Event] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._ends)

    def close(self) -> None:
        """End all streams; to be called in the event loop."""
        self._is_closed = True
        for end in self._ends:
            end.set()

    async def guard(self, items: AsyncIterable[T], is_allowed: Callable[[], Awaitable[bool]]) -> AsyncIterator[T]:
        """Yield what a stream yields, until it has to end. The client then connects again, or not."""
        source = aiter(items)
        end = asyncio.Event()
        self._ends.add(end)
        ended = asyncio.ensure_future(end.wait())
        following: asyncio.Future[T] | None = None
        clock = asyncio.get_running_loop().time
        review = clock() + self._review_s
        try:
            while not self._is_closed:
                if following is None:
                    following = asyncio.ensure_future(_next(source))
                waited: set[asyncio.Future[Any]] = {following, ended}
                await asyncio.wait(waited, timeout=max(0.0, review - clock()), return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    return
                if clock() >= review:  # also while items arrive: a busy stream is never silent
                    if not await is_allowed():
                        return
                    review = clock() + self._review_s
                if not following.done():
                    continue
                try:
                    item = following.result()
                except StopAsyncIteration:
                    return
                following = None
                yield item
        finally:
            self._ends.discard(end)
            ended.cancel()
            if following is not None and following.cancel():
                pass  # the source ends by that
            elif isinstance(source, AsyncGenerator):
                await source.aclose()


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)
