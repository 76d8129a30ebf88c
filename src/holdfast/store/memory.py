"""The store that forgets: all in this process, nothing on disk. For tests, and the plainest reading of the port."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from holdfast.clock import Clock
from holdfast.errors import DamagedData, StoreClosed
from holdfast.forking import watch
from holdfast.model import commit as why
from holdfast.model.commit import Commit, Committed, Outcome, Refused, Take
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    EntryRow,
    GateRow,
    ItemRow,
    MessageRow,
    RunRow,
    TimerRow,
)
from holdfast.model.status import READY
from holdfast.store.decide import Decision, decide, is_live
from holdfast.store.finding import found_in
from holdfast.store.folding import Change, FoldedLook, FoldedRun, change_of
from holdfast.store.port import (
    About,
    CheckpointQuery,
    Choose,
    Mark,
    RunQuery,
    RunRows,
    Seen,
    Select,
    StorePort,
    Swept,
    Usage,
)
from holdfast.store.pruning import ChooseEntries
from holdfast.store.seal import check_run, next_epoch
from holdfast.store.tags import read_metadata, tag


class _Look(FoldedLook):
    """Reads inside a commit."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def source(self, run_id: str) -> RunRow | None:
        return self._store.run(run_id)

    def new_run(self) -> int:
        return self._store.next_run()

    def _of(self, run: int) -> FoldedRun:
        return self._store.at(run)


