"""`run.transaction`: a change in the user's own database, recorded in the same transaction.

    holdfast_outcomes(key, result)      a table in the user's database, created when it is first needed

The transaction first inserts its key, which blocks every other transaction with that key, and stores the result beside
it before it commits. So the row exists if and only if the change does. After a crash the transaction is executed again:
an existing row supplies the result, and the user's function is not called.

An error is raised only if the change is known to be missing. If the connection broke during the commit, that is not
known. Then a new connection inserts the key, which waits for a commit in progress, and finds the row or not. If that
fails too, the effect is in doubt and is retried with the same key. Transactions on one connection run one at a time.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import typing
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from holdfast.drivers import Plan
from holdfast.engine import effects
from holdfast.engine.commands import UserFunction
from holdfast.engine.effect_outcome import EffectSpec
from holdfast.engine.execution import Execution
from holdfast.engine.failures import DOUBTFUL, NOT_DONE, Verdict
from holdfast.engine.scope import Scope
from holdfast.engine.steps import StepSpec
from holdfast.errors import InDoubt, InvalidInput
from holdfast.fork_safety import reset_after_fork
from holdfast.state.values import pack, unpack

if TYPE_CHECKING:
    import asyncio

    import psycopg

    Psycopg = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

L = TypeVar("L")
TABLE: Final = "holdfast_outcomes"
_PLACE: Final = f"a row of {TABLE}"
_ENDED_ITSELF: Final = (
    "the function ended its transaction itself, so its result is not recorded; leave that to run.transaction"
)


class _Sql(NamedTuple):
    """The statements of one database."""

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


def transaction(exe: Execution, scope: Scope, connection: Any, spec: StepSpec, *, awaiting: bool = False) -> Plan[Any]:
    """The plan of the effect that executes the transaction. `awaiting`: the workflow is async."""
    fn, kind, known = spec.fn, _kind(connection), _Known()
    if inspect.iscoroutinefunction(fn) and kind != "psycopg_async":
        raise InvalidInput(f"a transaction on a {kind} connection cannot call the async function {fn!r}")
    wraps: dict[str, _Wrap] = {"psycopg": _in_psycopg, "psycopg_async": _in_async_psycopg}
    spec.fn = wraps.get(kind, _in_sqlite)(connection, fn, known)
    if awaiting and kind not in wraps:  # the connection belongs to the thread of the event loop
        spec.fn = _to_async(spec.fn)
    spec.fn.__annotations__ = {"return": _return_type(fn), "idempotency_key": str}
    options = EffectSpec(
        in_doubt="retry", tool=spec.name, target=kind, classify=_classify, is_conclusive=lambda: known.proven
    )
    return effects.effect(exe, scope, spec, options)


class _Known:
    """What the attempts of one transaction have found out."""

    def __init__(self) -> None:
        self.proven = False
        """The last attempt inserted the key, or found it missing: so no attempt has committed."""
        self.schema = ""
        """The PostgreSQL schema of the table, quoted."""
        self.address: dict[str, Any] = {}
        """Parameters of a new connection to the same server."""


_Wrap = Callable[[Any, UserFunction, _Known], UserFunction]


def _classify(error: BaseException) -> Verdict:
    """An attempt that raised has not committed, unless it raised InDoubt or the process ends."""
    return DOUBTFUL if isinstance(error, InDoubt) or not isinstance(error, Exception) else NOT_DONE


class _ConnectionLocks(Generic[L]):
    """A lock for each connection in use, so that its transactions run one at a time. Unused locks vanish."""

    def __init__(self, make: Callable[[], L]) -> None:
        self._make = make
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[int, L] = WeakValueDictionary()

    def lock(self, connection: object) -> L:
        with self._guard:
            return self._locks.setdefault(id(connection), self._make())


def _new_task_lock() -> asyncio.Lock:
    import asyncio  # only for async connections

    return asyncio.Lock()


_THREAD_LOCKS: Final = _ConnectionLocks(threading.Lock)
_TASK_LOCKS: Final = _ConnectionLocks(_new_task_lock)


def _to_async(transaction: UserFunction) -> UserFunction:
    async def call(*args: object, idempotency_key: str, **kwargs: object) -> object:
        return transaction(*args, idempotency_key=idempotency_key, **kwargs)

    return call


def _kind(connection: object) -> str:
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


def _return_type(fn: UserFunction) -> object:
    try:
        return typing.get_type_hints(fn).get("return")
    except Exception:  # an annotation may use a name that only type checkers see
        return None


def _busy() -> InvalidInput:
    return InvalidInput(
        "run.transaction needs a connection without an open transaction; commit or roll back before the call"
    )


def _unpack_result(packed: bytes) -> Any:
    """The result in a row of the table."""
    if not packed:
        raise InvalidInput(_ENDED_ITSELF)
    return unpack(bytes(packed), _PLACE)


def _in_sqlite(connection: Any, fn: UserFunction, known: _Known) -> UserFunction:
    def transaction(*args: object, idempotency_key: str, **kwargs: object) -> object:
        with _THREAD_LOCKS.lock(connection):
            return _sqlite_transaction(connection, lambda: fn(connection, *args, **kwargs), idempotency_key, known)

    return transaction


def _sqlite_transaction(connection: Any, change: Callable[[], Any], key: str, known: _Known) -> Any:
    known.proven = False
    if connection.in_transaction:
        raise _busy()
    try:
        connection.execute("BEGIN IMMEDIATE")
        return _change_sqlite(connection, change, key, known)
    except BaseException as error:
        if not isinstance(error, Exception) and connection.in_transaction:  # the process ends
            connection.execute("ROLLBACK")
        raise


def _change_sqlite(connection: Any, change: Callable[[], Any], key: str, known: _Known) -> Any:
    """Make and commit the change in the open transaction."""
    execute, result, committing = connection.execute, None, False
    try:
        if not execute(SQLITE.exists).fetchall():
            execute(SQLITE.create)
        if not execute(SQLITE.insert, (key,)).fetchall():
            result, committing = _unpack_result(execute(SQLITE.select, (key,)).fetchall()[0][0]), True
        else:
            result = change()
            execute(SQLITE.update, (pack(result), key))
            if execute("SELECT changes()").fetchall()[0][0] != 1:
                raise InvalidInput(_ENDED_ITSELF)
            committing = True
        execute("COMMIT")
        return result
    except Exception as error:
        if not _is_committed(connection, key, error):
            known.proven = True
            raise
        if not committing:
            raise InDoubt("the function ended its transaction itself and then failed") from error
        return result


def _is_committed(connection: Any, key: str, error: BaseException) -> bool:
    """After an error in a transaction of SQLite: roll back if it is open, else read whether it has committed."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        there = connection.execute(SQLITE.exists).fetchall()
        return bool(there and connection.execute(SQLITE.select, (key,)).fetchall())
    except Exception as unreadable:
        raise InDoubt(f"whether the transaction was committed is unknown: {unreadable}") from error


