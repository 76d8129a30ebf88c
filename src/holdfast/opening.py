"""`holdfast.open`: a store by its URL."""

from __future__ import annotations

from holdfast import forking
from holdfast.clock import Clock, SystemClock
from holdfast.errors import InvalidInput
from holdfast.ids import Ids
from holdfast.limits import RESERVE_BYTES
from holdfast.store.url import MEMORY, POSTGRESQL, SQLITE, parse_store_url
from holdfast.verbs.store import Store


def open(  # noqa: A001 - holdfast.open is what it is called
    url: str,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    timeout_s: float = 20.0,
    reserve_bytes: int = RESERVE_BYTES,
) -> Store:
    """Open the store at `url`; a file, a directory or a schema that is not there is created.

    `memory:` forgets everything when the process ends. `sqlite:PATH` keeps it in a file, `dir:PATH` in a directory of
    files that people can read; several processes may use either. `postgresql://user@host/database` keeps it in
    PostgreSQL, in the schema that `?schema=` names ("holdfast" by default). Any other spelling, such as
    `sqlite:///runs.db`, is refused with the right one, and nothing is created.

    `timeout_s` is how long a write waits for others before it raises StorageBusy; calls to a PostgreSQL that is gone
    end after that time, or 10 seconds if that is less. `reserve_bytes` of free disk space are kept for prune, on
    local stores. `clock` and `ids` replace time and chance, for tests.

    Example:
        store = holdfast.open("sqlite:runs.db")
    """
    scheme, path = parse_store_url(url)
    if scheme == POSTGRESQL:
        return _open_postgres(url, clock, ids, timeout_s)
    clock = clock or SystemClock()
    if scheme == MEMORY:
        with forking.loading:
            from holdfast.store.memory import MemoryStore
        return Store(MemoryStore(clock), clock=clock, ids=ids)
    if scheme == SQLITE:
        with forking.loading:
            from holdfast.store.sqlite.store import SqliteStore  # loads the driver
        port = SqliteStore(path, clock, timeout_s=timeout_s, reserve_bytes=reserve_bytes)
        return Store(port, clock=clock, ids=ids)
    with forking.loading:
        from holdfast.state.readable import Readable
        from holdfast.store.directory.store import DirectoryStore
    directory = DirectoryStore(path, clock, timeout_s=timeout_s, reserve_bytes=reserve_bytes, renderer=Readable())
    return Store(directory, clock=clock, ids=ids)


def _open_postgres(url: str, clock: Clock | None, ids: Ids | None, timeout_s: float) -> Store:
    try:
        with forking.loading:
            from holdfast.store.postgres.store import PostgresStore  # loads the driver
    except ImportError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise InvalidInput('PostgreSQL needs its driver; pip install "holdfast[postgres]"') from error
    port = PostgresStore(url, clock, timeout_s=timeout_s)
    return Store(port, clock=port.clock, ids=ids)
