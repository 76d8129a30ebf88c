"""Deletion of whole runs: which runs may be removed, and what is removed with them.

All commands that remove whole runs use this module. A run is needed as long as another run may still read its ledger:

- a fork reuses the outcomes of its family, whatever its status: a failed fork is retried, an ended one rolled back. It
  finds the ledgers of its family by their keys, and those of child runs by the journals that name them;
- the rollback of a parent undoes the effects of its child runs, so it needs the ledgers of those its journal names.

A run that is removed in the same call needs nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from holdfast.engine.commands import EntryData
from holdfast.errors import Conflict, DamagedData, RunNotFound
from holdfast.inspect.status import cancel_in_inbox
from holdfast.limits import NUMBER_MAX
from holdfast.model.commit import Commit, Reason, Refused
from holdfast.model.rows import TERMINAL, CheckpointRow, EffectRow, EntryRow, MessageRow, RunRow
from holdfast.model.views import RunInfo, View
from holdfast.operations import prune
from holdfast.operations.context import StoreContext, refusal
from holdfast.operations.read import PAGE, known_run
from holdfast.operations.store import Store
from holdfast.operations.views import decode_body, effect_view, run_info
from holdfast.runtime.replay_input import entry_data, first_entry
from holdfast.store.checksum import verify_run
from holdfast.store.journal_prune import PRUNED
from holdfast.store.port import RunQuery


class DeletionPlan(View, frozen=True, kw_only=True):
    """What deleting a run removes."""

    run: RunInfo
    commit_id: bytes
    """The newest commit of the run when the plan was made."""
    checkpoints: int
    entries: int
    effects: int
    bytes_freed: int
    """An estimate: forks of the run keep the state they share with it."""
    forks: tuple[str, ...]
    """Other runs of its family. They are kept."""
    children: tuple[str, ...]
    """Child runs. They are kept."""
    problems: tuple[str, ...]
    """Why it should not be deleted yet."""


def plan_deletion(store: Store, run_id: str) -> DeletionPlan:
    """Plan the deletion of a run: what it removes, and why the run should not be deleted yet.

    Example:
        plan_deletion(store, "order-17").problems
    """
    core = store.access.core
    run = known_run(core, run_id)
    removal = Removal(store, [run])
    checkpoints = core.port.rows(CheckpointRow, run.run)
    try:
        freed = prune.RemovalEstimate(core).add_run(run).bytes
    except DamagedData:  # a fork is damaged; then nothing is swept either
        freed = prune.record_bytes(core, run)
    try:
        children = tuple(row.run_id for row in removal.children(run))
    except DamagedData:  # reported among the problems
        children = ()
    return DeletionPlan(
        run=run_info(run),
        commit_id=run.commit_id,
        checkpoints=len(checkpoints),
        entries=sum(row.kind != PRUNED for row in _entries(core, run)),
        effects=len(core.port.rows(EffectRow, run.run)),
        bytes_freed=freed,
        forks=tuple(row.run_id for row in removal.family(run) if row.run != run.run),
        children=children,
        problems=removal.problems(run),
    )


class Removal:
    """Removes whole runs in one call, each only if no kept run needs it."""

    def __init__(self, store: Store, runs: Iterable[RunRow]) -> None:
        self.access = store.access
        self._core = store.access.core
        self._leaving = {row.run: row for row in runs}
        """Runs that go in this call, by number: a run made again under the id of one is another run."""
        self._ids = {row.run_id: row for row in self._leaving.values()}
        self._parents: dict[int, EntryData] = {}
        self._recorded: dict[int, tuple[bytes, dict[str, bool]]] = {}
        """By run: the commit they were read at, and what `_recorded_children` gives."""

    def keep_needed(self) -> dict[int, tuple[str, ...]]:
        """Take from this call the runs that must stay: their numbers, and why. Then what those need stays as well."""
        kept: dict[int, tuple[str, ...]] = {}
        while True:
            before = len(kept)
            for row in self.in_order():
                problems = self.problems(row)
                if problems:
                    kept[row.run] = problems
                    del self._leaving[row.run]
            if len(kept) == before:
                return kept

    def in_order(self) -> list[RunRow]:
        """Return the runs to remove: parents before their children, forks before their sources.

        If the process dies half-way, the remaining runs have all they need.
        """
        return sorted(self._leaving.values(), key=lambda row: (self._depth(row), row.family, -row.run))

    def remove(self, run: RunRow, *, force: bool = False) -> None:
        """Remove a run. Raises Conflict if another run needs it, or if it has changed since it was read."""
        try:
            family = None if force else frozenset(row.run for row in self.family(run))
            problems = () if force else self.problems(run)
            if problems:
                raise Conflict(f"run {run.run_id!r} was not deleted: {'; '.join(problems)}")
            gone = self._core.port.delete_run(run.run_id, run.commit_id, family)
            if gone is None:
                raise RunNotFound(run.run_id)
            if isinstance(gone, Refused):
                if gone.reason == Reason.CHANGED:
                    raise Conflict(f"run {run.run_id!r} has changed or was forked meanwhile; run the command again")
                raise refusal(self.access, Commit(run.run_id, b""), gone)
        except BaseException:
            self._leaving.pop(run.run, None)  # it is kept, and so is what it needs
            raise
        prune.forget_deleted(self._core, gone)

    def problems(self, run: RunRow) -> tuple[str, ...]:
        """Why the run should not be removed yet."""
        try:
            return (*self._unfinished(run), *self._needs(run))
        except DamagedData as error:
            return (f"a damaged run makes it impossible to know whether another run needs it: {error}",)

    def family(self, run: RunRow) -> list[RunRow]:
        """Return the runs of its family, including the run."""
        return self._core.port.runs(RunQuery(family=run.family, limit=NUMBER_MAX))

    def children(self, run: RunRow) -> list[RunRow]:
        """Return its child runs in the store."""
        rows = [self._core.port.run(child) for child in self._recorded_children(run)]
        return [row for row in rows if row is not None and self._parent(verify_run(row)).get("run") == run.run_id]

    def _unfinished(self, run: RunRow) -> Iterator[str]:
        """Report what the run has not finished, or what only its records show."""
        if run.status not in TERMINAL:
            pending = cancel_in_inbox(self._core, run) is not None
            todo = "its cancel is pending until a worker takes it" if pending else "cancel it first"
            yield f"it has not ended ({run.status}); {todo}"
        effects = [effect_view(run, row) for row in self._core.port.rows(EffectRow, run.run)]
        doubtful = [effect.key for effect in effects if effect.state == "in_doubt"]
        if doubtful:
            yield f"effects in doubt are recorded only in its ledger: {', '.join(map(repr, doubtful))}"
        for child in self.children(run):
            if child.status not in TERMINAL and not self._parent(child).get("detached"):
                yield f"its child run {child.run_id!r} has not ended"
        sent = self._core.port.due(MessageRow, NUMBER_MAX) if run.outbox else []
        targets = sorted({message.target for row, message in sent if row.run == run.run})
        if targets:
            yield f"its message to {_names(targets)} is not delivered yet; a worker delivers it"

    def _needs(self, run: RunRow) -> Iterator[str]:
        """Report which kept runs need it, and for what."""
        above = list(self._ancestors(run))
        naming = self._kept(above[0]) if above else []
        naming = [row for row in naming if self._recorded_children(row).get(run.run_id)]
        if any(row.run == above[0].run and row.status not in TERMINAL for row in naming):
            yield f"it is a child of run {above[0].run_id!r}, which has not ended"
        elif naming:
            yield f"a rollback of {_names([row.run_id for row in naming])} needs this child run; delete that first"
        if self._has_outcomes(run):
            forks = [row for one in (run, *above) for row in self._kept(one) if row.origin and row.run != one.run]
            if forks:
                names = _names(list(dict.fromkeys(row.run_id for row in forks)))
                yield (
                    f"{names} may reuse the outcomes of its effects or of its child runs; without its ledger "
                    "they would be performed again"
                )

    def _kept(self, run: RunRow) -> list[RunRow]:
        """Return the runs of its family that are not removed in this call."""
        return [verify_run(row) for row in self.family(run) if row.run not in self._leaving]

    def _has_outcomes(self, run: RunRow) -> bool:
        """Return whether forks find outcomes through this run: in its ledger, or in those of its child runs."""
        if any(self._is_outcome(run, row) for row in self._core.port.rows(EffectRow, run.run)):
            return True
        return any(child.status not in TERMINAL or self._has_outcomes(child) for child in self.children(run))

    def _is_outcome(self, run: RunRow, effect: EffectRow) -> bool:
        """Return whether a fork would reuse this outcome; a reused one counts only if its original was removed."""
        call = _call(run, effect)
        if effect.state not in ("done", "intent"):
            return False
        others = self._core.port.family_effects(run.family, effect.key) if call.get("reused") else []
        for row, other in others:
            has = _call(row, other) if row.run not in (run.run, *self._leaving) else {}
            if other.state in ("done", "intent") and has.get("digest") == call.get("digest") and not has.get("reused"):
                return False
        return True

    def _ancestors(self, run: RunRow) -> Iterator[RunRow]:
        """Iterate over its parent, the parent of that, and so on, including those removed in this call."""
        seen = {run.run_id}
        above = self._parent(run).get("run")
        while isinstance(above, str) and above not in seen:
            seen.add(above)
            found = self._core.port.run(above)
            row = verify_run(found) if found is not None else self._ids.get(above)
            if row is None:
                return
            yield row
            above = self._parent(row).get("run")

    def _depth(self, run: RunRow) -> int:
        with contextlib.suppress(DamagedData):  # then it is kept, and `problems` reports why
            return sum(1 for _ in self._ancestors(run))
        return 0

    def _parent(self, run: RunRow) -> EntryData:
        """Return the parent that the first entry of a run records. Cached, so that it is known after a removal."""
        if run.run not in self._parents:
            self._parents[run.run] = first_entry(self._core, run).get("parent") or {}
        return self._parents[run.run]

    def _recorded_children(self, run: RunRow) -> dict[str, bool]:
        """Return the child runs that the journal names, and whether the run still needs each.

        It needs a detached child until it has recorded its start; without that it would start the child again.
        """
        commit_id, found = self._recorded.get(run.run, (b"", {}))
        if commit_id != run.commit_id:
            rows = [row for row in _entries(self._core, run) if row.kind in ("child", "child_started")]
            entries = [entry_data(run, row) for row in rows]
            found = {entry["child"]: entry["kind"] == "child" for entry in entries if "child" in entry}
            self._recorded[run.run] = run.commit_id, found
        return found


def _entries(core: StoreContext, run: RunRow) -> Iterator[EntryRow]:
    after = 0
    while rows := core.port.rows(EntryRow, run.run, after, PAGE):
        yield from rows
        after = rows[-1].position


def _call(run: RunRow, effect: EffectRow) -> EntryData:
    """Return how a workflow called an effect; empty if the effect was recorded by hand."""
    call = decode_body(effect.call, f"effect {effect.key!r} of run {run.run_id!r}")
    return call if isinstance(call, dict) else {}


def _names(run_ids: list[str]) -> str:
    named = ", ".join(map(repr, run_ids[:3]))
    return f"run{'s' if len(run_ids) > 1 else ''} {named}" + (" and others" if len(run_ids) > 3 else "")
