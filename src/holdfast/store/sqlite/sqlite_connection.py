"""Connections to SQLite, the translation of its errors, and a barrier for forks.

Durable means WAL with synchronous=FULL: both are set on every connection and read back, and a connection without them
is not used. SQLite comes with `apsw`, because the version that most Pythons link has a bug that can corrupt a WAL
database when several processes use it (fixed in 3.51.3).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from typing import Final

import apsw

from holdfast.errors import (
    DamagedData,
    HoldfastError,
    StorageBusy,
    StorageFailed,
    StorageFull,
    UnsupportedFormat,
)
from holdfast.files.os_files import SystemFiles
from holdfast.store.sql.statements import read_sql

APPLICATION_ID: Final = 0x486F6C64  # "Hold"
SCHEMA_VERSION: Final = 3
_SCHEMAS: Final = ("schema.sql", "schema_2.sql", "schema_3.sql")
"""The files that lead to each version from the one before it."""
SYNCHRONOUS: Final = ("FULL", 2)
_OLDEST: Final = 3051003
_POLL_S: Final = 0.0005


class Connector:
    """Opens connections to one database file."""

    def __init__(self, path: str, timeout_s: float, vfs: str | None = None) -> None:
        if apsw.SQLITE_VERSION_NUMBER < _OLDEST:
            raise StorageFailed(
                f"SQLite {apsw.sqlite_lib_version()} has the WAL-reset bug; install apsw 3.51.3 or newer"
            )
        self.path = path
        self.timeout_s = timeout_s
        self._vfs = vfs

    def open(self) -> apsw.Connection:
        """Return a new connection, durable and checked."""
        self._create_private()
        try:
            connection = apsw.Connection(self.path, vfs=self._vfs, statementcachesize=128)
        except apsw.Error as error:
            raise self.translate(error) from error
        try:
            patience = _Patience(self.timeout_s)
            connection.set_busy_handler(patience)
            for tries in itertools.count():
                try:
                    self._set_up(connection)
                    return connection
                except apsw.BusyError:
                    # Two processes that switch a new file to WAL at once would deadlock: SQLite fails one of them
                    # without calling the busy handler.
                    if not patience(tries):
                        raise
        except apsw.Error as error:
            connection.close()
            raise self.translate(error) from error
        except HoldfastError:
            connection.close()
            raise
        raise AssertionError("the retries are bounded by time")

    def _create_private(self) -> None:
        """Create a missing file readable only by its owner: states contain secrets. Its WAL gets the same mode."""
        if not os.path.exists(self.path):
            with contextlib.suppress(OSError):  # SQLite reports it with more detail
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def _set_up(self, connection: apsw.Connection) -> None:
        mode = connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", SYNCHRONOUS[0])
        connection.pragma("fullfsync", 1)
        connection.pragma("checkpoint_fullfsync", 1)
        connection.pragma("trusted_schema", 0)
        connection.pragma("cell_size_check", 1)
        if mode != "wal" or connection.pragma("synchronous") != SYNCHRONOUS[1]:
            raise StorageFailed(
                f"{self.path} cannot be used durably: journal_mode is {mode!r} and synchronous is "
                f"{connection.pragma('synchronous')}, but WAL with FULL is needed; use a local file system"
            )

    def prepare(self, connection: apsw.Connection) -> None:
        """Create the schema in an empty file; check the schema of any other file, and migrate an older one."""
        try:
            self._prepare(connection)
        except apsw.Error as error:
            raise self.translate(error) from error

    def _prepare(self, connection: apsw.Connection) -> None:
        connection.execute("BEGIN")  # so that all reads see one snapshot
        try:
            if self._version(connection) == SCHEMA_VERSION:
                return
        finally:
            roll_back(connection)
        # SQLite syncs the directory of a new file but does not report a failure, so it is synced here again: before the
        # schema, so that the next process repeats it after a failure.
        sync_directory(self.path)
        with transaction(connection):
            version = self._version(connection)
            if version == SCHEMA_VERSION:  # another process was first
                return
            for name in _SCHEMAS[version:]:
                connection.execute(read_sql(__file__, name))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _version(self, connection: apsw.Connection) -> int:
        """The version of the schema in the file; 0 if the file is empty."""
        application, version = connection.pragma("application_id"), connection.pragma("user_version")
        if application == APPLICATION_ID:
            if not 1 <= version <= SCHEMA_VERSION:
                raise UnsupportedFormat(
                    self.path, f"its schema has version {version}, this Holdfast supports {SCHEMA_VERSION}"
                )
            return int(version)
        if application or version or connection.execute("SELECT count(*) FROM sqlite_master").get:
            raise StorageFailed(f"{self.path} is a SQLite database of another program; choose another file")
        return 0

    def translate(self, error: apsw.Error) -> HoldfastError:
        """The error of Holdfast for an error of SQLite."""
        text = f"{self.path}: {error}"
        if isinstance(error, (apsw.BusyError, apsw.LockedError)):
            return StorageBusy(f"{text}; other processes were writing for more than {self.timeout_s} s; try again")
        if isinstance(error, apsw.FullError):
            return StorageFull(f"{text}; free some space, or prune")
        if isinstance(error, apsw.NotADBError):
            return DamagedData(self.path, f"{error} (if it is a file of another program, choose another path)")
        if isinstance(error, apsw.CorruptError):
            return DamagedData(self.path, str(error))
        if isinstance(error, apsw.CantOpenError):
            if os.path.isdir(self.path):
                return StorageFailed(f"{self.path} is a directory; sqlite: needs the path of a file, dir: a directory")
            return StorageFailed(f"{text}; check that the directory exists and is writable")
        if isinstance(error, (apsw.PermissionsError, apsw.ReadOnlyError, apsw.AuthError)):
            return StorageFailed(f"{text}; check the permissions of the file and its directory")
        return StorageFailed(f"{text} ({type(error).__name__})")


def version_at(path: str) -> int:
    """The version of the schema in a file, 0 if there is none yet. Creates nothing."""
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return 0
    opener = Connector(path, 1.0)
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        raise opener.translate(error) from error
    try:
        if connection.pragma("application_id") != APPLICATION_ID:
            raise StorageFailed(f"{path} is a SQLite database of another program; choose another file")
        return int(connection.pragma("user_version"))
    except apsw.Error as error:
        raise opener.translate(error) from error
    finally:
        connection.close()


class _Patience:
    """A busy handler that retries soon and at random intervals, so that no writer starves."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._until = now + self._timeout_s
        elif now > self._until:
            return False
        time.sleep(os.urandom(1)[0] / 256 * 0.001 * min(1 + tries, 10))
        return True


