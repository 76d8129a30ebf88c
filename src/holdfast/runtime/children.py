"""Child runs in the rollback and fork of their parent: ledgers, stops, lookup in the family.

After `stop_child` neither the child nor a run inside it can act any more, in any process.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from holdfast.drivers import Plan
from holdfast.engine.commands import EntryData
from holdfast.engine.journal_cut import TakenChild
from holdfast.engine.record import record_of
from holdfast.engine.rollback import LedgerLine, MarkChild
from holdfast.errors import Conflict, RunClaimed
from holdfast.ids import full_name
from holdfast.limits import NUMBER_MAX
from holdfast.model.commit import Commit, Committed, Guard, NewEffect, NewEntry, NewRun, Outcome, Reason
from holdfast.model.rows import CANCELLED, TERMINAL, EntryRow, RunRow, TimerRow
from holdfast.operations.claims import take_or_revoke_dead
from holdfast.operations.context import StoreContext, refusal
from holdfast.operations.views import encode_body
from holdfast.runtime.replay_input import entry_data, first_entry
from holdfast.runtime.run_history import RunHistory, ledger_line, read_history
from holdfast.runtime.start import is_held
from holdfast.state.values import unpack
from holdfast.store.checksum import verify_run
from holdfast.store.port import RunQuery

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore

Path = tuple[tuple[int, int], ...]
"""After which position of each run above it, from the outermost, a child was started."""


class Descendant(msgspec.Struct, frozen=True):
    """A child run that is taken back, or one inside it."""

    run_id: str
    run: RunRow | None
    """None: it has ended and was deleted, so what it did is not known."""
    path: Path
    lines: list[LedgerLine]
    is_detached: bool
    """It, or a run that it is inside of, is detached."""


def descendants(
    core: StoreContext, parent: RunRow, children: Iterable[TakenChild], path: Path = (), *, is_detached: bool = False
) -> list[Descendant]:
    """These children of a run at `path` and those inside them, each before those inside it."""
    found: list[Descendant] = []
    for child in children:
        row, detached = core.port.run(child.run_id), is_detached or child.detached
        if row is None and child.ended:
            found.append(Descendant(child.run_id, None, path, [], detached))
        if row is None or not _is_child(core, verify_run(row), parent):
            continue
        history = read_history(core, child.run_id)
        below = (*path, (child.position - 1, 0))
        lines = [ledger_line(history.run, effect) for effect in history.effects]
        for line in lines:
            line.run_id, line.incarnation = history.run.run_id, history.run.incarnation
            line.path = (*below, (line.after_position, line.number))
        found.append(Descendant(child.run_id, row, below, lines, detached))
        found += descendants(core, row, children_of(history), below, is_detached=detached)
    return found


def _is_child(core: StoreContext, row: RunRow, parent: RunRow) -> bool:
    """Whether this parent started the run; another run may have the same id."""
    return (first_entry(core, row).get("parent") or {}).get("run") == parent.run_id


def children_of(history: RunHistory) -> list[TakenChild]:
    """All children that a run has started and not taken back."""
    live = [(at, entry) for at, entry in history.live if entry["kind"] == "child"]
    ended = {entry["child"] for _, entry in history.live if entry["kind"] == "child_ended"}
    return [TakenChild(entry["child"], at, entry["detached"], entry["child"] in ended) for at, entry in live]


def attached_lines(core: StoreContext, parent: RunRow, children: Iterable[TakenChild]) -> list[LedgerLine]:
    """The ledgers of these children and those inside them, without detached ones."""
    return [line for each in descendants(core, parent, children) if not each.is_detached for line in each.lines]


def check_wanted(app: AppCore, history: RunHistory, *, ended: bool = False) -> Plan[None]:
    """Refuse to execute a child again that a rollback of a run above it takes back: that run starts another one.

    `ended`: also if the parent has recorded how the child ended; no run would use its result.
    """
    child, is_direct = history, True
    while True:
        parent = (child.entries[0][1] if child.entries else {}).get("parent") or {}
        if not parent or parent["detached"] or (yield partial(app.core.port.run, parent["run"])) is None:
            return
        above: RunHistory = yield partial(read_history, app.core, parent["run"])
        known = next((each for each in children_of(above) if each.run_id == child.run.run_id), None)
        text = f"run {child.run.run_id!r} is a child of run {above.run.run_id!r}, which "
        if known is None:
            raise Conflict(f"{text}was rolled back to before it was started; fork it to execute it on its own")
        begun = record_of(above.live).rollback
        if begun and child.run.run_id in begun[0]["children"]:
            raise Conflict(f"{text}is being rolled back to before it was started; finish that rollback first")
        if ended and is_direct and known.ended:
            raise Conflict(f"{text}has recorded how it ended; retry or roll back that run, or fork this one")
        child, is_direct = above, False


def check_free(app: AppCore, found: Iterable[Descendant]) -> Plan[None]:
    """Raise RunClaimed if a living owner holds one of these children; it could act while it is taken back."""
    for run in [each.run for each in found if each.run is not None and not each.is_detached]:
        if run.status not in TERMINAL and (yield from is_held(app, run)):
            left_us = max(0, run.lease_us - app.core.clock.lease_time().us)
            raise RunClaimed(run.run_id, run.owner, left_us / 1e6)


def stop_child(app: AppCore, parent: RunRow, run_id: str, by: str, *, bar: bool) -> Plan[None]:
    """End a child as cancelled, then those inside it. Afterwards none of them can act any more.

    `bar`: a child that is recorded but does not exist is created as cancelled. A process that was suspended just before
    it created the child finds it when it continues, and does not execute it.
    """
    ended: EntryData = {"kind": CANCELLED, "by": by, "rolled_back": parent.run_id}
    while True:
        row: RunRow | None = yield lambda: app.core.port.run(run_id)
        if row is None and bar:
            yield _bar_commit(app, run_id, parent, ended)
            continue
        if row is None or not (yield lambda row=row: _is_child(app.core, verify_run(row), parent)):
            return
        if row.status in TERMINAL:
            break
        commit: Commit = yield lambda row=row: _end_commit(app, row, ended)
        outcome = yield from take_or_revoke_dead(app.access, commit, app, revocations=None)
        if not isinstance(outcome, Committed) and outcome.reason != Reason.POSITION:
            raise refusal(app.access, commit, outcome)
    history: RunHistory = yield lambda: read_history(app.core, run_id)
    for child in children_of(history):
        if not child.detached:
            yield from stop_child(app, history.run, child.run_id, by, bar=not child.ended)


def _bar_commit(app: AppCore, run_id: str, parent: RunRow, ended: EntryData) -> Commit:
    started: EntryData = {"kind": "started", "workflow": "", "version": 1, "args": [], "kwargs": {}}
    started["parent"] = {"run": parent.run_id, "call": "", "detached": False}
    entries = [NewEntry(entry["kind"], encode_body(app.core, entry, "a journal entry")) for entry in (started, ended)]
    return Commit(run_id, app.token(8), create=NewRun(required=True), status=CANCELLED, entries=tuple(entries))


def _end_commit(app: AppCore, row: RunRow, ended: EntryData) -> Commit:
    return Commit(
        row.run_id,
        app.token(8),
        Guard(incarnation=row.incarnation, position=row.position),
        status=CANCELLED,
        entries=(NewEntry(CANCELLED, encode_body(app.core, ended, "a journal entry")),),
        close_gates=tuple([gate.gate for gate in app.core.gates_of(row.run)]),
        drop_timers=tuple([timer.timer for timer in app.core.port.rows(TimerRow, row.run)]),
    )


def mark_undone(app: AppCore, mark: MarkChild) -> Plan[None]:
    """Record in a child's ledger that an effect was undone, unless it is recorded already."""
    guard = Guard(incarnation=mark.incarnation)
    commit = Commit(mark.run_id, app.token(8), guard, effects=(NewEffect(mark.key, "undone"),))
    outcome: Outcome = yield commit
    harmless = (Reason.EFFECT_DONE, Reason.NO_RUN, Reason.INCARNATION)
    if not isinstance(outcome, Committed) and outcome.reason not in harmless:
        raise refusal(app.access, commit, outcome)


