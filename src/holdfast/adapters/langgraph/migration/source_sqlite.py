"""LangGraph's SQLite databases as a source, read without changing any file.

A reader of a database in WAL mode usually creates the files `-wal` and `-shm`, and records in the latter how far it
reads. The files beside the database decide how it can be read without any change:

    not in WAL mode       read-only; SQLite's locks on the file protect the reader
    no -wal, or an        no process has the database open, and the file is complete. It is read without locks; its size
     empty one, no -shm   and date are compared before the data is used
    -wal with data,       no process has the database open, but the log has not been applied. A private copy of both
     no -shm              files is read
    -wal and -shm         read-only, including the -shm; SQLite's locks protect the reader, also from a dying writer.
                          While another process creates or removes both files, SQLite reports that it cannot write to
                          them; the files are then examined again

POSIX drops all locks of a process on a file when the process closes any handle of it. Another SQLite connection of this
process would lose its locks when the source is closed, so a database that this process has open is refused.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import apsw

from holdfast.adapters.langgraph.migration import source
from holdfast.adapters.langgraph.migration.convert import SourceCheckpoint
from holdfast.errors import InvalidInput, StorageFailed

_COLUMNS: Final = {
    "checkpoints": {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "parent_checkpoint_id",
        "type",
        "checkpoint",
        "metadata",
    },
    "writes": {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "value"},
}
_BUSY_MS: Final = 20_000
_REOPEN_S: Final = 0.01
_WAL_MARK_AT: Final = 18
_URI: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI

_FIRST_READ: Final = "SELECT 1 FROM sqlite_schema LIMIT 1"
_COUNT: Final = "SELECT count(*) FROM checkpoints"
_COUNT_OF: Final = "SELECT count(*) FROM checkpoints WHERE thread_id IN (SELECT value FROM json_each(?))"
_PAGE_IDS: Final = "SELECT DISTINCT thread_id FROM checkpoints WHERE thread_id > ? ORDER BY thread_id LIMIT ?"
_SIZES: Final = """
    SELECT thread_id, count(*), max(checkpoint_id), max(rowid), coalesce(sum(length(checkpoint)), 0), coalesce(sum(
        length(thread_id) + length(checkpoint_ns) + length(checkpoint_id) + coalesce(length(parent_checkpoint_id), 0)
        + coalesce(length(type), 0) + coalesce(length(metadata), 0)), 0)
    FROM checkpoints WHERE thread_id IN (SELECT value FROM json_each(?)) GROUP BY thread_id"""
_WRITE_SIZES: Final = """
    SELECT thread_id, count(*), max(rowid), coalesce(sum(length(value)), 0), coalesce(sum(
        length(thread_id) + length(checkpoint_ns) + length(checkpoint_id) + length(task_id) + length(channel)
        + coalesce(length(type), 0)), 0)
    FROM writes WHERE thread_id IN (SELECT value FROM json_each(?)) GROUP BY thread_id"""
_KEYS: Final = """
    SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ? ORDER BY checkpoint_id, checkpoint_ns"""
_HAS: Final = "SELECT 1 FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
_ROW: Final = """
    SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"""
_WRITES: Final = """
    SELECT task_path, task_id, idx, channel, type, value FROM writes
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"""
_OLD_WRITES: Final = """
    SELECT '', task_id, idx, channel, type, value FROM writes
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"""


class _FilesChanged(Exception):
    """Another process created or removed files of the database while it was opened."""


class _Files(NamedTuple):
    """The fingerprint of a database file and of the files beside it."""

    database: tuple[int, ...] | None
    wal: tuple[int, ...] | None
    has_shm: bool

    @staticmethod
    def of(path: Path) -> _Files:
        return _Files(_stat(path), _stat(_sibling(path, "-wal")), _sibling(path, "-shm").exists())

    @property
    def is_quiet(self) -> bool:
        """Whether the database file is complete without a log."""
        return self.wal is None or (self.wal[1] == 0 and not self.has_shm)


class SqliteSource(source.Source):
    """A database of `SqliteSaver` or `AsyncSqliteSaver`."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self.shown = f"sqlite:{path}"
        self._copy: str | None = None
        self._connection: apsw.Connection | None = None
        self._unlocked: _Files | None = None
        if not self._path.is_file():
            raise InvalidInput(f"no SQLite database at {path}")
        _refuse_if_open_here(self._path)
        try:
            with self.snapshot():
                self._writes = self._check_tables()
        except source.SourceFailed as error:
            self.close()
            if isinstance(error.__cause__, apsw.NotADBError):
                raise InvalidInput(f"{self.shown} is not a SQLite database") from error
            raise StorageFailed(str(error)) from error
        except BaseException:
            self.close()
            raise

    # --- opening -----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self.close()
        files = _Files.of(self._path)
        with self._path.open("rb") as file:
            file.seek(_WAL_MARK_AT)
            is_wal = file.read(1) == b"\x02"
        path, options = self._path, "mode=ro"
        if is_wal and files.is_quiet:
            options, self._unlocked = "mode=ro&immutable=1", files
        elif is_wal and files.has_shm:
            options = "mode=ro&readonly_shm=1"
        elif is_wal:
            path = self._copy_files(files)
        self._connection = apsw.Connection(f"file:{quote(str(path.absolute()))}?{options}", flags=_URI)
        self._connection.set_busy_timeout(_BUSY_MS)
        self._connection.pragma("query_only", 1)
        self._connection.pragma("trusted_schema", 0)

    def _copy_files(self, files: _Files) -> Path:
        """Copy a database and its -wal, which no process has open."""
        self._copy = tempfile.mkdtemp(prefix="holdfast-migrate-")
        path = Path(self._copy) / "source.db"
        try:
            shutil.copyfile(self._path, path)
            shutil.copyfile(_sibling(self._path, "-wal"), _sibling(path, "-wal"))
        except FileNotFoundError as error:
            raise _FilesChanged("the files were changed while they were copied") from error
        if _Files.of(self._path) != files:
            raise _FilesChanged("the files were changed while they were copied")
        return path

    def _check_tables(self) -> str:
        """Check that the tables exist, and return the statement that reads writes."""
        found = {table: {row[1] for row in self._all(f"PRAGMA table_info({table})")} for table in _COLUMNS}
        source.check_tables(self.shown, "SQLite", _COLUMNS, found)
        return _WRITES if "task_path" in found["writes"] else _OLD_WRITES

    def close(self) -> None:
        connection, self._connection, self._unlocked = self._connection, None, None
        if connection is not None:
            connection.close(True)
        copy, self._copy = self._copy, None
        if copy is not None:
            shutil.rmtree(copy, ignore_errors=True)

    # --- reading -----------------------------------------------------------------------------------------------------

    def count(self, thread_ids: Sequence[str] | None) -> int:
        with self.snapshot():
            found = self._all(_COUNT) if thread_ids is None else self._all(_COUNT_OF, json.dumps(list(thread_ids)))
            return int(found[0][0])

    def threads(self, thread_ids: Sequence[str] | None) -> Iterator[source.Thread]:
        for page in self.pages(thread_ids):
            names = json.dumps(page)
            with self.snapshot():
                writes = {row[0]: row[1:] for row in self._all(_WRITE_SIZES, names)}
                checkpoints = self._all(_SIZES, names)
            for thread_id, count, newest, row, size, beside in checkpoints:
                written = writes.get(thread_id, (0, 0, 0, 0))
                marks = (count, newest, row, size, *written[:3])
                yield source.Thread(thread_id, count, size + beside + sum(written[2:]), " ".join(map(str, marks)))

    def _ids_after(self, last: str) -> list[str]:
        return [row[0] for row in self._all(_PAGE_IDS, last, source.PAGE)]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        try:
            connection = self._begin()
        except (apsw.Error, _FilesChanged) as error:
            raise source.SourceFailed(self._describe(error)) from error
        try:
            yield
        except apsw.Error as error:
            self.check()
            raise source.SourceFailed(self._describe(error)) from error
        finally:
            with suppress(apsw.Error):
                if not connection.get_autocommit():
                    connection.execute("ROLLBACK")

    def _begin(self) -> apsw.Connection:
        """Begin a read transaction; open the files again while another process creates or removes the -wal."""
        end = time.monotonic() + _BUSY_MS / 1000
        while True:
            try:
                if self._connection is None or self._is_outdated():
                    self._open()
                self._link.execute("BEGIN")
                self._all(_FIRST_READ)
                return self._link
            except (apsw.ReadOnlyError, apsw.CantOpenError, _FilesChanged):
                self.close()
                if time.monotonic() > end:
                    raise
                time.sleep(_REOPEN_S)

    def _is_outdated(self) -> bool:
        """Whether a writer has opened a database that is read without locks."""
        return self._unlocked is not None and _Files.of(self._path) != self._unlocked

    def rows(self, thread_id: str) -> Iterator[source.Row]:
        for namespace, checkpoint_id in self._link.execute(_KEYS, (thread_id,)):
            key = (thread_id, namespace, checkpoint_id)
            parent_id, kind, body, metadata = self._all(_ROW, *key)[0]
            writes = [
                source.SourceWrite(path, task_id, idx, channel, (kind_ or "", _bytes(value) or b""))
                for path, task_id, idx, channel, kind_, value in self._all(self._writes, *key)
            ]
            has_parent = bool(parent_id) and self.has(thread_id, namespace, parent_id)
            content = SourceCheckpoint(checkpoint_id, kind, _bytes(body))
            yield source.Row(
                namespace, checkpoint_id, parent_id or None, has_parent, content, _bytes(metadata), sorted(writes)
            )

    def has(self, thread_id: str, namespace: str, checkpoint_id: str) -> bool:
        return bool(self._all(_HAS, thread_id, namespace, checkpoint_id))

    def check(self) -> None:
        if self._unlocked is not None and _Files.of(self._path).database != self._unlocked.database:
            raise source.SourceChanged

    @property
    def _link(self) -> apsw.Connection:
        assert self._connection is not None, "the source is closed"
        return self._connection

    def _all(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._link.execute(statement, values).fetchall()

    def _describe(self, error: Exception) -> str:
        return f"{self.shown}: {error} ({type(error).__name__})"


def _sibling(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _stat(path: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def _bytes(value: object) -> bytes | None:
    """Convert a column to bytes: SQLite stores text or bytes in any column."""
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else None


def _refuse_if_open_here(path: Path) -> None:
    """Raise if this process has the file open, as far as /proc shows it."""
    wanted = os.stat(path)
    for handle in Path("/proc/self/fd").iterdir() if Path("/proc/self/fd").is_dir() else ():
        with suppress(OSError):
            found = os.stat(handle)
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                raise InvalidInput(
                    f"this process already has {path} open, and closing a second handle would drop its locks; "
                    "close the saver or connection first, or run `holdfast langgraph import` in another process"
                )
