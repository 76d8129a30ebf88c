"""Keeping and letting go: prune, sweep, delete. Nothing is removed without being asked for."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from holdfast.errors import Conflict, DamagedData, InvalidInput, RunNotFound
from holdfast.ids import check_id, check_lane
from holdfast.model.commit import Commit, Refused
from holdfast.model.rows import AttachmentRow, CheckpointRow, EffectRow, RunRow
from holdfast.model.status import TERMINAL
from holdfast.model.views import Keep, Pruned
from holdfast.state import rope
from holdfast.state.decoder import checked
from holdfast.store.port import Select, Swept
from holdfast.store.pruning import PRUNED, planned_pruning
from holdfast.verbs.core import Core, Place
from holdfast.verbs.lineage import Lineage, remove_checkpoints
from holdfast.verbs.needed import lasting_entries, needed, unneeded_entries, why_needed, with_needed
from holdfast.verbs.plans import Plan
from holdfast.verbs.reading import PAGE, known_run
from holdfast.verbs.refusals import refusal

_NEWEST: Final = "newest"


def reasons_to_keep(
    keep: Keep, checkpoints: list[CheckpointRow], effects: list[EffectRow], lineage: Lineage | None
) -> dict[int, str]:
    """Why each checkpoint stays that does, by number. `checkpoints` are oldest first.

    Without `lineage`, the ancestors of delta channels count as folded.
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
        note([row.number for row in rows if needed(row).told][-1:], "resume")
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


def prune(place: Place, run_id: str, keep: Keep, *, dry_run: bool = False) -> Plan[Pruned]:
    """Remove the checkpoints that `keep` does not keep, with their attachments, and free the state only they needed.

    A checkpoint that a kept one needs is kept too; `kept_more` in the report counts what was kept beyond `Keep.last`.
    With `Keep(journal=True)` the journal entries go that none of the kept checkpoints needs; in their place stands an
    entry of the kind "pruned", which says through which position.

    Safe beside writers and forks. With `dry_run=True` nothing is removed and the report says what would be.

    Example:
        store.prune("run-1", Keep(last=10), dry_run=True).bytes_freed
    """
    check_id("run_id", run_id)
    if not isinstance(keep, Keep):
        raise InvalidInput(f"prune needs a Keep that says what must stay, not {keep!r}")
    work = plan_prune if dry_run else _pruned
    return (yield lambda: work(place.core, run_id, keep))  # type: ignore[no-any-return]


def _pruned(core: Core, run_id: str, keep: Keep) -> Pruned:
    reasons: dict[int, str] = {}

    def choose(checkpoints: list[CheckpointRow], effects: list[EffectRow], lineage: Lineage) -> list[int]:
        nonlocal reasons
        reasons = reasons_to_keep(keep, checkpoints, effects, lineage)
        return [row.number for row in checkpoints if row.number not in reasons]

    run = known_run(core, run_id)
    attachments = core.port.attachments(run.run, None, None)
    removed = remove_checkpoints(core, run, choose)
    if removed is None:
        raise RunNotFound(run_id)
    swept, damage, entries = Swept(0, 0), None, _Entries(0, 0)
    try:
        if keep.journal:  # all checkpoints that are there now are kept, also those that came since
            entries = _pruned_entries(core, run)
    except DamagedData as found:  # what is missing must not seem to be pruned
        damage = str(found)
    try:
        swept = sweep(core, run.family)
    except DamagedData as found:  # what a damaged checkpoint leads to is not known, so nothing may be taken from it
        damage = damage or str(found)
    return Pruned(
        run_id=run_id, removed=tuple(row.checkpoint_id for row in removed), kept=len(reasons), chunks=swept.chunks,
        bytes_freed=swept.bytes + sum(map(len, roots_of(removed, attachments))) + entries.bytes, dry_run=False,
        damage=damage, entries=entries.number, kept_more=_kept_more(reasons),
    )  # fmt: skip


def _pruned_entries(core: Core, run: RunRow) -> _Entries:
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
    """Journal entries that are removed."""

    number: int
    bytes: int


