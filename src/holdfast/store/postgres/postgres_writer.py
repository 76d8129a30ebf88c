"""A PostgreSQL writer: one connection, one transaction for each batch of commits.

If every commit of a batch only adds to a cached run, the batch is one statement (the fast path of `write_batch`).
Otherwise the rows of all its runs are locked, every commit is decided on them, and the rows of all decisions are
written and committed together (`transaction`): two round trips, and one more for each read that was not prefetched.

On an error no commit is stored, with one exception: if the connection was lost during the commit, CommitOutcomeUnknown
carries what is needed to find out. A run's row has the id of its last commit and the ids of those before it.
`RetryingWriter` uses that to apply every change exactly once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import psycopg

from holdfast.errors import HoldfastError, StorageBusy, StorageFailed
from holdfast.model.commit import Commit, Committed, Outcome, TakeClaim
from holdfast.model.rows import RunRow
from holdfast.store.postgres import write_batch
from holdfast.store.postgres.dialect import Texts
from holdfast.store.postgres.errors import (
    interrupt_behind,
    is_broken,
    is_idle,
    is_reset,
    is_worth_another_try,
    translated,
)
from holdfast.store.postgres.postgres_connection import Connection, Connector
from holdfast.store.postgres.prepared import PreparedStatements
from holdfast.store.postgres.transaction import (
    NOTHING,
    CommitOutcomeUnknown,
    EarlierAttempt,
    InDoubtCommit,
    LeaseClock,
    OutcomeNotRecorded,
    RetryTransaction,
    SchemaNames,
    Transaction,
)
from holdfast.store.sql.statements import Columns

_REMEMBERED_MAX: Final = 4096


class Writer:
    """Applies commits. Used by one thread at a time."""

    def __init__(self, link: Connection, names: SchemaNames, time: LeaseClock) -> None:
        self.link = link
        self._names = names
        self._time = time
        self._prepared = PreparedStatements(link, names.sql)
        self._remembered: dict[str, RunRow] = {}

    def commit(self, commits: Sequence[Commit], before: EarlierAttempt) -> list[Outcome]:
        """Apply or refuse each commit, together. Commits in doubt are searched for first."""
        chains = None if before.doubts else self._chains(commits)
        if chains is not None:
            done = self._save_fast(list(chains.values()))
            if done is not None:
                self._remembered.update((run_id, chain.row) for run_id, chain in chains.items())
                return [done[index] for index in range(len(commits))]
        self.forget(commit.run_id for commit in commits)
        transaction = self.begin(sorted({*_locked_runs(commits)}), commits=commits)
        with transaction.rolled_back_on_error():
            for commit in commits:
                transaction.decide(commit, before)
            outcomes = transaction.commit(transaction.outcomes)
        self.remember(transaction.changed)
        return outcomes

    def claim_ready(
        self, takes: Sequence[TakeClaim], workflows: tuple[str, ...], commit_id: bytes, before: EarlierAttempt
    ) -> list[Outcome]:
        """Take ready runs that no other process is taking at this moment."""
        found_before = self._find_stored(before) if before.doubts else []
        if found_before:
            return found_before
        ready = "runs_ready_of_workflows" if workflows else "runs_ready"
        bound = (Texts(workflows),) if workflows else ()
        transaction = self.begin((ready, (*bound, len(takes))))
        with transaction.rolled_back_on_error():
            found, passed, asked = list(transaction.rows), 0, len(takes)
            while True:
                for run_id in found:
                    if len(transaction.changed) == len(takes):
                        break
                    transaction.decide(Commit(run_id, commit_id, take=takes[len(transaction.changed)]))
                was_all, passed = passed + len(found) < asked, len(transaction.rows) - len(transaction.changed)
                if was_all or len(transaction.changed) == len(takes):
                    break
                # Some are claimed or damaged and must not block the others. They still match the query, so select more.
                asked = passed + len(takes) - len(transaction.changed)
                found = transaction.lock_more(ready, *bound, asked)
            self.forget(transaction.rows)
            outcomes = transaction.commit(transaction.outcomes)
        self.remember(transaction.changed)
        return outcomes

    def begin(self, wanted: list[str] | tuple[str, Columns], *, commits: Sequence[Commit] = ()) -> Transaction:
        """Begin a transaction and lock rows in it."""
        try:
            return Transaction(self.link, self._names, self._time, wanted, commits=commits)
        except psycopg.InternalError as error:
            if error.sqlstate is None:  # the driver received answers from before an interrupt: use another connection
                self.link.close()
            raise

    def _chains(self, commits: Sequence[Commit]) -> dict[str, write_batch.Chain] | None:
        """The commits as chains by run, or None if one of them cannot take the fast path."""
        chains: dict[str, write_batch.Chain] = {}
        remembered, now_us = self._remembered, self._time.now_us()
        for index, commit in enumerate(commits):
            chain = chains.get(commit.run_id)
            row = chain.row if chain else remembered.get(commit.run_id)
            made = write_batch.decide_fast(row, commit, now_us) if row is not None else None
            if row is None or made is None:
                return None
            if chain is None:
                chain = chains[commit.run_id] = write_batch.Chain(row)
            chain.add(index, made, commit)
        return chains

    def _save_fast(self, chains: list[write_batch.Chain]) -> dict[int, Committed] | None:
        try:
            return write_batch.save(self._prepared, chains)
        except psycopg.Error as error:
            if not is_broken(self.link):
                raise
            doubts = {
                (commit.run_id, commit.commit_id): InDoubtCommit(
                    chain.row.commit_id, chain.old.commit_id, chain.row.incarnation, made.outcome()
                )
                for chain in chains
                for _, made, commit in chain.links
            }
            raise CommitOutcomeUnknown(EarlierAttempt(doubts)) from error

    def _find_stored(self, before: EarlierAttempt) -> list[Outcome]:
        """The outcomes of those commits in doubt that are stored."""
        transaction = self.begin(sorted(run_id for run_id, _ in before.doubts))
        with transaction.rolled_back_on_error():
            found: list[Outcome] = [
                doubt.outcome for (run_id, _), doubt in before.doubts.items() if transaction.is_stored(run_id, doubt)
            ]
            return transaction.commit(lambda: found)

    def remember(self, rows: dict[str, RunRow]) -> None:
        """Decide on these rows next time, without reading them."""
        if len(self._remembered) + len(rows) > _REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered.update(rows)

    def forget(self, run_ids: Iterable[str]) -> None:
        """Read these rows again before the next decision."""
        for run_id in run_ids:
            self._remembered.pop(run_id, None)


def _locked_runs(commits: Sequence[Commit]) -> Iterator[str]:
    """The runs of a batch, and those whose family it joins."""
    for commit in commits:
        yield commit.run_id
        if commit.create is not None and commit.create.source is not None:
            yield commit.create.source


Result = TypeVar("Result")
_TRIES: Final = 5
_PAUSE_S: Final = 0.02


class RetryingWriter:
    """The writer with reconnects and retries, used by one caller at a time."""

    def __init__(self, opener: Connector, names: SchemaNames, clock: LeaseClock) -> None:
        self._opener = opener
        self._names = names
        self._time = clock
        self.reset()

    def reset(self) -> None:
        """Forget the connection: after a fork it belongs to the parent."""
        self._lock = threading.RLock()
        self.writer: Writer | None = None

    def remember(self, row: RunRow) -> None:
        """Pass on the row of a run that another writer has just read or written."""
        if self.writer is not None:
            self.writer.remember({row.run_id: row})

    def run(self, work: Callable[[Writer, EarlierAttempt], Result]) -> Result:
        """Call `work` until it succeeds once. It receives what an earlier attempt may have committed."""
        until = time.monotonic() + self._opener.timeout_s
        before = NOTHING
        with self._lock:
            for tries in range(1_000_000):
                try:
                    return work(self._opened(until), before)
                except (CommitOutcomeUnknown, psycopg.Error) as error:
                    interrupt = interrupt_behind(error)
                    if interrupt is not None:
                        self.drop()
                        raise interrupt from None
                    if isinstance(error, CommitOutcomeUnknown):
                        self.drop()
                        before = EarlierAttempt({**before.doubts, **error.before.doubts}, error.before.result)
                        if time.monotonic() > until:
                            raise self._unknown(error.__cause__) from error
                    else:
                        self._retry_or_raise(error, tries, until, in_doubt=before is not NOTHING)
                except RetryTransaction as error:
                    self._pause(tries, error, in_doubt=before is not NOTHING)
                except OutcomeNotRecorded as error:
                    raise self._unknown(error) from error
                except HoldfastError as error:
                    if before is not NOTHING and isinstance(error, (StorageFailed, StorageBusy)):
                        raise self._unknown(error) from error
                    raise
            raise AssertionError("the retries are bounded by time")

    def _opened(self, until: float) -> Writer:
        if self.writer is None or is_broken(self.writer.link) or not is_idle(self.writer.link):
            self.drop()  # an interrupt may have left it inside a transaction
            self.writer = Writer(self._opener.open(until), self._names, self._time)
        return self.writer

    def _retry_or_raise(self, error: psycopg.Error, tries: int, until: float, *, in_doubt: bool) -> None:
        """Return if the work can be retried, else raise the translated error."""
        lost = self.writer is None or is_broken(self.writer.link)
        if lost:
            self.drop()
            if time.monotonic() < until:
                return
        elif is_worth_another_try(error) and tries < _TRIES:
            if is_reset(error):
                self.drop()
            self._pause(tries, error, in_doubt=in_doubt)
            return
        found = translated(error, self._opener.settings.shown, self._opener.timeout_s)
        raise (self._unknown(found) if in_doubt else found) from error

    def _pause(self, tries: int, error: Exception, *, in_doubt: bool) -> None:
        if tries >= _TRIES * 2:
            if in_doubt:
                raise self._unknown(error) from error
            raise StorageBusy(
                f"{self._opener.settings.shown}: other writers were faster {tries} times; try again"
            ) from error
        time.sleep(_PAUSE_S * tries)

    def _unknown(self, cause: BaseException | None) -> StorageFailed:
        return StorageFailed(
            f"{self._opener.settings.shown}: the connection was lost while committing, and the outcome could not be "
            f"found out ({cause}); it is unknown whether the change was saved, so read it before trying again"
        )

    def drop(self) -> None:
        """Close the writer's connection."""
        writer, self.writer = self.writer, None
        if writer is not None:
            with contextlib.suppress(psycopg.Error):
                writer.link.close()

    def close(self) -> None:
        """Wait for the writing thread, then close."""
        with self._lock:
            self.drop()
