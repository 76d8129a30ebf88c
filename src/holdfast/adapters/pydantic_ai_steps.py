"""The `StepStore` of Pydantic AI's harness on a Holdfast store.

Events, tool effects and the order of snapshots are a journal; each snapshot is a checkpoint that stores only what is
new. The harness does not report when an agent run begins and ends, so the caller claims it: `with store.claim(…)`.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from holdfast.adapters.shared.persister import LEASE_S, Persister
from holdfast.adapters.shared.run_claim import RunClaim, access_for
from holdfast.errors import CheckpointNotFound, RunNotFound
from holdfast.model.views import Checkpoint, Entry
from holdfast.operations import read, write
from holdfast.operations.store import Store

try:
    from pydantic import TypeAdapter
    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from pydantic_ai_harness.step_persistence import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("pydantic", "pydantic_ai", "pydantic_ai_harness"):
        raise
    raise ImportError(
        'holdfast.adapters.pydantic_ai_steps needs pydantic-ai-harness; pip install "holdfast[pydantic-ai-steps]"',
        name=error.name,
    ) from error

__all__ = ["HoldfastStepStore"]

WORKFLOW: Final = "pydantic-ai-steps"
_INDEX: Final = "pydantic-ai-steps"
_FOLDED_MAX: Final = 128
_EVENT: Final = TypeAdapter(StepEvent)
_EFFECT: Final = TypeAdapter(ToolEffectRecord)
_RECORD: Final = TypeAdapter(RunRecord)


class HoldfastStepStore:
    """A store of steps for `StepPersistence`; it takes a store or its URL.

    Example:
        steps = HoldfastStepStore("sqlite:steps.db")
        agent = Agent(model, name="payer", capabilities=[StepPersistence(store=steps)])
    """

    def __init__(self, store: Store | str) -> None:
        self.persister = Persister(store, WORKFLOW)
        self._core = self.persister.store.access.core
        self._folded: OrderedDict[str, _Folded] = OrderedDict()

    @property
    def store(self) -> Store:
        """The store, for `verify`, `prune`, `history` and others."""
        return self.persister.store

    def claim(self, run_id: str, *, lease: float = LEASE_S) -> RunClaim:
        """The exclusive right to continue an agent run, for `with` or `async with`.

        Another process that continues the same agent run gets RunClaimed from its first save.

        Example:
            async with steps.claim("order-17"):
                history = await continue_run(steps, run_id="order-17")
        """
        return self.persister.claim(_id_of(run_id), lease=lease)

    def close(self) -> None:
        """Close the store if this object has opened it."""
        self.persister.close()

    async def register_run(self, record: RunRecord) -> None:
        """Record an agent run; the newest record of an id counts."""
        await self._append(_INDEX, {"kind": "registered", "record": _RECORD.dump_python(record, mode="json")})

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """The record of an agent run; None if there is none."""
        found = (await self._read(_INDEX)).records.get(run_id)
        return None if found is None else _RECORD.validate_python(found)

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """The records of agent runs, oldest first."""
        records = map(_RECORD.validate_python, (await self._read(_INDEX)).records.values())
        found = [
            record
            for record in records
            if parent_run_id in (None, record.parent_run_id) and conversation_id in (None, record.conversation_id)
        ]
        return sorted(found, key=lambda record: record.started_at)

    async def append_event(self, event: StepEvent) -> None:
        """Append an event. One whose idempotency key is known adds nothing."""
        folded = await self._read(_id_of(event.run_id))
        if event.idempotency_key is None or event.idempotency_key not in folded.events_by_key:
            entry = {"kind": "event", "event": _EVENT.dump_python(event, mode="json")}
            await self._append(_id_of(event.run_id), entry)

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        """The events of an agent run, in order."""
        return [_EVENT.validate_python(event) for event in (await self._read(_id_of(run_id))).events]

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Save a snapshot. One whose idempotency key is known, or older than the newest known one, adds nothing."""
        run_id, key = _id_of(snapshot.run_id), snapshot.idempotency_key
        if key is not None and (await self._read(run_id)).has_snapshot(key):
            return
        facts = {name: value for name, value in vars(snapshot).items() if name != "messages"}
        messages = ModelMessagesTypeAdapter.dump_python(snapshot.messages, mode="json")
        state = {"messages": messages, "facts": {**facts, "timestamp": snapshot.timestamp.isoformat()}}
        saved = await self.persister.run_async(self.persister.save(run_id, state, status="waiting"))
        entry = {"kind": "snapshot", "checkpoint": saved.checkpoint_id, "state": snapshot.state, "key": key}
        await self._append(run_id, entry)

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        """The newest snapshot; without `include_interrupted`, the newest that is complete."""
        for found in await self._snapshots(run_id, include_interrupted):
            loaded = await self._load(run_id, found)
            if loaded is not None:
                return loaded
        return None

    async def list_snapshots(self, *, run_id: str, include_interrupted: bool = False) -> list[ContinuableSnapshot]:
        """All snapshots that were not pruned, oldest first."""
        ids = reversed([*await self._snapshots(run_id, include_interrupted)])
        loaded = [await self._load(run_id, found) for found in ids]
        return [snapshot for snapshot in loaded if snapshot is not None]

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Record the status of a tool call; the newest record of an id counts."""
        entry = {"kind": "effect", "effect": _EFFECT.dump_python(record, mode="json")}
        await self._append(_id_of(record.run_id), entry)

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """The record of a tool call; None if there is none."""
        found = (await self._read(_id_of(run_id))).effects.get(tool_call_id)
        return None if found is None else _EFFECT.validate_python(found)

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """The tool calls that have begun and not ended."""
        effects = (await self._read(_id_of(run_id))).effects.values()
        return [_EFFECT.validate_python(effect) for effect in effects if effect["status"] == "started"]

    async def _snapshots(self, run_id: str, include_interrupted: bool) -> Iterator[str]:
        """The ids of checkpoints, newest first."""
        snapshots = (await self._read(_id_of(run_id))).snapshots
        return (id_ for id_, state in reversed(snapshots) if include_interrupted or state == "complete")

    async def _load(self, run_id: str, checkpoint_id: str) -> ContinuableSnapshot | None:
        plan = self.persister.load(_id_of(run_id), checkpoint_id=checkpoint_id)
        try:
            found: Checkpoint[Any] | None = await self.persister.run_async(plan)
        except CheckpointNotFound:  # pruned
            return None
        if found is None:
            return None
        messages = ModelMessagesTypeAdapter.validate_python(found.state["messages"])
        facts = TypeAdapter(ContinuableSnapshot).validate_python({**found.state["facts"], "messages": []})
        return dataclasses.replace(facts, messages=messages)

    async def _append(self, run_id: str, entry: dict[str, Any]) -> None:
        plan = write.append(access_for(self._core, run_id), run_id, [entry], workflow=WORKFLOW)
        await self.persister.run_async(plan)

    async def _read(self, run_id: str) -> _Folded:
        """Read what was appended since the last call."""
        folded = self._folded.setdefault(run_id, _Folded())
        self._folded.move_to_end(run_id)
        if len(self._folded) > _FOLDED_MAX:
            self._folded.popitem(last=False)
        try:
            plan = read.journal(access_for(self._core, run_id), run_id, after=folded.position)
            entries = await self.persister.run_async(plan)
        except RunNotFound:
            self._folded[run_id] = folded = _Folded()
            return folded
        for entry in entries:
            folded.apply(entry)
        return folded


def _id_of(run_id: str) -> str:
    return f"steps of {run_id}"


class _Folded:
    """What the entries up to a position say."""

    def __init__(self) -> None:
        self.position = 0
        self.records: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.events_by_key: set[str] = set()
        self.effects: dict[str, dict[str, Any]] = {}
        self.snapshots: list[tuple[str, str]] = []
        self._keys: set[str] = set()
        self._newest = -1

    def has_snapshot(self, key: str) -> bool:
        """Whether a snapshot of this key was saved, or one whose key has a larger number in front."""
        number = _number_of(key)
        return key in self._keys or (number is not None and number < self._newest)

    def apply(self, entry: Entry) -> None:
        """Apply one entry. A key that is known already was written by two processes at once."""
        if entry.position <= self.position:  # two tasks have read it
            return
        self.position = entry.data.get("through", entry.position) if entry.kind == "pruned" else entry.position
        match entry.kind:
            case "registered":
                self.records[entry.data["record"]["run_id"]] = entry.data["record"]
            case "event":
                self._apply_event(entry.data["event"])
            case "effect":
                effect = entry.data["effect"]
                self.effects[effect["tool_call_id"]] = effect
            case "snapshot":
                self._apply_snapshot(entry.data)

    def _apply_event(self, event: dict[str, Any]) -> None:
        key = event.get("idempotency_key")
        if key is not None and key in self.events_by_key:
            return
        self.events.append(event)
        if key is not None:
            self.events_by_key.add(key)

    def _apply_snapshot(self, data: dict[str, Any]) -> None:
        key = data["key"]
        if key is not None:
            if self.has_snapshot(key):
                return
            self._keys.add(key)
            number = _number_of(key)
            self._newest = self._newest if number is None else max(self._newest, number)
        self.snapshots.append((data["checkpoint"], data["state"]))


def _number_of(key: str) -> int | None:
    """The number in front of the first colon; keys of the harness begin with one that grows."""
    number, colon, _ = key.partition(":")
    return int(number) if colon and number.isascii() and number.isdigit() else None
