"""Prune, sweep and delete. Nothing is removed unless a caller asks for it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from holdfast.drivers import Plan
from holdfast.errors import Conflict, DamagedData, InvalidInput, RunNotFound
from holdfast.ids import check_id, check_lane
from holdfast.model.commit import Commit, Refused
from holdfast.model.rows import TERMINAL, AttachmentRow, CheckpointRow, EffectRow, EntryRow, RunRow
from holdfast.model.views import Keep, Pruned
from holdfast.operations.checkpoint_needs import (
    Lineage,
    lasting_entries,
    needed,
    remove_checkpoints,
    unneeded_entries,
    why_needed,
    with_needed,
)
from holdfast.operations.context import Access, StoreContext, refusal
from holdfast.operations.packs import StoredChunks, estimate_removal, rewrite_sparse
from holdfast.operations.read import PAGE, known_run
from holdfast.state import rope
from holdfast.state.rope import verify_chunk
from holdfast.store.journal_prune import PRUNED, planned_pruning
from holdfast.store.port import Select, SweepResult

_NEWEST: Final = "newest"


def reasons_to_keep(
    keep: Keep, checkpoints: list[CheckpointRow], effects: list[EffectRow], lineage: Lineage | None
) -> dict[int, str]:
    """The reason for each checkpoint that is kept, by number. `checkpoints` are oldest first.

    Without `lineage`, the ancestors of delta channels are treated as folded.
    """
    reasons: dict[int, str] = {}

    def note(numbers: Iterable[int], reason: str) -> None:
        for number in numbers:
            reasons.setdefault(number, reason)

    lanes: dict[str, list[CheckpointRow]] = {}
    for row in checkpoints:
        lanes.setdefault(row.lane, []).append(row)
    for rows in lanes.values():
        note([row.number for row in rows[-keep.last :]], _NEWEST)
        note([row.number for row in rows if needed(row).is_declared][-1:], "resume")
        if keep.latest_terminal:
            note([row.number for row in rows if row.status in TERMINAL][-1:], "ended")
        if keep.before_pending_effects:
            for effect in effects:
                if effect.state == "intent":
                    note([row.number for row in rows if row.number <= effect.after_checkpoint][-1:], "effect")
    if keep.covering is not None:
        note([row.number for row in checkpoints if row.covers >= keep.covering], "covering")
    note(sorted(with_needed(set(reasons), checkpoints)), "needed")
    if lineage is not None:
        note(sorted(lineage.add_needed(reasons, checkpoints)), "delta")
    return reasons


def prune(access: Access, run_id: str, keep: Keep, *, dry_run: bool = False) -> Plan[Pruned]:
    """Remove the checkpoints that `keep` does not keep, with their attachments, and free the state only they needed.

    A checkpoint that a kept one needs is kept too; `kept_more` in the report counts what was kept beyond `Keep.last`.
    With `Keep(journal=True)` the journal entries that none of the kept checkpoints needs are replaced by an entry of
    the kind "pruned", which names the last position.

    Safe with concurrent writers and forks. With `dry_run=True` nothing is removed, and the report lists what would be.

    Example:
        store.prune("run-1", Keep(last=10), dry_run=True).bytes_freed
    """
    check_id("run_id", run_id)
    if not isinstance(keep, Keep):
        raise InvalidInput(f"prune needs a Keep, which selects what stays, not {keep!r}")
    work = plan_prune if dry_run else _prune
    return (yield lambda: work(access.core, run_id, keep))  # type: ignore[no-any-return]


def _prune(core: StoreContext, run_id: str, keep: Keep) -> Pruned:
    reasons: dict[int, str] = {}

    def choose(checkpoints: list[CheckpointRow], effects: list[EffectRow], lineage: Lineage) -> list[int]:
        nonlocal reasons
        reasons = reasons_to_keep(keep, checkpoints, effects, lineage)
        return [row.number for row in checkpoints if row.number not in reasons]

    run = known_run(core, run_id)
    attachments = core.port.rows(AttachmentRow, run.run)
    removed = remove_checkpoints(core, run, choose)
    if removed is None:
        raise RunNotFound(run_id)
    swept, damage, entries = SweepResult(0, 0), None, _Entries(0, 0)
    try:
        if keep.journal:  # all checkpoints that exist now are kept, including new ones
            entries = _prune_entries(core, run)
    except DamagedData as found:  # missing entries must not be reported as pruned
        damage = str(found)
    try:
        swept = sweep(core, run.family)
    except DamagedData as found:  # it is unknown which chunks a damaged checkpoint needs, so none is removed
        damage = damage or str(found)
    return Pruned(
        run_id=run_id,
        removed=tuple(row.checkpoint_id for row in removed),
        kept=len(reasons),
        chunks=swept.chunks,
        bytes_freed=swept.bytes + sum(map(len, roots_of(removed, attachments))) + entries.bytes,
        dry_run=False,
        damage=damage,
        entries=entries.number,
        kept_more=_kept_more(reasons),
    )


def _prune_entries(core: StoreContext, run: RunRow) -> _Entries:
    """Remove the journal entries that no checkpoint needs."""
    lasting = lasting_entries(core, run)
    ranges: list[tuple[int, int]] = []

    def choose(now: RunRow, rows: list[CheckpointRow]) -> list[tuple[int, int]]:
        nonlocal ranges
        ranges = unneeded_entries(rows, lasting) if now.incarnation == run.incarnation else []
        return ranges

    number = core.port.prune_entries(run.run_id, choose)
    return _Entries(number, lasting.sizes.sum_of(ranges)) if number else _Entries(0, 0)


class _Entries(NamedTuple):
    """The number and size of removed journal entries."""

    number: int
    bytes: int


def roots_of(checkpoints: list[CheckpointRow], attachments: Iterable[AttachmentRow]) -> list[bytes]:
    """The roots of these checkpoints and of their attachments."""
    names = {(row.lane, row.checkpoint_id) for row in checkpoints}
    own = [row.root for row in attachments if (row.lane, row.checkpoint_id) in names]
    return [row.root for row in checkpoints] + own


def _kept_more(reasons: dict[int, str]) -> dict[str, int]:
    return dict(Counter(reason for reason in reasons.values() if reason != _NEWEST))


def plan_prune(
    core: StoreContext,
    run_id: str,
    keep: Keep,
    estimate: RemovalEstimate | None = None,
    folds: Collection[bytes] | None = None,
) -> Pruned:
    """What a prune would remove, in addition to what `estimate` has counted already.

    `folds`: ancestors of delta channels are folded first, and the folds consist of these chunks.
    """
    run = known_run(core, run_id)
    checkpoints = core.port.rows(CheckpointRow, run.run)
    lineage = Lineage(core, run) if folds is None else None
    reasons = reasons_to_keep(keep, checkpoints, core.port.rows(EffectRow, run.run), lineage)
    removed = [row for row in checkpoints if row.number not in reasons]
    entries = _Entries(0, 0)
    if keep.journal:
        left, lasting = (row for row in checkpoints if row.number in reasons), lasting_entries(core, run)
        ranges = unneeded_entries(left, lasting)
        entries = _Entries(_removable(core, run, ranges), lasting.sizes.sum_of(ranges))
    freed = (estimate or RemovalEstimate(core)).add(run, removed, folds or ())
    return Pruned(
        run_id=run_id,
        removed=tuple(row.checkpoint_id for row in removed),
        kept=len(reasons),
        chunks=freed.chunks,
        bytes_freed=freed.bytes + entries.bytes,
        dry_run=True,
        entries=entries.number,
        kept_more=_kept_more(reasons),
    )


def delete_checkpoint(
    access: Access, run_id: str, checkpoint_id: str, *, lane: str = "", dry_run: bool = False
) -> Plan[Pruned]:
    """Remove one checkpoint with its attachments, and free the state only it needed.

    If it is the newest of its lane, the one before it becomes the newest. Nothing is removed if there is no such
    checkpoint. `Conflict` if it is needed: by another checkpoint, or to resume or roll back the run.

    Example:
        store.delete_checkpoint("run-1", checkpoint_id).bytes_freed
    """
    check_id("run_id", run_id)
    check_id("checkpoint_id", checkpoint_id)
    check_lane(lane)
    return (yield lambda: _delete_checkpoint(access.core, run_id, (lane, checkpoint_id), dry_run))  # type: ignore[no-any-return]


def _delete_checkpoint(core: StoreContext, run_id: str, name: tuple[str, str], dry_run: bool) -> Pruned:
    run = known_run(core, run_id)
    is_pruned = _has_pruned_entries(core, run, name)
    attachments = core.port.rows(AttachmentRow, run.run, keys=[name])
    left, reason = 0, None

    def choose(checkpoints: list[CheckpointRow], _effects: list[EffectRow], lineage: Lineage) -> list[int]:
        nonlocal left, reason
        row = next((row for row in checkpoints if (row.lane, row.checkpoint_id) == name), None)
        if row is None:
            left, reason = len(checkpoints), None
            return []
        child = lineage.find_child(row, checkpoints)
        if child is not None:
            reason = f"delta channels of checkpoint {child.checkpoint_id!r} need it; remove that one first"
        else:
            reason = why_needed(row, checkpoints, ended=run.status in TERMINAL, is_pruned=is_pruned)
        left = len(checkpoints) - 1
        return [row.number] if reason is None else []

    damage = None
    if dry_run:
        checkpoints = core.port.rows(CheckpointRow, run.run)
        numbers = choose(checkpoints, [], Lineage(core, run))
        removed = [row for row in checkpoints if row.number in numbers]
    else:
        removed = remove_checkpoints(core, run, choose) or []
    if reason is not None:
        raise Conflict(f"checkpoint {name[1]!r} of run {run_id!r} cannot be removed: {reason}")
    if dry_run:
        freed = RemovalEstimate(core).add(run, removed)
    else:
        try:
            swept = sweep(core, run.family)
        except DamagedData as found:  # as in prune
            swept, damage = SweepResult(0, 0), str(found)
        freed = SweepResult(swept.chunks, swept.bytes + sum(map(len, roots_of(removed, attachments))))
    return Pruned(
        run_id=run_id,
        removed=tuple(row.checkpoint_id for row in removed),
        kept=left,
        chunks=freed.chunks,
        bytes_freed=freed.bytes,
        dry_run=dry_run,
        damage=damage,
    )


def _has_pruned_entries(core: StoreContext, run: RunRow, name: tuple[str, str]) -> bool:
    """Whether entries that a checkpoint of the engine covers were pruned."""
    found = core.port.checkpoint(run.run_id, Select(*name))
    row = found[1] if found is not None else None
    if row is None or row.lane or not needed(row).is_declared:
        return False
    after = 0
    while after < row.covers and (rows := core.port.rows(EntryRow, run.run, after, PAGE)):
        if any(each.kind == PRUNED for each in rows):
            return True
        after = rows[-1].position
    return False


class RemovalEstimate:
    """What removing checkpoints would free, each removal after the ones before it.

    The runs of a family share their state, so two of them free more together than each alone.
    """

    def __init__(self, core: StoreContext) -> None:
        self._core = core
        self._roots: dict[int, Counter[bytes]] = {}
        """By family: the removed roots."""
        self._stored: dict[int, StoredChunks] = {}
        """By family: what would be left."""

    def add(self, run: RunRow, removed: list[CheckpointRow], spared: Collection[bytes] = ()) -> SweepResult:
        """Count what removing these checkpoints of a run frees in addition. `spared` chunks are still needed."""
        attachments = self._core.port.rows(AttachmentRow, run.run)
        return self._add(run.family, roots_of(removed, attachments), spared)

    def add_run(self, run: RunRow) -> SweepResult:
        """Count what removing the whole run frees in addition."""
        port = self._core.port
        roots = [row.root for row in port.rows(CheckpointRow, run.run)]
        roots += [row.root for row in port.rows(AttachmentRow, run.run)]
        swept = self._add(run.family, roots, ())
        return SweepResult(swept.chunks, swept.bytes + record_bytes(self._core, run))

    def _add(self, family: int, removed: list[bytes], spared: Collection[bytes]) -> SweepResult:
        gone = self._roots.setdefault(family, Counter())
        gone.update(removed)
        if family not in self._stored:
            self._stored[family] = StoredChunks(self._core.port, family)
        stored, roots = self._stored[family], Counter(self._core.port.roots(family)[0])
        roots.subtract(gone)
        live = reachable_chunks(self._core, family, [root for root, count in roots.items() if count > 0])
        dead = stored.names - live - set(spared)
        freed = estimate_removal(self._core, family, stored, dead)
        return SweepResult(len(dead), freed + sum(map(len, removed)))


def record_bytes(core: StoreContext, run: RunRow) -> int:
    """The size of a run's journal and ledger: the bodies of entries, results and calls, as stored."""
    size, after = sum(len(row.body) + len(row.call) for row in core.port.rows(EffectRow, run.run)), 0
    while rows := core.port.rows(EntryRow, run.run, after, PAGE):
        size += sum(len(row.body) for row in rows if row.kind != PRUNED)
        after = rows[-1].position
    return size


