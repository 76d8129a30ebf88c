"""The turns of the durable loop, as the iterators that `run.loop` returns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, NoReturn

from holdfast.engine import parallel

if TYPE_CHECKING:
    from holdfast.runtime.async_run import AsyncRun
    from holdfast.runtime.run import Run


class Turns(Iterator[int]):
    """The turns of a loop. The run's calls belong to the current turn; after `break`, to the last one."""

    def __init__(self, run: Run, loop: parallel.Loop) -> None:
        self._run = run
        self._loop = loop
        self._begun = False

    def __next__(self) -> int:
        run = self._run
        if self._begun:
            run.drive(parallel.end_turn(run.execution, self._loop))
        self._begun = True
        run.scope = self._loop.scope
        return self._loop.turn


class AsyncTurns(AsyncIterator[int]):
    """The turns of a loop, for `async for`."""

    def __init__(self, run: AsyncRun, key: str | None) -> None:
        self._run = run
        self._key = key
        self._loop: parallel.Loop | None = None

    def __iter__(self) -> NoReturn:
        raise TypeError("run.loop() of an async workflow is for `async for turn in run.loop()`, not for `for`")

    async def __anext__(self) -> int:
        run = self._run
        if self._loop is None:
            self._loop = await run.drive(parallel.begin(run.execution, run.scope, self._key))
        else:
            await run.drive(parallel.end_turn(run.execution, self._loop))
        run.scope = self._loop.scope
        return self._loop.turn
