"""Tool calls of one model response that frameworks execute as tasks side by side."""

from __future__ import annotations

import asyncio
from typing import Any, Final

_PATIENCE_S: Final = 10.0
"""How long to wait for calls of the response that the framework has not begun; it may never begin some of them."""
_PAUSE_S: Final = 0.005


class Batch:
    """Lets every call of a batch open its gate before one of them stops the run.

    Frameworks cancel or abandon the other calls when one raises. Their gates would then open only after that one is
    answered.
    """

    def __init__(self, expected: int = 0) -> None:
        self.expected = expected
        """How many calls the model's response has."""
        self._settled: dict[asyncio.Task[Any], asyncio.Event] = {}

    def enter(self) -> None:
        """The calling task executes one of the calls."""
        task = asyncio.current_task()
        assert task is not None
        if task not in self._settled:
            settled = self._settled[task] = asyncio.Event()
            task.add_done_callback(lambda _: settled.set())

    async def wait_for_others(self) -> None:
        """Wait until all other calls have ended, or wait for an answer themselves."""
        task = asyncio.current_task()
        assert task is not None
        if task in self._settled:
            self._settled[task].set()
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE_S
        while len(self._settled) < self.expected and loop.time() < until:
            await asyncio.sleep(_PAUSE_S)
        for settled in list(self._settled.values()):
            await settled.wait()