def roots_of(checkpoints: list[CheckpointRow], attachments: Iterable[AttachmentRow]) -> list[bytes]:
    """The roots of these checkpoints and of those attachments that are theirs."""
    names = {(row.lane, row.checkpoint_id) for row in checkpoints}
    own = [row.root for row in attachments if (row.lane, row.checkpoint_id) in names]
    return [row.root for row in checkpoints] + own


def _kept_more(reasons: dict[int, str]) -> dict[str, int]:
    return dict(Counter(reason for reason in reasons.values() if reason != _NEWEST))


def plan_prune(
    core: Core, run_id: str, keep: Keep, estimate: RemovalEstimate | None = None, folds: Collection[bytes] | None = None
) -> Pruned:
    """What a prune would remove, after what `estimate` has counted already.

    `folds`: ancestors of delta channels are folded first, and the folds consist of these chunks.
    """
    run = known_run(core, run_id)
    checkpoints = core.port.checkpoints(run.run, 0, -1)
    lineage = Lineage(core, run) if folds is None else None
    reasons = reasons_to_keep(keep, checkpoints, core.port.effects(run.run), lineage)
    removed = [row for row in checkpoints if row.number not in reasons]
    entries = _Entries(0, 0)
    if keep.journal:
        left, lasting = (row for row in checkpoints if row.number in reasons), lasting_entries(core, run)
        ranges = unneeded_entries(left, lasting)
        entries = _Entries(_removable(core, run, ranges), lasting.sizes.sum_of(ranges))
    freed = (estimate or RemovalEstimate(core)).add(run, removed, folds or ())
    return Pruned(
        run_id=run_id, removed=tuple(row.checkpoint_id for row in removed), kept=len(reasons), chunks=freed.chunks,
        bytes_freed=freed.bytes + entries.bytes, dry_run=True, entries=entries.number, kept_more=_kept_more(reasons),
    )  # fmt: skip


def delete_checkpoint(
    place: Place, run_id: str, checkpoint_id: str, *, lane: str = "", dry_run: bool = False
) -> Plan[Pruned]:
    """Remove one checkpoint with its attachments, and free the state only it needed.

    If it is the newest of its lane, the one before it becomes the newest. Nothing is removed if there is no such
    checkpoint. `Conflict` if it is needed: by another checkpoint, or by the run to go on or to go back.

    Example:
        store.delete_checkpoint("run-1", checkpoint_id).bytes_freed
    """
    check_id("run_id", run_id)
    check_id("checkpoint_id", checkpoint_id)
    check_lane(lane)
    return (yield lambda: _deleted_checkpoint(place.core, run_id, (lane, checkpoint_id), dry_run))  # type: ignore[no-any-return]


def _deleted_checkpoint(core: Core, run_id: str, name: tuple[str, str], dry_run: bool) -> Pruned:
    run = known_run(core, run_id)
    is_pruned = _has_pruned_entries(core, run, name)
    attachments = core.port.attachments(run.run, *name)
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
        checkpoints = core.port.checkpoints(run.run, 0, -1)
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
            swept, damage = Swept(0, 0), str(found)
        freed = Swept(swept.chunks, swept.bytes + sum(map(len, roots_of(removed, attachments))))
    return Pruned(
        run_id=run_id, removed=tuple(row.checkpoint_id for row in removed), kept=left, chunks=freed.chunks,
        bytes_freed=freed.bytes, dry_run=dry_run, damage=damage,
    )  # fmt: skip


def _has_pruned_entries(core: Core, run: RunRow, name: tuple[str, str]) -> bool:
    """Whether entries were pruned of what a checkpoint covers, if it is one of the engine's."""
    found = core.port.checkpoint(run.run_id, Select(*name))
    row = found[1] if found is not None else None
    if row is None or row.lane or not needed(row).told:
        return False
    after = 0
    while after < row.covers and (rows := core.port.entries(run.run, after, PAGE)):
        if any(each.kind == PRUNED for each in rows):
            return True
        after = rows[-1].position
    return False


