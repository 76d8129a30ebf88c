"""Migration of threads from LangGraph's own databases into a Holdfast store.

    source.py            the interface of a source; source_sqlite.py and source_postgres.py implement it
    convert.py           source rows to stored records, without building their objects
    thread_copy.py       copies one thread, several checkpoints per commit
    report.py            the report, its progress bar, and the comparison with the source

Migrations can be repeated, and must not change a thread that was continued in the store. Every commit therefore writes
a mark into the run's metadata, together with the checkpoints it copies. The mark counts the run's checkpoints,
attachments and rewrites after this commit. Any other write to the thread increases one of these counts. While the mark
fits the run, everything in the run came from the migration, and the migration can continue, wherever it was killed. If
the mark does not fit, the thread was continued in the store and is skipped. The id of the last commit would not do,
because claims, sweeps and the recovery of dead owners change it without adding data. A thread that needs more than one
commit is claimed, so that no other writer intervenes.

The mark also names the last checkpoint copied. A source without that checkpoint is another database, or has another
thread of the same id; the thread is skipped. When a thread was copied completely, verified and without a problem, the
mark records its fingerprint in the source (counts, sizes and the newest row). Checking an unchanged thread then takes
one read.

If the source has new data, its checkpoints are compared with those in the store, and only differences are written. A
checkpoint that is older than the newest stored one of its namespace is not copied, so the newest stays the newest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast import fork_safety
from holdfast.adapters.langgraph.migration.convert import mark_of
from holdfast.adapters.langgraph.migration.report import Migrated, Progress, differences, progress_reporter
from holdfast.adapters.langgraph.migration.source import Source, SourceChanged, SourceFailed, Thread
from holdfast.adapters.langgraph.migration.thread_copy import RetryThread, ThreadCopier
from holdfast.adapters.langgraph.serde import Allowed, StrictSerializer
from holdfast.adapters.langgraph.thread import WORKFLOW
from holdfast.errors import Conflict, DamagedData, InvalidId, InvalidInput, StorageFailed
from holdfast.ids import check_id
from holdfast.model.rows import RunRow
from holdfast.open_store import DIRECTORY, POSTGRESQL, SQLITE, parse_store_url
from holdfast.open_store import open as open_store
from holdfast.operations.context import StoreContext
from holdfast.operations.store import Store
from holdfast.runtime.app_core import Owner
from holdfast.store.checksum import verify_run

_TRIES: Final = 10


def migrate(
    source: str,
    store: Store | str,
    *,
    thread_ids: Iterable[str] | None = None,
    allow: Iterable[Allowed] = (),
    serde: SerializerProtocol | None = None,
    progress: Progress | bool | None = None,
    verify: bool = True,
    dry_run: bool = False,
) -> Migrated:
    """Move the threads of a LangGraph database into a store, where `HoldfastSaver` continues them.

    `source` is `sqlite:PATH` or a path, or `postgresql://…` with `?schema=` if the tables are not on the search path.
    It is only read, and may be in use. `store` is a store or its URL. With `thread_ids` only these threads are moved.

    The bytes of values are copied without decoding, and no class is imported. Values that must be decoded (JSON of old
    versions, a custom serde) are decoded by `serde`, by default by a strict one that also allows the types in `allow`.

    A migration can be repeated at any time, also after it was killed: it continues, and moves new data of the source.
    Threads that were continued in the store are skipped. With `verify` everything moved is read back and compared.
    `progress` is called with the number of checkpoints done and the total; True shows a progress bar on stderr.

    Example:
        print(migrate("checkpoints.sqlite", "sqlite:agent.db", progress=True))
    """
    if serde is not None and allow:
        raise InvalidInput("allow= configures the strict serde; configure your own serde instead")
    if isinstance(thread_ids, str):
        raise InvalidInput(f"thread_ids is a list of ids; write [{thread_ids!r}]")
    wanted = None if thread_ids is None else list(dict.fromkeys(str(thread_id) for thread_id in thread_ids))
    _refuse_same_file(source, store)
    began = time.monotonic()
    found = open_source(source)
    try:
        before = _file_bytes(store)
        target = _open_target(store, dry_run=dry_run)
        try:
            core = target.access.core
            before = _stored_bytes(core) if before is None else before
            work = _Migration(core, found, serde or StrictSerializer(allow), verify=verify, dry_run=dry_run)
            work.run(wanted, progress_reporter(progress))
            after = _stored_bytes(core)
        finally:
            if target is not store:
                target.close()
        after = _file_bytes(store) or after
    finally:
        found.close()
    return work.report(0 if dry_run else after - before, time.monotonic() - began)


class _Migration:
    """One call of `migrate`."""

    def __init__(
        self, core: StoreContext, source: Source, serde: SerializerProtocol, *, verify: bool, dry_run: bool
    ) -> None:
        self._core = core
        self._source = source
        self._serde = serde
        self._verify = verify and not dry_run
        self._dry_run = dry_run
        self._owner = Owner(core)
        self._threads = self._checkpoints = self._writes = self._unchanged = self._bytes = 0
        self._skipped: list[str] = []
        self._problems: list[str] = []
        self._done = self._total = 0
        self._report: Progress = progress_reporter(None)

    def report(self, stored_bytes: int, seconds: float) -> Migrated:
        """Return the report of this call."""
        return Migrated(
            threads=self._threads,
            checkpoints=self._checkpoints,
            writes=self._writes,
            unchanged=self._unchanged,
            skipped=self._skipped,
            problems=self._problems,
            source_bytes=self._bytes,
            stored_bytes=stored_bytes,
            seconds=seconds,
            dry_run=self._dry_run,
            verified=self._verify,
        )

    def run(self, thread_ids: list[str] | None, report: Progress) -> None:
        """Move these threads, or all."""
        self._report = report
        missing = dict.fromkeys(thread_ids or ())
        try:
            self._total = self._source.count(thread_ids)
            report(0, self._total)
            for thread in self._source.threads(thread_ids):
                missing.pop(thread.thread_id, None)
                end = self._done + thread.checkpoints
                self._move(thread)
                self._done = end
                report(end, max(self._total, end))
        except SourceFailed as error:
            raise StorageFailed(str(error)) from error
        except SourceChanged as error:
            raise StorageFailed(
                f"{self._source.shown} was changed while its threads were counted; try again"
            ) from error
        self._problems += [f"thread {thread_id!r} is not in the source" for thread_id in missing]

    def _move(self, thread: Thread) -> None:
        """Move one thread; try again if the source or the store changed meanwhile."""
        place, done = f"thread {thread.thread_id!r}", self._done
        try:
            check_id("thread_id", thread.thread_id)
            for _ in range(_TRIES):
                self._done = done
                try:
                    with self._source.snapshot():
                        self._copy(thread)
                    return
                except (RetryThread, SourceChanged):
                    continue
            self._skipped.append(f"{place} changed {_TRIES} times while it was moved; try again")
        except Conflict as error:
            self._skipped.append(f"{place}: {error}")
        except (SourceFailed, DamagedData, InvalidId) as error:
            self._problems.append(f"{place}: {error}")

    def _copy(self, thread: Thread) -> None:
        run = self._core.port.run(thread.thread_id)
        if run is not None and self._skip(thread, verify_run(run)):
            return
        copier = ThreadCopier(self._core, self._owner, self._serde, thread, run, dry_run=self._dry_run)
        problems: list[str] = []
        try:
            if run is not None:
                copier.take()
            for row in self._source.rows(thread.thread_id):
                copier.add(row)
                if copier.is_full():
                    self._source.check()
                    copier.flush()
                self._done += 1
                self._report(self._done, max(self._total, self._done))
            self._source.check()
            copier.flush(last=True)
            if self._verify:
                problems = self._compare(thread, copier)
                self._source.check()
            copier.problems += problems
            copier.finish()
        except BaseException:
            copier.abandon()
            raise
        self._problems += [f"thread {thread.thread_id!r}: {problem}" for problem in copier.problems]
        self._checkpoints += copier.checkpoints
        self._writes += copier.writes
        if copier.checkpoints or copier.writes:
            self._threads += 1
            self._bytes += thread.bytes
        elif not copier.problems:
            self._unchanged += 1

    def _compare(self, thread: Thread, copier: ThreadCopier) -> list[str]:
        rows = self._source.rows(thread.thread_id)
        found = list(differences(self._core, self._serde, thread.thread_id, rows, copier.left_out))
        return [] if found and copier.was_continued() else found

    def _skip(self, thread: Thread, run: RunRow) -> bool:
        """Return whether the thread in the store must stay unchanged, and report the reason."""
        mark = mark_of(run) if run.workflow == WORKFLOW else None
        if mark is None:
            why = f"the store has {'a thread' if run.workflow == WORKFLOW else 'a run'} of this id from another source"
        elif not mark.fits(run):
            why = "it was continued in the store"
        elif mark.source == thread.print:
            self._unchanged += 1
            return True
        elif not self._source.has(thread.thread_id, *mark.last):
            why = f"the store has it from another source: its checkpoint {mark.last[1]!r} is not in this one"
        else:
            return False
        self._skipped.append(f"thread {thread.thread_id!r}: {why}")
        return True


# --- sources and stores ----------------------------------------------------------------------------------------------


def open_source(url: str) -> Source:
    """Open the database at `url` for reading."""
    if type(url) is not str or not url:
        raise InvalidInput(f"the source must be sqlite:PATH, a path, or postgresql://…, not {url!r}")
    if url.startswith("sqlite:") or "://" in url:
        parse_store_url(url)
    if url.startswith(("postgresql:", "postgres:")):
        try:
            with fork_safety.loading:
                from holdfast.adapters.langgraph.migration.source_postgres import PostgresSource  # loads the driver
        except ImportError as error:
            if error.name is None or not error.name.startswith("psycopg"):
                raise
            raise InvalidInput('PostgreSQL needs its driver; pip install "holdfast[postgres]"') from error
        return PostgresSource(url)
    with fork_safety.loading:
        from holdfast.adapters.langgraph.migration.source_sqlite import SqliteSource  # loads the driver
    return SqliteSource(_path_of(url))


def _path_of(url: str) -> str:
    return url.removeprefix("sqlite:")


def _refuse_same_file(source: str, store: Store | str) -> None:
    url = store if isinstance(store, str) else store.url
    if not url.startswith("sqlite:") or not isinstance(source, str) or source.startswith("postgres"):
        return
    paths = Path(_path_of(source)), Path(_path_of(url))
    if all(path.exists() for path in paths) and paths[0].samefile(paths[1]):
        raise InvalidInput(f"source and store are the same file, {paths[0]}; a store needs a file of its own")


def _open_target(store: Store | str, *, dry_run: bool) -> Store:
    """Open the store. A dry run does not create a missing store; it reads an empty one instead."""
    if not isinstance(store, str):
        return store
    return open_store("memory:" if dry_run and not _exists(store) else store)


def _exists(url: str) -> bool:
    scheme, path = parse_store_url(url)
    if scheme in (SQLITE, DIRECTORY):
        return os.path.exists(path)
    if scheme != POSTGRESQL:
        return True
    try:
        import psycopg

        from holdfast.store.postgres.settings import read_url
    except ImportError:
        return True
    try:
        settings = read_url(url)
        with psycopg.connect(**settings.conninfo, autocommit=True) as link:
            found = link.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (settings.schema,)).fetchone()
            return found is not None
    except psycopg.Error:  # opening the store gives the better error
        return True


def _file_bytes(store: Store | str) -> int | None:
    """Return the size of a SQLite store that this call opens, with its log. None for other stores."""
    if not isinstance(store, str) or not store.startswith("sqlite:"):
        return None
    files = [_path_of(store) + ending for ending in ("", "-wal", "-shm")]
    return sum(os.path.getsize(file) for file in files if os.path.exists(file))


def _stored_bytes(core: StoreContext) -> int:
    usage = core.port.usage()
    return usage.file_bytes or usage.chunk_bytes + usage.root_bytes


__all__ = ["Migrated", "migrate"]
