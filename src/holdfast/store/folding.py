"""A run as its changes make it: for stores that keep all of a run in memory, whatever they keep of it elsewhere.

A change is what one commit, or one prune, does to a run. Folding all of them gives the run, with the reads a decision
may ask for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

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
    RunRow,
    TimerRow,
)
from holdfast.store.decide import Decision
from holdfast.store.heads import heads_after
from holdfast.store.port import RunRows, Seen, Select
from holdfast.store.pruning import PRUNED, ChooseEntries, entries_between, last_of, planned_pruning


class Change(msgspec.Struct, frozen=True, gc=False):
    """What happens to a run at one moment. `run` is its row afterwards."""

    run: RunRow
    checkpoints: Sequence[CheckpointRow] = ()
    """New ones, and such that replace one of the same number."""
    lanes: Sequence[LaneRow] = ()
    """One whose `head` is 0 says that nothing remains on its lane."""
    entries: Sequence[EntryRow] = ()
    """New ones, and such that take the place of entries that were pruned."""
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
    """Checkpoints that are gone, by number, with their attachments."""


def change_of(made: Decision, commit: Commit) -> Change:
    """What a decision does."""
    return Change(
        made.run,
        (*made.checkpoints, *made.replaced),
        made.lanes,
        made.entries,
        made.effects,
        made.attachments,
        made.gates,
        (*made.items, *made.taken),
        made.messages,
        made.drop_timers,
        [TimerRow(timer.timer, timer.due_us) for timer in commit.timers],
        commit.sent,
    )


class FoldedRun:
    """A run and everything that is its own."""

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
        """Do what a change says."""
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
        """The change that removes these checkpoints. Lanes that lose their newest go back to what remains."""
        rows = [self.checkpoints[number] for number in sorted(self.checkpoints)]
        moved = heads_after(self.row, rows, gone, reopen=reopen)
        numbers = [row.number for row in gone]
        return Change(moved.run, lanes=moved.lanes, pruned=numbers) if moved else Change(self.row, pruned=numbers)

    def without_entries(self, choose: ChooseEntries, now_us: int) -> tuple[Change | None, int]:
        """The change that removes the entries `choose` picks, if there are any, and how many they are."""
        ranges = choose(self.row, [self.checkpoints[number] for number in sorted(self.checkpoints)])
        plan = planned_pruning(self.row, ranges, [row for row in self.entries if row.kind == PRUNED], now_us)
        if plan is None:
            return None, 0
        plan.check(
            sum(len(self.entries[entries_between(self.entries, row.position, last_of(row))]) for row in plan.rows)
        )
        return Change(plan.run, entries=plan.rows), plan.entries

    def kept(self) -> list[Change]:
        """The fewest changes that make this run: first all that is short, then each checkpoint, entry, … by itself."""
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

    def all_rows(self) -> RunRows:
        """All rows of the run."""
        return RunRows(
            self.row,
            [self.checkpoints[number] for number in sorted(self.checkpoints)],
            list(self.entries),
            sorted(self.effects.values(), key=lambda effect: effect.number),
            [attachment for _, attachment in sorted(self.attachments.items())],
            sorted(self.gates.values(), key=lambda gate: (gate.opened_us, gate.gate)),
            [self.items[number] for number in sorted(self.items)],
            sorted(self.timers.values(), key=lambda timer: (timer.due_us, timer.timer)),
            [self.messages[number] for number in sorted(self.messages)],
        )

    def entry_at(self, position: int) -> EntryRow | None:
        """The entry that stands at a position or, if it was pruned, for it."""
        found = self.entries[entries_between(self.entries, 0, position)][-1:]
        return found[0] if found else None

    def select(self, select: Select) -> CheckpointRow | None:
        """The newest checkpoint that has what is asked for."""
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

    def roots(self, seen: Seen) -> list[bytes]:
        """The roots that are not among what was seen."""
        if seen.rewrites != self.row.rewrites:
            seen = Seen()
        roots = [row.root for row in self.checkpoints.values() if row.number > seen.serial]
        return roots + [row.root for row in self.attachments.values() if row.number > seen.attached]

    def all_roots(self) -> list[bytes]:
        """All roots there are."""
        return self.roots(Seen(rewrites=self.row.rewrites))


class FoldedLook(ABC):
    """Reads inside a commit."""

    @abstractmethod
    def source(self, run_id: str) -> RunRow | None: ...

    @abstractmethod
    def new_run(self) -> int: ...

    @abstractmethod
    def _of(self, run: int) -> FoldedRun:
        """The run that a commit is about, by its number."""

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