def _removable(core: StoreContext, run: RunRow, ranges: list[tuple[int, int]]) -> int:
    """How many entries these ranges contain."""
    pruned, after, end = [], 0, ranges[-1][1] if ranges else 0
    while after < end and (rows := core.port.rows(EntryRow, run.run, after, PAGE)):
        pruned += [row for row in rows if row.kind == PRUNED]
        after = rows[-1].position
    plan = planned_pruning(run, ranges, pruned, 0)
    return plan.entries if plan is not None else 0


def sweep(core: StoreContext, family: int) -> SweepResult:
    """Remove the unreachable chunks of a family, and write packs again that lost more than half of their bytes.

    Chunks are found without a lock; the store checks newer roots itself.
    """
    roots, seen = core.port.roots(family)
    dead = StoredChunks(core.port, family).names - reachable_chunks(core, family, roots)
    # Chunks committed after the roots were read may seem unreachable; newer roots protect them.
    swept = core.port.sweep(family, dead, seen, lambda late: reachable_chunks(core, family, late))
    return SweepResult(swept.chunks, swept.bytes + rewrite_sparse(core, family))


def reachable_chunks(core: StoreContext, family: int, roots: list[bytes]) -> set[bytes]:
    """The hashes of all chunks that are reachable from these roots."""
    place = f"the state of family {family}"
    fetch = core.fetch(family)
    live: set[bytes] = set()
    nodes: set[bytes] = set()
    for root in roots:
        for link in rope.links(root, place):
            (nodes if link.node else live).add(link.hash)
    while nodes:
        found = fetch(list(nodes))
        live |= nodes
        below: set[bytes] = set()
        for name in nodes:
            if name not in found:
                continue  # a missing node has no links; verify reports it
            for link in rope.links(verify_chunk(name, found[name], place), place):
                (below if link.node else live).add(link.hash)
        nodes = below - live
    return live


def delete(access: Access, run_id: str) -> Plan[bool]:
    """Remove a run with all its data. False if it does not exist; refused while it is claimed.

    Example:
        store.delete("run-1")
    """
    check_id("run_id", run_id)
    core = access.core
    gone = yield lambda: core.port.delete_run(run_id)
    if gone is None:
        core.memory.forget(run_id)
        return False
    if isinstance(gone, Refused):
        raise refusal(access, Commit(run_id, b""), gone)
    yield lambda: forget_deleted(core, gone)
    return True


def forget_deleted(core: StoreContext, gone: RunRow) -> None:
    """Free the state that only the deleted run needed."""
    core.memory.forget(gone.run_id)
    with contextlib.suppress(DamagedData):  # a damaged fork may need any of the chunks, so none is removed
        sweep(core, gone.family)
