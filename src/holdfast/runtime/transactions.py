"""`run.transaction`: a change in the user's own database, recorded in that very transaction.

    holdfast_outcomes(key, result)      in the user's database, made when it is first needed

The transaction first inserts its key, which nobody else can then do, and before it commits puts the result beside it.
So the row is there if and only if the change is. After a crash it is simply tried again: a row that is there tells the
result, and the user's function is not called.

An error is raised only when it is known that the change is not there. Where that is not certain, because the
connection broke while it committed, the row is looked for on a fresh connection, by inserting the key: that waits for a
commit that is still under way. If even that cannot be done the effect is in doubt, and is tried again under the same
key. Transactions on one connection wait for one another.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import typing
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any, Final, NamedTuple

from holdfast.engine import effects, steps
from holdfast.engine.commands import Plan
from holdfast.engine.execution import Execution
from holdfast.engine.outcome import World
from holdfast.engine.scope import Scope
from holdfast.engine.verdicts import DOUBTFUL, NOT_DONE, Verdict
from holdfast.errors import InDoubt, InvalidInput
from holdfast.forking import watch
from holdfast.state.values import pack, unpack

TABLE: Final = "holdfast_outcomes"
_PLACE: Final = f"a row of {TABLE}"


class _Sql(NamedTuple):
    """The statements, as each database wants them."""

    exists: str
    create: str
    insert: str
    select: str
    update: str


SQLITE: Final = _Sql(
    "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'holdfast_outcomes'",
    "CREATE TABLE IF NOT EXISTS holdfast_outcomes (key TEXT PRIMARY KEY, result BLOB NOT NULL)",
    "INSERT INTO holdfast_outcomes (key, result) VALUES (?, x'') ON CONFLICT (key) DO NOTHING RETURNING key",
    "SELECT result FROM holdfast_outcomes WHERE key = ?",
    "UPDATE holdfast_outcomes SET result = ? WHERE key = ?",
)
POSTGRES: Final = _Sql(
    "SELECT 1 WHERE to_regclass('holdfast_outcomes') IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS holdfast_outcomes (key TEXT PRIMARY KEY, result BYTEA NOT NULL)",
    "INSERT INTO holdfast_outcomes (key, result) VALUES (%s, '') ON CONFLICT (key) DO NOTHING RETURNING "
    "(SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = holdfast_outcomes.tableoid)",
    "SELECT result FROM holdfast_outcomes WHERE key = %s",
    "UPDATE holdfast_outcomes SET result = %s WHERE key = %s",
)


def plan(
    exe: Execution, scope: Scope, connection: Any, fn: Callable[..., Any], args: tuple[Any, ...],
    kwargs: dict[str, Any], name: str | None, key: str | None, *, awaiting: bool = False,
) -> Plan[Any]:  # fmt: skip
    """The effect that is the transaction. `awaiting`: the workflow is async."""
    spec = steps.spec_of(fn, args, kwargs, name, key, None, None)
    kind = _kind(connection)
    known = _Known()
    maker = {"psycopg": _in_psycopg, "psycopg_async": _in_async_psycopg, "sqlite3": _in_sqlite, "apsw": _in_sqlite}
    spec.fn = maker[kind](connection, fn, known)
    if awaiting and kind in ("sqlite3", "apsw"):  # its connection belongs to the thread of the loop
        spec.fn = _awaitable(spec.fn)
    spec.fn.__annotations__ = {"return": _return_type(fn), "idempotency_key": str}
    world = World(in_doubt="retry", tool=spec.name, target=kind, classify=_classify, is_conclusive=lambda: known.proven)
    return effects.effect(exe, scope, spec, world)


class _Known:
    """What the tries of one transaction have found out."""

    def __init__(self) -> None:
        self.proven = False
        """The last try had the key for itself, or found it missing: so no try has committed."""
        self.schema = ""
        """Where PostgreSQL has the table, quoted."""
        self.address: dict[str, Any] = {}
        """How to reach that server on another connection."""


def _classify(error: BaseException) -> Verdict:
    """A try that raised has not committed, unless it says that it does not know."""
    return DOUBTFUL if isinstance(error, InDoubt) or not isinstance(error, Exception) else NOT_DONE


class _Turns:
    """One transaction at a time on each connection, in whatever thread or task."""

    def __init__(self) -> None:
        self.after_fork()
        watch(self)

    def after_fork(self) -> None:
        self._guard = threading.Lock()
        self._waiting: dict[int, list[Any]] = {}
        """By connection: a lock, and how many want it. Nothing stays behind when none does."""

    def _enter(self, connection: Any, make: Callable[[], Any]) -> Any:
        with self._guard:
            entry = self._waiting.setdefault(id(connection), [make(), 0])
            entry[1] += 1
        return entry[0]

    def _leave(self, connection: Any) -> None:
        with self._guard:
            entry = self._waiting[id(connection)]
            entry[1] -= 1
            if not entry[1]:
                del self._waiting[id(connection)]

    @contextlib.contextmanager
    def of(self, connection: Any) -> Iterator[None]:
        lock = self._enter(connection, threading.Lock)
        try:
            with lock:
                yield
        finally:
            self._leave(connection)

    @contextlib.asynccontextmanager
    async def of_async(self, connection: Any) -> AsyncIterator[None]:
        import asyncio  # loaded by those who use it

        lock = self._enter(connection, asyncio.Lock)
        try:
            async with lock:
                yield
        finally:
            self._leave(connection)


_TURNS: Final = _Turns()


def _awaitable(transaction: Callable[..., Any]) -> Callable[..., Any]:
    async def awaited(*args: Any, idempotency_key: str, **kwargs: Any) -> Any:
        return transaction(*args, idempotency_key=idempotency_key, **kwargs)

    return awaited


def _kind(connection: Any) -> str:
    for base in type(connection).__mro__:
        root = base.__module__.partition(".")[0]
        if root in ("sqlite3", "_sqlite3") and base.__name__ == "Connection":
            return "sqlite3"
        if root == "apsw" and base.__name__ == "Connection":
            return "apsw"
        if root == "psycopg" and base.__name__ in ("Connection", "AsyncConnection"):
            return "psycopg_async" if base.__name__ == "AsyncConnection" else "psycopg"
    raise InvalidInput(
        f"run.transaction takes a connection of sqlite3, apsw or psycopg, not {type(connection).__module__}."
        f"{type(connection).__qualname__}; for others use run.effect with a check="
    )


def _return_type(fn: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(fn).get("return")
    except Exception:  # an annotation may name what exists only for a type checker
        return None


def _busy() -> InvalidInput:
    return InvalidInput(
        "run.transaction needs a connection that is not already in a transaction, since its end must be this one's"
    )


def _stored(result: Any) -> Any:
    """The result in a row of the table."""
    if not result:
        raise InvalidInput("the function ended its transaction itself, so its result was never recorded; let it return")
    return unpack(bytes(result), _PLACE)


def _in_sqlite(connection: Any, fn: Callable[..., Any], known: _Known) -> Callable[..., Any]:
    def transaction(*args: Any, idempotency_key: str, **kwargs: Any) -> Any:
        with _TURNS.of(connection):
            return _sqlite_transaction(connection, lambda: fn(connection, *args, **kwargs), idempotency_key, known)

    return transaction


def _sqlite_transaction(connection: Any, change: Callable[[], Any], key: str, known: _Known) -> Any:
    known.proven = False
    if connection.in_transaction:
        raise _busy()
    execute, result, committing = connection.execute, None, False
    execute("BEGIN IMMEDIATE")
    try:
        if not execute(SQLITE.exists).fetchall():
            execute(SQLITE.create)
        if not execute(SQLITE.insert, (key,)).fetchall():
            result, committing = _stored(execute(SQLITE.select, (key,)).fetchall()[0][0]), True
        else:
            result = change()
            execute(SQLITE.update, (pack(result), key))
            committing = True
        execute("COMMIT")
        return result
    except Exception as error:
        if not _is_committed(connection, key, error):
            known.proven = True
            raise
        if not committing:
            raise InDoubt("the function ended its transaction itself, and then it failed") from error
        return result
    except BaseException:  # the process is being ended
        if connection.in_transaction:
            execute("ROLLBACK")
        raise


def _is_committed(connection: Any, key: str, error: BaseException) -> bool:
    """After an error in a transaction of SQLite: roll it back, or look whether it has committed all the same."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        there = connection.execute(SQLITE.exists).fetchall()
        return bool(there and connection.execute(SQLITE.select, (key,)).fetchall())
    except Exception as unreadable:
        raise InDoubt(f"it is not known whether the transaction was committed: {unreadable}") from error


