"""Deliberately broken variants of the store, by name. A harness that does not notice its own is worth nothing.

They are put in by replacing single functions in the running process, never in the source.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import apsw

from holdfast import fork_safety
from holdfast.clock import LeaseTime
from holdfast.files.durable import DiskReserve
from holdfast.model.commit import HOLDER, Commit, Outcome, Refused
from holdfast.model.rows import RunRow
from holdfast.store import decide
from holdfast.store.sqlite import sqlite_connection as connections
from holdfast.store.sqlite import sqlite_reads
from holdfast.store.sqlite.sqlite_connection import Connector, roll_back
from holdfast.store.sqlite.sqlite_store import SqliteStore
from holdfast.store.sqlite.sqlite_writer import Writer

NONE: Callable[[], Any] = contextlib.nullcontext


@contextlib.contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """Put the mutant in for a while; None, or a name only the harness knows, changes nothing."""
    with _MUTANTS.get(name or "", NONE)():
        yield


# --- durability ------------------------------------------------------------------------------------------------------


def _synchronous(name: str, value: int) -> Callable[[], Any]:
    return lambda: mock.patch.object(connections, "SYNCHRONOUS", (name, value))


def _rollback_journal() -> Any:
    """DELETE with FULL, SQLite's own default: nothing syncs the directory after the journal is unlinked."""

    def set_up(opener: Connector, connection: apsw.Connection) -> None:
        connection.set_busy_timeout(20_000)
        connection.pragma("journal_mode", "delete")
        connection.pragma("synchronous", "full")

    return mock.patch.object(Connector, "_set_up", set_up)


# --- atomicity -------------------------------------------------------------------------------------------------------


def _no_transaction() -> Any:
    def commit(writer: Writer, commits: Sequence[Commit]) -> list[Outcome]:
        writer.forget()
        return [writer.one(one) for one in commits]

    return mock.patch.object(Writer, "commit", commit)


def _commit_errors_swallowed() -> Any:
    """Says that it is done although COMMIT failed."""

    def commit(writer: Writer, commits: Sequence[Commit]) -> list[Outcome]:
        writer.connection.execute("BEGIN IMMEDIATE")
        outcomes = [writer.one(one) for one in commits]
        try:
            writer.connection.execute("COMMIT")
        except apsw.Error:
            writer.forget()
            roll_back(writer.connection)
        return outcomes

    return mock.patch.object(Writer, "commit", commit)


def _reserve_ignored() -> Any:
    """Saves go on until the disk is full, so that nothing is left for prune."""
    return mock.patch.object(DiskReserve, "check", return_value=None)


# --- guards ----------------------------------------------------------------------------------------------------------

_Lease = Callable[[], LeaseTime]
_guard = decide._guard


def _no_fence() -> Any:
    """A holder's fence and nonce are not compared: whoever once held the run may write."""

    def guard(row: RunRow, commit: Commit, lease: _Lease) -> Refused | None:
        if commit.guard.kind == HOLDER:
            return None
        return _guard(row, commit, lease)

    return mock.patch.object(decide, "_guard", guard)


def _claims_not_exclusive() -> Any:
    """A run that somebody holds can be claimed by another."""

    def guard(row: RunRow, commit: Commit, lease: _Lease) -> Refused | None:
        refused = _guard(row, commit, lease)
        return None if refused is not None and refused.reason == "claimed" else refused

    return mock.patch.object(decide, "_guard", guard)


def _no_epoch() -> Any:
    """A writer's gc_epoch is not compared: it may rely on chunks that were swept away."""

    def guard(row: RunRow, commit: Commit, lease: _Lease) -> Refused | None:
        refused = _guard(row, commit, lease)
        return None if refused is not None and refused.reason == "epoch" else refused

    return mock.patch.object(decide, "_guard", guard)


def _late_roots_ignored() -> Any:
    """The sweep does not look for roots that came in since it looked."""
    return mock.patch.object(SqliteStore, "_late_roots", return_value=[])


class _Nobody:
    """Those who start anew after a fork: none."""

    def add(self, thing: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def _fork_ignored() -> Any:
    """A child goes on with its parent's connections, locks and threads."""
    return mock.patch.object(fork_safety, "_watched", _Nobody())


# --- waiting ---------------------------------------------------------------------------------------------------------


def _no_patience() -> Any:
    """A busy database is an error at once."""
    return mock.patch.object(connections._Patience, "__call__", return_value=False)


@contextlib.contextmanager
def _reads_stay_open() -> Iterator[None]:
    """Reads leave their transaction open, as an iterator over a live cursor would."""
    held: list[apsw.Connection] = []

    def rows(store: Any, *about: Any, **keys: Any) -> list[Any]:
        connection = apsw.Connection(store.path)
        held.append(connection)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM runs").fetchall()
        return found(store, *about, **keys)  # type: ignore[no-any-return]

    found: Any = sqlite_reads.SqliteReads.rows
    with mock.patch.object(sqlite_reads.SqliteReads, "rows", rows):
        yield


_MUTANTS: dict[str, Callable[[], Any]] = {
    "synchronous_normal": _synchronous("NORMAL", 1),
    "synchronous_off": _synchronous("OFF", 0),
    "rollback_journal": _rollback_journal,
    "no_transaction": _no_transaction,
    "commit_errors_swallowed": _commit_errors_swallowed,
    "reserve_ignored": _reserve_ignored,
    "no_fence": _no_fence,
    "claims_not_exclusive": _claims_not_exclusive,
    "no_epoch": _no_epoch,
    "late_roots_ignored": _late_roots_ignored,
    "fork_ignored": _fork_ignored,
    "no_patience": _no_patience,
    "reads_stay_open": _reads_stay_open,
}
