"""`holdfast.open`, the URLs of stores, and the versions of their schemas.

    memory:    sqlite:PATH    dir:PATH    postgresql://user@host/database

Other packages add schemes through the entry point group `holdfast.stores`, and parse the rest of their URLs themselves.
Any other spelling is refused before anything is opened or created. A path in `sqlite:///x.db` is relative for some
programs and absolute for others, so the error shows both spellings. No message repeats a password.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from holdfast import fork_safety
from holdfast.clock import Clock, SystemClock
from holdfast.errors import InvalidInput
from holdfast.ids import Ids
from holdfast.limits import RESERVE_BYTES

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from holdfast.operations.store import Store
    from holdfast.operations.store_reads import StoreReads
    from holdfast.store.port import StorePort

MEMORY: Final = "memory"
SQLITE: Final = "sqlite"
DIRECTORY: Final = "dir"
POSTGRESQL: Final = "postgresql"
ENTRY_POINTS: Final = "holdfast.stores"

_MEANT: Final = {
    **dict.fromkeys(("sqlite", "sqlite3", "sqlite2", "file", "db"), SQLITE),
    **dict.fromkeys(("dir", "directory", "folder", "path", "fs"), DIRECTORY),
    **dict.fromkeys(("memory", "mem", "inmemory", "in-memory", "ram"), MEMORY),
    **dict.fromkeys(("postgresql", "postgres", "postgre", "pg", "pgsql", "psql"), POSTGRESQL),
}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+-]*):(.*)", re.DOTALL)
_KEYWORDS: Final = re.compile(r"\b(host|hostaddr|dbname|user|password|port)\s*=")
_OPTIONS: Final = re.compile(r"\?[^/=]+=")
_OPTIONS_START: Final = re.compile(r"\?|[&;](?=\w+=)")
"""Including misspelled starts of options."""
_FILE_ENDINGS: Final = (".db", ".db3", ".sqlite", ".sqlite3")
_FORMS: Final = (
    "write memory:, sqlite:PATH, dir:PATH or postgresql://user@host/database, "
    "for example sqlite:runs.db or dir:/var/lib/runs"
)


class StoreUrl(NamedTuple):
    """An accepted URL."""

    scheme: str
    path: str
    """The file or the directory; empty for memory; the whole URL for PostgreSQL and stores of other packages."""


def parse_store_url(url: str) -> StoreUrl:
    """Parse an accepted URL; raise InvalidInput with the right spelling for any other."""
    if type(url) is not str:
        raise InvalidInput(f"the store's URL must be text, not {type(url).__name__}")
    scheme, _, path = url.partition(":")
    if url.startswith(("postgresql://", "postgres://")):
        return StoreUrl(POSTGRESQL, url)
    if url == "memory:":
        return StoreUrl(MEMORY, "")
    if scheme in (SQLITE, DIRECTORY) and _is_plain_path(path):
        return StoreUrl(scheme, path)
    if _is_foreign(scheme) and _entry_points().select(name=scheme):
        return StoreUrl(scheme, url)
    raise InvalidInput(f"{_quoted(url)} is not the URL of a store; {_right_spelling(url)}")


def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # loads e-mail and ZIP modules, so not for the stores of this package

    return entry_points(group=ENTRY_POINTS)


def _is_foreign(scheme: str) -> bool:
    """Whether only another package can know this scheme."""
    return _SCHEME.fullmatch(f"{scheme}:") is not None and scheme.lower().partition("+")[0] not in _MEANT


def _install_hint(scheme: str) -> str:
    """What to write, and what is missing for a scheme that no installed package provides."""
    installed = sorted({f"{found.name}:" for found in _entry_points() if _is_foreign(found.name)})
    others = f"; other packages provide {', '.join(installed)}" if installed else ""
    return f"{_FORMS}{others}; for {scheme}: install a package with the entry point {scheme!r} in {ENTRY_POINTS!r}"


def hide_password(url: str) -> str:
    """The URL as it may be shown: without a password and without options, which may hold one."""
    url, *options = _OPTIONS_START.split(url, maxsplit=1)
    scheme = _SCHEME.fullmatch(url)
    if scheme and "@" in url and scheme[1].lower().partition("+")[0] not in _MEANT:
        scheme = None  # it is the user's name
    rest = scheme[2] if scheme else url
    user, at, place = rest.rpartition("@")
    if at and ":" in user:
        rest = f"{user.partition(':')[0]}:…@{place}"
    elif _KEYWORDS.search(rest):
        rest = "…"
    return (f"{scheme[1]}:" if scheme else "") + rest + ("?…" if options else "")


def _quoted(url: str) -> str:
    return repr(hide_password(url))


def _is_plain_path(path: str) -> bool:
    """Whether a path is only a path, not the rest of another program's URL."""
    return (
        bool(path)
        and path == path.strip()
        and not path.startswith(("//", "~"))
        and path != ":memory:"
        and _OPTIONS.search(path) is None
    )


