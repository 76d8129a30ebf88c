"""`holdfast.open`: a store by its URL."""

from __future__ import annotations

from holdfast.clock import Clock, SystemClock
from holdfast.errors import InvalidInput
from holdfast.ids import Ids
from holdfast.limits import RESERVE_BYTES
from holdfast.verbs.store import Store


def open(  # noqa: A001 - holdfast.open is what it is called
    url: str,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    timeout_s: float = 20.0,
    reserve_bytes: int = RESERVE_BYTES,
) -> Store:
    """Open the store at `url`; an SQLite file is created if it is not there.

    `memory:` forgets everything when the process ends. `sqlite:PATH` keeps it in a file that several processes may use.
    `timeout_s` is how long a write waits for others before it raises StorageBusy. `reserve_bytes` of free disk space
    are kept for prune. `clock` and `ids` replace time and chance, for tests.

    Example:
        store = holdfast.open("sqlite:runs.db")
    """
    if type(url) is not str:
        raise InvalidInput(f"the store's URL must be text, not {type(url).__name__}")
    clock = clock or SystemClock()
    scheme, colon, path = url.partition(":")
    if scheme == "memory" and colon and not path:
        from holdfast.store.memory import MemoryStore

        return Store(MemoryStore(clock), clock=clock, ids=ids)
    if scheme == "sqlite" and path and path != ":memory:" and not path.startswith("//"):
        from holdfast.store.sqlite.store import SqliteStore  # loads the driver

        port = SqliteStore(path, clock, timeout_s=timeout_s, reserve_bytes=reserve_bytes)
        return Store(port, clock=clock, ids=ids)
    raise InvalidInput(
        f"{url!r} names no store this version has; "
        "write memory: or sqlite:PATH, for example sqlite:runs.db or sqlite:/var/lib/runs.db"
    )
