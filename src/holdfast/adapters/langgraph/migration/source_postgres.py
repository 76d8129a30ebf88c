"""LangGraph's PostgreSQL databases as a source.

Every read is part of a read-only transaction with one snapshot. Checkpoints are read through a server-side cursor, a
few at a time; channel values that the previous checkpoint of the namespace has as well are not fetched again.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from langgraph.checkpoint.serde.types import TASKS
from psycopg.rows import TupleRow

from holdfast.adapters.langgraph.migration import source
from holdfast.adapters.langgraph.migration.convert import Inline
from holdfast.errors import StorageFailed
from holdfast.store.postgres.settings import read_url

_COLUMNS: Final = {
    "checkpoints": {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata"},
    "checkpoint_blobs": {"thread_id", "checkpoint_ns", "channel", "version", "type", "blob"},
    "checkpoint_writes": {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "blob"},
}
_ROWS_PER_FETCH: Final = 32
_NAMESPACES: Final = 8
"""Namespaces whose last values are cached."""
_EMPTY_TYPE: Final = "empty"

_SCHEMA_OF: Final = """
    SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass('checkpoints')"""
_USE_SCHEMA: Final = "SELECT set_config('search_path', quote_ident(%s), true)"
_COLUMNS_OF: Final = """
    SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"""
_COUNT: Final = "SELECT count(*) FROM checkpoints WHERE %s::text[] IS NULL OR thread_id = ANY(%s)"
_PAGE_IDS: Final = "SELECT DISTINCT thread_id FROM checkpoints WHERE thread_id > %s ORDER BY thread_id LIMIT %s"
_SIZES: Final = """
    SELECT thread_id, count(*), max(xmin::text::bigint), sum(pg_column_size(checkpoint) + pg_column_size(metadata)
        + pg_column_size(thread_id) + pg_column_size(checkpoint_ns) + pg_column_size(checkpoint_id)), max(checkpoint_id)
    FROM checkpoints WHERE thread_id = ANY(%s) GROUP BY thread_id"""
_BLOB_SIZES: Final = """
    SELECT thread_id, count(*), max(xmin::text::bigint), sum(coalesce(pg_column_size(blob), 0)
        + pg_column_size(thread_id) + pg_column_size(checkpoint_ns) + pg_column_size(channel) + pg_column_size(version))
    FROM checkpoint_blobs WHERE thread_id = ANY(%s) GROUP BY thread_id"""
_WRITE_SIZES: Final = """
    SELECT thread_id, count(*), max(xmin::text::bigint), sum(pg_column_size(blob) + pg_column_size(thread_id)
        + pg_column_size(checkpoint_ns) + pg_column_size(checkpoint_id) + pg_column_size(task_id)
        + pg_column_size(channel))
    FROM checkpoint_writes WHERE thread_id = ANY(%s) GROUP BY thread_id"""
_ROWS: Final = """
    SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.checkpoint, c.metadata::text,
        EXISTS (SELECT 1 FROM checkpoints p WHERE p.thread_id = c.thread_id AND p.checkpoint_ns = c.checkpoint_ns
            AND p.checkpoint_id = c.parent_checkpoint_id),
        (SELECT array_agg(ARRAY[v.key, v.value]) FROM jsonb_each_text(c.checkpoint -> 'channel_versions') v)
    FROM checkpoints c WHERE c.thread_id = %s ORDER BY c.checkpoint_id COLLATE "C", c.checkpoint_ns COLLATE "C\""""
_BLOBS: Final = """
    SELECT channel, version, type, blob FROM checkpoint_blobs
    WHERE thread_id = %s AND checkpoint_ns = %s
        AND (channel, version) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"""
_WRITES: Final = """
    SELECT checkpoint_ns, checkpoint_id, {path}, task_id, idx, channel, type, blob FROM checkpoint_writes
    WHERE thread_id = %s AND (checkpoint_ns, checkpoint_id) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"""
_SENDS: Final = """
    SELECT type, blob FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_id = %s AND channel = %s
    ORDER BY {path}, task_id, idx"""
_HAS: Final = "SELECT 1 FROM checkpoints WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s"


