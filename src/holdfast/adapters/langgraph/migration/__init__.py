"""Moving LangGraph's own databases into Holdfast.

    source.py            what is read, and sqlite.py and postgres.py how
    convert.py           checkpoints decoded without building their objects
    stored.py            what of it goes into the store
    moving.py            one thread, several checkpoints in a commit
    marks.py             what it leaves in the run's metadata
    verifying.py         what was moved, read back and compared
    running.py           all threads
    report.py, progress.py

How a later call knows what an earlier one has done, and what it must leave alone:

Every commit of a migration writes a mark into the run's metadata, together with the checkpoints it moves. The mark
counts the run's checkpoints, attachments and rewrites as this very commit leaves them. Whatever anybody else stores in
the thread makes one of these counts larger, so as long as the mark fits the run, all that is in it came from the
migration, and the migration can continue, wherever it was killed. If it does not fit, the thread has been continued;
it belongs to them now, and is left as it is. Counts are used, and not the id of the last commit, because claims, sweeps
and the recovery of dead owners change a run without adding to it. While a thread takes more than one commit it is
claimed, so no other writer intervenes.

The mark also names the last checkpoint moved. A source that does not have it is another database, or another thread of
the same name, and nothing is mixed. And once a thread is moved whole, verified and without a problem, the mark records
the thread's fingerprint in the source (counts, sizes and the newest row), so that an unchanged thread costs one read.

Where the source has grown, its checkpoints are compared with those in the store, and only what differs is written. A
checkpoint that would come to lie before others of its namespace is not moved: what is newest must stay newest.
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

# The migration: every thread, one after the other.

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
    It is only read, and may be in use. `store` is a store or its URL. With `thread_ids` only these are moved.

    Values are moved as the bytes they are; nothing is imported. What can only be moved by decoding it (JSON of old
    versions, a serde of your own) goes through `serde`, or a strict one that also lets through what `allow` names.

    May be called again at any time, also after it was killed: it continues where it was, and moves what is new in the
    source. Threads that were continued in the store are left alone. With `verify` everything moved is read back and
    compared. `progress` is called with how many checkpoints are done, and of how many; True shows a bar on stderr.

    Example:
        print(migrate("checkpoints.sqlite", "sqlite:agent.db", progress=True))
    """
    if serde is not None and allow:
        raise InvalidInput("allow= belongs to the strict serde; configure your own serde instead")
    if isinstance(thread_ids, str):
        raise InvalidInput(f"thread_ids is a list of ids; write [{thread_ids!r}]")
    wanted = None if thread_ids is None else list(dict.fromkeys(str(thread_id) for thread_id in thread_ids))
    _refuse_same_file(source, store)
    began = time.monotonic()
    found = open_source(source)
    try:
        before = _file_bytes(store)
        target = _opened(store, dry_run=dry_run)
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
        """What was done."""
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
        """Move one thread, and again if something came in between."""
        place, done = f"thread {thread.thread_id!r}", self._done
        try:
            check_id("thread_id", thread.thread_id)
            for _ in range(_TRIES):
                self._done = done
                try:
                    with self._source.snapshot():
                        self._moved(thread)
                    return
                except (RetryThread, SourceChanged):
                    continue
            self._skipped.append(f"{place} changed {_TRIES} times while it was moved; try again")
        except Conflict as error:
            self._skipped.append(f"{place}: {error}")
        except (SourceFailed, DamagedData, InvalidId) as error:
            self._problems.append(f"{place}: {error}")

    def _moved(self, thread: Thread) -> None:
        run = self._core.port.run(thread.thread_id)
        if run is not None and self._is_settled(thread, verify_run(run)):
            return
        mover = ThreadCopier(self._core, self._owner, self._serde, thread, run, dry_run=self._dry_run)
        problems: list[str] = []
        try:
            if run is not None:
                mover.take()
            for row in self._source.rows(thread.thread_id):
                mover.add(row)
                if mover.is_full():
                    self._source.check()
                    mover.flush()
                self._done += 1
                self._report(self._done, max(self._total, self._done))
            self._source.check()
            mover.flush(last=True)
            if self._verify:
                problems = self._compared(thread, mover)
                self._source.check()
            mover.problems += problems
            mover.finish()
        except BaseException:
            mover.abandon()
            raise
        self._problems += [f"thread {thread.thread_id!r}: {problem}" for problem in mover.problems]
        self._checkpoints += mover.checkpoints
        self._writes += mover.writes
        if mover.checkpoints or mover.writes:
            self._threads += 1
            self._bytes += thread.bytes
        elif not mover.problems:
            self._unchanged += 1

    def _compared(self, thread: Thread, mover: ThreadCopier) -> list[str]:
        rows = self._source.rows(thread.thread_id)
        found = list(differences(self._core, self._serde, thread.thread_id, rows, mover.left_out))
        return [] if found and mover.was_continued() else found

    def _is_settled(self, thread: Thread, run: RunRow) -> bool:
        """Whether the thread is to be left as it is in the store. The reason is noted."""
        mark = mark_of(run) if run.workflow == WORKFLOW else None
        if mark is None:
            why = f"the store has {'a thread' if run.workflow == WORKFLOW else 'a run'} of this id from elsewhere"
        elif not mark.fits(run):
            why = "it was continued in the store"
        elif mark.source == thread.print:
            self._unchanged += 1
            return True
        elif not self._source.has(thread.thread_id, *mark.last):
            why = f"the store has it from elsewhere: its checkpoint {mark.last[1]!r} is not in this source"
        else:
            return False
        self._skipped.append(f"thread {thread.thread_id!r}: {why}")
        return True


# --- sources and stores ----------------------------------------------------------------------------------------------


def open_source(url: str) -> Source:
    """The database at `url`, opened to be read."""
    if type(url) is not str or not url:
        raise InvalidInput("the source is sqlite:PATH, a path, or postgresql://…")
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


def _opened(store: Store | str, *, dry_run: bool) -> Store:
    """The store. A dry run does not create a missing store; it reads an empty one instead."""
    if not isinstance(store, str):
        return store
    return open_store("memory:" if dry_run and not _is_there(store) else store)


def _is_there(url: str) -> bool:
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
    """How large the file of a SQLite store is that this call opens and closes: then its log is part of the file."""
    if not isinstance(store, str) or not store.startswith("sqlite:"):
        return None
    files = [_path_of(store) + ending for ending in ("", "-wal", "-shm")]
    return sum(os.path.getsize(file) for file in files if os.path.exists(file))


def _stored_bytes(core: StoreContext) -> int:
    usage = core.port.usage()
    return usage.file_bytes or usage.chunk_bytes + usage.root_bytes


__all__ = ["Migrated", "migrate"]
