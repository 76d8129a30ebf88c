"""The memory store: everything in this process, nothing on disk.

It is meant for tests, and is the simplest implementation of the port.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

from holdfast.clock import Clock
from holdfast.errors import DamagedData, StoreClosed
from holdfast.fork_safety import reset_after_fork
from holdfast.model.commit import Commit, Outcome, Reason, Refused
from holdfast.model.rows import CheckpointRow, EffectRow, RunRow
from holdfast.store.capabilities import About
from holdfast.store.checksum import next_epoch, verify_run
from holdfast.store.decide import Decision, decide, is_live
from holdfast.store.folded_reads import FoldedReads
from holdfast.store.folded_run import FoldedRun, FoldedTransactionReads, change_of
from holdfast.store.journal_prune import ChooseEntries
from holdfast.store.port import Choose, Mark, RunQuery, ScanMark, SweepResult


class _Reads(FoldedTransactionReads):
    """Reads inside a commit."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def source(self, run_id: str) -> RunRow | None:
        return self._store.run(run_id)

    def new_run(self) -> int:
        return self._store.next_run()

    def _of(self, run: int) -> FoldedRun:
        return self._store._runs[run]


class MemoryStore(FoldedReads):
    """Runs in dictionaries, guarded by one lock."""

    def __init__(self, clock: Clock) -> None:
        self.url = "memory:"
        self._clock = clock
        self.after_fork()
        reset_after_fork(self)
        self._runs: dict[int, FoldedRun] = {}
        self._ids: dict[str, FoldedRun] = {}
        self._chunks: dict[int, dict[bytes, bytes]] = {}
        self._last_run = 0
        self._transaction_reads = _Reads(self)
        self._closed = False
        self._workers: dict[str, tuple[str, ...]] = {}
        self._catalog: dict[str, bytes] = {}

    def after_fork(self) -> None:
        self._lock = threading.RLock()

    def next_run(self) -> int:
        self._last_run += 1
        return self._last_run

    # --- writing -----------------------------------------------------------------------------------------------------

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        with self._reading():
            return [self._commit(commit) for commit in commits]

    def _commit(self, commit: Commit) -> Outcome:
        found = self._ids.get(commit.run_id)
        row = found.row if found else None
        try:
            known = row and verify_run(row)
            made = decide(known, commit, self._clock.now_us(), self._clock.lease_time, self._transaction_reads)
        except DamagedData as damage:
            return Refused(Reason.DAMAGED, row, error=damage)
        if isinstance(made, Refused):
            return made
        return made.outcome(self._apply(made, commit) if made.fresh else 0)

    def _apply(self, made: Decision, commit: Commit) -> int:
        row, change = made.run, change_of(made, commit)
        if made.created:
            self._runs[row.run] = self._ids[row.run_id] = FoldedRun(change)
        else:
            self._runs[row.run].apply(change)
        chunks = self._chunks.setdefault(row.family, {})
        new = [chunk for chunk in commit.chunks if chunk.hash not in chunks]
        chunks.update((chunk.hash, chunk.body) for chunk in new)
        roots = [c.root for c in change.checkpoints] + [a.root for a in change.attachments]
        return sum(len(chunk.body) for chunk in new) + sum(map(len, roots))

    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        with self._reading():
            run = self._ids.get(run_id)
            if run is None:
                return None
            gone = [run.checkpoints[number] for number in choose(run.rows(CheckpointRow), run.rows(EffectRow))]
            run.apply(run.without_checkpoints(gone, reopen=reopen))
            return gone

    def prune_entries(self, run_id: str, choose: ChooseEntries) -> int | None:
        with self._reading():
            run = self._ids.get(run_id)
            if run is None:
                return None
            verify_run(run.row)
            change, removed = run.without_entries(choose, self._clock.now_us())
            if change is not None:
                run.apply(change)
            return removed

    def sweep(self, family: int, dead: set[bytes], seen: dict[int, ScanMark], mark: Mark) -> SweepResult:
        with self._reading():
            runs = self._family_runs(family)
            for run in runs:
                verify_run(run.row)
            late = [root for run in runs for root in run.roots(seen.get(run.row.run, ScanMark()))]
            chunks = self._chunks.get(family, {})
            gone = [chunks.pop(name) for name in dead - mark(late) if name in chunks]
            if gone:
                for run in runs:
                    run.row = next_epoch(run.row)
            return SweepResult(len(gone), sum(map(len, gone)))

    def delete_run(
        self, run_id: str, seen: bytes | None = None, family: frozenset[int] | None = None
    ) -> RunRow | Refused | None:
        with self._reading():
            run = self._ids.get(run_id)
            if run is None:
                return None
            if is_live(run.row, self._clock.lease_time):
                return Refused(Reason.CLAIMED, run.row)
            relatives = {each.row.run for each in self._family_runs(run.row.family)}
            if seen not in (None, run.row.commit_id) or (family is not None and relatives - family):
                return Refused(Reason.CHANGED, run.row)
            del self._ids[run_id], self._runs[run.row.run]
            if len(relatives) == 1:
                self._chunks.pop(run.row.family, None)
            return run.row

    # --- reading -----------------------------------------------------------------------------------------------------

    def _find(self, run_id: str) -> FoldedRun | None:
        return self._ids.get(run_id)

    def _at(self, run: int) -> FoldedRun | None:
        return self._runs.get(run)

    def _readable_runs(self) -> Iterable[FoldedRun]:
        return self._runs.values()

    def _family_runs(self, family: int) -> list[FoldedRun]:
        return [run for run in self._runs.values() if run.row.family == family]

    def _listed(self, _query: RunQuery) -> Iterable[RunRow]:
        return [run.row for run in self._runs.values()]

    def _chunk_totals(self) -> tuple[int, int]:
        sizes = [len(body) for chunks in self._chunks.values() for body in chunks.values()]
        return len(sizes), sum(sizes)

    def _file_bytes(self, chunk_bytes: int) -> int:  # noqa: ARG002
        return 0

    def chunks(self, family: int, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._reading():
            chunks = self._chunks.get(family, {})
            return {name: chunks[name] for name in hashes if name in chunks}

    def chunk_sizes(self, family: int) -> dict[bytes, int]:
        with self._reading():
            return {name: len(body) for name, body in self._chunks.get(family, {}).items()}

    def describe(self) -> About:
        return About({"kept": "in memory"}, risks=("it is kept in memory, and ends with this process",))

    def check(self) -> list[str]:
        return []

    def register_worker(self, owner: str, workflows: Sequence[str], lease_us: int) -> None:  # noqa: ARG002
        with self._lock:
            self._workers.pop(owner, None)
            if workflows:
                self._workers[owner] = tuple(workflows)

    def workers(self) -> dict[str, tuple[str, ...]]:
        with self._lock:
            return dict(self._workers)

    def publish(self, entries: Mapping[str, bytes]) -> None:
        with self._reading():
            merged = self._catalog | dict(entries)
            self._catalog = {name: body for name, body in sorted(merged.items()) if body}

    def published(self) -> dict[str, bytes]:
        with self._reading():
            return dict(self._catalog)

    def close(self) -> None:
        self._closed = True

    def _reading(self) -> threading.RLock:
        if self._closed:
            raise StoreClosed("this memory: store was closed, and its runs are gone; open another one")
        return self._lock
