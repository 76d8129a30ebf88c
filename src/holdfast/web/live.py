"""Live updates: a mark for each view, read by one watcher per view, and sent to all its readers.

A mark changes when what the view shows changes. Only the mark is sent; the browser then fetches the page again. The
mark that a page was rendered with is passed on connect, so a change between both is not missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

Mark = Callable[[], str]
"""Reads the present mark of a view. It is called in a thread."""

WATCH_S: Final = 0.25
KEEP_ALIVE_S: Final = 15.0


class _View:
    """A view that is watched while it has readers."""

    def __init__(self, mark: Mark) -> None:
        self.mark = mark
        self.value = ""
        self.readers = 0
        self.changed = asyncio.Condition()
        self.task: asyncio.Task[None] | None = None


class Live:
    """The views that are watched now."""

    def __init__(self) -> None:
        self._views: dict[str, _View] = {}

    @property
    def watched(self) -> int:
        """How many views are watched."""
        return len(self._views)

    def response(self, key: str, mark: Mark, known: str) -> Response:
        """A stream of server-sent events: `changed` for each change of the mark, beginning with `known`."""

        async def lines() -> AsyncIterator[str]:
            yield "retry: 1000\n\n"
            async for value in self.marks(key, mark, known):
                yield ": \n\n" if value is None else f"event: changed\ndata: {value}\n\n"

        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)

    async def marks(self, key: str, mark: Mark, known: str) -> AsyncIterator[str | None]:
        """Yield each mark that differs from `known`, and None if nothing happened for a while."""
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = _View(mark)
            view.value = known
            view.task = asyncio.create_task(self._watch(view))
        view.readers += 1
        try:
            while True:
                async with view.changed:
                    try:
                        await asyncio.wait_for(view.changed.wait_for(lambda: view.value != known), timeout=KEEP_ALIVE_S)
                    except TimeoutError:
                        yield None
                        continue
                known = view.value
                yield known
        finally:
            view.readers -= 1
            if view.readers == 0:
                self._views.pop(key, None)
                if view.task is not None:
                    view.task.cancel()

    async def _watch(self, view: _View) -> None:
        """Read the mark again and again. A read that fails is repeated: the store may be back soon."""
        while True:
            try:
                value = await run_in_threadpool(view.mark)
            except Exception:
                value = view.value
            if value != view.value:
                async with view.changed:
                    view.value = value
                    view.changed.notify_all()
            await asyncio.sleep(WATCH_S)
