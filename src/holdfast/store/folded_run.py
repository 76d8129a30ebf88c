"""A run in memory, folded from its changes.

A change is what one commit, or one prune, does to a run. Applying all of them in order gives the run. Stores that keep
whole runs in memory use it, and `FoldedTransactionReads` are the reads of their decisions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from holdfast.model.commit import Commit
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    LaneRow,
    MessageRow,
    Row,
    RunRow,
    TimerRow,
)
from holdfast.store.decide import Decision
from holdfast.store.journal_prune import PRUNED, ChooseEntries, entries_between, heads_after, last_of, planned_pruning
from holdfast.store.port import Key, Kind, RunRows, ScanMark, Select


class Change(msgspec.Struct, frozen=True, gc=False):
    """What one commit or prune changes. `run` is the run's row afterwards."""

    run: RunRow
    checkpoints: Sequence[CheckpointRow] = ()
    """New ones, and those that replace one of the same number."""
    lanes: Sequence[LaneRow] = ()
    """A `head` of 0 means that the lane has no checkpoints any more."""
    entries: Sequence[EntryRow] = ()
    """New ones, and those that replace pruned entries."""
    effects: Sequence[EffectRow] = ()
    attachments: Sequence[AttachmentRow] = ()
    gates: Sequence[GateRow] = ()
    items: Sequence[ItemRow] = ()
    messages: Sequence[MessageRow] = ()
    drop_timers: Sequence[str] = ()
    timers: Sequence[TimerRow] = ()
    """Armed after others were dropped."""
    sent: Sequence[int] = ()
    """Outbox messages that were delivered, by number."""
    pruned: Sequence[int] = ()
    """Removed checkpoints, by number; their attachments are removed, too."""


def change_of(made: Decision, commit: Commit) -> Change:
    """The change of a decision."""
    return Change(
        run=made.run,
        checkpoints=(*made.checkpoints, *made.replaced),
        lanes=made.lanes,
        entries=made.entries,
        effects=made.effects,
        attachments=made.attachments,
        gates=made.gates,
        items=(*made.items, *made.taken),
        messages=made.messages,
        drop_timers=made.drop_timers,
        timers=[TimerRow(timer.timer, timer.due_us) for timer in commit.timers],
        sent=commit.sent,
    )


