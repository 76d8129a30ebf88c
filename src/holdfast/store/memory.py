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
    LaneRow,
    MessageRow,
    RunRow,
    TimerRow,
)
from holdfast.model.status import READY
from holdfast.store.decide import Decision, decide, is_live
from holdfast.store.port import Choose, Mark, RunQuery, Seen, Select, StorePort, Swept, Usage
from holdfast.store.seal import check_run, next_epoch
from holdfast.store.tags import read_metadata, tag


class _Run:
    """A run and everything that is its own."""

    def __init__(self, row: RunRow) -> None:
        self.row = row
        self.checkpoints: dict[int, CheckpointRow] = {}
        self.lanes: dict[str, LaneRow] = {}
        self.entries: list[EntryRow] = []
        self.effects: dict[str, EffectRow] = {}
        self.attachments: dict[tuple[str, str, str], AttachmentRow] = {}
        self.gates: dict[str, GateRow] = {}
        self.timers: dict[str, TimerRow] = {}
        self.items: dict[int, ItemRow] = {}
        self.messages: dict[int, MessageRow] = {}

    def select(self, select: Select) -> CheckpointRow | None:
        """The newest checkpoint that has what is asked for."""
        for number in sorted(self.checkpoints, reverse=True):
            row = self.checkpoints[number]
            if (
                row.lane == select.lane
                and select.checkpoint_id in (None, row.checkpoint_id)
                and select.step in (None, row.step)
                and (select.at is None or row.covers <= select.at)
                and (select.before is None or number < select.before)
            ):
                return row
        return None

    def roots(self, seen: Seen) -> list[bytes]:
        """The roots that are not among what was seen."""
        if seen.rewrites != self.row.rewrites:
            seen = Seen()
        roots = [row.root for row in self.checkpoints.values() if row.number > seen.serial]
        return roots + [row.root for row in self.attachments.values() if row.number > seen.attached]