@contextlib.contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """A write transaction: all or nothing."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def roll_back(connection: apsw.Connection) -> None:
    """End the transaction if there is one: SQLite may have ended it itself."""
    if not connection.get_autocommit():
        with contextlib.suppress(apsw.Error):
            connection.execute("ROLLBACK")


def sync_directory(path: str) -> None:
    """Make the file's name durable."""
    try:
        SystemFiles().sync_directory(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise StorageFailed(f"the directory of {path} cannot be synced: {error}; check the disk") from error


class ReaderBarrier:
    """Counts the threads that are reading, and can be shut to wait until all of them have left."""

    def __init__(self) -> None:
        self._inside: set[object] = set()
        self._shut = False

    def enter(self, ticket: object) -> None:
        """Enter as soon as it is not shut."""
        self._inside.add(ticket)
        while self._is_shut():  # checked after the entry is visible to `shut`
            self._inside.discard(ticket)
            time.sleep(_POLL_S)
            self._inside.add(ticket)

    def _is_shut(self) -> bool:
        return self._shut

    def leave(self, ticket: object) -> None:
        """Leave; does nothing for a ticket that did not enter."""
        self._inside.discard(ticket)

    def shut(self, timeout_s: float) -> bool:
        """Block new readers and wait until all have left; False if one has not left in that time."""
        until = time.monotonic() + timeout_s
        self._shut = True
        while self._inside and time.monotonic() < until:
            time.sleep(_POLL_S)
        return not self._inside

    def open(self) -> None:
        """Admit readers again."""
        self._shut = False
