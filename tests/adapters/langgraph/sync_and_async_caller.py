"""One way to call a saver that is either blocking or awaiting."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from holdfast.adapters.langgraph import HoldfastSaver


class Caller:
    """Calls the saver's blocking methods, or their awaiting twins on an event loop of its own."""

    def __init__(self, saver: HoldfastSaver, kind: str) -> None:
        self.saver = saver
        self.kind = kind
        self._loop = asyncio.new_event_loop() if kind == "awaiting" else None

    def __getattr__(self, name: str) -> Any:
        if self._loop is None:
            return getattr(self.saver, name)
        method, loop = getattr(self.saver, f"a{name}"), self._loop
        return lambda *args, **kwargs: loop.run_until_complete(method(*args, **kwargs))

    def list(self, config: RunnableConfig | None, **how: Any) -> list[CheckpointTuple]:
        """All that `list` or `alist` gives."""
        if self._loop is None:
            return list(self.saver.list(config, **how))

        async def gathered() -> list[CheckpointTuple]:
            return [found async for found in self.saver.alist(config, **how)]

        return self._loop.run_until_complete(gathered())

    def run(self, graph: Any, given: Any, config: Any, **how: Any) -> Any:
        """Invoke a graph."""
        if self._loop is None:
            return graph.invoke(given, config, **how)
        return self._loop.run_until_complete(graph.ainvoke(given, config, **how))

    def state(self, graph: Any, config: Any) -> Any:
        """A graph's state."""
        if self._loop is None:
            return graph.get_state(config)
        return self._loop.run_until_complete(graph.aget_state(config))

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()
