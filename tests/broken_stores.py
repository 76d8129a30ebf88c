"""Stores that are wrong in one way each, as stores of real programs have been. The contract must notice them all."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.model.commit import HOLDER, OUTSIDER, Commit, Committed, Guard, Outcome
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.store.memory import MemoryStore
from holdfast.store.port import Choose, RunQuery, Select
from holdfast.store.pruning import PRUNED, ChooseEntries

_replace = msgspec.structs.replace


class LowerCasedNames(MemoryStore):
    """Takes `A/b` and `a/b` for one run, as some file systems do."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return super().commit([_replace(commit, run_id=commit.run_id.lower()) for commit in commits])

    def run(self, run_id: str) -> RunRow | None:
        return super().run(run_id.lower())

    def checkpoint(self, run_id: str, select: Select) -> tuple[RunRow, CheckpointRow | None] | None:
        return super().checkpoint(run_id.lower(), select)


class NoFence(MemoryStore):
    """Lets whoever once held a run write to it."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return super().commit(
            [_replace(commit, guard=Guard(OUTSIDER)) if commit.guard.kind == HOLDER else commit for commit in commits]
        )


class NoEpoch(MemoryStore):
    """Lets a writer rely on chunks that were swept away."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return super().commit([_replace(c, guard=_replace(c.guard, gc_epoch=None)) for c in commits])


class Forgetful(MemoryStore):
    """Says that journal entries were appended, and drops them."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        outcomes = super().commit([_replace(commit, entries=()) for commit in commits])
        return [
            _replace(o, run=_replace(o.run, position=o.run.position + len(c.entries)))
            if isinstance(o, Committed)
            else o
            for o, c in zip(outcomes, commits, strict=True)
        ]


class PrunesTooMuch(MemoryStore):
    """Prunes everything but the newest checkpoint, whatever is to be kept."""

    def prune(self, run_id: str, choose: Choose) -> list[CheckpointRow] | None:
        return super().prune(run_id, lambda rows, effects: [row.number for row in rows[:-1]])


class IgnoresFilters(MemoryStore):
    """Lists runs whatever their metadata."""

    def runs(self, query: RunQuery) -> list[RunRow]:
        return super().runs(query._replace(tags=()))


class LeavesNoTrace(MemoryStore):
    """Removes journal entries, and does not say so."""

    def prune_entries(self, run_id: str, choose: ChooseEntries) -> int | None:
        removed = super().prune_entries(run_id, choose)
        if removed:
            run = self._ids[run_id]
            run.entries = [entry for entry in run.entries if entry.kind != PRUNED]
        return removed


class Renumbers(MemoryStore):
    """Gives copies of a pruned journal positions without gaps."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return super().commit(
            [_replace(c, entries=tuple(_replace(entry, positions=1) for entry in c.entries)) for c in commits]
        )


class WaitsForTheDead(MemoryStore):
    """Goes by leases alone, even if an owner is known to be gone."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return super().commit([_replace(c, guard=_replace(c.guard, gone=None)) for c in commits])


BROKEN = (
    LowerCasedNames, NoFence, NoEpoch, Forgetful, PrunesTooMuch, IgnoresFilters, LeavesNoTrace, Renumbers,
    WaitsForTheDead,
)  # fmt: skip
