"""Live updates: a mark for each view, read by one watcher per view, and sent to all its readers.

A mark changes when what the view shows changes. Only the mark is sent; the browser then fetches the page again. The
mark that a page was rendered with is passed on connect, so a change between both is not missed. A silent stream repeats
its mark, and the browser compares it with that of the page: an update that was lost is made up for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response, StreamingResponse

Mark = Callable[[], str]
"""Reads the present mark of a view. It is called in a thread."""

WATCH_S: Final = 0.25
"""How often a mark is read. A mark that takes long to read is read less often: see `_REST`."""
_REST: Final = 10
"""After a read of one millisecond the watcher pauses for at least this many milliseconds."""
_REST_MAX_S: Final = 5.0
"""The longest pause: one slow read must not stop the updates for minutes."""
KEEP_ALIVE_S: Final = 15.0
READERS_MAX: Final = 1_000
UPDATES_PER_S: Final = 25
UPDATES_AT_ONCE: Final = 10
"""How many readers, of all views, are told of a change in a second, and how many of them at once. Each fetches its page
again: a change of a view with hundreds of readers must not delay the answers of others. Changes in between are told as
one."""

_log = logging.getLogger("holdfast.web")


class _View:
    """A view that is watched while it has readers."""

    def __init__(self, mark: Mark, value: str) -> None:
        self.mark = mark
        self.value = value
        self.readers = 0
        self.changed = asyncio.Event()
        """Set by the next change; then the view gets another one."""
        self.task = asyncio.create_task(self._watch())

    def wake(self) -> None:
        """Let all readers compare the mark with theirs."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def _watch(self) -> None:
        """Read the mark again and again. A read that fails is repeated: the store may be back soon."""
        while True:
            began = time.monotonic()
            try:
                value = await run_in_threadpool(self.mark)
            except Exception as error:
                _log.warning("a live view could not be read: %s", type(error).__name__)
                value = self.value
            if value != self.value:
                self.value = value
                self.wake()
            await asyncio.sleep(min(max(WATCH_S, _REST * (time.monotonic() - began)), _REST_MAX_S))


class Live:
    """The views that are watched now."""

    def __init__(self) -> None:
        self._views: dict[tuple[asyncio.AbstractEventLoop, str], _View] = {}
        self._is_closed = False
        self._told_until = float("-inf")

    @property
    def watched(self) -> int:
        """How many views are watched."""
        return len(self._views)

    @property
    def readers(self) -> int:
        """How many streams are open."""
        return sum(view.readers for view in self._views.values())

    def close(self) -> None:
        """End all streams; to be called in the event loop."""
        self._is_closed = True
        for view in self._views.values():
            view.wake()

    def response(self, key: str, mark: Mark, known: str) -> Response:
        """A stream of server-sent events: `changed` for each change since `known`, and `mark` in silence."""
        if self.readers >= READERS_MAX:
            return PlainTextResponse("too many open pages; this page is not updated", 503, {"Retry-After": "30"})

        async def lines() -> AsyncIterator[str]:
            yield "retry: 1000\n\n"
            latest = "".join(known.split())  # sent by the browser: it must not begin another line
            async for value in self.marks(key, mark, known):
                event, latest = ("mark", latest) if value is None else ("changed", value)
                yield f"event: {event}\ndata: {latest}\n\n"

        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)

    async def _take_turn(self) -> None:
        """Wait until another reader may be told of a change."""
        now, each_s = time.monotonic(), 1 / UPDATES_PER_S
        self._told_until = max(self._told_until, now - UPDATES_AT_ONCE * each_s) + each_s
        if self._told_until > now:
            await asyncio.sleep(self._told_until - now)

    async def marks(self, key: str, mark: Mark, known: str) -> AsyncGenerator[str | None, None]:
        """Yield each mark that differs from the one before, and None if nothing happened for a while."""
        place = (asyncio.get_running_loop(), key)
        view = self._views.get(place)
        if view is None:
            view = self._views[place] = _View(mark, known)
        view.readers += 1
        try:
            while not self._is_closed:
                changed = view.changed
                if view.value != known:
                    await self._take_turn()
                    if view.value != known:  # else it has changed back
                        known = view.value
                        yield known
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield None
        finally:
            view.readers -= 1
            if view.readers == 0 and self._views.get(place) is view:
                del self._views[place]
                view.task.cancel()