class FoldedRun:
    """A run and all its rows."""

    def __init__(self, change: Change) -> None:
        self.row: RunRow = change.run
        self.checkpoints: dict[int, CheckpointRow] = {}
        self.lanes: dict[str, LaneRow] = {}
        self.entries: list[EntryRow] = []
        self.effects: dict[str, EffectRow] = {}
        self.attachments: dict[tuple[str, str, str], AttachmentRow] = {}
        self.gates: dict[str, GateRow] = {}
        self.timers: dict[str, TimerRow] = {}
        self.items: dict[int, ItemRow] = {}
        self.keys: dict[str, int] = {}
        """The numbers of inbox items by their keys."""
        self.messages: dict[int, MessageRow] = {}
        self.apply(change)

    def apply(self, change: Change) -> None:
        """Apply a change."""
        self.row = change.run
        self.checkpoints.update((row.number, row) for row in change.checkpoints)
        for lane in change.lanes:
            if lane.head:
                self.lanes[lane.lane] = lane
            else:
                self.lanes.pop(lane.lane, None)
        for entry in change.entries:
            if self.entries and entry.position <= self.entries[-1].position:
                self.entries[entries_between(self.entries, entry.position, last_of(entry))] = [entry]
            else:
                self.entries.append(entry)
        self.effects.update((row.key, row) for row in change.effects)
        self.attachments.update(((row.lane, row.checkpoint_id, row.key), row) for row in change.attachments)
        self.gates.update((row.gate, row) for row in change.gates)
        self.items.update((row.number, row) for row in change.items)
        self.keys.update((row.key, row.number) for row in change.items)
        self.messages.update((row.number, row) for row in change.messages)
        for name in change.drop_timers:
            self.timers.pop(name, None)
        self.timers.update((row.timer, row) for row in change.timers)
        for number in change.sent:
            self.messages.pop(number, None)
        for number in change.pruned:
            self._prune(number)

    def _prune(self, number: int) -> None:
        gone = self.checkpoints.pop(number, None)
        if gone is not None:
            for key in [key for key in self.attachments if key[:2] == (gone.lane, gone.checkpoint_id)]:
                del self.attachments[key]

    def without_checkpoints(self, gone: Sequence[CheckpointRow], *, reopen: bool) -> Change:
        """The change that removes these checkpoints and moves the heads of their lanes back."""
        moved = heads_after(self.row, self.rows(CheckpointRow), gone, reopen=reopen)
        numbers = [row.number for row in gone]
        return Change(moved.run, lanes=moved.lanes, pruned=numbers) if moved else Change(self.row, pruned=numbers)

    def without_entries(self, choose: ChooseEntries, now_us: int) -> tuple[Change | None, int]:
        """The change that removes the entries `choose` selects, if any, and their number."""
        ranges = choose(self.row, self.rows(CheckpointRow))
        plan = planned_pruning(self.row, ranges, [row for row in self.entries if row.kind == PRUNED], now_us)
        if plan is None:
            return None, 0
        plan.check(
            sum(len(self.entries[entries_between(self.entries, row.position, last_of(row))]) for row in plan.rows)
        )
        return Change(plan.run, entries=plan.rows), plan.entries

    def minimal_changes(self) -> list[Change]:
        """The changes that recreate this run: the first has lanes and timers, the others have one row each."""
        row = self.row
        changes = [Change(row, lanes=list(self.lanes.values()), timers=list(self.timers.values()))]
        changes += [Change(row, checkpoints=[self.checkpoints[number]]) for number in sorted(self.checkpoints)]
        changes += [Change(row, entries=[entry]) for entry in self.entries]
        changes += [Change(row, effects=[effect]) for effect in self.effects.values()]
        changes += [Change(row, attachments=[attachment]) for attachment in self.attachments.values()]
        changes += [Change(row, gates=[gate]) for gate in self.gates.values()]
        changes += [Change(row, items=[item]) for item in self.items.values()]
        changes += [Change(row, messages=[message]) for message in self.messages.values()]
        return changes

    def rows(self, kind: type[Kind], after: int = 0, keys: Collection[Key] | None = None) -> list[Kind]:
        """The rows of one kind as `StorePort.rows` defines them."""
        found: list[Any] = self._sorted_rows(kind) if keys is None else self._rows_by_key(kind, keys)
        if kind is EntryRow:
            return [row for row in found if row.position > after] if after else list(found)
        if kind is ItemRow:
            found = [row for row in found if not row.taken]
        return [row for row in found if row.number > after] if after else found

    def _sorted_rows(self, kind: type[Row]) -> list[Any]:
        if kind is EntryRow:
            return self.entries
        if kind is AttachmentRow:
            return [row for _, row in sorted(self.attachments.items())]
        if kind is GateRow:
            return sorted(self.gates.values(), key=lambda gate: (gate.opened_us, gate.gate))
        if kind is TimerRow:
            return sorted(self.timers.values(), key=lambda timer: (timer.due_us, timer.timer))
        if kind is EffectRow:
            return sorted(self.effects.values(), key=lambda effect: effect.number)
        numbered: dict[type[Row], dict[int, Any]] = {
            CheckpointRow: self.checkpoints,
            ItemRow: self.items,
            MessageRow: self.messages,
        }
        return [row for _, row in sorted(numbered[kind].items())]

    def _rows_by_key(self, kind: type[Row], keys: Collection[Any]) -> list[Any]:
        if kind is EntryRow:
            found = [self.entry_at(position) for position in sorted(keys)]
            return list(dict.fromkeys(row for row in found if row is not None))
        if kind is EffectRow:
            effects = [self.effects[key] for key in set(keys) if key in self.effects]
            return sorted(effects, key=lambda effect: effect.number)
        if kind is GateRow:
            gates = [self.gates[key] for key in set(keys) if key in self.gates]
            return sorted(gates, key=lambda gate: (gate.opened_us, gate.gate))
        assert kind is AttachmentRow
        wanted = set(keys)
        return [row for key, row in sorted(self.attachments.items()) if key[:2] in wanted]

    def all_rows(self) -> RunRows:
        """All rows of the run."""
        return RunRows(
            run=self.row,
            checkpoints=self.rows(CheckpointRow),
            entries=self.rows(EntryRow),
            effects=self.rows(EffectRow),
            attachments=self.rows(AttachmentRow),
            gates=self.rows(GateRow),
            items=self._sorted_rows(ItemRow),
            timers=self.rows(TimerRow),
            messages=self.rows(MessageRow),
        )

    def entry_at(self, position: int) -> EntryRow | None:
        """The entry at a position or, if it was pruned, the row that replaces it."""
        found = self.entries[entries_between(self.entries, 0, position)][-1:]
        return found[0] if found and last_of(found[0]) >= position else None

    def select(self, select: Select) -> CheckpointRow | None:
        """The newest checkpoint that matches."""
        if select == Select(select.lane):
            head = self.lanes[select.lane].head if select.lane in self.lanes else 0
            return self.checkpoints.get(head if select.lane else self.row.head)
        for number in sorted(self.checkpoints, reverse=True):
            row = self.checkpoints[number]
            if (
                row.lane == select.lane
                and select.checkpoint_id in (None, row.checkpoint_id)
                and select.step in (None, row.step)
                and (select.at is None or row.covers <= select.at)
                and (select.before is None or number < select.before)
            ):
                return row
        return None

    def roots(self, seen: ScanMark) -> list[bytes]:
        """The roots that are newer than `seen`."""
        if seen.rewrites != self.row.rewrites:
            seen = ScanMark()
        roots = [row.root for row in self.checkpoints.values() if row.number > seen.serial]
        return roots + [row.root for row in self.attachments.values() if row.number > seen.attached]

    def all_roots(self) -> list[bytes]:
        """All roots."""
        return self.roots(ScanMark(rewrites=self.row.rewrites))