def _right_spelling(url: str) -> str:
    text = url.strip()
    found = _SCHEME.fullmatch(text)
    if found is None and text.lower() in _MEANT:
        found = _SCHEME.fullmatch(f"{text}:")
    if text == ":memory:" or (found and found[2].strip("/") == ":memory:"):
        return "write memory:"
    if found is None:
        return _spelling_of_path(text)
    meant = _MEANT.get(found[1].lower().partition("+")[0])
    if meant == MEMORY:
        return "write memory: without anything after it"
    if meant == POSTGRESQL:
        return _spelling_of_postgresql(found[2])
    if meant is None and "@" not in found[2]:
        return _install_hint(found[1])
    if meant is None or "@" in found[2]:
        return _FORMS
    return _spelling_of_file(meant, found[1].lower(), found[2].strip())


def _spelling_of_path(text: str) -> str:
    """A URL without a scheme: most likely a path."""
    if not text or "@" in text:
        return _FORMS
    if _KEYWORDS.search(text):
        return "write postgresql://user@host:port/database"
    if text.lower().endswith(_FILE_ENDINGS):
        return f"write {SQLITE}:{_expanded(text)}"
    if text.endswith("/") or os.path.isdir(text):
        return f"write {DIRECTORY}:{_expanded(text)}"
    return f"write {SQLITE}:{_expanded(text)} for a file, or {DIRECTORY}:{_expanded(text)} for a directory of files"


def _spelling_of_file(meant: str, scheme: str, rest: str) -> str:
    path = _OPTIONS.split(rest)[0]
    bare = _expanded(path.lstrip("/"))
    why = f"{meant}: takes no options; " if path != rest else ""
    if not bare:
        return _FORMS
    slashes = len(path) - len(path.lstrip("/"))
    if slashes in (0, 2):
        return f"{why}write {meant}:{bare}"
    if slashes == 3 and scheme != "file":
        here = f"{'file' if meant == SQLITE else 'directory'} in the current directory"
        return f"{why}write {meant}:{bare} for a {here}, or {meant}:/{bare} for that absolute path"
    return f"{why}write {meant}:/{bare}"


def _spelling_of_postgresql(rest: str) -> str:
    if not rest.startswith("//"):
        return "write postgresql://user@host:port/database"
    return f"write {hide_password(f'postgresql:{rest}')}"


def _expanded(path: str) -> str:
    """The path with `~` expanded, which is not done inside a URL."""
    return os.path.expanduser(path)


def open(  # noqa: A001 - holdfast.open is what it is called
    url: str,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    timeout_s: float = 20.0,
    reserve_bytes: int = RESERVE_BYTES,
) -> Store:
    """Open the store at `url`; a missing file, directory or schema is created.

    `memory:` keeps everything in this process. `sqlite:PATH` stores it in a file, `dir:PATH` in a directory of readable
    files; several processes may use either. `postgresql://user@host/database` stores it in PostgreSQL, in the schema
    that `?schema=` names ("holdfast" by default). Any other spelling, such as
    `sqlite:///runs.db`, is refused with the right one, and nothing is created.

    `timeout_s` is how long a write waits for other writers before it raises StorageBusy; calls to an unreachable
    PostgreSQL end after that time, or 10 seconds if that is less. `reserve_bytes` of free disk space are kept for
    prune, on local stores. `clock` and `ids` replace time and random ids, for tests.

    Example:
        store = holdfast.open("sqlite:runs.db")
    """
    port, used = _open_port(url, clock=clock, timeout_s=timeout_s, reserve_bytes=reserve_bytes)
    with fork_safety.loading:
        from holdfast.operations.store import Store
    return Store(port, clock=used, ids=ids)


def open_reads(url: str) -> StoreReads:
    """Open a store to read it, without loading the operations that write."""
    from holdfast.operations.store_reads import StoreReads

    port, used = _open_port(url)
    return StoreReads(port, clock=used)


