"""Writing to PostgreSQL: one connection, one transaction for each batch of commits.

If every commit of a batch only moves a remembered run on, the batch is one statement (`quick`). Otherwise the rows of
all its runs are locked, every commit is decided on what they hold, and the rows of all decisions are written and
committed in one go (`transaction`): two round trips, and one more for each look that was not foreseen.

An error leaves nothing of any commit, with one exception: if the connection was lost when a batch may have been
committed, `Unclear` says how to find out. A run's row has the id of its last commit and those of the ones before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import psycopg

from holdfast.model.commit import Commit, Committed, Outcome, Take
from holdfast.model.rows import RunRow
from holdfast.store.postgres import quick
from holdfast.store.postgres.arrays import Texts
from holdfast.store.postgres.connection import Link
from holdfast.store.postgres.errors import is_broken
from holdfast.store.postgres.transaction import Before, Doubt, Names, Time, Transaction, Unclear

_REMEMBERED_MAX: Final = 4096


class Writer:
    """Applies commits. Used by one thread at a time."""

    def __init__(self, link: Link, names: Names, time: Time) -> None:
        self.link = link
        self._names = names
        self._time = time
        self._cursor = link.cursor(binary=True)
        self._remembered: dict[str, RunRow] = {}

    def commit(self, commits: Sequence[Commit], before: Before) -> list[Outcome]:
        """Apply or refuse each commit, together. Those in doubt are looked for first."""
        chains = None if before.doubts else self._chains(commits)
        if chains is not None:
            done = self._quick(list(chains.values()))
            if done is not None:
                self._remembered.update((run_id, chain.row) for run_id, chain in chains.items())
                return [done[index] for index in range(len(commits))]
        self.forget(commit.run_id for commit in commits)
        transaction = self.begin(sorted({*_names(commits)}), commits=commits)
        with transaction.rolled_back_on_error():
            for commit in commits:
                transaction.decide(commit, before)
            outcomes = transaction.commit(transaction.outcomes)
        self._remember(transaction.changed)
        return outcomes

    def claim_ready(
        self, takes: Sequence[Take], workflows: tuple[str, ...], commit_id: bytes, before: Before
    ) -> list[Outcome]:
        """Take ready runs that nobody else is taking at this moment."""
        found_before = self._found(before) if before.doubts else []
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
                # Some are held, or damaged: they must not stop the others. They still seem ready, so ask for more.
                asked = passed + len(takes) - len(transaction.changed)
                found = transaction.more(ready, *bound, asked)
            self.forget(transaction.rows)
            outcomes = transaction.commit(transaction.outcomes)
        self._remember(transaction.changed)
        return outcomes

    def begin(self, wanted: list[str] | tuple[str, tuple[Any, ...]], *, commits: Sequence[Commit] = ()) -> Transaction:
        """Begin a transaction and lock rows in it."""
        try:
            return Transaction(self.link, self._names, self._time, wanted, commits=commits)
        except psycopg.InternalError as error:
            if error.sqlstate is None:  # the driver got answers to questions of before an interrupt: take another
                self.link.close()
            raise

    def _chains(self, commits: Sequence[Commit]) -> dict[str, quick.Chain] | None:
        """The commits as chains by run, if all of them can go the short way."""
        chains: dict[str, quick.Chain] = {}
        remembered, now_us = self._remembered, self._time.now_us()
        for index, commit in enumerate(commits):
            chain = chains.get(commit.run_id)
            row = chain.row if chain else remembered.get(commit.run_id)
            made = quick.quickly_decided(row, commit, now_us) if row is not None else None
            if row is None or made is None:
                return None
            if chain is None:
                chain = chains[commit.run_id] = quick.Chain(row)
            chain.add(index, made, commit)
        return chains

    def _quick(self, chains: list[quick.Chain]) -> dict[int, Committed] | None:
        try:
            return quick.save(self._cursor, self._names.sql, chains)
        except psycopg.Error as error:
            if not is_broken(self.link):
                raise
            doubts = {
                (commit.run_id, commit.commit_id): Doubt(
                    chain.row.commit_id, chain.old.commit_id, chain.row.incarnation, quick.committed(made, 0)
                )
                for chain in chains
                for _, made, commit in chain.links
            }
            raise Unclear(Before(doubts)) from error

    def _found(self, before: Before) -> list[Outcome]:
        """The outcomes of those commits in doubt that are there."""
        transaction = self.begin(sorted(run_id for run_id, _ in before.doubts))
        with transaction.rolled_back_on_error():
            found: list[Outcome] = [
                doubt.outcome for (run_id, _), doubt in before.doubts.items() if transaction.is_there(run_id, doubt)
            ]
            return transaction.commit(lambda: found)

    def _remember(self, rows: dict[str, RunRow]) -> None:
        """Decide on these rows next time, without reading them."""
        if len(self._remembered) + len(rows) > _REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered.update(rows)

    def forget(self, run_ids: Iterable[str]) -> None:
        """Read these rows again before the next decision."""
        for run_id in run_ids:
            self._remembered.pop(run_id, None)


def _names(commits: Sequence[Commit]) -> Iterator[str]:
    """The runs a batch is about, and those it takes a family from."""
    for commit in commits:
        yield commit.run_id
        if commit.create is not None and commit.create.source is not None:
            yield commit.create.source