class FamilyChildren:
    """Finds the child that another run of the family started by a call. Caches what it has read."""

    def __init__(self, core: StoreContext, run: RunRow) -> None:
        self._core = core
        self._run = run
        self._known: dict[int, tuple[int, dict[str, str]]] = {}

    def find(self, call: str) -> str | None:
        """The id of such a child that still exists: the source's first, then the newest."""
        rows = self._core.port.runs(RunQuery(family=self._run.family, limit=NUMBER_MAX))
        others = [row for row in rows if row.run != self._run.run]
        origin: object = unpack(self._run.origin, f"run {self._run.run_id!r}") if self._run.origin else ""
        source = str(origin).rpartition("@")[0]
        for other in sorted(others, key=lambda row: row.run_id != source):
            child = self._children(other).get(call)
            if child is not None and self._core.port.run(child) is not None:
                return child
        return None

    def _children(self, other: RunRow) -> dict[str, str]:
        """The newest child of each call of a run, by the call's full name."""
        position, found = self._known.get(other.run, (-1, {}))
        if position != other.position:
            rows = self._core.port.rows(EntryRow, other.run)
            entries = [entry_data(other, row) for row in rows if row.kind == "child"]
            found = {full_name(entry.get("in", ""), entry["call"]): entry["child"] for entry in entries}
            self._known[other.run] = other.position, found
        return found
