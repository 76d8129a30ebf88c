"""Reads of the PostgreSQL store, and the reads inside its transactions.

Only reads that differ from those of every SQL store are here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import psycopg

from holdfast.clock import LeaseTime
from holdfast.ids import own_checkpoint_number
from holdfast.model.commit import Commit
from holdfast.model.rows import (
    AttachmentRow,
    CheckpointRow,
    EffectRow,
    GateRow,
    ItemRow,
    LaneRow,
    Row,
    RunRow,
    TimerRow,
)
from holdfast.store.capabilities import About
from holdfast.store.packs import PackedChunks, Place
from holdfast.store.port import CheckpointQuery, Key, Kind, Select, Selected
from holdfast.store.postgres.dialect import Bigints, Byteas, Statements, Texts, columns_of
from holdfast.store.postgres.postgres_connection import Connection, in_snapshot
from holdfast.store.search import Found, found_by_pages, is_wanted
from holdfast.store.sql import statements
from holdfast.store.sql.sql_reads import SqlReads, SqlTransactionReads, bound_limit

if TYPE_CHECKING:
    from holdfast.store.postgres.transaction import LeaseClock


class NeedsRead(Exception):
    """A decision needs a row that is only known by reading it."""


class OptimisticReads:
    """Assumes, without reading, that what a commit adds under a chosen name does not exist yet.

    This applies to checkpoints, attachments, gates and effects. If one does exist, the write violates a unique index
    and nothing is written. Every other read raises NeedsRead.
    """

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        raise NeedsRead(name)

    def checkpoint(self, run: int, lane: str, checkpoint_id: str) -> None:  # noqa: ARG002
        if own_checkpoint_number(checkpoint_id) is not None:
            raise NeedsRead("checkpoint")

    def attachment(self, run: int, lane: str, checkpoint_id: str, key: str) -> None:
        """Assume that it does not exist."""

    def gate(self, run: int, gate: str) -> None:
        """Assume that it does not exist."""

    def effect(self, run: int, key: str) -> None:
        """Assume that it does not exist."""


def no_lease() -> LeaseTime:
    """Leases are measured by the clock of the database, so the time must be read."""
    raise NeedsRead("lease")


def first(link: Connection, sql: bytes, bindings: statements.Columns) -> statements.Columns | None:
    """The first row, or None."""
    return link.execute(sql, bindings, binary=True).fetchone()


def fetch_on(link: Connection, sql: Statements) -> statements.Fetch:
    """Executes statements by name on this connection."""

    def fetch(statement: str | Sequence[str], *bindings: object) -> list[statements.Columns]:
        text = sql[statement] if isinstance(statement, str) else b" ".join([sql[part] for part in statement])
        return link.execute(text, bindings, binary=True).fetchall()

    return fetch


_SAMPLED: Final = ("checkpoints", "entries", "effects", "attachments", "chunks", "packed", "packs")
_SAMPLED_PAGES: Final = 256
"""How many pages of each table are read, on average, to estimate its rows."""

KnownRows = dict[tuple[Any, ...], Any]
"""Prefetched rows, or None, by their kind, the run's number and the rest of their keys. Items: a list, by numbers."""
_Wanted = tuple[type[Row], tuple[Any, ...]]
_BY_RUN_ID: Final[dict[type[Row], str]] = {
    CheckpointRow: "checkpoint_of_run",
    LaneRow: "lane_of_run",
    EffectRow: "effect_of_run",
    AttachmentRow: "attachment_of_run",
    GateRow: "gate_of_run",
    TimerRow: "timer_of_run",
    ItemRow: "item_of_run",
}
"""The statements that find a row by its run's id and its key."""


def _wanted(commit: Commit) -> Iterator[_Wanted]:
    """The rows that the decision on a commit reads, by their kind and key."""
    for new in commit.checkpoints:
        for name in {new.checkpoint_id, new.parent_id if new.needs_parent else ""} - {"", None}:
            if own_checkpoint_number(name or "") is None:
                yield CheckpointRow, (new.lane, name)
        if new.lane:
            yield LaneRow, (new.lane,)
    for effect in commit.effects:
        yield EffectRow, (effect.key,)
    for gate in (*[new.gate for new in commit.gates], *commit.close_gates):
        yield GateRow, (gate,)
    for item in commit.deliver:
        yield ItemRow, (item.key,)
        if item.kind in ("answer", "expiry"):
            yield GateRow, (item.name,)
        elif item.kind == "timer":
            yield TimerRow, (item.name,)
    if commit.create is None or not commit.create.required:  # a new run has no attachments
        for attached in commit.attachments:
            yield AttachmentRow, (attached.lane, attached.checkpoint_id, attached.key)