# --- PostgreSQL ------------------------------------------------------------------------------------------------------

Steps = Generator[Any, Any, Any]
"""A transaction on either kind of connection: the driver sends back what is yielded, awaited if it is awaitable."""
_IDLE: Final = 0
_LOCK_TABLE: Final = "SELECT pg_advisory_xact_lock(hashtext('holdfast_outcomes'))"
"""The lock of a transaction that creates the table, until it ends."""
_WAIT_S: Final = 10
"""How long reading the outcome waits for a commit in progress."""


def _in_psycopg(connection: Psycopg, fn: UserFunction, known: _Known) -> UserFunction:
    def transaction(*args: object, idempotency_key: str, **kwargs: object) -> object:
        with _THREAD_LOCKS.lock(connection):
            steps = _postgres(connection, lambda: fn(connection, *args, **kwargs), idempotency_key, known, "")
            try:
                step = None
                while True:
                    step = steps.send(step)
            except StopIteration as done:
                return done.value
            except BaseException as error:
                if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
                    raise
                step = steps.throw(error)  # it interrupted the loop above; the steps roll back
                while True:
                    step = steps.send(step)

    return transaction


def _in_async_psycopg(connection: Psycopg, fn: UserFunction, known: _Known) -> UserFunction:
    async def transaction(*args: object, idempotency_key: str, **kwargs: object) -> object:
        async with _TASK_LOCKS.lock(connection):
            steps = _postgres(connection, lambda: fn(connection, *args, **kwargs), idempotency_key, known, "a")
            found, error = None, None
            while True:
                try:
                    step, error = steps.send(found) if error is None else steps.throw(error), None
                    found = await step if inspect.isawaitable(step) else step
                except StopIteration as done:
                    return done.value
                except BaseException as raised:
                    if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
                        raise
                    error = raised

    return transaction


