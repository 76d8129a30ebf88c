"""Reading from PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg

from holdfast.ids import own_checkpoint_number
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
from holdfast.store.finding import Found, found_by_pages, is_wanted
from holdfast.store.port import About, CheckpointQuery, RunQuery, RunRows, Seen, Select, StorePort, Usage
from holdfast.store.postgres.arrays import Byteas, Texts, columns_of
from holdfast.store.postgres.connection import Link
from holdfast.store.postgres.dialect import Statements
from holdfast.store.postgres.look import find_checkpoint, first
from holdfast.store.postgres.pool import of_one_moment
from holdfast.store.postgres.transaction import Time
from holdfast.store.sql.finding import all_parts, filter_parts, leading_part, number_before
from holdfast.store.sql.rows import RUN_COLUMNS, built, key_of, last_key, read_run_rows

Result = TypeVar("Result")


class PostgresReads(StorePort):
    """The reading half of the store. Every verb is one statement, or a few in one transaction that only reads."""

    _sql: Statements
    _schema: str
    _time: Time

    def _read(self, work: Callable[[Link], Result]) -> Result:
        """Do `work` on a connection that nobody else uses meanwhile."""
        raise NotImplementedError

    def _all(self, name: str, *bindings: Any) -> list[Any]:
        return self._read(lambda link: _rows(link, self._sql[name], bindings))

    def _first(self, name: str, *bindings: Any) -> Any:
        return self._read(lambda link: first(link, self._sql[name], bindings))

    def run(self, run_id: str) -> RunRow | None:
        found = self._first("run_by_id", run_id)
        return built(RunRow, found) if found else None

    def run_rows(self, run_id: str) -> RunRows | None:
        def work(link: Link) -> RunRows | None:
            return read_run_rows(run_id, lambda name, *bound: _rows(link, self._sql[name], bound), built, None)

        return self._read(lambda link: _snapshot(link, lambda: work(link)))

    def runs(self, query: RunQuery) -> list[RunRow]:
        statement, bindings = _runs_page(self._sql, query)
        return [built(RunRow, row) for row in self._read(lambda link: _rows(link, statement, bindings))]

    def checkpoint(self, run_id: str, select: Select) -> tuple[RunRow, CheckpointRow | None] | None:
        def work(link: Link) -> tuple[RunRow, CheckpointRow | None] | None:
            found = first(link, self._sql["run_by_id"], (run_id,))
            if not found:
                return None
            row = built(RunRow, found)
            if select.checkpoint_id is not None:
                return row, find_checkpoint(link, self._sql, row.run, select.lane, select.checkpoint_id)
            name, bindings = _selection(row, select)
            found = first(link, self._sql[name], bindings)
            return row, built(CheckpointRow, found) if found else None

        if select == Select():
            return self._newest(run_id)
        return self._read(lambda link: _snapshot(link, lambda: work(link)))

    def whole_checkpoint(
        self, run_id: str, select: Select
    ) -> tuple[RunRow, CheckpointRow | None, list[AttachmentRow]] | None:
        if select == Select():
            rows = self._all("whole_newest", run_id)
        elif select == Select(select.lane):
            rows = self._all("whole_of_lane", select.lane, run_id)
        elif select.checkpoint_id is not None and own_checkpoint_number(select.checkpoint_id) is None:
            rows = self._all("whole_by_id", select.lane, select.checkpoint_id, run_id)
        else:
            return super().whole_checkpoint(run_id, select)
        return _whole(rows)

    def _newest(self, run_id: str) -> tuple[RunRow, CheckpointRow | None] | None:
        found = self._first("run_with_head", run_id)
        if not found:
            return None
        row, columns = built(RunRow, found[:RUN_COLUMNS]), found[RUN_COLUMNS:]
        return row, built(CheckpointRow, columns) if columns[0] is not None else None

    def checkpoints(self, run: int, after: int, limit: int) -> list[CheckpointRow]:
        found = self._all("checkpoints_after", key_of(run, after), last_key(run), _limit(limit))
        return [built(CheckpointRow, row) for row in found]

    def find_checkpoints(self, query: CheckpointQuery) -> list[tuple[RunRow, CheckpointRow]]:
        if query.run_id is not None and query.lane is not None and query.checkpoint_id is not None:
            found = self.checkpoint(query.run_id, Select(query.lane, query.checkpoint_id))
            run, row = found or (None, None)
            return [(run, row)] if run and row and query.limit and is_wanted(query, run, row) else []

        def work(link: Link) -> list[Found]:
            return found_by_pages(query, lambda part: _with_run(CheckpointRow, _rows(link, *_found(self._sql, part))))

        if not query.tags:
            return self._read(work)
        return self._read(lambda link: _snapshot(link, lambda: work(link)))  # it may take several statements

    def entries(self, run: int, after: int, limit: int) -> list[EntryRow]:
        found = self._all("entries_after", key_of(run, after), last_key(run), _limit(limit))
        return [built(EntryRow, row) for row in found]

    def entry_at(self, run: int, position: int) -> EntryRow | None:
        found = self._first("entry_at", key_of(run, 0), key_of(run, position))
        return built(EntryRow, found) if found else None

    def effects(self, run: int) -> list[EffectRow]:
        return [built(EffectRow, row) for row in self._all("effects", key_of(run, 0), last_key(run))]

    def effect(self, run: int, key: str) -> EffectRow | None:
        found = self._first("effect", run, key)
        return built(EffectRow, found) if found else None

    def family_effects(self, family: int, key: str) -> list[tuple[RunRow, EffectRow]]:
        return _with_run(EffectRow, self._all("effects_of_family", key, family))

    def attachments(self, run: int, lane: str | None, checkpoint_id: str | None) -> list[AttachmentRow]:
        if lane is None or checkpoint_id is None:
            rows = [built(AttachmentRow, row) for row in self._all("attachments", run)]
            return [r for r in rows if lane in (None, r.lane) and checkpoint_id in (None, r.checkpoint_id)]
        return [built(AttachmentRow, row) for row in self._all("attachments_of_checkpoint", run, lane, checkpoint_id)]

    def attachments_of(self, run: int, places: Sequence[tuple[str, str]]) -> list[AttachmentRow]:
        if not places:
            return []
        lanes, names = columns_of("tt", sorted(set(places)))
        return [built(AttachmentRow, row) for row in self._all("attachments_of_checkpoints", lanes, names, run)]

    def gates(self, run: int | None, state: str | None, limit: int) -> list[tuple[RunRow, GateRow]]:
        if run is not None:
            found = _with_run(GateRow, self._all("gates_of_run", run))
            return [pair for pair in found if state in (None, pair[1].state)][: _limit(limit)]
        if state is None:
            return _with_run(GateRow, self._all("gates_all", _limit(limit)))
        if state == "open":
            return _with_run(GateRow, self._all("gates_open", _limit(limit)))
        return _with_run(GateRow, self._all("gates_of_state", state, _limit(limit)))

    def expired_gates(self, limit: int) -> list[tuple[RunRow, GateRow]]:
        return _with_run(GateRow, self._all("gates_expired", self._time.now_us(), _limit(limit)))

    def timers(self, run: int) -> list[TimerRow]:
        return [built(TimerRow, row) for row in self._all("timers", run)]

    def due_timers(self, limit: int) -> list[tuple[RunRow, TimerRow]]:
        return _with_run(TimerRow, self._all("timers_due", self._time.now_us(), _limit(limit)))

    def expired_claims(self, limit: int) -> list[RunRow]:
        if self._time.leases_too:
            boot, now_us = self._time.clock.lease_time()
            found = self._all("runs_held", now_us, boot, _limit(limit))
        else:
            found = self._all("runs_held_now", _limit(limit))
        return [built(RunRow, row) for row in found]

    def held(self, limit: int, after: int = 0) -> list[RunRow]:
        return [built(RunRow, row) for row in self._all("runs_held_after", after, _limit(limit))]

    def inbox(self, run: int, after: int, limit: int) -> list[ItemRow]:
        found = self._all("items_after", key_of(run, after), last_key(run), _limit(limit))
        return [built(ItemRow, row) for row in found]

    def outbox(self, limit: int) -> list[tuple[RunRow, MessageRow]]:
        return _with_run(MessageRow, self._all("messages", _limit(limit)))

    def chunks(self, family: int, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        return dict(self._all("chunks", family, Byteas(hashes))) if hashes else {}

    def chunk_sizes(self, family: int) -> dict[bytes, int]:
        return dict(self._all("chunk_sizes", family))

    def roots(self, family: int) -> tuple[list[bytes], dict[int, Seen]]:
        def work(link: Link) -> tuple[list[bytes], dict[int, Seen]]:
            rows = [built(RunRow, row) for row in _rows(link, self._sql["runs_of_family"], (family,))]
            seen = {row.run: Seen(row.serial, row.attached, row.rewrites) for row in rows}
            return [root for row in rows for root in roots_after(link, self._sql, row.run, Seen())], seen

        return self._read(lambda link: _snapshot(link, lambda: work(link)))

    def usage(self) -> Usage:
        def work(link: Link) -> Usage:
            statuses = dict(_rows(link, self._sql["usage_runs"], ()))
            on_disk = first(link, self._sql["relations_bytes"], (self._schema,))[0]
            counts: tuple[int, int, int, int, int, int, int] = first(link, self._sql["usage"], ())
            return Usage(statuses, *map(int, counts), on_disk)  # type: ignore[call-arg]

        return self._read(lambda link: _snapshot(link, lambda: work(link)))

    def about(self) -> About:
        server, fsync, full_pages, commit, version, now_us = self._first("about")
        on_disk: int = self._first("relations_bytes", self._schema)[0]
        facts = {
            "server": server, "psycopg": psycopg.__version__, "libpq": str(psycopg.pq.version()),
            "schema": f"{self._schema}, version {version}", "fsync": fsync, "full_page_writes": full_pages,
            "synchronous_commit": commit,
        }  # fmt: skip
        risks = [f"{name} is off" for name in ("fsync", "full_page_writes") if facts[name] == "off"]
        risks += ["synchronous_commit is off"] if commit == "off" else []
        return About(facts, None, on_disk, now_us, tuple(risks))

    def check(self) -> list[str]:
        """What PostgreSQL itself finds wrong: nothing that it does not report by itself when it reads."""
        return []


def roots_after(link: Link, sql: Statements, run: int, seen: Seen) -> list[bytes]:
    """The roots of a run that are not among what was seen."""
    last = last_key(run)
    found = _rows(link, sql["checkpoint_roots"], (key_of(run, seen.serial), last))
    found += _rows(link, sql["attachment_roots"], (key_of(run, seen.attached), last))
    return [row[0] for row in found]


def _rows(link: Link, statement: bytes, bindings: Sequence[Any]) -> list[Any]:
    return link.execute(statement, bindings, binary=True).fetchall()


def _snapshot(link: Link, work: Callable[[], Result]) -> Result:
    with of_one_moment(link):
        return work()


def _limit(limit: int) -> int | None:
    """LIMIT NULL is no limit."""
    return None if limit < 0 else limit


def _runs_page(sql: Statements, query: RunQuery) -> tuple[bytes, list[Any]]:
    """The statement, put together from fixed parts, and its bindings. What narrows most leads, so its index is used."""
    query = query._replace(tags=tuple((key.encode(), value) for key, value in query.tags))  # type: ignore[misc]
    page, bindings, tags = leading_part(query)
    parts = [sql[page]]
    for tag in tags:
        parts.append(sql["runs_page_tag"])
        bindings += tag
    if len(query.statuses) == 1:
        parts.append(sql["runs_page_status"])
        bindings.append(query.statuses[0])
    elif query.statuses:
        parts.append(sql["runs_page_statuses"])
        bindings.append(Texts(query.statuses))
    if query.workflow is not None:
        parts.append(sql["runs_page_workflow"])
        bindings.append(query.workflow)
    if query.family is not None:
        parts.append(sql["runs_page_family"])
        bindings.append(query.family)
    parts.append(sql[f"{page}_end"])
    return b" ".join(parts), [*bindings, query.limit]


def _found(sql: Statements, query: CheckpointQuery) -> tuple[bytes, list[Any]]:
    """The statement that searches checkpoints, put together from fixed parts, and its bindings."""
    if query.run_id is None:
        names, bindings = all_parts(query)
        return b" ".join([sql[name] for name in names]), [*bindings, _limit(query.limit)]
    names, bindings = filter_parts(query)
    workflow = ["found_of_run_workflow"] if query.workflow is not None else []
    order = "found_of_run" if query.by_id is None else "found_of_run_by_id"
    names = ["found_of_run", *names, f"{order}_end", *workflow, f"{order}_order"]
    bindings = [number_before(query), *bindings, _limit(query.limit), query.run_id]
    return b" ".join([sql[name] for name in names]), [*bindings, *([query.workflow] if workflow else [])]


def _selection(row: RunRow, select: Select) -> tuple[str, tuple[Any, ...]]:
    """The statement and bindings for one checkpoint."""
    end = key_of(row.run, select.before) if select.before is not None else last_key(row.run) + 1
    start = key_of(row.run, 0)
    if select.step is not None:
        return "checkpoint_by_step", (start, end, select.lane, select.step)
    if select.at is not None:
        return "checkpoint_by_cover", (start, end, select.lane, select.at)
    if select.before is None and select.lane:
        return "checkpoint_of_lane", (row.run, select.lane)
    return "checkpoint_before", (start, end, select.lane)


def _whole(rows: list[Any]) -> tuple[RunRow, CheckpointRow | None, list[AttachmentRow]] | None:
    """Rows of a join of a run, one checkpoint and its attachments."""
    if not rows:
        return None
    end = RUN_COLUMNS + len(CheckpointRow.__struct_fields__)
    run, columns = built(RunRow, rows[0][:RUN_COLUMNS]), rows[0][RUN_COLUMNS:end]
    if columns[0] is None:
        return run, None, []
    found = built(CheckpointRow, columns)
    beside = [row[end:] for row in rows if row[end] is not None]
    return run, found, [
        AttachmentRow(number, found.lane, found.checkpoint_id, name, created_us, root, seal)
        for number, name, created_us, root, seal in beside
    ]  # fmt: skip


def _with_run(kind: Any, rows: list[Any]) -> list[tuple[RunRow, Any]]:
    """Rows of a join: the run's columns, then the other's."""
    return [(RunRow(*row[:RUN_COLUMNS]), kind(*row[RUN_COLUMNS:])) for row in rows]
