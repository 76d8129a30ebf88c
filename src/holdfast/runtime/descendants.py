"""Children as their parent's rollback and fork see them: their ledgers, stopping them, finding a family's child."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine.commands import EntryData
from holdfast.engine.goingback import LedgerLine, MarkChild, TakenChild
from holdfast.engine.record import full_name
from holdfast.errors import Conflict, RunClaimed
from holdfast.limits import NUMBER_MAX
from holdfast.model import commit as why
from holdfast.model.commit import Commit, Committed, Guard, NewEffect, NewEntry, NewRun
from holdfast.model.rows import RunRow
from holdfast.model.status import CANCELLED, TERMINAL
from holdfast.runtime.reads import entry_data, first_entry
from holdfast.runtime.starting import Acts, fence_of_dead, is_held
from holdfast.runtime.whole import Whole, ledger_line, whole_of
from holdfast.state.values import unpack
from holdfast.store.port import RunQuery
from holdfast.store.seal import check_run
from holdfast.verbs.core import Core
from holdfast.verbs.refusals import refusal
from holdfast.verbs.values import value_body

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore


class Descendant(msgspec.Struct, frozen=True):
    """A child run that is taken back, or one inside it."""

    run_id: str
    run: RunRow | None
    """None: it has ended and is not in the store any more, so what it did is not known."""
    path: tuple[tuple[int, int], ...]
    """After which position of each run on the way down it was started."""
    lines: list[LedgerLine]
    is_detached: bool
    """It, or one it is inside of, is on its own."""


def descendants(core: Core, parent: RunRow, children: Iterable[TakenChild]) -> list[Descendant]:
    """These children of a run and those inside them, each before those inside it."""
    return list(_found(core, parent, children, (), is_detached=False))


def _found(
    core: Core, parent: RunRow, children: Iterable[TakenChild], path: tuple[tuple[int, int], ...], *, is_detached: bool
) -> Iterator[Descendant]:
    for child in children:
        row = core.port.run(child.run_id)
        if row is None and child.ended:
            yield Descendant(child.run_id, None, path, [], is_detached or child.detached)
        if row is None or not _is_child(core, check_run(row), parent):
            continue
        whole = whole_of(core, child.run_id)
        below = (*path, (child.position - 1, 0))
        detached = is_detached or child.detached
        lines = [_line(whole, number, below) for number in range(len(whole.effects))]
        yield Descendant(child.run_id, row, below, lines, detached)
        yield from _found(core, row, children_of(whole), below, is_detached=detached)


def _is_child(core: Core, row: RunRow, parent: RunRow) -> bool:
    """Whether the run was started by this parent, and is not another of the same id."""
    return (first_entry(core, row).get("parent") or {}).get("run") == parent.run_id


def children_of(whole: Whole) -> list[TakenChild]:
    """All children a run has started and not taken back."""
    live = [(at, entry) for at, entry in whole.live if entry["kind"] == "child"]
    ended = {entry["child"] for _, entry in whole.live if entry["kind"] == "child_ended"}
    return [TakenChild(entry["child"], at, entry["detached"], entry["child"] in ended) for at, entry in live]


def _line(whole: Whole, index: int, path: tuple[tuple[int, int], ...]) -> LedgerLine:
    line = ledger_line(whole.run, whole.effects[index])
    line.run_id, line.incarnation = whole.run.run_id, whole.run.incarnation
    line.path = (*path, (line.after_position, line.number))
    return line


def attached_lines(core: Core, parent: RunRow, children: Iterable[TakenChild]) -> list[LedgerLine]:
    """The ledgers of these children and those inside them, without detached ones."""
    return [line for each in descendants(core, parent, children) if not each.is_detached for line in each.lines]


def check_wanted(app: AppCore, whole: Whole, *, ended: bool = False) -> Acts[None]:
    """Refuse to execute a child again that its parent does not wait for any more: it would act for nobody.

    `ended`: also if the parent has recorded how it ended.
    """
    parent = (whole.entries[0][1] if whole.entries else {}).get("parent") or {}
    row = (yield lambda: app.core.port.run(parent["run"])) if parent and not parent["detached"] else None
    if row is None:
        return
    of: Whole = yield lambda: whole_of(app.core, parent["run"])
    known = next((child for child in children_of(of) if child.run_id == whole.run.run_id), None)
    text = f"run {whole.run.run_id!r} is a child of run {of.run.run_id!r}, which "
    if known is None:
        raise Conflict(f"{text}was rolled back to before it was started; fork it to execute it on its own")
    if ended and known.ended:
        raise Conflict(f"{text}has recorded how it ended; retry or roll back that run, or fork this one")


def check_free(app: AppCore, found: Iterable[Descendant]) -> Acts[None]:
    """Raise RunClaimed if a living owner holds one of these children, which could act while it is taken back."""
    for each in found:
        run = each.run
        if run is None or each.is_detached or run.status in TERMINAL:
            continue
        if (yield from is_held(app, run)):
            left_us = max(0, run.lease_us - app.core.clock.lease_time().us)
            raise RunClaimed(run.run_id, run.owner, left_us / 1e6)


def stop_child(app: AppCore, parent: RunRow, run_id: str, by: str, *, bar: bool) -> Acts[None]:
    """End a child as cancelled, then those inside it. Afterwards none of them can act any more.

    `bar`: one that is recorded but not there is made, as cancelled. A process that was frozen just before it created
    the child finds it when it goes on, and does not execute it.
    """
    gone: int | None = None
    while True:
        row: RunRow | None = yield lambda: app.core.port.run(run_id)
        if row is None and bar:
            yield _bar_commit(app, run_id, parent, by)
            continue
        if row is None or not (yield lambda row=row: _is_child(app.core, check_run(row), parent)):
            return
        if row.status in TERMINAL:
            break
        commit = yield lambda row=row, gone=gone: _end_commit(app, row, parent, by, gone)
        outcome = yield commit
        if type(outcome) is Committed or outcome.why == why.POSITION:
            continue  # it is read once more, as it is now
        gone = (yield from fence_of_dead(app, outcome)) if outcome.why == why.CLAIMED else None
        if gone is None:
            raise refusal(app.place, commit, outcome)
    whole: Whole = yield lambda: whole_of(app.core, run_id)
    for child in children_of(whole):
        if not child.detached:
            yield from stop_child(app, whole.run, child.run_id, by, bar=not child.ended)


def _bar_commit(app: AppCore, run_id: str, parent: RunRow, by: str) -> Commit:
    started: EntryData = {
        "kind": "started", "workflow": "", "version": 1, "args": [], "kwargs": {},
        "parent": {"run": parent.run_id, "call": "", "detached": False},
    }  # fmt: skip
    ended: EntryData = {"kind": CANCELLED, "by": by, "rolled_back": parent.run_id}
    entries = [NewEntry(entry["kind"], value_body(app.core, entry, "a journal entry")) for entry in (started, ended)]
    return Commit(run_id, app.token(8), create=NewRun(required=True), status=CANCELLED, entries=tuple(entries))


def _end_commit(app: AppCore, row: RunRow, parent: RunRow, by: str, gone: int | None) -> Commit:
    entry = {"kind": CANCELLED, "by": by, "rolled_back": parent.run_id}
    gates = [gate.gate for _, gate in app.core.port.gates(row.run, "open", NUMBER_MAX)]
    timers = [timer.timer for timer in app.core.port.timers(row.run)]
    return Commit(
        row.run_id, app.token(8), Guard(incarnation=row.incarnation, position=row.position, gone=gone),
        status=CANCELLED, entries=(NewEntry(CANCELLED, value_body(app.core, entry, "a journal entry")),),
        close_gates=tuple(gates), drop_timers=tuple(timers),
    )  # fmt: skip


def mark_undone(app: AppCore, mark: MarkChild) -> Acts[None]:
    """Record in a child's ledger that an effect was undone; that it was recorded before is fine."""
    guard = Guard(incarnation=mark.incarnation)
    commit = Commit(mark.run_id, app.token(8), guard, effects=(NewEffect(mark.key, "undone"),))
    outcome = yield commit
    if type(outcome) is not Committed and outcome.why not in (why.EFFECT_DONE, why.NO_RUN, why.INCARNATION):
        raise refusal(app.place, commit, outcome)


