"""Looking after the store: verify that everything is what was stored, and count what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.errors import DamagedData
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import CheckpointRow, EntryRow, RunRow
from holdfast.model.views import Problem, Report, Stats
from holdfast.state.decoder import decode
from holdfast.store.port import RunQuery, Select
from holdfast.store.pruning import PRUNED, last_of
from holdfast.store.seal import check_run, check_seal
from holdfast.verbs.core import Core, Place
from holdfast.verbs.lineage import Lineage
from holdfast.verbs.needed import Needed, needed
from holdfast.verbs.plans import Plan
from holdfast.verbs.shown import checked_checkpoint, checkpoint_place, effect_view, entry_view, followed

_PAGE = 200
_TRIES = 5


def verify(place: Place) -> Plan[Report]:
    """Read everything there is and check it: seals, hashes, the journal's order, what the newest checkpoint is.

    `report.problems` is empty if nothing is wrong. Each problem names its place; nothing is repaired or hidden. Safe
    beside writers.

    Example:
        assert store.verify().problems == []
    """
    return (yield lambda: verified(place.core))  # type: ignore[no-any-return]


def verified(core: Core, looked_at: Callable[[], object] = int) -> Report:
    """The report of `verify`; `looked_at` is called for each run that was."""
    return _Verifier(core, looked_at).report()


def stats(place: Place) -> Plan[Stats]:
    """Count what the store holds.

    Example:
        store.stats().state_bytes
    """
    usage = yield place.core.port.usage
    return Stats(
        runs=usage.runs, checkpoints=usage.checkpoints, entries=usage.entries, effects=usage.effects,
        attachments=usage.attachments, chunks=usage.chunks, state_bytes=usage.chunk_bytes + usage.root_bytes,
        file_bytes=usage.file_bytes,
    )  # fmt: skip


class _Verifier:
    """One look at everything."""

    def __init__(self, core: Core, looked_at: Callable[[], object]) -> None:
        self._core = core
        self._looked_at = looked_at
        self._port = core.port
        self._problems = [Problem(place=core.port.url, reason=reason) for reason in core.port.check()]
        self._checkpoints = self._entries = 0
        self._used: dict[int, set[bytes]] = {}
        self._told: list[tuple[CheckpointRow, Needed]] = []
        """What the checkpoints of the run that is looked at say they need."""
        self._rows: list[CheckpointRow] = []
        """All checkpoints of that run, also damaged ones."""
        self._pruned: list[tuple[int, int]] = []

    def report(self) -> Report:
        runs, before = 0, NUMBER_MAX + 1
        while rows := self._port.runs(RunQuery(before=before, limit=_PAGE)):
            for row in rows:
                self._problems += self._settled_problems(row)
                self._looked_at()
            runs, last = runs + len(rows), rows[-1].run
            if type(last) is not int or last >= before:
                reason = "the list of runs cannot be followed to its end"
                self._problems.append(Problem(place=self._port.url, reason=reason))
                break
            before = last
        sizes = {family: self._port.chunk_sizes(family) for family in self._used}
        return Report(
            problems=self._problems, runs=runs, checkpoints=self._checkpoints, entries=self._entries,
            chunks=sum(map(len, sizes.values())),
            unused_chunks=sum(len(found.keys() - self._used[family]) for family, found in sizes.items()),
        )  # fmt: skip

    def _settled_problems(self, row: RunRow) -> list[Problem]:
        """The problems of a run. If it changed while it was looked at, what was found may be none: look again."""
        for _ in range(_TRIES):
            problems = [Problem(place=found.place, reason=found.reason) for found in self._damage(row)]
            if not problems:
                return []
            now = self._port.run(row.run_id)
            if now is None:
                return []
            if now.commit_id == row.commit_id:
                return problems
            row = now
        return problems

    def _damage(self, run: RunRow) -> Iterator[DamagedData]:
        self._used.setdefault(run.family, set())
        self._told, self._rows, self._pruned = [], [], []
        checks = (
            self._check_run, self._check_checkpoints, self._check_journal, self._check_needed, self._check_lineage,
            self._check_rest,
        )  # fmt: skip
        for check in checks:
            found = list(check(run))
            yield from found
            if found and check == self._check_run:
                return  # without the run's row the rest cannot be judged

    def _check_run(self, run: RunRow) -> Iterator[DamagedData]:
        try:
            check_run(run)
            found = self._port.checkpoint(run.run_id, Select(before=NUMBER_MAX))
            if found is None:
                return
            head, newest = check_run(found[0]).head, found[1].number if found[1] is not None else 0
        except DamagedData as damage:
            yield damage
            return
        if newest < head:
            yield DamagedData(f"run {run.run_id!r}", f"its newest checkpoint, number {head}, is missing")
        elif newest > head:
            yield DamagedData(f"run {run.run_id!r}", f"it does not know its newest checkpoint, number {newest}")

    def _check_checkpoints(self, run: RunRow) -> Iterator[DamagedData]:
        after = 0
        while rows := self._port.checkpoints(run.run, after, _PAGE):
            self._rows += rows
            for row in rows:
                self._checkpoints += 1
                try:
                    checked_checkpoint(run, row)
                    self._told.append((row, needed(row)))
                    self._check_state(run, row.root, checkpoint_place(run.run_id, row))
                except DamagedData as damage:
                    yield damage
            after = rows[-1].number

    def _check_state(self, run: RunRow, root: bytes, place: str) -> None:
        _, hashes = decode(root, self._core.fetch(run.family), place)
        self._used[run.family].update(hashes)

    def _check_journal(self, run: RunRow) -> Iterator[DamagedData]:
        after, end = 0, 0
        while rows := self._port.entries(run.run, after, _PAGE):
            for row in rows:
                self._entries += 1
                try:
                    entry_view(run, row)
                    end = followed(run.run_id, end, row)
                    self._pruned += [(row.position, end)] if row.kind == PRUNED else []
                except DamagedData as damage:
                    yield damage
                    end = _end_of(row)
                after = row.position
        if end < run.position:
            yield DamagedData(f"the journal of run {run.run_id!r}", f"it ends at {end}, not at {run.position}")

    def _check_needed(self, run: RunRow) -> Iterator[DamagedData]:
        """Whether the run can be resumed from each checkpoint: the entries and checkpoints it needs are there."""
        there = {row.checkpoint_id for row, _ in self._told}
        for row, told in self._told:
            place = checkpoint_place(run.run_id, row)
            spans = list(told.spans or ())
            if spans and row.number == run.head:
                spans.append((row.covers + 1, run.position))
            for first, last in spans:
                lost = [max(first, gone) for gone, through in self._pruned if first <= through and gone <= last]
                if lost:
                    yield DamagedData(
                        place, f"entry {lost[0]} of the journal, which it needs to be resumed, was pruned"
                    )
            for name in sorted(told.needs - there):
                yield DamagedData(place, f"checkpoint {name!r}, which it needs to be resumed, is missing")

    def _check_lineage(self, run: RunRow) -> Iterator[DamagedData]:
        """Whether the ancestors that delta channels are computed from are there."""
        for row in Lineage(self._core, run).find_orphans(self._rows):
            reason = f"its parent {row.parent_id!r}, which its delta channels need, is missing"
            yield DamagedData(checkpoint_place(run.run_id, row), reason)

    def _check_rest(self, run: RunRow) -> Iterator[DamagedData]:
        of_run = f"of run {run.run_id!r}"
        for effect in self._port.effects(run.run):
            yield from _damage_in(effect_view, run, effect)
        for row in self._port.attachments(run.run, None, None):
            place = f"attachment {row.key!r} {of_run}"
            yield from _damage_in(check_seal, row, run.incarnation, place)
            yield from _damage_in(self._check_state, run, row.root, place)
        for item in self._port.inbox(run.run, 0, -1):
            yield from _damage_in(check_seal, item, run.incarnation, f"inbox item {item.number} {of_run}")
        for _, gate in self._port.gates(run.run, None, -1):
            yield from _damage_in(check_seal, gate, run.incarnation, f"gate {gate.gate!r} {of_run}")


def _end_of(row: EntryRow) -> int:
    try:
        return last_of(row)
    except DamagedData:
        return row.position


def _damage_in(check: Callable[..., object], *about: object) -> Iterator[DamagedData]:
    try:
        check(*about)
    except DamagedData as damage:
        yield damage
