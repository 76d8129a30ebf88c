"""What deleting a run would remove, and what speaks against it. Reads only."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import DamagedData
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import EffectRow, RunRow
from holdfast.model.status import TERMINAL
from holdfast.model.views import RunInfo, View
from holdfast.runtime.reads import first_entry
from holdfast.store.port import RunQuery
from holdfast.store.pruning import PRUNED
from holdfast.verbs import keeping
from holdfast.verbs.core import Core
from holdfast.verbs.reading import PAGE, known_run
from holdfast.verbs.shown import effect_view, run_info
from holdfast.verbs.store import Store


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
    checkpoints = core.port.checkpoints(run.run, 0, -1)
    effects = core.port.effects(run.run)
    family = [row for row in core.port.runs(RunQuery(family=run.family, limit=NUMBER_MAX)) if row.run != run.run]
    children = list(_children(core, run))
    try:
        freed = keeping.RemovalEstimate(core).add(run, checkpoints).bytes
    except DamagedData:  # of a fork of it; then nothing is swept, either
        freed = 0
    return DeletionPlan(
        run=run_info(run), commit_id=run.commit_id, checkpoints=len(checkpoints), entries=_count_entries(core, run),
        effects=len(effects), bytes_freed=freed, forks=tuple(row.run_id for row in family),
        children=tuple(row.run_id for row, _ in children),
        problems=tuple(_problems(core, run, effects, family, children)),
    )  # fmt: skip


def _children(core: Core, run: RunRow) -> Iterator[tuple[RunRow, bool]]:
    """Runs that this one started, and whether each is detached."""
    for row in core.port.runs(RunQuery(prefix=f"{run.run_id}/", limit=NUMBER_MAX)):
        parent = first_entry(core, row).get("parent") or {}
        if parent.get("run") == run.run_id:
            yield row, bool(parent.get("detached"))


def _count_entries(core: Core, run: RunRow) -> int:
    found, after = 0, 0
    while rows := core.port.entries(run.run, after, PAGE):
        found += sum(row.kind != PRUNED for row in rows)
        after = rows[-1].position
    return found


def _problems(
    core: Core, run: RunRow, effects: list[EffectRow], family: list[RunRow], children: list[tuple[RunRow, bool]]
) -> Iterator[str]:
    if run.status not in TERMINAL:
        yield f"it has not ended, it is {run.status}; cancel it first"
    doubtful = [effect.key for effect in (effect_view(run, row) for row in effects) if effect.state == "in_doubt"]
    if doubtful:
        yield f"whether {', '.join(map(repr, doubtful))} happened is not known, and only its ledger names it"
    going_on = [row.run_id for row in family if row.status not in TERMINAL]
    if effects and going_on:
        yield f"{_names(going_on)} may take the outcomes of its effects; without its ledger they are performed again"
    for child in [row.run_id for row, detached in children if not detached and row.status not in TERMINAL]:
        yield f"its child run {child!r} has not ended"
    parent = first_entry(core, run).get("parent") or {}
    above = core.port.run(str(parent["run"])) if parent and not parent.get("detached") else None
    if above is not None and above.status not in TERMINAL:
        yield f"it is a child of run {above.run_id!r}, which has not ended"
    undelivered = [message for row, message in core.port.outbox(NUMBER_MAX) if row.run == run.run]
    if undelivered:
        yield f"{_names(sorted({one.target for one in undelivered}))} has not got its message yet; a worker delivers it"


def _names(run_ids: list[str]) -> str:
    named = ", ".join(map(repr, run_ids[:3]))
    return f"run{'s' if len(run_ids) > 1 else ''} {named}" + (" and others" if len(run_ids) > 3 else "")
