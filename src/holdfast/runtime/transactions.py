"""`run.transaction`: a change in the user's own database, recorded in that very transaction.

    holdfast_outcomes(key, result)      in the user's database, made when it is first needed

The transaction first inserts its key, which nobody else can then do, and before it commits puts the result beside it.
So the row is there if and only if the change is. After a crash it is simply tried again: a row that is there tells the
result, and the user's function is not called.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.engine import effects, steps
from holdfast.engine.commands import Plan
from holdfast.engine.execution import Execution
from holdfast.engine.outcome import World
from holdfast.engine.scope import Scope
from holdfast.errors import InvalidInput
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
    "INSERT INTO holdfast_outcomes (key, result) VALUES (%s, '') ON CONFLICT (key) DO NOTHING RETURNING key",
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
    maker = {"psycopg": _in_psycopg, "psycopg_async": _in_async_psycopg, "sqlite3": _in_sqlite, "apsw": _in_sqlite}
    spec.fn = maker[kind](connection, fn)
    if awaiting and kind in ("sqlite3", "apsw"):  # its connection belongs to the thread of the loop
        spec.fn = _awaitable(spec.fn)
    spec.fn.__annotations__ = {"return": _return_type(fn), "idempotency_key": str}
    world = World(in_doubt="retry", tool=spec.name, target=kind)
    return effects.effect(exe, scope, spec, world)


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


def _in_sqlite(connection: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
    def transaction(*args: Any, idempotency_key: str, **kwargs: Any) -> Any:
        if connection.in_transaction:
            raise _busy()
        execute = connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            if not execute(SQLITE.exists).fetchall():
                execute(SQLITE.create)
            if not execute(SQLITE.insert, (idempotency_key,)).fetchall():
                stored = execute(SQLITE.select, (idempotency_key,)).fetchall()[0][0]
                execute("COMMIT")
                return unpack(bytes(stored), _PLACE)
            result = fn(connection, *args, **kwargs)
            execute(SQLITE.update, (pack(result), idempotency_key))
            execute("COMMIT")
            return result
        except BaseException:
            if connection.in_transaction:
                execute("ROLLBACK")
            raise

    return transaction


def _in_psycopg(connection: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
    def transaction(*args: Any, idempotency_key: str, **kwargs: Any) -> Any:
        if connection.info.transaction_status != 0:
            raise _busy()
        with connection.transaction():
            execute = connection.cursor(row_factory=_plain_rows).execute
            if not execute(POSTGRES.exists).fetchall():
                execute("SELECT pg_advisory_xact_lock(hashtext('holdfast_outcomes'))")
                execute(POSTGRES.create)
            if not execute(POSTGRES.insert, (idempotency_key,)).fetchall():
                return unpack(bytes(execute(POSTGRES.select, (idempotency_key,)).fetchall()[0][0]), _PLACE)
            result = fn(connection, *args, **kwargs)
            execute(POSTGRES.update, (pack(result), idempotency_key))
            return result

    return transaction


def _in_async_psycopg(connection: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
    async def transaction(*args: Any, idempotency_key: str, **kwargs: Any) -> Any:
        if connection.info.transaction_status != 0:
            raise _busy()
        async with connection.transaction():
            cursor = connection.cursor(row_factory=_plain_rows)
            await cursor.execute(POSTGRES.exists)
            if not await cursor.fetchall():
                await cursor.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast_outcomes'))")
                await cursor.execute(POSTGRES.create)
            await cursor.execute(POSTGRES.insert, (idempotency_key,))
            if not await cursor.fetchall():
                await cursor.execute(POSTGRES.select, (idempotency_key,))
                return unpack(bytes((await cursor.fetchall())[0][0]), _PLACE)
            result = fn(connection, *args, **kwargs)
            if inspect.isawaitable(result):
                result = await result
            await cursor.execute(POSTGRES.update, (pack(result), idempotency_key))
            return result

    return transaction


def _plain_rows(cursor: Any) -> Any:
    """Rows as tuples, whatever the user's connection makes of them."""
    del cursor
    return tuple
