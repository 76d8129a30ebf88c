"""What an error of PostgreSQL means here. The driver's errors are translated in this one place."""

from __future__ import annotations

from typing import Any, Final

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


class Silent(psycopg.OperationalError):
    """The server did not answer in time, and the connection was given up."""


_BUSY: Final = (
    pg.QueryCanceled,
    pg.LockNotAvailable,
    pg.DeadlockDetected,
    pg.SerializationFailure,
    pg.TooManyConnections,
)
_AGAIN: Final = (pg.DeadlockDetected, pg.SerializationFailure, pg.UniqueViolation)
_ADVICE: Final[tuple[tuple[tuple[type[psycopg.Error], ...], str], ...]] = (
    ((pg.InvalidPassword, pg.InvalidAuthorizationSpecification), "check user and password"),
    ((pg.InvalidCatalogName,), "create the database, or name another in the URL"),
    ((pg.InsufficientPrivilege,), "grant the role what it lacks, or have the schema made for it (see `sql_text`)"),
    ((pg.UndefinedTable, pg.DuplicateTable, pg.UndefinedColumn),
     "the schema is not Holdfast's; choose another with ?schema="),
    ((pg.ReadOnlySqlTransaction,), "this server only reads, it may be a replica; connect to the primary"),
)  # fmt: skip
_TEXTS: Final = (
    ("password authentication failed", "check user and password"),
    ("no password supplied", "check user and password"),
    ("pg_hba.conf", "the server does not let this user in from here"),
    ("does not exist", "check the names of user and database"),
)
"""While connecting the driver only gives the server's words."""


def is_worth_another_try(error: psycopg.Error) -> bool:
    """Whether the same transaction may go through if it is tried again at once."""
    return isinstance(error, _AGAIN)


def is_starting(error: psycopg.Error) -> bool:
    """Whether the server is there, and will soon take connections."""
    return "starting up" in str(error) or "in recovery mode" in str(error) or "shutting down" in str(error)


def is_refused_for_good(error: psycopg.Error) -> bool:
    """Whether connecting again would meet the same answer."""
    return not is_starting(error) and any(text in str(error) for text, _ in _TEXTS)


def translated(error: psycopg.Error, shown: str, timeout_s: float) -> HoldfastError:
    """What an error of the driver means here."""
    said = " ".join(str(error).split()) or type(error).__name__
    text = f"{shown}: {said}"
    if isinstance(error, _BUSY):
        return StorageBusy(f"{text}; others were in the way for more than {timeout_s:g} s, try again")
    if isinstance(error, pg.DiskFull):
        return StorageFull(f"{text}; free some space, or prune")
    if isinstance(error, (pg.DataCorrupted, pg.IndexCorrupted)):
        return DamagedData(shown, said)
    # What is wrong with one commit alone must not be called a failure of the storage, which fails all that go with it.
    if isinstance(error, (psycopg.DataError, pg.ProgramLimitExceeded)):
        return InvalidInput(f"{text}; PostgreSQL cannot store this")
    if isinstance(error, psycopg.IntegrityError):
        return Conflict(text)
    for kinds, advice in _ADVICE:
        if isinstance(error, kinds):
            return StorageFailed(f"{text}; {advice}")
    if error.sqlstate is None:
        advice = next((advice for part, advice in _TEXTS if part in said), "check that the server can be reached")
        return StorageFailed(f"{text}; {advice}")
    return StorageFailed(f"{text} ({type(error).__name__})")


def interrupt_behind(error: BaseException | None) -> BaseException | None:
    """The interrupt (Ctrl-C) that led to an error, if one did: the driver may fail when it is left in the middle."""
    while error is not None and isinstance(error, Exception):
        error = error.__cause__ or error.__context__
    return error


def is_idle(connection: psycopg.Connection[Any]) -> bool:
    """Whether nothing is under way on it: no transaction, no statements whose results were not fetched."""
    pgconn = connection.pgconn
    return pgconn.transaction_status == TransactionStatus.IDLE and pgconn.pipeline_status == PipelineStatus.OFF


def is_broken(connection: psycopg.Connection[Any]) -> bool:
    """Whether the connection is gone, so that nobody knows what became of the last statement."""
    return bool(connection.closed or connection.broken)