class FamilyChildren:
    """Finds the child another run of the family started by a call. Remembers what it has read."""

    def __init__(self, core: Core, run: RunRow) -> None:
        self._core = core
        self._run = run
        self._known: dict[int, tuple[int, dict[str, str]]] = {}

    def find(self, call: str) -> str | None:
        """The id of such a child that is still there: the source's first, then the newest."""
        for other in self._others():
            child = self._children(other).get(call)
            if child is not None and self._core.port.run(child) is not None:
                return child
        return None

    def _others(self) -> list[RunRow]:
        rows = self._core.port.runs(RunQuery(family=self._run.family, limit=NUMBER_MAX))
        origin: Any = unpack(self._run.origin, f"run {self._run.run_id!r}") if self._run.origin else ""
        source = str(origin).rpartition("@")[0]
        return sorted([row for row in rows if row.run != self._run.run], key=lambda row: row.run_id != source)

    def _children(self, other: RunRow) -> dict[str, str]:
        """The newest child of each call of a run, by the call's full name."""
        position, found = self._known.get(other.run, (-1, {}))
        if position != other.position:
            rows = [row for row in self._core.port.entries(other.run, 0, -1) if row.kind == "child"]
            entries = [entry_data(other, row) for row in rows]
            found = {full_name(entry.get("in", ""), entry["call"]): entry["child"] for entry in entries}
            self._known[other.run] = other.position, found
        return found
