"""Which whole runs may be removed, and what would go with them. All commands that remove whole runs ask here.

A run is needed as long as another run in the store could still take something from it:

- a fork takes over what its family has done, in whatever status it is: a failed one is retried, an ended one is rolled
  back. It finds its family's ledgers by their keys, and the ledgers of their child runs by way of their journals;
- a parent's rollback undoes what its child runs have done, so it needs the ledgers of those that its journal names.

A run that goes in the same call needs nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.errors import Conflict, DamagedData, RunNotFound
from holdfast.inspect.inbox import cancel_in_inbox
from holdfast.limits import NUMBER_MAX
from holdfast.model.commit import CHANGED, Commit, Refused
from holdfast.model.rows import EffectRow, EntryRow, RunRow
from holdfast.model.status import TERMINAL
from holdfast.model.views import RunInfo, View
from holdfast.runtime.reads import entry_data, first_entry
from holdfast.store.port import RunQuery
from holdfast.store.pruning import PRUNED
from holdfast.store.seal import check_run
from holdfast.verbs import keeping
from holdfast.verbs.core import Core
from holdfast.verbs.reading import PAGE, known_run
from holdfast.verbs.refusals import refusal
from holdfast.verbs.shown import effect_view, run_info
from holdfast.verbs.store import Store
from holdfast.verbs.values import body_value


class DeletionPlan(View, frozen=True, kw_only=True):
    """What would be removed with a run."""

    run: RunInfo
    commit_id: bytes
    """The state of the run that the plan was made of."""
    checkpoints: int
    entries: int
    effects: int
    bytes_freed: int
    """An estimate: forks of the run keep the state they share with it."""
    forks: tuple[str, ...]
    """Other runs of its family. They stay."""
    children: tuple[str, ...]
    """Child runs. They stay."""
    problems: tuple[str, ...]
    """Why it should not be deleted yet."""


def plan_deletion(store: Store, run_id: str) -> DeletionPlan:
    """What deleting the run would remove, and why it should not be deleted yet.

    Example:
        plan_deletion(store, "order-17").problems
    """
    core = store._place.core
    run = known_run(core, run_id)
    removal = Removal(store, [run])
    checkpoints = core.port.checkpoints(run.run, 0, -1)
    try:
        freed = keeping.RemovalEstimate(core).add_run(run).bytes
    except DamagedData:  # of a fork of it; then nothing is swept, either
        freed = keeping.record_bytes(core, run)
    try:
        children = tuple(row.run_id for row in removal.children(run))
    except DamagedData:  # the problems name it
        children = ()
    return DeletionPlan(
        run=run_info(run), commit_id=run.commit_id, checkpoints=len(checkpoints),
        entries=sum(row.kind != PRUNED for row in _entries(core, run)), effects=len(core.port.effects(run.run)),
        bytes_freed=freed, forks=tuple(row.run_id for row in removal.family(run) if row.run != run.run),
        children=children, problems=removal.problems(run),
    )  # fmt: skip


class Removal:
    """Removes whole runs in one call, each if no run that stays needs it."""

    def __init__(self, store: Store, runs: Iterable[RunRow]) -> None:
        self._place = store._place
        self._core = store._place.core
        self._leaving = {row.run: row for row in runs}
        """Runs that go in this call, by number: a run made again under the id of one is another run."""
        self._ids = {row.run_id: row for row in self._leaving.values()}
        self._parents: dict[int, dict[str, Any]] = {}
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
        """The runs that go: parents before their children, forks before the runs that they were made from.

        If the removal is killed half-way, what is left has all it needs.
        """
        return sorted(self._leaving.values(), key=lambda row: (self._depth(row), row.family, -row.run))

    def remove(self, run: RunRow, *, force: bool = False) -> None:
        """Remove the run as it was when it was read. Raises Conflict if it is needed by now, or has changed."""
        try:
            family = None if force else frozenset(row.run for row in self.family(run))
            problems = () if force else self.problems(run)
            if problems:
                raise Conflict(f"run {run.run_id!r} was not deleted: {'; '.join(problems)}")
            gone = self._core.port.delete_run(run.run_id, run.commit_id, family)
            if gone is None:
                raise RunNotFound(run.run_id)
            if isinstance(gone, Refused):
                if gone.why == CHANGED:
                    raise Conflict(f"run {run.run_id!r} has changed or was forked meanwhile; look at it again")
                raise refusal(self._place, Commit(run.run_id, b""), gone)
        except BaseException:
            self._leaving.pop(run.run, None)  # it stays, and so does what it needs
            raise
        keeping.forget_deleted(self._core, gone)

    def problems(self, run: RunRow) -> tuple[str, ...]:
        """Why the run should not be removed yet."""
        try:
            return (*self._unfinished(run), *self._needs(run))
        except DamagedData as error:
            return (f"whether another run needs it cannot be found out: {error}",)

    def family(self, run: RunRow) -> list[RunRow]:
        """The runs of its family, the run among them."""
        return self._core.port.runs(RunQuery(family=run.family, limit=NUMBER_MAX))

    def children(self, run: RunRow) -> list[RunRow]:
        """Its child runs that are in the store."""
        rows = [self._core.port.run(child) for child in self._recorded_children(run)]
        return [row for row in rows if row is not None and self._parent(check_run(row)).get("run") == run.run_id]

    def _unfinished(self, run: RunRow) -> Iterator[str]:
        """What the run itself has not done yet, or nobody else could tell."""
        if run.status not in TERMINAL:
            pending = cancel_in_inbox(self._core, run) is not None
            todo = "a cancel of it is pending, and a worker carries that out" if pending else "cancel it first"
            yield f"it has not ended, it is {run.status}; {todo}"
        effects = [effect_view(run, row) for row in self._core.port.effects(run.run)]
        doubtful = [effect.key for effect in effects if effect.state == "in_doubt"]
        if doubtful:
            yield f"whether {', '.join(map(repr, doubtful))} happened is not known, and only its ledger names it"
        for child in self.children(run):
            if child.status not in TERMINAL and not self._parent(child).get("detached"):
                yield f"its child run {child.run_id!r} has not ended"
        sent = self._core.port.outbox(NUMBER_MAX) if run.outbox else []
        targets = sorted({message.target for row, message in sent if row.run == run.run})
        if targets:
            yield f"{_names(targets)} has not got its message yet; a worker delivers it"

    def _needs(self, run: RunRow) -> Iterator[str]:
        """Which runs that stay need it, and for what."""
        above = list(self._ancestors(run))
        naming = self._staying(above[0]) if above else []
        naming = [row for row in naming if self._recorded_children(row).get(run.run_id)]
        if any(row.run == above[0].run and row.status not in TERMINAL for row in naming):
            yield f"it is a child of run {above[0].run_id!r}, which has not ended"
        elif naming:
            yield f"it is a child that a rollback of {_names([row.run_id for row in naming])} needs; delete that first"
        if self._has_outcomes(run):
            forks = [row for one in (run, *above) for row in self._staying(one) if row.origin and row.run != one.run]
            if forks:
                names = _names(list(dict.fromkeys(row.run_id for row in forks)))
                yield (
                    f"{names} may take the outcomes of its effects, or of those of its child runs; without its ledger "
                    "they are performed again"
                )

    def _staying(self, run: RunRow) -> list[RunRow]:
        """The runs of its family that do not go in this call."""
        return [check_run(row) for row in self.family(run) if row.run not in self._leaving]

    def _has_outcomes(self, run: RunRow) -> bool:
        """Whether forks find outcomes by this run: in its ledger, or now or later in those of its child runs."""
        if any(self._is_outcome(run, row) for row in self._core.port.effects(run.run)):
            return True
        return any(child.status not in TERMINAL or self._has_outcomes(child) for child in self.children(run))

    def _is_outcome(self, run: RunRow, effect: EffectRow) -> bool:
        """Whether a fork would take this line; one taken over counts only if the run that performed it is gone."""
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
        """Its parent, the parent of that, and so on; also those that have gone in this call."""
        seen = {run.run_id}
        above = self._parent(run).get("run")
        while isinstance(above, str) and above not in seen:
            seen.add(above)
            found = self._core.port.run(above)
            row = check_run(found) if found is not None else self._ids.get(above)
            if row is None:
                return
            yield row
            above = self._parent(row).get("run")

    def _depth(self, run: RunRow) -> int:
        with contextlib.suppress(DamagedData):  # then it stays, and `problems` says why
            return sum(1 for _ in self._ancestors(run))
        return 0

    def _parent(self, run: RunRow) -> dict[str, Any]:
        """Who started the run, as its first entry says. Remembered, so that it is known of runs that have gone."""
        if run.run not in self._parents:
            self._parents[run.run] = first_entry(self._core, run).get("parent") or {}
        return self._parents[run.run]

    def _recorded_children(self, run: RunRow) -> dict[str, bool]:
        """The child runs that the journal names, and whether the run still needs each.

        It needs a detached one until it has recorded that it was started, else it would start it again.
        """
        commit_id, found = self._recorded.get(run.run, (b"", {}))
        if commit_id != run.commit_id:
            rows = [row for row in _entries(self._core, run) if row.kind in ("child", "child_started")]
            entries = [entry_data(run, row) for row in rows]
            found = {entry["child"]: entry["kind"] == "child" for entry in entries if "child" in entry}
            self._recorded[run.run] = run.commit_id, found
        return found


def _entries(core: Core, run: RunRow) -> Iterator[EntryRow]:
    after = 0
    while rows := core.port.entries(run.run, after, PAGE):
        yield from rows
        after = rows[-1].position


def _call(run: RunRow, effect: EffectRow) -> dict[str, Any]:
    """How a workflow called an effect; empty if it was marked by hand."""
    call = body_value(effect.call, f"effect {effect.key!r} of run {run.run_id!r}")
    return call if isinstance(call, dict) else {}


def _names(run_ids: list[str]) -> str:
    named = ", ".join(map(repr, run_ids[:3]))
    return f"run{'s' if len(run_ids) > 1 else ''} {named}" + (" and others" if len(run_ids) > 3 else "")