def _postgres(connection: Psycopg, change: Callable[[], object], key: str, known: _Known, mode: str) -> Steps:
    """The transaction. `mode` is "a" if the connection is async."""
    known.proven = False
    if connection.closed:
        return (yield from _on_closed(connection, key, known))
    if connection.info.transaction_status != _IDLE:
        raise _busy()
    known.address = {**connection.info.get_parameters(), "password": connection.info.password or None}
    transaction = connection.transaction()
    enter, leave = getattr(transaction, f"__{mode}enter__"), getattr(transaction, f"__{mode}exit__")
    held, recorded, result, ending = False, None, None, False
    try:
        yield enter()
        cursor = connection.cursor(row_factory=_plain_rows)
        rows = yield from _fetch(cursor, POSTGRES.exists)
        if not rows:
            yield cursor.execute(_LOCK_TABLE)
            yield cursor.execute(POSTGRES.create)
        rows = yield from _fetch(cursor, POSTGRES.insert, key)
        if rows:
            held, known.schema = True, rows[0][0]
            result = yield change()
            yield cursor.execute(POSTGRES.update, (pack(result), key))
        else:
            recorded = (yield from _fetch(cursor, POSTGRES.select, key))[0]
        ending = True
        if recorded is not None:
            with contextlib.suppress(Exception):  # nothing was changed
                yield leave(None, None, None)
            return _unpack_result(recorded[0])
        return (yield from _commit(connection, leave, result, key, known))
    except BaseException as error:
        if not ending or not (connection.closed or connection.info.transaction_status == _IDLE):
            with contextlib.suppress(Exception if ending else RuntimeError):  # it was interrupted while it ended
                yield leave(type(error), error, error.__traceback__)
        known.proven = known.proven if ending else held
        raise


def _commit(connection: Psycopg, leave: Callable[..., object], result: object, key: str, known: _Known) -> Steps:
    """Leave the transaction, which commits it, and find out whether it did."""
    try:
        yield leave(None, None, None)
        if connection.closed:  # then psycopg sends no COMMIT and raises nothing
            raise ConnectionError("the connection was closed before the transaction was committed")
    except Exception as error:
        found = yield from _read_outcome(connection, key, known, error)
        if found is None:
            known.proven = True
            raise
        return _unpack_result(found[0])
    return result


def _fetch(cursor: Any, statement: str, *values: str) -> Steps:
    yield cursor.execute(statement, values or None)
    return (yield cursor.fetchall())


def _on_closed(connection: Psycopg, key: str, known: _Known) -> Steps:
    """An earlier attempt may have lost the connection; then its outcome can still be read."""
    error = InvalidInput("run.transaction needs an open connection; this one is closed")
    found = (yield from _read_outcome(connection, key, known, error)) if known.schema else None
    if found is None:
        known.proven = bool(known.schema)
        raise error
    return _unpack_result(found[0])


def _read_outcome(connection: Psycopg, key: str, known: _Known, error: BaseException) -> Steps:
    """After an error of the commit: the row of the transaction, or None if it certainly was not committed."""
    try:
        if connection.closed or connection.info.transaction_status != _IDLE:
            return (yield from _read_on_new_connection(connection, key, known))
        cursor = connection.cursor(row_factory=_plain_rows)
        rows = yield from _fetch(cursor, POSTGRES.exists)
        rows = rows and (yield from _fetch(cursor, POSTGRES.select, key))
        yield connection.rollback()
        return rows[0] if rows else None
    except Exception as unreadable:
        raise InDoubt(
            f"the connection broke during the commit, and the outcome of the transaction cannot be read: {unreadable}"
        ) from error


def _read_on_new_connection(connection: Psycopg, key: str, known: _Known) -> Steps:
    """Read the row on a new connection. Inserting the key waits for the old one, which may still be committing."""
    base: Any = next(kind for kind in type(connection).__mro__ if kind.__name__ in ("Connection", "AsyncConnection"))
    address = {"connect_timeout": _WAIT_S, **known.address}
    new = yield base.connect(autocommit=True, **address)
    try:
        cursor = new.cursor(row_factory=_plain_rows)
        yield cursor.execute(f"SET statement_timeout = '{_WAIT_S}s'")
        yield cursor.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        table = f"{known.schema}.{TABLE}"
        exists = POSTGRES.exists.replace(TABLE, table)
        if not (yield from _fetch(cursor, exists)):  # the old one may be creating it
            yield cursor.execute(_LOCK_TABLE)
            if not (yield from _fetch(cursor, exists)):
                return None
        rows = yield from _fetch(cursor, POSTGRES.insert.replace(TABLE, table), key)
        if rows:
            return None
        return (yield from _fetch(cursor, POSTGRES.select.replace(TABLE, table), key))[0]
    finally:
        yield new.close()  # rolls back


def _plain_rows(_: object) -> Any:
    """A row factory of tuples, in place of the one of the user's connection."""
    return tuple