class PostgresSource(source.Source):
    """A database of `PostgresSaver` or `AsyncPostgresSaver`. `?schema=` or the search path names its schema."""

    def __init__(self, url: str) -> None:
        settings = read_url(url)
        schema = dict(parse_qsl(url.partition("?")[2])).get("schema")
        try:
            self._link: psycopg.Connection[TupleRow] = psycopg.connect(
                **{"application_name": "holdfast-migrate", "client_encoding": "utf8", **settings.conninfo},
                autocommit=True,
                prepare_threshold=None,
            )
        except psycopg.Error as error:
            raise StorageFailed(f"{settings.shown} cannot be reached: {error}") from None
        try:
            self._link.read_only = True
            self._link.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._schema = schema or self._find_schema()
            more = urlencode({"schema": self._schema}, quote_via=quote)
            self.shown = read_url(url + ("&" if "?" in url else "?") + more).shown
            path = "task_path" if "task_path" in self._check_tables()["checkpoint_writes"] else "''::text"
            self._writes_sql, self._sends_sql = _WRITES.format(path=path), _SENDS.format(path=path)
        except psycopg.Error as error:
            self.close()
            raise StorageFailed(f"{settings.shown}: {error}") from error
        except BaseException:
            self.close()
            raise
        self._last_values: OrderedDict[str, dict[tuple[str, str], source.Typed | None]] = OrderedDict()

    def _find_schema(self) -> str:
        found = self._link.execute(_SCHEMA_OF).fetchone()
        return str(found[0]) if found else "public"

    def _check_tables(self) -> dict[str, set[str]]:
        with self.snapshot():
            found = {table: {row[0] for row in self._all(_COLUMNS_OF, table)} for table in _COLUMNS}
        source.check_tables(self.shown, "PostgreSQL", _COLUMNS, found)
        return found

    def close(self) -> None:
        self._link.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def count(self, thread_ids: Sequence[str] | None) -> int:
        names = None if thread_ids is None else list(thread_ids)
        with self.snapshot():
            return int(self._all(_COUNT, names, names)[0][0])

    def threads(self, thread_ids: Sequence[str] | None) -> Iterator[source.Thread]:
        for page in self.pages(thread_ids):
            with self.snapshot():
                tables = [
                    {row[0]: row[1:] for row in self._all(sql, page)} for sql in (_SIZES, _BLOB_SIZES, _WRITE_SIZES)
                ]
            for thread_id in page:
                if thread_id in tables[0]:
                    parts = [table.get(thread_id, (0, 0, 0)) for table in tables]
                    marks = " ".join(str(mark) for part in parts for mark in part)
                    yield source.Thread(thread_id, parts[0][0], sum(int(part[2]) for part in parts), marks)

    def _ids_after(self, last: str) -> list[str]:
        return [row[0] for row in self._all(_PAGE_IDS, last, source.PAGE)]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        try:
            with self._link.transaction():
                self._link.execute(_USE_SCHEMA, (self._schema,))
                yield
        except psycopg.Error as error:
            raise source.SourceFailed(f"{self.shown}: {error}") from error

    def rows(self, thread_id: str) -> Iterator[source.Row]:
        self._last_values.clear()
        with self._link.cursor("holdfast_migrate") as cursor:
            cursor.execute(_ROWS, (thread_id,))
            while page := cursor.fetchmany(_ROWS_PER_FETCH):
                writes = self._page_writes(thread_id, page)
                for namespace, checkpoint_id, parent_id, checkpoint, metadata, has_parent, versions in page:
                    sends = self._sends(thread_id, checkpoint, parent_id)
                    blobs = self._blobs(thread_id, namespace, [(key, version) for key, version in versions or ()])
                    yield source.Row(
                        namespace,
                        checkpoint_id,
                        parent_id or None,
                        has_parent,
                        Inline(checkpoint_id, checkpoint, blobs, sends),
                        metadata.encode(),
                        sorted(writes[namespace, checkpoint_id]),
                    )

    def has(self, thread_id: str, namespace: str, checkpoint_id: str) -> bool:
        return bool(self._all(_HAS, thread_id, namespace, checkpoint_id))

    def _page_writes(self, thread_id: str, page: Sequence[TupleRow]) -> dict[tuple[str, str], list[source.SourceWrite]]:
        found: dict[tuple[str, str], list[source.SourceWrite]] = defaultdict(list)
        for namespace, checkpoint_id, path, task_id, idx, channel, kind, body in self._all(
            self._writes_sql, thread_id, [row[0] for row in page], [row[1] for row in page]
        ):
            write = source.SourceWrite(path, task_id, idx, channel, (kind or "", bytes(body or b"")))
            found[namespace, checkpoint_id].append(write)
        return found

    def _blobs(self, thread_id: str, namespace: str, wanted: list[tuple[str, str]]) -> dict[str, source.Typed]:
        last = self._last_values.pop(namespace, {})
        missing = [key for key in wanted if key not in last]
        found: dict[tuple[str, str], source.Typed | None] = {key: last.get(key) for key in wanted}
        if missing:
            channels, versions = [key[0] for key in missing], [key[1] for key in missing]
            for channel, version, kind, body in self._all(_BLOBS, thread_id, namespace, channels, versions):
                found[channel, version] = None if kind == _EMPTY_TYPE else (kind, bytes(body or b""))
        self._last_values[namespace] = found
        while len(self._last_values) > _NAMESPACES:
            self._last_values.popitem(last=False)
        return {channel: value for (channel, _), value in found.items() if value is not None}

    def _sends(self, thread_id: str, checkpoint: Any, parent_id: str | None) -> list[source.Typed]:
        if not parent_id or not isinstance(checkpoint, dict) or not Inline.lacks_sends(checkpoint):
            return []
        rows = self._all(self._sends_sql, thread_id, parent_id, TASKS)
        return [(kind or "", bytes(body or b"")) for kind, body in rows]

    def _all(self, statement: str, *values: object) -> list[TupleRow]:
        return self._link.execute(statement, values, binary=True).fetchall()