def _open_port(
    url: str, *, clock: Clock | None = None, timeout_s: float = 20.0, reserve_bytes: int = RESERVE_BYTES
) -> tuple[StorePort, Clock]:
    scheme, path = parse_store_url(url)
    factory = _FACTORIES.get(scheme) or _installed_factory(scheme)
    return factory(path, clock=clock, timeout_s=timeout_s, reserve_bytes=reserve_bytes)


class OpenedStore(NamedTuple):
    """What a store factory returns."""

    port: StorePort
    clock: Clock
    """The clock of timestamps and leases."""


class StoreFactory(Protocol):
    """Opens a store; packages register one for each scheme in the entry point group `holdfast.stores`.

    `path` is the whole URL, for the four stores of this package only what `StoreUrl.path` says. A `clock` replaces
    the store's own.
    """

    def __call__(
        self, path: str, *, clock: Clock | None, timeout_s: float, reserve_bytes: int
    ) -> tuple[StorePort, Clock]: ...


def open_memory(path: str, *, clock: Clock | None, timeout_s: float, reserve_bytes: int) -> OpenedStore:  # noqa: ARG001
    """Open a new `memory:` store."""
    with fork_safety.loading:
        from holdfast.store.memory import MemoryStore
    clock = clock or SystemClock()
    return OpenedStore(MemoryStore(clock), clock)


def open_sqlite(path: str, *, clock: Clock | None, timeout_s: float, reserve_bytes: int) -> OpenedStore:
    """Open or create a SQLite file."""
    with fork_safety.loading:
        from holdfast.store.sqlite.sqlite_store import SqliteStore  # loads the driver
    clock = clock or SystemClock()
    return OpenedStore(SqliteStore(path, clock, timeout_s=timeout_s, reserve_bytes=reserve_bytes), clock)


def open_directory(path: str, *, clock: Clock | None, timeout_s: float, reserve_bytes: int) -> OpenedStore:
    """Open or create a directory of files."""
    with fork_safety.loading:
        from holdfast.state.json_preview import Readable
        from holdfast.store.directory.directory_store import DirectoryStore
    clock = clock or SystemClock()
    port = DirectoryStore(path, clock, timeout_s=timeout_s, reserve_bytes=reserve_bytes, renderer=Readable())
    return OpenedStore(port, clock)


def open_postgres(path: str, *, clock: Clock | None, timeout_s: float, reserve_bytes: int) -> OpenedStore:  # noqa: ARG001
    """Open a PostgreSQL database; its schema is created if it is missing."""
    with _loading_postgres():
        from holdfast.store.postgres.postgres_store import PostgresStore
    port = PostgresStore(path, clock, timeout_s=timeout_s)
    return OpenedStore(port, port.clock)


@contextlib.contextmanager
def _loading_postgres() -> Iterator[None]:
    """Around an import that loads the driver; InvalidInput, which names the fix, if it is not installed."""
    try:
        with fork_safety.loading:
            yield
    except ImportError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise InvalidInput('PostgreSQL needs its driver; pip install "holdfast[postgres]"') from error


_FACTORIES: Final[dict[str, StoreFactory]] = {
    MEMORY: open_memory,
    SQLITE: open_sqlite,
    DIRECTORY: open_directory,
    POSTGRESQL: open_postgres,
}
"""The same as in pyproject.toml, so that these stores open without a search of the installed packages."""


def _installed_factory(scheme: str) -> StoreFactory:
    (found, *_) = _entry_points().select(name=scheme)
    with fork_safety.loading:
        factory: StoreFactory = found.load()
    return factory


class Schema(NamedTuple):
    """The schema of a store."""

    kind: str
    found: int
    """The version of the store; 0 if it does not exist yet."""
    newest: int

    @property
    def pending(self) -> list[int]:
        """The versions to which the store is not migrated yet."""
        return list(range(self.found + 1, self.newest + 1))


def schema_at(url: str) -> Schema:
    """Return the schema of the store at a URL. Creates and migrates nothing."""
    scheme, _, path = url.partition(":")
    if scheme == SQLITE:
        from holdfast.store.sqlite import sqlite_connection

        return Schema(scheme, sqlite_connection.version_at(path), sqlite_connection.SCHEMA_VERSION)
    if scheme == DIRECTORY:
        from holdfast.store.directory import directory_reads

        return Schema(scheme, directory_reads.version_at(path), directory_reads.VERSION)
    if scheme in (POSTGRESQL, "postgres"):
        with _loading_postgres():
            from holdfast.store.postgres import migrations
        return Schema(POSTGRESQL, migrations.version_at(url), migrations.VERSION)
    raise InvalidInput(f"a {scheme}: store has no schema to migrate")
