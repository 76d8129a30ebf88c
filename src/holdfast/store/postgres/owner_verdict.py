"""The verdict that an owner died: its session's lock was missing for its whole grace period.

A verdict is written into the owner's row before any process acts on it, and is final: an owner that comes back finds it
(`owner_session`). It takes two looks. The first writes down when the lock was seen missing, a later one, when the grace
period is over, the verdict. Each names the session whose lock was missing; if the owner has taken its lock again
meanwhile, the row names another, and nothing is written. Any process may look; what one has seen counts for all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import Any, Final

from psycopg import errors as pg

from holdfast.clock import US
from holdfast.store.postgres.arrays import Texts, columns_of
from holdfast.store.postgres.connection import Link
from holdfast.store.postgres.dialect import Statements

_KEPT_US: Final = 3600 * US
"""How long rows of owners are kept that hold nothing and have not come back after a restart of the server."""

_NOT_NOW: Final = (
    pg.DeadlockDetected,
    pg.InsufficientPrivilege,
    pg.ReadOnlySqlTransaction,
    pg.SerializationFailure,
)
"""Other processes judge the same owners just now, or this role only reads: an owner is not dead before it is judged."""

Run = Callable[[Callable[[Link], Any]], Any]
"""Has something done on a connection; done twice, it is as if it was done once."""


def dead_owners(run: Run, sql: Statements, owners: Collection[str] | None) -> set[str]:
    """The owners, of these or of all, that are known to be dead. One statement, and a second if a lock is missing."""

    def look(link: Link) -> set[str]:
        bound = (owners is None, Texts(list(owners or ())))
        absent = link.execute(sql["owners_absent"], bound, binary=True).fetchall()
        dead = {owner for owner, _, _, is_dead, _ in absent if is_dead}
        due = [(owner, token, session) for owner, token, session, is_dead, is_due in absent if is_due and not is_dead]
        if due:
            with contextlib.suppress(*_NOT_NOW):
                judged = link.execute(sql["mark_absent"], columns_of("tbi", due), binary=True).fetchall()
                dead |= {owner for owner, is_dead in judged if is_dead}
        return dead

    found: set[str] = run(look)
    return found


def forget_dead(run: Run, sql: Statements, holding: Collection[str]) -> None:
    """Remove the rows of dead owners that hold nothing."""

    def forget(link: Link) -> None:
        with contextlib.suppress(*_NOT_NOW):  # another process does it
            link.execute(sql["forget_dead_owners"], (_KEPT_US, Texts(list(holding))))

    run(forget)
