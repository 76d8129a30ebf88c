"""LangGraph's own suite for checkpointers: all eight capabilities, on every store, and the same suite again blocking.

The suite awaits only. Its tests call the saver they are given, so a saver whose awaiting methods call the blocking ones
makes it the blocking methods' suite.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from holdfast.adapters.langgraph import HoldfastSaver
from tests.adapters.langgraph.conftest import STORES, url_of


class Blocking(HoldfastSaver):
    """A saver whose awaiting methods are its blocking ones."""

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, config: Any, **how: Any) -> AsyncIterator[Any]:
        for found in self.list(config, **how):
            yield found

    async def aput(self, *args: Any) -> Any:
        return self.put(*args)

    async def aput_writes(self, *args: Any, **more: Any) -> None:
        self.put_writes(*args, **more)

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self.prune(thread_ids, strategy=strategy)


@pytest.mark.parametrize("kind", [HoldfastSaver, Blocking])
@pytest.mark.parametrize("store", STORES)
def test_all_capabilities_conform(store: str, kind: type[HoldfastSaver], folder: Path) -> None:
    @checkpointer_test(name=f"{kind.__name__} on {store}")
    async def ours() -> AsyncIterator[HoldfastSaver]:
        async with kind(url_of(store, folder)) as saver:
            yield saver

    report = asyncio.run(validate(ours))
    found = {name: (result.detected, result.passed, result.failures) for name, result in report.results.items()}
    assert found == {capability.value: (True, True, []) for capability in Capability}
    assert len(found) == 8
    assert sum(result.tests_passed for result in report.results.values()) == 81
