"""Stores that are wrong in one way each, as stores of real programs have been. The contract must notice them all."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from holdfast.model.commit import (
    HOLDER,
    OUTSIDER,
    Commit,
    Committed,
    Guard,
    NewAttachment,
    NewCheckpoint,
    NewEffect,
    Outcome,
)
from holdfast.model.rows import CheckpointRow, EffectRow, RunRow
from holdfast.store.journal_prune import PRUNED, ChooseEntries
from holdfast.store.memory import MemoryStore
from holdfast.store.port import CheckpointQuery, Choose, RunQuery, Select, Selected
from holdfast.store.search import has_tags, tag_needle

_replace = msgspec.structs.replace


class LowerCasedNames(MemoryStore):
    """Takes `A/b` and `a/b` for one run, as some file systems do."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return super().commit([_replace(commit, run_id=commit.run_id.lower()) for commit in commits])

    def run(self, run_id: str) -> RunRow | None:
        return super().run(run_id.lower())

    def checkpoint(self, run_id: str, select: Select, *, attachments: bool = False) -> Selected | None:
        return super().checkpoint(run_id.lower(), select, attachments=attachments)


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

    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        return super().prune(run_id, lambda rows, effects: [row.number for row in rows[:-1]])


class LeavesTheHead(MemoryStore):
    """Prunes the newest checkpoint, and has the run point to it still."""

    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        run = self._ids.get(run_id)
        row, lanes = (run.row, dict(run.lanes)) if run else (None, {})
        gone = super().prune(run_id, choose, reopen=reopen)
        if run is not None and row is not None:
            run.row, run.lanes = row, lanes
        return gone


class LeavesCompleted(MemoryStore):
    """Does not reopen a completed run that loses its newest checkpoint."""

    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        return super().prune(run_id, choose)


class LeavesLanes(MemoryStore):
    """Has only the default lane go back when its newest checkpoint is pruned."""

    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        lanes = dict(self._ids[run_id].lanes) if run_id in self._ids else {}
        gone = super().prune(run_id, choose, reopen=reopen)
        if run_id in self._ids:
            self._ids[run_id].lanes = lanes
        return gone


class ReplacesWhatIsKept(MemoryStore):
    """Puts a new attachment in the place of one that was to stay."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return super().commit([_replace(c, attachments=tuple(map(self._taken, c.attachments))) for c in commits])

    def _taken(self, new: NewAttachment) -> NewAttachment:
        return _replace(new, keep=False, replace=True) if new.keep else new


class GivesRootsAParent(MemoryStore):
    """Takes a checkpoint that has no parent for one that did not say."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return super().commit([_replace(c, checkpoints=tuple(map(self._given, c.checkpoints))) for c in commits])

    def _given(self, new: NewCheckpoint) -> NewCheckpoint:
        return _replace(new, parent_id=new.parent_id or None)


class TrustsBytes(MemoryStore):
    """Finds checkpoints by the bytes of their metadata, wherever in it they lie."""

    def find_checkpoints(self, query: CheckpointQuery) -> list[tuple[RunRow, CheckpointRow]]:
        found = super().find_checkpoints(query._replace(tags=(), limit=-1))
        needles = [tag_needle(key, value) for key, value in query.tags]
        found = [pair for pair in found if all(needle in pair[1].metadata for needle in needles)]
        return found if query.limit < 0 else found[: query.limit]


class ShortPages(TrustsBytes):
    """Looks closely only at one page of what it found by bytes, and returns what is left of that."""

    def find_checkpoints(self, query: CheckpointQuery) -> list[tuple[RunRow, CheckpointRow]]:
        return [pair for pair in super().find_checkpoints(query) if has_tags(pair[1].metadata, query.tags)]


class IgnoresFilters(MemoryStore):
    """Lists runs whatever their metadata."""

    def runs(self, query: RunQuery) -> list[RunRow]:
        return super().runs(query._replace(tags=()))


class BuriesAnybody(MemoryStore):
    """Told that some owner is dead, it takes the run from whoever holds it now."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        sound = super().commit
        return [outcome for commit in commits for outcome in sound([self._blamed(commit)])]

    def _blamed(self, commit: Commit) -> Commit:
        row = self.run(commit.run_id)
        if row is None or commit.guard.gone is None:
            return commit
        return _replace(commit, guard=_replace(commit.guard, gone=row.fence))


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
    """Waits for the end of a lease though its owner is known to be dead."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return super().commit([_replace(c, guard=_replace(c.guard, gone=None)) for c in commits])


class RevivesAnything(MemoryStore):
    """Lets whoever claims a run that has ended go on with it."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return super().commit([_replace(c, take=c.take and _replace(c.take, revive=True)) for c in commits])


class LeavesRollbacksBehind(MemoryStore):
    """Takes a run from an owner who is gone in the middle of a rollback, and has no worker go on with it."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return super().commit([self._left(commit) for commit in commits])

    def _left(self, commit: Commit) -> Commit:
        row = self.run(commit.run_id)
        is_left = commit.rearm is not None and row is not None and row.status == "rolling_back"
        return _replace(commit, status="rolling_back") if is_left else commit


class ForgetsCalls(MemoryStore):
    """Has the outcome of an effect take the place of how it was called."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        return super().commit([_replace(c, effects=tuple(map(self._told, c.effects))) for c in commits])

    def _told(self, effect: NewEffect) -> NewEffect:
        return effect if effect.state == "intent" else _replace(effect, call=effect.call or b"\x00\xc0")


class KnowsOnlyTheFirst(MemoryStore):
    """Looks for an effect in the family's first run, and not in its forks."""

    def family_effects(self, family: int, key: str) -> list[tuple[RunRow, EffectRow]]:
        return [pair for pair in super().family_effects(family, key) if pair[0].run == family]


class ShowsTheLast(MemoryStore):
    """Of commits given together, shows each the run as the last one left it."""

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        outcomes = super().commit(commits)
        return [_replace(o, run=self.run(o.run.run_id)) if isinstance(o, Committed) else o for o in outcomes]


class TakesPrefixesForPatterns(MemoryStore):
    """Looks for ids as LIKE does: `%` stands for anything, `_` for any sign, and case does not count."""

    def runs(self, query: RunQuery) -> list[RunRow]:
        parts = [{"%": ".*", "_": "."}.get(sign, re.escape(sign)) for sign in query.prefix]
        pattern = re.compile("".join(parts), re.IGNORECASE)
        rows = super().runs(query._replace(prefix="", limit=1000))
        return [row for row in rows if pattern.match(row.run_id)][: query.limit]


class FindsPrefixesInThePage(MemoryStore):
    """Takes a page of all runs, and looks there for ids that begin so."""

    def runs(self, query: RunQuery) -> list[RunRow]:
        rows = super().runs(query._replace(prefix=""))
        return [row for row in rows if row.run_id.startswith(query.prefix)]


BROKEN = (
    LowerCasedNames, NoFence, NoEpoch, Forgetful, PrunesTooMuch, IgnoresFilters, BuriesAnybody, WaitsForTheDead,
    RevivesAnything, LeavesRollbacksBehind, ForgetsCalls, KnowsOnlyTheFirst, ShowsTheLast, LeavesCompleted,
    LeavesNoTrace, Renumbers, LeavesTheHead, LeavesLanes, ReplacesWhatIsKept, GivesRootsAParent, TrustsBytes,
    ShortPages, TakesPrefixesForPatterns, FindsPrefixesInThePage,
)  # fmt: skip