# --- PostgreSQL ------------------------------------------------------------------------------------------------------

Steps = Generator[Any, Any, Any]
"""A transaction as steps, once for both kinds of connection: what is yielded is awaited if need be, and comes back."""
_IDLE: Final = 0
_MAKING: Final = "SELECT pg_advisory_xact_lock(hashtext('holdfast_outcomes'))"
"""Held by a transaction that makes the table, until it ends."""
_WAIT_S: Final = 10
"""How long a look at the outcome waits for a commit that is still under way."""


def _in_psycopg(connection: Any, fn: Callable[..., Any], known: _Known) -> Callable[..., Any]:
    def transaction(*args: Any, idempotency_key: str, **kwargs: Any) -> Any:
        with _TURNS.of(connection):
            steps = _postgres(connection, lambda: fn(connection, *args, **kwargs), idempotency_key, known, "")
            try:
                step = next(steps)
                while True:
                    step = steps.send(step)
            except StopIteration as done:
                return done.value

    return transaction


def _in_async_psycopg(connection: Any, fn: Callable[..., Any], known: _Known) -> Callable[..., Any]:
    async def transaction(*args: Any, idempotency_key: str, **kwargs: Any) -> Any:
        async with _TURNS.of_async(connection):
            steps = _postgres(connection, lambda: fn(connection, *args, **kwargs), idempotency_key, known, "a")
            try:
                step = next(steps)
                while True:
                    try:
                        found = await step if inspect.isawaitable(step) else step
                    except BaseException as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(found)
            except StopIteration as done:
                return done.value

    return transaction


