"""Group commit: commits that wait at the same moment become durable together.

Whoever finds nobody leading leads: it takes everything that waits, its own commit among it, and hands it to the store
in one batch; what arrives meanwhile waits for the next batch. So a single caller pays no hand-over, and many callers
share one sync. Blocking callers lead on their own thread; for awaiting callers a thread of the committer leads.

A signal may interrupt a blocking caller between any two steps. The lead is a lock that is only held by `with`, and
those who wait look after a while for themselves, so what an interrupted leader left undone holds nobody up for long.

A commit that a leader has taken is carried out even if its caller stops waiting; one that still waits is withdrawn.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.errors import StorageBusy, StorageFailed
from holdfast.forking import watch
from holdfast.limits import COMMIT_BATCH_BYTES
from holdfast.model.commit import Commit, Outcome, commit_bytes

BATCH_MAX: Final = 256
_LOOK_AGAIN_S: Final = 0.5

Result = Outcome | BaseException
Done = Callable[[Result], None]


class _Blocked:
    """A commit whose caller waits. `ready` is unlocked when it has its result, or when its caller might lead."""

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


def _wake(lock: threading.Lock) -> None:
    """Unlock what somebody sleeps on, or will; once is enough."""
    if lock.locked():
        with contextlib.suppress(RuntimeError):  # somebody else was faster
            lock.release()


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
        _wake(self._asleep)

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
        if not self._blocked and not self._awaited and not self._leading.locked():
            try:
                with self._leading:
                    return self._apply((commit,))[0]
            finally:
                self._see_to_others()
        ticket = _Blocked(commit)
        try:
            self._blocked.append(ticket)
            while ticket.result is None:
                if self._leading.locked():
                    ticket.ready.acquire(timeout=_LOOK_AGAIN_S)
                else:
                    self._lead(ticket)
        finally:
            if ticket.result is None:
                with contextlib.suppress(ValueError):
                    self._blocked.remove(ticket)
        if isinstance(ticket.result, BaseException):
            raise ticket.result
        return ticket.result

    def _lead(self, ticket: _Blocked) -> None:
        """Carry out what waits, until `ticket` has its result; perhaps it got it from somebody who was faster."""
        try:
            with self._leading:
                while ticket.result is None:
                    if ticket not in self._blocked:
                        ticket.result = StorageFailed("the committing thread was stopped; nobody knows what was saved")
                    self._carry_out()
        finally:
            self._see_to_others()

    def _see_to_others(self) -> None:
        """Whoever came while there was a leader waits for another one."""
        if self._awaited:
            _wake(self._asleep)
        if self._blocked:
            with contextlib.suppress(IndexError):
                _wake(self._blocked[0].ready)

    def submit(self, commit: Commit, done: Done) -> None:
        """Carry out a commit on another thread; `done` is called there with its result."""
        if self._closed:
            done(self._results([commit])[0])
            return
        self._awaited.append(_Awaited(commit, done))
        if self._helper is None:
            self._helper = threading.Thread(target=self._help, name="holdfast-committer", daemon=True)
            self._helper.start()
        _wake(self._asleep)

    def _help(self) -> None:
        """Lead for those who cannot: the loop of the committer's own thread."""
        leading, asleep, awaited = self._leading, self._asleep, self._awaited
        while not self._closed or awaited:
            asleep.acquire(timeout=_LOOK_AGAIN_S if awaited else -1)
            while awaited:
                with leading:
                    if awaited:
                        self._carry_out()
                self._see_to_others()

    def _carry_out(self) -> None:
        """One batch of what waits."""
        batch: list[_Blocked | _Awaited] = []
        size = 0
        try:
            for queue in (self._blocked, self._awaited):
                while queue and len(batch) < BATCH_MAX and size < COMMIT_BATCH_BYTES:
                    batch.append(queue[0])
                    size += commit_bytes(queue.popleft().commit)
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
                _wake(ticket.ready)