class MemoryStore(StorePort):
    """Runs in dictionaries, guarded by one lock."""

    def __init__(self, clock: Clock) -> None:
        self.url = "memory:"
        self._clock = clock
        self.after_fork()
        watch(self)
        self._runs: dict[int, FoldedRun] = {}
        self._ids: dict[str, FoldedRun] = {}
        self._chunks: dict[int, dict[bytes, bytes]] = {}
        self._last_run = 0
        self._look = _Look(self)
        self._closed = False
        self._workers: dict[str, tuple[str, ...]] = {}

    def after_fork(self) -> None:
        self._lock = threading.RLock()

    def at(self, run: int) -> FoldedRun:
        """The run of this number; an empty one if it has gone."""
        found = self._runs.get(run)
        return found if found is not None else FoldedRun(Change(_NOBODY))

    def next_run(self) -> int:
        self._last_run += 1
        return self._last_run

    # --- writing -----------------------------------------------------------------------------------------------------

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        with self._open():
            return [self._commit(commit) for commit in commits]

    def _commit(self, commit: Commit) -> Outcome:
        found = self._ids.get(commit.run_id)
        row = found.row if found else None
        if row is not None:
            try:
                check_run(row)
            except DamagedData as damage:
                return Refused(why.DAMAGED, row, extra=damage)
        made = decide(row, commit, self._clock.now_us(), self._clock.lease_time, self._look)
        if isinstance(made, Refused):
            return made
        added = self._apply(made, commit) if made.fresh else 0
        return Committed(made.run, made.numbers, added, made.checkpoint_id, made.covers, made.step, made.fresh)

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

    def claim_ready(self, takes: Sequence[Take], workflows: tuple[str, ...], commit_id: bytes) -> list[RunRow]:
        with self._open():
            ready = [
                run.row
                for run in self._runs.values()
                if run.row.status == READY and (not workflows or run.row.workflow in workflows)
            ]
            ready.sort(key=lambda row: (row.ready_us, row.run))
            claimed: list[RunRow] = []
            for row in ready:
                if len(claimed) == len(takes):
                    break
                outcome = self._commit(Commit(row.run_id, commit_id, take=takes[len(claimed)]))
                if isinstance(outcome, Committed):
                    claimed.append(outcome.run)
            return claimed

    def prune(self, run_id: str, choose: Choose, *, reopen: bool = False) -> list[CheckpointRow] | None:
        with self._open():
            run = self._ids.get(run_id)
            if run is None:
                return None
            numbers = choose([run.checkpoints[n] for n in sorted(run.checkpoints)], list(run.effects.values()))
            gone = [run.checkpoints[number] for number in numbers]
            run.apply(run.without_checkpoints(gone, reopen=reopen))
            return gone

    def prune_entries(self, run_id: str, choose: ChooseEntries) -> int | None:
        with self._open():
            run = self._ids.get(run_id)
            if run is None:
                return None
            check_run(run.row)
            change, removed = run.without_entries(choose, self._clock.now_us())
            if change is not None:
                run.apply(change)
            return removed

    def sweep(self, family: int, dead: set[bytes], seen: dict[int, Seen], mark: Mark) -> Swept:
        with self._open():
            for run in self._family(family):
                check_run(run.row)
            late = [root for run in self._family(family) for root in run.roots(seen.get(run.row.run, Seen()))]
            chunks = self._chunks.get(family, {})
            gone = [chunks.pop(name) for name in dead - mark(late) if name in chunks]
            if gone:
                for run in self._family(family):
                    run.row = next_epoch(run.row)
            return Swept(len(gone), sum(map(len, gone)))

    def delete_run(
        self, run_id: str, seen: bytes | None = None, family: frozenset[int] | None = None
    ) -> RunRow | Refused | None:
        with self._open():
            run = self._ids.get(run_id)
            if run is None:
                return None
            if is_live(run.row, self._clock.lease_time):
                return Refused(why.CLAIMED, run.row)
            if seen is not None and run.row.commit_id != seen:
                return Refused(why.CHANGED, run.row)
            if family is not None and {each.row.run for each in self._family(run.row.family)} - family:
                return Refused(why.CHANGED, run.row)
            del self._ids[run_id], self._runs[run.row.run]
            if not any(True for _ in self._family(run.row.family)):
                self._chunks.pop(run.row.family, None)
            return run.row

    # --- reading -----------------------------------------------------------------------------------------------------

    def run(self, run_id: str) -> RunRow | None:
        with self._open():
            found = self._ids.get(run_id)
            return found.row if found else None

    def run_rows(self, run_id: str) -> RunRows | None:
        with self._open():
            found = self._ids.get(run_id)
            return found.all_rows() if found else None

    def runs(self, query: RunQuery) -> list[RunRow]:
        with self._open():
            return [
                run.row for _, run in sorted(self._runs.items(), reverse=True) if _matches(run.row, query)
            ][: query.limit]  # fmt: skip

    def checkpoint(self, run_id: str, select: Select) -> tuple[RunRow, CheckpointRow | None] | None:
        with self._open():
            found = self._ids.get(run_id)
            return (found.row, found.select(select)) if found else None

    def whole_checkpoint(
        self, run_id: str, select: Select
    ) -> tuple[RunRow, CheckpointRow | None, list[AttachmentRow]] | None:
        with self._open():
            return super().whole_checkpoint(run_id, select)

    def checkpoints(self, run: int, after: int, limit: int) -> list[CheckpointRow]:
        with self._open():
            rows = self.at(run).checkpoints
            return [rows[number] for number in sorted(rows) if number > after][: _all(limit)]

    def find_checkpoints(self, query: CheckpointQuery) -> list[tuple[RunRow, CheckpointRow]]:
        with self._open():
            if query.run_id is None:
                return found_in(self._runs.values(), query)
            found = self._ids.get(query.run_id)
            return found_in([found], query) if found else []

    def entries(self, run: int, after: int, limit: int) -> list[EntryRow]:
        with self._open():
            return [entry for entry in self.at(run).entries if entry.position > after][: _all(limit)]

    def entry_at(self, run: int, position: int) -> EntryRow | None:
        with self._open():
            return self.at(run).entry_at(position)

    def effects(self, run: int) -> list[EffectRow]:
        with self._open():
            return sorted(self.at(run).effects.values(), key=lambda effect: effect.number)

    def effect(self, run: int, key: str) -> EffectRow | None:
        with self._open():
            return self.at(run).effects.get(key)

    def family_effects(self, family: int, key: str) -> list[tuple[RunRow, EffectRow]]:
        with self._open():
            runs = sorted(self._family(family), key=lambda run: run.row.run)
            return [(run.row, run.effects[key]) for run in runs if key in run.effects]

    def attachments(self, run: int, lane: str | None, checkpoint_id: str | None) -> list[AttachmentRow]:
        with self._open():
            found = sorted(self.at(run).attachments.items())
            return [
                row for _, row in found if lane in (None, row.lane) and checkpoint_id in (None, row.checkpoint_id)
            ]  # fmt: skip

    def attachments_of(self, run: int, places: Sequence[tuple[str, str]]) -> list[AttachmentRow]:
        with self._open():
            wanted = set(places)
            return [row for key, row in sorted(self.at(run).attachments.items()) if key[:2] in wanted]

    def gates(self, run: int | None, state: str | None, limit: int) -> list[tuple[RunRow, GateRow]]:
        with self._open():
            runs = list(self._runs.values()) if run is None else [self.at(run)]
            found = [(r.row, gate) for r in runs for gate in r.gates.values() if state in (None, gate.state)]
            return sorted(found, key=lambda pair: (pair[1].opened_us, pair[0].run, pair[1].gate))[: _all(limit)]

    def expired_gates(self, limit: int) -> list[tuple[RunRow, GateRow]]:
        now_us = self._clock.now_us()
        found = [pair for pair in self.gates(None, "open", -1) if (pair[1].expires_us or 2**62) <= now_us]
        return sorted(found, key=lambda pair: pair[1].expires_us or 0)[:limit]

    def timers(self, run: int) -> list[TimerRow]:
        with self._open():
            return sorted(self.at(run).timers.values(), key=lambda timer: timer.due_us)

    def due_timers(self, limit: int) -> list[tuple[RunRow, TimerRow]]:
        with self._open():
            now_us = self._clock.now_us()
            found = [
                (r.row, timer) for r in self._runs.values() for timer in r.timers.values() if timer.due_us <= now_us
            ]
            return sorted(found, key=lambda pair: pair[1].due_us)[:limit]

    def expired_claims(self, limit: int) -> list[RunRow]:
        with self._open():
            lease = self._clock.lease_time
            return [r.row for r in self._runs.values() if r.row.owner and not is_live(r.row, lease)][:limit]

    def held(self, limit: int, after: int = 0) -> list[RunRow]:
        with self._open():
            found = [run.row for number, run in sorted(self._runs.items()) if number > after and run.row.owner]
            return found[: _all(limit)]

    def inbox(self, run: int, after: int, limit: int) -> list[ItemRow]:
        with self._open():
            return [item for n, item in sorted(self.at(run).items.items()) if n > after and not item.taken][
                : _all(limit)
            ]

    def outbox(self, limit: int) -> list[tuple[RunRow, MessageRow]]:
        with self._open():
            found = [(r.row, message) for r in self._runs.values() for message in r.messages.values()]
            return sorted(found, key=lambda pair: (pair[1].created_us, pair[0].run, pair[1].number))[:limit]

    def chunks(self, family: int, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._open():
            chunks = self._chunks.get(family, {})
            return {name: chunks[name] for name in hashes if name in chunks}

    def chunk_sizes(self, family: int) -> dict[bytes, int]:
        with self._open():
            return {name: len(body) for name, body in self._chunks.get(family, {}).items()}

    def roots(self, family: int) -> tuple[list[bytes], dict[int, Seen]]:
        with self._open():
            runs = list(self._family(family))
            seen = {r.row.run: Seen(r.row.serial, r.row.attached, r.row.rewrites) for r in runs}
            return [root for run in runs for root in run.roots(Seen(rewrites=run.row.rewrites))], seen

    def usage(self) -> Usage:
        with self._open():
            runs = list(self._runs.values())
            statuses: dict[str, int] = {}
            for run in runs:
                statuses[run.row.status] = statuses.get(run.row.status, 0) + 1
            bodies = [body for chunks in self._chunks.values() for body in chunks.values()]
            return Usage(
                runs=statuses,
                checkpoints=sum(len(run.checkpoints) for run in runs),
                entries=sum(len(run.entries) for run in runs),
                effects=sum(len(run.effects) for run in runs),
                attachments=sum(len(run.attachments) for run in runs),
                chunks=len(bodies),
                chunk_bytes=sum(map(len, bodies)),
                root_bytes=sum(len(root) for run in runs for root in run.roots(Seen(rewrites=run.row.rewrites))),
                file_bytes=0,
            )

    def about(self) -> About:
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

    def close(self) -> None:
        self._closed = True

    def _family(self, family: int) -> Iterable[FoldedRun]:
        return (run for run in self._runs.values() if run.row.family == family)

    def _open(self) -> threading.RLock:
        if self._closed:
            raise StoreClosed("this memory: store was closed; what it held is gone")
        return self._lock


_NOBODY = RunRow(0, "", 0, b"", "", "", b"", b"", 0, 0, 0, 0, 0, "", 0, 0, 0, 0, 0, 0, 0, "", b"", 0, "", 0, 0, b"")


def _all(limit: int) -> int | None:
    return None if limit < 0 else limit


def _matches(row: RunRow, query: RunQuery) -> bool:
    if not row.run_id.startswith(query.prefix) or query.family not in (None, row.family):
        return False
    if query.statuses and row.status not in query.statuses:
        return False
    if query.workflow is not None and row.workflow != query.workflow:
        return False
    if query.before is not None and row.run >= query.before:
        return False
    if not query.tags:
        return True
    return set(query.tags) <= {tag(key, value) for key, value in read_metadata(row.metadata).items()}
