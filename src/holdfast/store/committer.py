"""Group commit: commits that wait at the same moment become durable together.

Whoever finds nobody committing leads: it takes everything that waits, its own commit among it, and hands it to the
store in one batch; what arrives meanwhile waits for the next batch. So a single caller pays no hand-over, and many
callers share one sync. Blocking callers lead on their own thread, one after another; for awaiting callers a thread of
the committer leads.

A commit that was handed in is carried out even if its caller stops waiting.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.errors import StorageBusy, StorageFailed
from holdfast.forking import watch
from holdfast.model.commit import Commit, Outcome

BATCH_MAX: Final = 256

Result = Outcome | BaseException
Done = Callable[[Result], None]


class _Blocked:
    """A commit whose caller waits. `ready` is locked until it has its result, or its caller is to lead."""

    __slots__ = ("commit", "ready", "result")

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.result: Result | None = None
        self.ready = _locked()


class _Awaited:
    """A commit whose caller is told."""

    __slots__ = ("commit", "done", "result")

    def __init__(self, commit: Commit, done: Done) -> None:
        self.commit = commit
        self.result: Result | None = None
        self.done = done


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


class Committer:
    """Carries out commits in batches."""

    def __init__(self, apply: Callable[[Sequence[Commit]], list[Outcome]]) -> None:
        self._apply = apply
        self._closed = False
        self.after_fork()
        watch(self)

    def close(self) -> None:
        """Let the committer's own thread end once nothing waits."""
        self._closed = True
        self._call_helper()

    def after_fork(self) -> None:
        """Begin with nobody waiting: those who wait are the parent's threads."""
        self._leading = threading.Lock()
        self._blocked: deque[_Blocked] = deque()
        self._awaited: deque[_Awaited] = deque()
        self._asleep = _locked()
        """The committer's own thread sleeps on this lock; whoever has something for it unlocks it."""
        self._helper: threading.Thread | None = None

    def commit(self, commit: Commit) -> Outcome:
        """Carry out a commit and wait for it."""
        if not self._blocked and not self._awaited and self._leading.acquire(blocking=False):
            try:
                return self._apply((commit,))[0]
            finally:
                self._hand_over()
        ticket = _Blocked(commit)
        self._blocked.append(ticket)
        if not self._leading.acquire(blocking=False):
            self._await_turn(ticket)
        if ticket.result is None:
            try:
                while ticket.result is None:
                    self._carry_out(self._batch())
            finally:
                self._hand_over()
        if isinstance(ticket.result, BaseException):
            raise ticket.result
        return ticket.result

    def submit(self, commit: Commit, done: Done) -> None:
        """Carry out a commit on another thread; `done` is called there with its result."""
        if self._closed:
            done(self._results([commit])[0])
            return
        self._awaited.append(_Awaited(commit, done))
        if self._helper is None:
            self._helper = threading.Thread(target=self._help, name="holdfast-committer", daemon=True)
            self._helper.start()
        self._call_helper()

    def _call_helper(self) -> None:
        if self._asleep.locked():
            with contextlib.suppress(RuntimeError):  # somebody else was faster
                self._asleep.release()

    def _help(self) -> None:
        """Lead for those who cannot: the loop of the committer's own thread."""
        leading, asleep, awaited = self._leading, self._asleep, self._awaited
        while not self._closed or awaited:
            asleep.acquire()
            if not awaited:
                continue
            leading.acquire()
            try:
                while awaited:
                    self._carry_out(self._batch())
            finally:
                self._hand_over()

    def _await_turn(self, ticket: _Blocked) -> None:
        """Wait for the result, or for the lead. A caller that left now would take the lead with it, so it stays."""
        stopped: BaseException | None = None
        while True:
            try:
                ticket.ready.acquire()
                break
            except BaseException as error:
                stopped = error
        if stopped is not None:
            if ticket.result is None:
                self._hand_over(ticket)
            raise stopped

    def _batch(self) -> list[_Blocked | _Awaited]:
        batch: list[_Blocked | _Awaited] = []
        blocked, awaited = self._blocked, self._awaited
        while blocked and len(batch) < BATCH_MAX:
            batch.append(blocked.popleft())
        while awaited and len(batch) < BATCH_MAX:
            batch.append(awaited.popleft())
        return batch

    def _carry_out(self, batch: list[_Blocked | _Awaited]) -> None:
        try:
            self._finish(batch, self._results([ticket.commit for ticket in batch]))
        except BaseException as error:  # the leader is being stopped, and nobody may wait for ever
            unknown = StorageFailed(
                f"the committing thread was stopped by {error!r}; whether this was saved is not known"
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
        # What was wrong with one commit must not fail the others.
        return [result for commit in commits for result in self._results([commit])]

    def _finish(self, batch: list[_Blocked | _Awaited], results: Sequence[Result]) -> None:
        for ticket, result in zip(batch, results, strict=False):
            ticket.result = result
            if isinstance(ticket, _Awaited):
                ticket.done(result)
            else:
                ticket.ready.release()

    def _hand_over(self, leaving: _Blocked | None = None) -> None:
        """Stop leading, and make sure that somebody leads if anything waits."""
        if leaving is not None:
            self._carry_out(self._batch())  # the one who leaves is first in line
        while True:
            if self._blocked:
                self._blocked[0].ready.release()  # it leads now; the lock stays locked for it
                return
            self._leading.release()
            if self._awaited:
                self._call_helper()
            # Somebody may have come after the look at the queue and before the release, and is waiting now.
            if not self._blocked or not self._leading.acquire(blocking=False):
                return