class PrefetchedReads:
    """Rows that decisions will probably need, requested in the same round trip as the runs' rows."""

    def __init__(self, link: Connection, sql: Statements, commits: Sequence[Commit]) -> None:
        """Send the requests. It must be inside a pipeline, at whose end the answers arrive."""
        self._asked: list[tuple[str, _Wanted, psycopg.Cursor[statements.Columns]]] = []
        for commit in commits:
            for kind, key in dict.fromkeys(_wanted(commit)):
                found = link.execute(sql[_BY_RUN_ID[kind]], (commit.run_id, *key), binary=True)
                self._asked.append((commit.run_id, (kind, key), found))
            if commit.take_items:
                numbers = tuple(commit.take_items)
                found = link.execute(sql["items_of_run"], (Bigints(numbers), commit.run_id), binary=True)
                self._asked.append((commit.run_id, (ItemRow, (numbers,)), found))

    def answers(self, rows: dict[str, RunRow]) -> KnownRows:
        """The rows, or None for those that do not exist, by their keys."""
        known: KnownRows = {}
        for run_id, (kind, key), cursor in self._asked:
            if run_id in rows:
                found = [statements.row_from(kind, columns) for columns in cursor.fetchall()]
                is_list = isinstance(key[0], tuple)
                known[kind, rows[run_id].run, *key] = found if is_list else found[0] if found else None
        return known


class PostgresTransactionReads(SqlTransactionReads):
    """The reads of decisions on one connection, inside its transaction.

    `rows` are the locked runs and `numbers` are numbers for new runs. `known` are prefetched rows; it is emptied when
    the transaction itself has written something.
    """

    def __init__(
        self,
        link: Connection,
        sql: Statements,
        rows: dict[str, RunRow],
        numbers: list[int],
        known: KnownRows,
    ) -> None:
        super().__init__(fetch_on(link, sql), statements.row_from)
        self._rows = rows
        self._numbers = numbers
        self.known = known

    def source(self, run_id: str) -> RunRow | None:
        return self._rows.get(run_id)

    def new_run(self) -> int:
        return self._numbers.pop()

    def checkpoint(self, run: int, lane: str, checkpoint_id: str) -> CheckpointRow | None:
        return self._known(CheckpointRow, super().checkpoint, run, lane, checkpoint_id)

    def _first(self, kind: type[Kind], name: str, *bindings: object) -> Kind | None:
        return self._known(kind, lambda *key: super(PostgresTransactionReads, self)._first(kind, name, *key), *bindings)

    def _known(self, kind: type[Kind], read: Callable[..., Kind | None], *key: object) -> Kind | None:
        """A prefetched row, or the one that `read` finds."""
        place = (kind, *key)
        if place in self.known:
            known: Kind | None = self.known[place]
            return known
        return read(*key)

    def items(self, run: int, numbers: Sequence[int]) -> list[ItemRow]:
        place = (ItemRow, run, tuple(numbers))
        if place in self.known:
            return list(self.known[place])
        keys = Bigints([statements.key_of(run, number) for number in numbers])
        return [ItemRow(*row) for row in self._fetch("items", keys)]


Result = TypeVar("Result")