class RemovalEstimate:
    """What removing checkpoints would free, each removal as if those before it had been done.

    The runs of a family share their state, so what two of them free together is more than each would free alone.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._roots: dict[int, Counter[bytes]] = {}
        """By family: the roots that are gone."""
        self._dead: dict[int, set[bytes]] = {}
        """By family: the chunks that were counted."""

    def add(self, run: RunRow, removed: list[CheckpointRow], spared: Collection[bytes] = ()) -> Swept:
        """Count what removing these checkpoints of a run frees as well. `spared` are chunks that stay needed."""
        attachments = self._core.port.attachments(run.run, None, None)
        return self._add(run.family, roots_of(removed, attachments), spared)

    def add_run(self, run: RunRow) -> Swept:
        """Count what removing the whole run frees as well."""
        port = self._core.port
        roots = [row.root for row in port.checkpoints(run.run, 0, -1)]
        roots += [row.root for row in port.attachments(run.run, None, None)]
        swept = self._add(run.family, roots, ())
        return Swept(swept.chunks, swept.bytes + record_bytes(self._core, run))

    def _add(self, family: int, removed: list[bytes], spared: Collection[bytes]) -> Swept:
        gone = self._roots.setdefault(family, Counter())
        gone.update(removed)
        sizes, roots = self._core.port.chunk_sizes(family), Counter(self._core.port.roots(family)[0])
        roots.subtract(gone)
        live = marked(self._core, family, [root for root, count in roots.items() if count > 0])
        counted = self._dead.setdefault(family, set())
        dead = sizes.keys() - live - counted - set(spared)
        counted |= dead
        return Swept(len(dead), sum(sizes[name] for name in dead) + sum(map(len, removed)))


def record_bytes(core: Core, run: RunRow) -> int:
    """What the journal and the ledger of a run take: the bodies of entries, results and calls, as stored."""
    size, after = sum(len(row.body) + len(row.call) for row in core.port.effects(run.run)), 0
    while rows := core.port.entries(run.run, after, PAGE):
        size += sum(len(row.body) for row in rows if row.kind != PRUNED)
        after = rows[-1].position
    return size


def _removable(core: Core, run: RunRow, ranges: list[tuple[int, int]]) -> int:
    """How many entries there are in these ranges."""
    pruned, after, end = [], 0, ranges[-1][1] if ranges else 0
    while after < end and (rows := core.port.entries(run.run, after, PAGE)):
        pruned += [row for row in rows if row.kind == PRUNED]
        after = rows[-1].position
    plan = planned_pruning(run, ranges, pruned, 0)
    return plan.entries if plan is not None else 0


def sweep(core: Core, family: int) -> Swept:
    """Free the chunks of a family that nothing leads to, found without a lock; the store looks again for late ones."""
    roots, seen = core.port.roots(family)
    dead = core.port.chunk_sizes(family).keys() - marked(core, family, roots)
    # Chunks that were committed after the roots were read may seem dead; what leads to them is a late root.
    return core.port.sweep(family, set(dead), seen, lambda late: marked(core, family, late))


def marked(core: Core, family: int, roots: list[bytes]) -> set[bytes]:
    """The hashes of all chunks these roots lead to."""
    place = f"the state of family {family}"
    live: set[bytes] = set()
    nodes: set[bytes] = set()
    for root in roots:
        for link in rope.links(root, place):
            (nodes if link.node else live).add(link.hash)
    while nodes:
        found = core.port.chunks(family, list(nodes))
        live |= nodes
        below: set[bytes] = set()
        for name in nodes:
            if name not in found:
                continue  # a missing node cannot lead anywhere; verify reports it
            for link in rope.links(checked(name, found[name], place), place):
                (below if link.node else live).add(link.hash)
        nodes = below - live
    return live


def delete(place: Place, run_id: str) -> Plan[bool]:
    """Remove a run and everything that is its own. False if it was not there; refused while somebody holds it.

    Example:
        store.delete("run-1")
    """
    check_id("run_id", run_id)
    core = place.core
    gone = yield lambda: core.port.delete_run(run_id)
    if gone is None:
        core.memory.forget(run_id)
        return False
    if isinstance(gone, Refused):
        raise refusal(place, Commit(run_id, b""), gone)
    yield lambda: forget_deleted(core, gone)
    return True


def forget_deleted(core: Core, gone: RunRow) -> None:
    """Free what only the deleted run needed."""
    core.memory.forget(gone.run_id)
    with contextlib.suppress(DamagedData):  # of a fork of it: what that needs is not known, so nothing may be freed
        sweep(core, gone.family)
