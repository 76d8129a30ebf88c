"""Verify everything in a store, and count what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from holdfast.drivers import Plan
from holdfast.errors import DamagedData
from holdfast.limits import NUMBER_MAX
from holdfast.model.rows import AttachmentRow, CheckpointRow, EffectRow, EntryRow, GateRow, ItemRow, MessageRow, RunRow
from holdfast.model.views import Problem, Report, Stats
from holdfast.operations.catalog import catalog_damage
from holdfast.operations.checkpoint_needs import Lineage, Needed, needed
from holdfast.operations.context import Access, StoreContext
from holdfast.operations.packs import StoredChunks, pack_problems
from holdfast.operations.views import checked_checkpoint, checkpoint_place, effect_view, entry_view, next_position
from holdfast.state.rope import decode
from holdfast.store.capabilities import Diagnostics
from holdfast.store.checksum import verify_checksum, verify_run
from holdfast.store.journal_prune import PRUNED, last_of
from holdfast.store.port import RunQuery, Select, Usage

_PAGE = 200
_TRIES = 5


def verify(access: Access) -> Plan[Report]:
    """Read and check everything: checksums, hashes, the order of journals, the heads of runs.

    `report.problems` is empty if nothing is wrong. Each problem names its place; nothing is repaired or hidden. Safe
    with concurrent writers.

    Example:
        assert store.verify().problems == []
    """
    return (yield lambda: verify_store(access.core))  # type: ignore[no-any-return]


def verify_store(core: StoreContext, on_run: Callable[[], object] = int) -> Report:
    """The report of `verify`; `on_run` is called after each run."""
    return _Verifier(core, on_run).report()


def stats(access: Access) -> Plan[Stats]:
    """Count what the store holds.

    Example:
        store.stats().state_bytes
    """
    usage: Usage = yield access.core.port.usage
    estimated = (*sorted(usage.runs.estimated), *(_ESTIMATED if usage.is_estimated else ()))
    return Stats(
        runs=usage.runs.runs,
        checkpoints=usage.checkpoints,
        entries=usage.entries,
        effects=usage.effects,
        attachments=usage.attachments,
        chunks=usage.chunks,
        state_bytes=usage.chunk_bytes + usage.root_bytes,
        file_bytes=usage.file_bytes,
        estimated=estimated,
    )


_ESTIMATED: Final = ("checkpoints", "entries", "effects", "attachments", "chunks", "state_bytes")
"""The fields of `Stats` that a large store estimates."""


class _Verifier:
    """One check of everything."""

    def __init__(self, core: StoreContext, on_run: Callable[[], object]) -> None:
        self._core = core
        self._on_run = on_run
        self._port = core.port
        reasons = core.port.check() if isinstance(core.port, Diagnostics) else []
        self._problems = [Problem(place=core.port.url, reason=reason) for reason in reasons]
        self._checkpoints = self._entries = 0
        self._used: dict[int, set[bytes]] = {}
        self._needs: list[tuple[CheckpointRow, Needed]] = []
        """The needs that the checkpoints of the current run declare."""
        self._rows: list[CheckpointRow] = []
        """All checkpoints of the current run, including damaged ones."""
        self._pruned: list[tuple[int, int]] = []

    def report(self) -> Report:
        runs, before = 0, NUMBER_MAX + 1
        while rows := self._port.runs(RunQuery(before=before, limit=_PAGE)):
            for row in rows:
                self._problems += self._stable_problems(row)
                self._on_run()
            runs, last = runs + len(rows), rows[-1].run
            if type(last) is not int or last >= before:
                reason = "the list of runs cannot be read to its end"
                self._problems.append(Problem(place=self._port.url, reason=reason))
                break
            before = last
        self._problems += [Problem(place=each.place, reason=each.reason) for each in catalog_damage(self._core)]
        stored = {family: StoredChunks(self._port, family) for family in self._used}
        for family, chunks in stored.items():
            self._problems += pack_problems(self._core, family, chunks)
        return Report(
            problems=self._problems,
            runs=runs,
            checkpoints=self._checkpoints,
            entries=self._entries,
            chunks=sum(len(chunks.names) for chunks in stored.values()),
            unused_chunks=sum(len(chunks.names - self._used[family]) for family, chunks in stored.items()),
        )

    def _stable_problems(self, row: RunRow) -> list[Problem]:
        """The problems of a run. If the run changed during the check, it is checked again."""
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
        self._needs, self._rows, self._pruned = [], [], []
        found = list(self._check_run(run))
        yield from found
        if found:
            return  # without the run's row the rest cannot be checked
        yield from self._check_checkpoints(run)
        yield from self._check_journal(run)
        yield from self._check_needed(run)
        yield from self._check_lineage(run)
        yield from self._check_rest(run)

    def _check_run(self, run: RunRow) -> Iterator[DamagedData]:
        try:
            verify_run(run)
            found = self._port.checkpoint(run.run_id, Select(before=NUMBER_MAX))
            if found is None:
                return
            head, newest = verify_run(found[0]).head, found[1].number if found[1] is not None else 0
        except DamagedData as damage:
            yield damage
            return
        if newest < head:
            yield DamagedData(f"run {run.run_id!r}", f"its newest checkpoint, number {head}, is missing")
        elif newest > head:
            yield DamagedData(f"run {run.run_id!r}", f"its row does not name its newest checkpoint, number {newest}")

    def _check_checkpoints(self, run: RunRow) -> Iterator[DamagedData]:
        after = 0
        while rows := self._port.rows(CheckpointRow, run.run, after, _PAGE):
            self._rows += rows
            for row in rows:
                self._checkpoints += 1
                try:
                    checked_checkpoint(run, row)
                    self._needs.append((row, needed(row)))
                    self._check_state(run, row.root, checkpoint_place(run.run_id, row))
                except DamagedData as damage:
                    yield damage
            after = rows[-1].number

    def _check_state(self, run: RunRow, root: bytes, place: str) -> None:
        try:
            _, hashes = decode(root, self._core.fetch(run.family), place)
        except DamagedData as damage:
            if place in damage.place:
                raise
            raise DamagedData(place, f"it needs {damage.place}, which is damaged: {damage.reason}") from damage
        self._used[run.family].update(hashes)

    def _check_journal(self, run: RunRow) -> Iterator[DamagedData]:
        after, end = 0, 0
        while rows := self._port.rows(EntryRow, run.run, after, _PAGE):
            for row in rows:
                self._entries += 1
                try:
                    entry_view(run, row)
                    end = next_position(run.run_id, end, row)
                    self._pruned += [(row.position, end)] if row.kind == PRUNED else []
                except DamagedData as damage:
                    yield damage
                    end = _end_of(row)
                after = row.position
        if end < run.position:
            yield DamagedData(f"the journal of run {run.run_id!r}", f"it ends at {end}, not at {run.position}")

    def _check_needed(self, run: RunRow) -> Iterator[DamagedData]:
        """Whether the run can be resumed from each checkpoint: the entries and checkpoints it needs exist."""
        existing = {row.checkpoint_id for row, _ in self._needs}
        for row, needs in self._needs:
            place = checkpoint_place(run.run_id, row)
            spans = list(needs.spans or ())
            if spans and row.number == run.head:
                spans.append((row.covers + 1, run.position))
            for first, last in spans:
                lost = [max(first, gone) for gone, through in self._pruned if first <= through and gone <= last]
                if lost:
                    yield DamagedData(
                        place, f"entry {lost[0]} of the journal, which it needs to be resumed, was pruned"
                    )
            for name in sorted(needs.needs - existing):
                yield DamagedData(place, f"checkpoint {name!r}, which it needs to be resumed, is missing")

    def _check_lineage(self, run: RunRow) -> Iterator[DamagedData]:
        """Whether the ancestors that delta channels are computed from exist."""
        for row in Lineage(self._core, run).find_orphans(self._rows):
            reason = f"its parent {row.parent_id!r}, which its delta channels need, is missing"
            yield DamagedData(checkpoint_place(run.run_id, row), reason)

    def _check_rest(self, run: RunRow) -> Iterator[DamagedData]:
        of_run = f"of run {run.run_id!r}"
        effects = self._port.rows(EffectRow, run.run)
        for effect in effects:
            yield from _damage_in(effect_view, run, effect)
        yield from _check_ledger(run, {effect.number for effect in effects})
        for row in self._port.rows(AttachmentRow, run.run):
            place = f"attachment {row.key!r} {of_run}"
            yield from _damage_in(verify_checksum, row, run.incarnation, place)
            yield from _damage_in(self._check_state, run, row.root, place)
        for item in self._port.rows(ItemRow, run.run):
            yield from _damage_in(verify_checksum, item, run.incarnation, f"inbox item {item.number} {of_run}")
        for message in self._port.rows(MessageRow, run.run):
            place = f"outbox message {message.number} {of_run}"
            yield from _damage_in(verify_checksum, message, run.incarnation, place)
        for gate in self._port.rows(GateRow, run.run):
            yield from _damage_in(verify_checksum, gate, run.incarnation, f"gate {gate.gate!r} {of_run}")


def _check_ledger(run: RunRow, numbers: set[int]) -> Iterator[DamagedData]:
    """Whether the ledger has the effects that the run's row counts; none is ever removed."""
    place = f"the ledger of run {run.run_id!r}"
    counted = set(range(1, run.effects + 1))
    for number in sorted(counted - numbers):
        yield DamagedData(place, f"effect {number} of {run.effects} is missing")
    for number in sorted(numbers - counted):
        yield DamagedData(place, f"it has effect {number}, but the run's row counts only {run.effects}")


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