def _postgres(connection: Any, change: Callable[[], Any], key: str, known: _Known, mode: str) -> Steps:
    """The transaction. `mode` is "a" if the connection is awaited."""
    known.proven = False
    if connection.closed:
        return (yield from _on_closed(connection, key, known))
    if connection.info.transaction_status != _IDLE:
        raise _busy()
    known.address = {**connection.info.get_parameters(), "password": connection.info.password or None}
    transaction = connection.transaction()
    leave = getattr(transaction, f"__{mode}exit__")
    yield getattr(transaction, f"__{mode}enter__")()
    held, recorded = False, None
    try:
        cursor = connection.cursor(row_factory=_plain_rows)
        rows = yield from _fetch(cursor, POSTGRES.exists)
        if not rows:
            yield cursor.execute(_MAKING)
            yield cursor.execute(POSTGRES.create)
        rows = yield from _fetch(cursor, POSTGRES.insert, key)
        if rows:
            held, known.schema = True, rows[0][0]
            result = yield change()
            yield cursor.execute(POSTGRES.update, (pack(result), key))
        else:
            recorded = (yield from _fetch(cursor, POSTGRES.select, key))[0]
            result = None
    except BaseException as error:
        yield leave(type(error), error, error.__traceback__)
        known.proven = held
        raise
    if recorded is not None:
        with contextlib.suppress(Exception):  # nothing was changed
            yield leave(None, None, None)
        return _stored(recorded[0])
    try:
        yield leave(None, None, None)
        if connection.closed:  # psycopg then sends no COMMIT, and does not say so
            raise ConnectionError("the connection was closed before the transaction was committed")
    except Exception as error:
        found = yield from _outcome_of(connection, key, known, error)
        if found is None:
            known.proven = True
            raise
        return _stored(found[0])
    return result


def _fetch(cursor: Any, statement: str, *values: Any) -> Steps:
    yield cursor.execute(statement, values or None)
    return (yield cursor.fetchall())


def _on_closed(connection: Any, key: str, known: _Known) -> Steps:
    """An earlier try has lost the connection: what it did can still be found out."""
    error = InvalidInput("run.transaction needs an open connection; this one is closed")
    found = (yield from _outcome_of(connection, key, known, error)) if known.schema else None
    if found is None:
        known.proven = bool(known.schema)
        raise error
    return _stored(found[0])


def _outcome_of(connection: Any, key: str, known: _Known, error: BaseException) -> Steps:
    """After an error around the commit: the row of the transaction, or None if it certainly was not committed."""
    try:
        if connection.closed or connection.info.transaction_status != _IDLE:
            return (yield from _look_elsewhere(connection, key, known))
        cursor = connection.cursor(row_factory=_plain_rows)
        rows = yield from _fetch(cursor, POSTGRES.exists)
        rows = rows and (yield from _fetch(cursor, POSTGRES.select, key))
        yield connection.rollback()
        return rows[0] if rows else None
    except Exception as unreadable:
        raise InDoubt(
            f"the connection broke while the transaction was committed, and its outcome cannot be read: {unreadable}"
        ) from error


def _look_elsewhere(connection: Any, key: str, known: _Known) -> Steps:
    """Look on a fresh connection. To insert the key waits for the old one, which may still be committing."""
    base: Any = next(kind for kind in type(connection).__mro__ if kind.__name__ in ("Connection", "AsyncConnection"))
    address = {"connect_timeout": _WAIT_S, **known.address}
    fresh = yield base.connect(autocommit=True, **address)
    try:
        cursor = fresh.cursor(row_factory=_plain_rows)
        yield cursor.execute(f"SET statement_timeout = '{_WAIT_S}s'")
        yield cursor.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        table = f"{known.schema}.{TABLE}"
        exists = POSTGRES.exists.replace(TABLE, table)
        if not (yield from _fetch(cursor, exists)):  # perhaps the old one is just making it
            yield cursor.execute(_MAKING)
            if not (yield from _fetch(cursor, exists)):
                return None
        rows = yield from _fetch(cursor, POSTGRES.insert.replace(TABLE, table), key)
        if rows:
            return None
        return (yield from _fetch(cursor, POSTGRES.select.replace(TABLE, table), key))[0]
    finally:
        yield fresh.close()  # which rolls back


def _plain_rows(cursor: Any) -> Any:
    """Rows as tuples, whatever the user's connection makes of them."""
    del cursor
    return tuple
