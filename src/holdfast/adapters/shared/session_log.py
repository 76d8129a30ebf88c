"""A conversation as a journal: items are appended, so those of concurrent writers are all kept.

Each entry is durable by itself. Inside a run, reads are recorded, and an append that is repeated after a crash adds
nothing: it carries a key that the log knows already.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.adapters.shared.calls import current, next_key, record_call
from holdfast.drivers import Plan
from holdfast.errors import RunClaimed, RunNotFound
from holdfast.ids import check_id
from holdfast.model.rows import RunRow
from holdfast.model.views import Entry
from holdfast.operations import claims, read, write
from holdfast.operations.aio import AsyncClaim
from holdfast.operations.context import Access
from holdfast.operations.store import Store

_LEASE_S: Final = 30.0
_RETRY_S: Final = 0.02


class SessionLog:
    """The items of one session, in a run of its own."""

    def __init__(self, store: Store, run_id: str, workflow: str) -> None:
        self.run_id = check_id("run_id", run_id)
        self._core = store.access.core
        self._workflow = workflow
        self._folded = _Folded()

    async def items(self, limit: int | None = None) -> list[Any]:
        """The newest `limit` items, or all, oldest first. Inside a run the answer is recorded."""
        return list(await self._recorded("read", lambda _: self._items(limit)))

    async def add(self, items: Sequence[Any]) -> None:
        """Append items, all or none."""
        if items:
            await self._recorded("add", lambda key: self._append({"kind": "items", "items": list(items)}, key))

    async def pop(self) -> Any | None:
        """Remove the newest item and return it; None if there is none. Two callers never get the same one."""
        return await self._recorded("pop", self._pop)

    async def clear(self) -> None:
        """Remove all items. They stay in the journal until it is pruned."""
        await self._recorded("clear", lambda key: self._append({"kind": "cleared"}, key))

    async def _recorded(self, verb: str, act: Callable[[str], Any]) -> Any:
        run = current("a session of Holdfast")
        if run is None:
            return await act("")
        name = f"session {verb} {self.run_id}"
        step = next_key(run, name)
        place = f"{run.run_id} {run.scope.path} {step}"  # in another turn or branch the same step is another call
        return await record_call(run, step, lambda: act(place), name=name)

    async def _items(self, limit: int | None) -> list[Any]:
        await self._read()
        kept = copy.deepcopy(self._folded.items)  # callers may change what they get
        return kept if limit is None else kept[max(0, len(kept) - max(0, limit)) :]

    async def _append(self, entry: dict[str, Any], key: str) -> None:
        access = Access(self._core)
        if key:
            entry["key"] = key
            await self._read()
            if key in self._folded.keys:
                return
        while True:
            try:
                await self._core.awaiting.run(write.append(access, self.run_id, [entry], workflow=self._workflow))
                return
            except RunClaimed:  # another process pops an item
                await asyncio.sleep(_RETRY_S)

    async def _pop(self, key: str) -> Any | None:
        owner = f"session {self._core.ids.token(8).hex()}"
        while True:
            taking = claims.take_claim(Access(self._core), AsyncClaim, self.run_id, owner, _LEASE_S)
            try:
                claim = await self._core.awaiting.run(taking)
            except RunNotFound:
                return None
            if claim is not None:
                break
            await asyncio.sleep(_RETRY_S)
        try:
            await self._read()
            if key and key in self._folded.popped:
                return self._folded.popped[key]
            if not self._folded.items:
                return None
            last = copy.deepcopy(self._folded.items[-1])
            await claim.append([{"kind": "popped", "key": key}])
            return last
        finally:
            await claim.release()

    async def _read(self) -> None:
        """Read what was appended since the last call."""
        try:
            incarnation, entries = await self._core.awaiting.run(self._entries())
        except RunNotFound:
            self._folded = _Folded()
            return
        if incarnation != self._folded.incarnation:
            self._folded = _Folded(incarnation)
        for entry in entries:
            self._folded.apply(entry.position, entry.kind, entry.data)

    def _entries(self) -> Plan[tuple[bytes, list[Entry]]]:
        """The entries since the last read; all of them if the session was deleted and begun again."""
        row: RunRow | None = yield lambda: self._core.port.run(self.run_id)
        incarnation = row.incarnation if row is not None else b""
        after = self._folded.position if incarnation == self._folded.incarnation else 0
        return incarnation, (yield from read.journal(Access(self._core), self.run_id, after=after))


class _Folded:
    """The items after all entries up to a position."""

    def __init__(self, incarnation: bytes = b"") -> None:
        self.incarnation = incarnation
        self.position = 0
        self.items: list[Any] = []
        self.keys: set[str] = set()
        self.popped: dict[str, Any] = {}

    def apply(self, position: int, kind: str, data: dict[str, Any]) -> None:
        """Apply one entry. A key that is known already was written twice: by a frozen process, and by its successor."""
        if position <= self.position:  # two tasks have read it
            return
        self.position = data.get("through", position) if kind == "pruned" else position
        key = data.get("key")
        if key and key in self.keys:
            return
        match kind:
            case "items":
                self.items += data["items"]
            case "popped":
                last = self.items.pop()
                if key:
                    self.popped[key] = last
            case "cleared":
                self.items.clear()
        if key:
            self.keys.add(key)