class FoldedTransactionReads(ABC):
    """The reads of a decision."""

    @abstractmethod
    def source(self, run_id: str) -> RunRow | None: ...

    @abstractmethod
    def new_run(self) -> int: ...

    @abstractmethod
    def _of(self, run: int) -> FoldedRun:
        """The run that is committed to, by its number."""

    def checkpoint(self, run: int, lane: str, checkpoint_id: str) -> CheckpointRow | None:
        return self._of(run).select(Select(lane, checkpoint_id))

    def lane(self, run: int, lane: str) -> LaneRow | None:
        return self._of(run).lanes.get(lane)

    def effect(self, run: int, key: str) -> EffectRow | None:
        return self._of(run).effects.get(key)

    def attachment(self, run: int, lane: str, checkpoint_id: str, key: str) -> AttachmentRow | None:
        return self._of(run).attachments.get((lane, checkpoint_id, key))

    def gate(self, run: int, gate: str) -> GateRow | None:
        return self._of(run).gates.get(gate)

    def timer(self, run: int, timer: str) -> TimerRow | None:
        return self._of(run).timers.get(timer)

    def item(self, run: int, key: str) -> ItemRow | None:
        folded = self._of(run)
        number = folded.keys.get(key)
        return None if number is None else folded.items[number]

    def items(self, run: int, numbers: Sequence[int]) -> list[ItemRow]:
        items = self._of(run).items
        return [items[number] for number in numbers if number in items]
