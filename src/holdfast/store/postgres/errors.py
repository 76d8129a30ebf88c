"""Translation of PostgreSQL errors, and predicates about connections.

The errors of the driver are translated only here.
"""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import errors as pg
from psycopg.pq import PipelineStatus, TransactionStatus

from holdfast.errors import (
    Conflict,
    DamagedData,
    HoldfastError,
    InvalidInput,
    StorageBusy,
    StorageFailed,
    StorageFull,
)
from holdfast.store.sql.statements import Columns


class Silent(psycopg.OperationalError):
    """The server did not answer in time, and the connection was closed."""


_BUSY: Final = (
    pg.QueryCanceled,
    pg.LockNotAvailable,
    pg.DeadlockDetected,
    pg.SerializationFailure,
    pg.TooManyConnections,
)
_RESET: Final = (pg.InvalidSqlStatementName, pg.DuplicatePreparedStatement)
_RETRYABLE: Final = (pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation, *_RESET)
_ADVICE: Final[tuple[tuple[tuple[type[psycopg.Error], ...], str], ...]] = (
    ((pg.InvalidPassword, pg.InvalidAuthorizationSpecification), "check user and password"),
    ((pg.InvalidCatalogName,), "create the database, or name another in the URL"),
    (
        (pg.InsufficientPrivilege,),
        "grant the privilege to the role, or create the schema with another role (see `sql_text`)",
    ),
    (
        (pg.UndefinedTable, pg.DuplicateTable, pg.UndefinedColumn),
        "the schema does not belong to Holdfast; choose another with ?schema=",
    ),
    ((pg.ReadOnlySqlTransaction,), "the server is read-only and may be a replica; connect to the primary"),
)
_TEXTS: Final = (
    ("password authentication failed", "check user and password"),
    ("no password supplied", "check user and password"),
    ("pg_hba.conf", "allow this user and host in pg_hba.conf"),
    ("does not exist", "check the names of user and database"),
)
"""Errors while connecting have no code, only the text of the server."""


def is_worth_another_try(error: psycopg.Error) -> bool:
    """Whether the same transaction may succeed if it is retried at once."""
    return isinstance(error, _RETRYABLE)


def is_reset(error: psycopg.Error) -> bool:
    """Whether the session has not the prepared statements that it should have, for example after DISCARD ALL."""
    return isinstance(error, _RESET)


def is_starting(error: psycopg.Error) -> bool:
    """Whether the server is running and will soon accept connections."""
    return "starting up" in str(error) or "in recovery mode" in str(error) or "shutting down" in str(error)


def is_refused_for_good(error: psycopg.Error) -> bool:
    """Whether another attempt to connect would fail in the same way."""
    return not is_starting(error) and any(text in str(error) for text, _ in _TEXTS)


def translated(error: psycopg.Error, shown: str, timeout_s: float) -> HoldfastError:
    """The error of Holdfast for an error of the driver."""
    message = " ".join(str(error).split()) or type(error).__name__
    text = f"{shown}: {message}"
    if isinstance(error, _BUSY):
        return StorageBusy(f"{text}; other transactions blocked this one for more than {timeout_s:g} s; try again")
    if isinstance(error, pg.DiskFull):
        return StorageFull(f"{text}; free some space, or prune")
    if isinstance(error, (pg.DataCorrupted, pg.IndexCorrupted)):
        return DamagedData(shown, message)
    # An error of one commit must not become a StorageFailed, which fails all commits of its batch.
    if isinstance(error, (psycopg.DataError, pg.ProgramLimitExceeded)):
        return InvalidInput(f"{text}; PostgreSQL cannot store this value")
    if isinstance(error, psycopg.IntegrityError):
        return Conflict(text)
    for kinds, advice in _ADVICE:
        if isinstance(error, kinds):
            return StorageFailed(f"{text}; {advice}")
    if error.sqlstate is None:
        advice = next((advice for part, advice in _TEXTS if part in message), "check that the server can be reached")
        return StorageFailed(f"{text}; {advice}")
    return StorageFailed(f"{text} ({type(error).__name__})")


def interrupt_behind(error: BaseException | None) -> BaseException | None:
    """The interrupt (Ctrl-C) that caused an error, if any: the driver may fail after one."""
    while error is not None and isinstance(error, Exception):
        error = error.__cause__ or error.__context__
    return error


def is_idle(connection: psycopg.Connection[Columns]) -> bool:
    """Whether it has no open transaction and no statement whose results were not fetched."""
    pgconn = connection.pgconn
    return pgconn.transaction_status == TransactionStatus.IDLE and pgconn.pipeline_status == PipelineStatus.OFF


def is_broken(connection: psycopg.Connection[Columns]) -> bool:
    """Whether the connection is lost, so that the outcome of the last statement is unknown."""
    return bool(connection.closed or connection.broken)
