"""Group commit: commits that wait at the same time become durable together.

A caller that finds no leader becomes the leader: it takes all waiting commits, including its own, and passes them to
the store in one batch. Commits that arrive in the meantime wait for the next batch. So a single caller has no overhead,
and many callers share one sync. Blocking callers lead on their own thread; for async callers a thread of the committer
leads.

A signal may interrupt a blocking caller between any two steps. The leader's lock is only held by `with`, and waiting
callers also poll, so an interrupted leader delays them only briefly.

A commit that a leader has taken is applied even if its caller stops waiting; a commit that still waits is withdrawn.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.errors import StorageBusy, StorageFailed
from holdfast.fork_safety import reset_after_fork
from holdfast.limits import COMMIT_BATCH_BYTES
from holdfast.model.commit import Commit, Outcome, commit_bytes

BATCH_MAX: Final = 256
_POLL_S: Final = 0.5

Result = Outcome | BaseException
Done = Callable[[Result], None]


class SyncTicket:
    """A commit whose caller blocks. `ready` is unlocked when it has a result, or when its caller may lead."""

    __slots__ = ("commit", "ready", "result")

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.result: Result | None = None
        self.ready = _locked()


class AsyncTicket:
    """A commit whose result is passed to a callback."""

    __slots__ = ("commit", "done", "result")

    def __init__(self, commit: Commit, done: Done) -> None:
        self.commit = commit
        self.result: Result | None = None
        self.done = done


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def _wake(lock: threading.Lock) -> None:
    """Unlock a lock that a thread waits for, or is about to."""
    if lock.locked():
        with contextlib.suppress(RuntimeError):  # another thread was faster
            lock.release()


class Committer:
    """Applies commits in batches."""

    def __init__(self, apply: Callable[[Sequence[Commit]], list[Outcome]]) -> None:
        self._apply = apply
        self._closed = False
        self.after_fork()
        reset_after_fork(self)

    def close(self) -> None:
        """Let the committer's own thread end once no commit waits."""
        self._closed = True
        _wake(self._asleep)

    def after_fork(self) -> None:
        """Forget all waiting commits: they belong to threads of the parent."""
        self._leading = threading.Lock()
        self._blocked: deque[SyncTicket] = deque()
        self._awaited: deque[AsyncTicket] = deque()
        self._asleep = _locked()
        """The committer's own thread waits for this lock; it is unlocked when there are async commits."""
        self._helper: threading.Thread | None = None

    def commit(self, commit: Commit) -> Outcome:
        """Apply a commit and wait for it."""
        if not self._blocked and not self._awaited and not self._leading.locked():
            try:
                with self._leading:
                    return self._apply((commit,))[0]
            finally:
                if self._awaited or self._blocked:
                    self._wake_next()
        ticket = SyncTicket(commit)
        try:
            self._blocked.append(ticket)
            while ticket.result is None:
                if self._leading.locked():
                    ticket.ready.acquire(timeout=_POLL_S)
                else:
                    self._lead(ticket)
        finally:
            if ticket.result is None:
                with contextlib.suppress(ValueError):
                    self._blocked.remove(ticket)
        if isinstance(ticket.result, BaseException):
            raise ticket.result
        return ticket.result

    def _lead(self, ticket: SyncTicket) -> None:
        """Apply waiting commits until `ticket` has its result, which another leader may have set already."""
        try:
            with self._leading:
                while ticket.result is None:
                    if ticket not in self._blocked:
                        ticket.result = StorageFailed(
                            "the committing thread was interrupted; the outcome of this save is unknown"
                        )
                    self._apply_batch()
        finally:
            self._wake_next()

    def _wake_next(self) -> None:
        """Wake a waiting caller: commits that arrived during the last batch need a new leader."""
        if self._awaited:
            _wake(self._asleep)
        if self._blocked:
            with contextlib.suppress(IndexError):
                _wake(self._blocked[0].ready)

    def submit(self, commit: Commit, done: Done) -> None:
        """Apply a commit on another thread; `done` is called there with its result."""
        self._awaited.append(AsyncTicket(commit, done))
        if self._closed:  # the committer's own thread may have ended
            self._apply_awaited()
            return
        if self._helper is None:
            self._helper = threading.Thread(target=self._lead_async, name="holdfast-committer", daemon=True)
            self._helper.start()
        _wake(self._asleep)

    def _lead_async(self) -> None:
        """Lead for async callers: the loop of the committer's own thread."""
        asleep, awaited = self._asleep, self._awaited
        while not self._closed or awaited:
            asleep.acquire(timeout=_POLL_S if awaited else -1)
            self._apply_awaited()

    def _apply_awaited(self) -> None:
        """Apply batches until no async commit waits."""
        while self._awaited:
            with self._leading:
                if self._awaited:
                    self._apply_batch()
            self._wake_next()

    def _apply_batch(self) -> None:
        """Apply one batch of the waiting commits."""
        batch: list[SyncTicket | AsyncTicket] = []
        size = 0
        try:
            for queue in (self._blocked, self._awaited):
                while queue and len(batch) < BATCH_MAX and size < COMMIT_BATCH_BYTES:
                    batch.append(queue[0])
                    size += commit_bytes(queue.popleft().commit)
            self._finish(batch, self._results([ticket.commit for ticket in batch]))
        except BaseException as error:  # the leader is interrupted, and its batch must get a result
            unknown = StorageFailed(
                f"the committing thread was interrupted by {error!r}; the outcome of this save is unknown"
            )
            self._finish([ticket for ticket in batch if ticket.result is None], [unknown] * len(batch))
            raise

    def _results(self, commits: list[Commit]) -> Sequence[Result]:
        try:
            return self._apply(commits)
        except (StorageFailed, StorageBusy) as error:
            return [error] * len(commits)
        except Exception as error:
            if len(commits) == 1:
                return [error]
        # The error of one commit must not fail the others.
        return [result for commit in commits for result in self._results([commit])]

    def _finish(self, batch: list[SyncTicket | AsyncTicket], results: Sequence[Result]) -> None:
        for ticket, result in zip(batch, results, strict=False):
            ticket.result = result
            if isinstance(ticket, AsyncTicket):
                ticket.done(result)
            else:
                _wake(ticket.ready)


class Committers:
    """Several committers, each for a part of the runs, so that several batches are in flight at once.

    Commits of one run always belong to the same committer, so they stay in their order.
    """

    def __init__(self, apply: Callable[[Sequence[Commit]], list[Outcome]], count: int) -> None:
        self._apply = apply
        self._parts = [Committer(self._apply_batch) for _ in range(count)]

    def _apply_batch(self, commits: Sequence[Commit]) -> list[Outcome]:
        return self._apply(commits)

    def commit(self, commit: Commit) -> Outcome:
        """Apply a commit and wait for it."""
        return self._parts[part_of(commit.run_id, len(self._parts))].commit(commit)

    def submit(self, commit: Commit, done: Done) -> None:
        """Apply a commit on another thread; `done` is called there with its result."""
        self._parts[part_of(commit.run_id, len(self._parts))].submit(commit, done)

    def close(self) -> None:
        """Let the committers' own threads end once no commit waits."""
        for part in self._parts:
            part.close()


def part_of(run_id: str, count: int) -> int:
    """The part of the runs to which this one belongs, in this process."""
    return hash(run_id) % count