class PostgresReads(SqlReads):
    """The reads of the store."""

    _sql: Statements
    _schema: str
    _time: LeaseClock

    @abstractmethod
    def _read(self, work: Callable[[Connection], Result]) -> Result:
        """Call `work` with a connection that no other thread uses in the meantime."""

    def _fetch(self, statement: str | Sequence[str], *bindings: object) -> list[statements.Columns]:
        return self._read(lambda link: fetch_on(link, self._sql)(statement, *bindings))

    def _snapshot(self, work: Callable[[statements.Fetch], Result]) -> Result:
        def inside(link: Connection) -> Result:
            with in_snapshot(link):
                return work(fetch_on(link, self._sql))

        return self._read(inside)

    def _row_from(self, kind: type[Kind], columns: statements.Columns) -> Kind:
        return statements.row_from(kind, columns)

    def _now_us(self) -> int:
        return self._time.now_us()

    def _bind_texts(self, texts: Sequence[str]) -> Texts:
        return Texts(texts)

    def _bind_tag_key(self, key: str) -> bytes:
        return key.encode()

    def _expired_part(self) -> tuple[str, list[int | str]]:
        if not self._time.leases_too:
            return "runs_page_expired_now", []
        boot, now_us = self._time.clock.lease_time()
        return "runs_page_expired", [now_us, boot]

    def _file_bytes(self, fetch: statements.Fetch) -> int:
        size: int = fetch("relations_bytes", self._schema)[0][0]
        return size

    def _estimate_usage(self, fetch: statements.Fetch) -> statements.Columns:
        """Count the rows in a random part of the pages of each table."""
        pages: dict[str, int] = dict(fetch("relations_pages", self._schema))
        parts = [min(1.0, _SAMPLED_PAGES / max(1, pages.get(table, 0))) for table in _SAMPLED]
        found = fetch("usage_sample", *[100 * part for part in parts])[0]
        rows = [count / part for count, part in zip(found[::2], parts, strict=True)]
        sizes = [size / part for size, part in zip(found[1::2], parts, strict=True)]
        checkpoints, entries, effects, attachments, chunks, packed, _ = rows
        return (checkpoints, entries, effects, attachments, chunks + packed, sizes[4] + sizes[6], sizes[0] + sizes[3])

    def checkpoint(self, run_id: str, select: Select, *, attachments: bool = False) -> Selected | None:
        """Takes one round trip if one statement is enough."""
        if select == Select():
            rows = self._fetch("whole_newest" if attachments else "run_with_head", run_id)
        elif not attachments:
            return super().checkpoint(run_id, select)
        elif select == Select(select.lane):
            rows = self._fetch("whole_of_lane", select.lane, run_id)
        elif select.checkpoint_id is not None and own_checkpoint_number(select.checkpoint_id) is None:
            rows = self._fetch("whole_by_id", select.lane, select.checkpoint_id, run_id)
        else:
            return super().checkpoint(run_id, select, attachments=True)
        return _selected(rows)

    def _rows_by_key(self, kind: type[Kind], run: int, keys: Collection[Key]) -> list[Kind]:
        """Reads the attachments of several checkpoints by one statement."""
        if kind is not AttachmentRow or len(keys) < 2:
            return super()._rows_by_key(kind, run, keys)
        lanes, names = columns_of("tt", sorted({key for key in keys if isinstance(key, tuple)}))
        return [statements.row_from(kind, row) for row in self._fetch("attachments_of_checkpoints", lanes, names, run)]

    def find_checkpoints(self, query: CheckpointQuery) -> list[Found]:
        if query.run_id is not None and query.lane is not None and query.checkpoint_id is not None:
            found = self.checkpoint(query.run_id, Select(query.lane, query.checkpoint_id))
            if found is None or found.checkpoint is None or not query.limit:
                return []
            pair = found.run, found.checkpoint
            return [pair] if is_wanted(query, *pair) else []

        def work(fetch: statements.Fetch) -> list[Found]:
            def page(part: CheckpointQuery) -> list[Found]:
                names, bindings = _search(part)
                return self._with_run(CheckpointRow, fetch(names, *bindings))

            return found_by_pages(query, page)

        return self._snapshot(work) if query.tags else work(self._fetch)  # with tags it may execute several statements

    def chunks(self, family: int, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        return dict(self._fetch("chunks", family, Byteas(hashes))) if hashes else {}

    def packed(self, family: int, hashes: Sequence[bytes], held: Collection[int] = ()) -> PackedChunks:
        found = PackedChunks({}, {})
        if not hashes:
            return found
        for name, *place, body in self._fetch("packed", family, Byteas(hashes), family, Bigints(list(held))):
            if name is None:
                found.bodies[place[0]] = body
            else:
                found.chunks[name] = Place(*place)
        return found

    def describe(self) -> About:
        ((server, fsync, full_pages, commit, version, now_us),) = self._fetch("about")
        facts = {
            "server": server,
            "psycopg": psycopg.__version__,
            "libpq": str(psycopg.pq.version()),
            "schema": f"{self._schema}, version {version}",
            "fsync": fsync,
            "full_page_writes": full_pages,
            "synchronous_commit": commit,
        }
        names = ("fsync", "full_page_writes", "synchronous_commit")
        risks = [f"{name} is off" for name in names if facts[name] == "off"]
        return About(facts, None, self._file_bytes(self._fetch), now_us, tuple(risks))

    def check(self) -> list[str]:
        """No problems: PostgreSQL reports damage when it reads."""
        return []


def _search(query: CheckpointQuery) -> statements.Parts:
    """The parts of a search for checkpoints."""
    if query.run_id is None:
        names, bindings = statements.all_parts(query)
        return names, [*bindings, bound_limit(query.limit)]
    names, bindings = statements.filter_parts(query)
    workflow = ["found_of_run_workflow"] if query.workflow is not None else []
    order = "found_of_run" if query.by_id is None else "found_of_run_by_id"
    names = ["found_of_run", *names, f"{order}_end", *workflow, f"{order}_order"]
    bindings = [statements.number_before(query), *bindings, bound_limit(query.limit), query.run_id]
    return names, [*bindings, *([query.workflow] if workflow else [])]


def _selected(rows: list[statements.Columns]) -> Selected | None:
    """The result of a join of a run, one checkpoint and, if selected, its attachments."""
    if not rows:
        return None
    start = len(RunRow.__struct_fields__)
    end = start + len(CheckpointRow.__struct_fields__)
    run, columns = RunRow(*rows[0][:start]), rows[0][start:end]
    if columns[0] is None:
        return Selected(run, None)
    checkpoint = CheckpointRow(*columns)
    beside = [row[end:] for row in rows if len(row) > end and row[end] is not None]
    return Selected(run, checkpoint, [AttachmentRow(*columns) for columns in beside])
