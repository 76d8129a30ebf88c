"""What `prune` does to one run: plan it, do it, or remove the run whole. One run's trouble is not the others'."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from holdfast.cli.loading import langgraph_adapter
from holdfast.errors import Conflict, DamagedData, HoldfastError, RunNotFound, StorageError
from holdfast.inspect.deletion import Removal
from holdfast.model.rows import RunRow
from holdfast.model.status import TERMINAL
from holdfast.store.seal import check_run
from holdfast.verbs import keeping
from holdfast.verbs.lineage import THREADS
from holdfast.verbs.plans import run_plan
from holdfast.verbs.values import moment

if TYPE_CHECKING:
    from holdfast.model.views import Keep, Pruned, RunInfo
    from holdfast.verbs.core import Core
    from holdfast.verbs.store import Store


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What is or would be removed of one run."""

    run_id: str
    status: str
    checkpoints_removed: int
    checkpoints_kept: int
    entries_removed: int
    bytes_freed: int
    deleted: bool
    """The whole run goes."""
    problem: str | None = None
    """Why nothing, or not everything, was removed."""
    kept_more: dict[str, int] = {}
    """Checkpoints kept beyond the newest that were asked for, by reason; see `Pruned.kept_more`."""

    @property
    def removes(self) -> bool:
        """Whether there is something to remove."""
        return bool(self.checkpoints_removed or self.entries_removed or self.bytes_freed or self.deleted)

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to do and nothing to explain."""
        return not self.removes and self.problem is None and not self.kept_more


Work = Callable[["RunInfo"], Line]


def each(runs: Iterable[RunInfo], work: Work, tell: Callable[[], None]) -> list[Line]:
    """Do the work for every run; what cannot be done to one is noted. A store that fails would fail for all."""
    lines = []
    for info in runs:
        try:
            lines.append(work(info))
        except StorageError:
            raise
        except HoldfastError as error:
            lines.append(_nothing(info, str(error)))
        tell()
    return lines


def pruner(store: Store, keep: Keep, *, fold: bool, dry_run: bool) -> Work:
    """Prune a run. With `fold`, threads of LangGraph get folds first, so that more can go."""
    core = store._place.core
    estimate = keeping.RemovalEstimate(core)
    if fold:
        langgraph_adapter()

    def work(info: RunInfo) -> Line:
        folds = None
        if fold and info.workflow == THREADS:
            from holdfast.adapters.langgraph import folding

            if dry_run:
                folds = folding.plan_fold(core, info.run_id, keep)
            else:
                run_plan(store._place, folding.fold(store._place, info.run_id, keep))
        if dry_run:
            return _line(info, keeping.plan_prune(core, info.run_id, keep, estimate, folds))
        return _line(info, store.prune(info.run_id, keep))

    return work


def checkpoint_remover(store: Store, checkpoint_id: str, lane: str, *, dry_run: bool) -> Work:
    """Remove one checkpoint of a run."""
    return lambda info: _line(
        info, store.delete_checkpoint(info.run_id, checkpoint_id, lane=lane, dry_run=dry_run)
    )  # fmt: skip


def _line(info: RunInfo, done: Pruned) -> Line:
    return Line(
        run_id=info.run_id, status=info.status, checkpoints_removed=len(done.removed), checkpoints_kept=done.kept,
        entries_removed=done.entries, bytes_freed=done.bytes_freed, deleted=False, problem=done.damage,
        kept_more=done.kept_more,
    )  # fmt: skip


def remover(store: Store, chosen: list[RunInfo], *, dry_run: bool) -> tuple[list[RunInfo], Work]:
    """The runs in the order in which to remove them, and how: whole, unless one has changed or is needed."""
    core = store._place.core
    rows: dict[str, RunRow] = {}
    for info in chosen:
        with contextlib.suppress(DamagedData, Conflict, RunNotFound):  # `work` notes it
            rows[info.run_id] = _unchanged(core, info)
    removal = Removal(store, rows.values())
    order = {row.run_id: place for place, row in enumerate(removal.in_order())}
    kept = removal.keep_needed() if dry_run else {}
    estimate = keeping.RemovalEstimate(core)

    def work(info: RunInfo) -> Line:
        row = rows.get(info.run_id) or _unchanged(core, info)
        if row.run in kept:
            return _nothing(info, "; ".join(kept[row.run]))
        checkpoints = core.port.checkpoints(row.run, 0, -1)
        freed = (estimate if dry_run else keeping.RemovalEstimate(core)).add_run(row)
        if not dry_run:
            removal.remove(row)
        return Line(
            run_id=info.run_id, status=info.status, checkpoints_removed=len(checkpoints), checkpoints_kept=0,
            entries_removed=row.position, bytes_freed=freed.bytes, deleted=True,
        )  # fmt: skip

    return sorted(chosen, key=lambda info: order.get(info.run_id, -1)), work


def _unchanged(core: Core, info: RunInfo) -> RunRow:
    """The run's row, if it still is as it was when the run was chosen."""
    found = core.port.run(info.run_id)
    if found is None:
        raise RunNotFound(info.run_id)
    row = check_run(found)
    if row.status not in TERMINAL or moment(row.updated_us) != info.updated_at:
        raise Conflict("it has changed meanwhile")
    return row


def _nothing(info: RunInfo, problem: str) -> Line:
    return Line(
        run_id=info.run_id, status=info.status, checkpoints_removed=0, checkpoints_kept=0, entries_removed=0,
        bytes_freed=0, deleted=False, problem=problem,
    )  # fmt: skip