class _Look:
    """Reads inside a commit."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def source(self, run_id: str) -> RunRow | None:
        return self._store.run(run_id)

    def new_run(self) -> int:
        return self._store.next_run()

    def _run(self, run: int) -> _Run:
        return self._store.at(run)

    def checkpoint(self, run: int, lane: str, checkpoint_id: str) -> CheckpointRow | None:
        return self._run(run).select(Select(lane, checkpoint_id))

    def lane(self, run: int, lane: str) -> LaneRow | None:
        return self._run(run).lanes.get(lane)

    def effect(self, run: int, key: str) -> EffectRow | None:
        return self._run(run).effects.get(key)

    def attachment(self, run: int, lane: str, checkpoint_id: str, key: str) -> AttachmentRow | None:
        return self._run(run).attachments.get((lane, checkpoint_id, key))

    def gate(self, run: int, gate: str) -> GateRow | None:
        return self._run(run).gates.get(gate)

    def timer(self, run: int, timer: str) -> TimerRow | None:
        return self._run(run).timers.get(timer)

    def item(self, run: int, key: str) -> ItemRow | None:
        return next((item for item in self._run(run).items.values() if item.key == key), None)

    def items(self, run: int, numbers: Sequence[int]) -> list[ItemRow]:
        items = self._run(run).items
        return [items[number] for number in numbers if number in items]


class MemoryStore(StorePort):
    """Runs in dictionaries, guarded by one lock."""

    def __init__(self, clock: Clock) -> None:
        self.url = "memory:"
        self._clock = clock
        self.after_fork()
        watch(self)
        self._runs: dict[int, _Run] = {}
        self._ids: dict[str, _Run] = {}
        self._chunks: dict[int, dict[bytes, bytes]] = {}
        self._last_run = 0
        self._look = _Look(self)
        self._closed = False

    def after_fork(self) -> None:
        self._lock = threading.RLock()

    def at(self, run: int) -> _Run:
        """The run of this number; an empty one if it has gone."""
        found = self._runs.get(run)
        return found if found is not None else _Run(_NOBODY)

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
        row = made.run
        if made.created:
            self._runs[row.run] = self._ids[row.run_id] = _Run(row)
        run = self._runs[row.run]
        run.row = row
        chunks = self._chunks.setdefault(row.family, {})
        added = 0
        for chunk in commit.chunks:
            if chunk.hash not in chunks:
                chunks[chunk.hash] = chunk.body
                added += len(chunk.body)
        for checkpoint in (*made.checkpoints, *made.replaced):
            run.checkpoints[checkpoint.number] = checkpoint
            added += len(checkpoint.root)
        for attachment in made.attachments:
            run.attachments[attachment.lane, attachment.checkpoint_id, attachment.key] = attachment
            added += len(attachment.root)
        run.entries.extend(made.entries)
        run.lanes.update((lane.lane, lane) for lane in made.lanes)
        run.effects.update((effect.key, effect) for effect in made.effects)
        run.gates.update((gate.gate, gate) for gate in made.gates)
        run.items.update((item.number, item) for item in (*made.items, *made.taken))
        run.messages.update((message.number, message) for message in made.messages)
        for timer in made.drop_timers:
            run.timers.pop(timer, None)
        run.timers.update((timer.timer, TimerRow(timer.timer, timer.due_us)) for timer in commit.timers)
        for number in commit.sent:
            run.messages.pop(number, None)
        return added

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

    def prune(self, run_id: str, choose: Choose) -> list[CheckpointRow] | None:
        with self._open():
            run = self._ids.get(run_id)
            if run is None:
                return None
            numbers = choose([run.checkpoints[n] for n in sorted(run.checkpoints)], list(run.effects.values()))
            gone = [run.checkpoints.pop(number) for number in numbers]
            for row in gone:
                for key in [key for key in run.attachments if key[:2] == (row.lane, row.checkpoint_id)]:
                    del run.attachments[key]
            return gone

    def sweep(self, family: int, dead: set[bytes], seen: dict[int, Seen], mark: Mark) -> Swept:
        with self._open():
            late = [root for run in self._family(family) for root in run.roots(seen.get(run.row.run, Seen()))]
            chunks = self._chunks.get(family, {})
            gone = [chunks.pop(name) for name in dead - mark(late) if name in chunks]
            if gone:
                for run in self._family(family):
                    run.row = next_epoch(run.row)
            return Swept(len(gone), sum(map(len, gone)))

    def delete_run(self, run_id: str) -> RunRow | Refused | None:
        with self._open():
            run = self._ids.get(run_id)
            if run is None:
                return None
            if is_live(run.row, self._clock.lease_time):
                return Refused(why.CLAIMED, run.row)
            del self._ids[run_id], self._runs[run.row.run]
            if not any(True for _ in self._family(run.row.family)):
                self._chunks.pop(run.row.family, None)
            return run.row

    # --- reading -----------------------------------------------------------------------------------------------------

    def run(self, run_id: str) -> RunRow | None:
        with self._open():
            found = self._ids.get(run_id)
            return found.row if found else None

    def runs(self, query: RunQuery) -> list[RunRow]:
        with self._open():
            return [
                run.row for _, run in sorted(self._runs.items(), reverse=True) if _matches(run.row, query)
            ][: query.limit]  # fmt: skip

    def checkpoint(self, run_id: str, select: Select) -> tuple[RunRow, CheckpointRow | None] | None:
        with self._open():
            found = self._ids.get(run_id)
            return (found.row, found.select(select)) if found else None

    def checkpoints(self, run: int, after: int, limit: int) -> list[CheckpointRow]:
        with self._open():
            rows = self.at(run).checkpoints
            return [rows[number] for number in sorted(rows) if number > after][: _all(limit)]

    def entries(self, run: int, after: int, limit: int) -> list[EntryRow]:
        with self._open():
            return [entry for entry in self.at(run).entries if entry.position > after][: _all(limit)]

    def effects(self, run: int) -> list[EffectRow]:
        with self._open():
            return sorted(self.at(run).effects.values(), key=lambda effect: effect.number)

    def effect(self, run: int, key: str) -> EffectRow | None:
        with self._open():
            return self.at(run).effects.get(key)

    def attachments(self, run: int, lane: str | None, checkpoint_id: str | None) -> list[AttachmentRow]:
        with self._open():
            found = sorted(self.at(run).attachments.items())
            return [
                row for _, row in found if lane in (None, row.lane) and checkpoint_id in (None, row.checkpoint_id)
            ]  # fmt: skip

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

    def check(self) -> list[str]:
        return []

    def close(self) -> None:
        self._closed = True

    def _family(self, family: int) -> Iterable[_Run]:
        return (run for run in self._runs.values() if run.row.family == family)

    def _open(self) -> threading.RLock:
        if self._closed:
            raise StoreClosed("this memory: store was closed; what it held is gone")
        return self._lock


_NOBODY = RunRow(0, "", 0, b"", "", "", b"", b"", 0, 0, 0, 0, 0, "", 0, 0, 0, 0, 0, 0, 0, "", b"", 0, "", 0, 0, b"")


def _all(limit: int) -> int | None:
    return None if limit < 0 else limit


def _matches(row: RunRow, query: RunQuery) -> bool:
    if query.statuses and row.status not in query.statuses:
        return False
    if query.workflow is not None and row.workflow != query.workflow:
        return False
    if query.before is not None and row.run >= query.before:
        return False
    if not query.tags:
        return True
    return set(query.tags) <= {tag(key, value) for key, value in read_metadata(row.metadata).items()}
