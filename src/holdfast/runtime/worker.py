"""The worker: takes ready runs and moves them on, as many at a time as it is told to."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import US
from holdfast.engine.waiting import seconds_us
from holdfast.errors import HoldfastError, InvalidInput, StorageError, StoreClosed
from holdfast.limits import CLAIMS_PER_COMMIT_MAX
from holdfast.model.commit import Commit, Refused
from holdfast.model.status import FAILED, READY
from holdfast.runtime.hearing import Ear
from holdfast.runtime.moving import Moved
from holdfast.runtime.reaper import reap
from holdfast.runtime.starting import Claimed, Move, claim, claimed_of, take_of
from holdfast.store.port import RunQuery

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore

_log: Final = logging.getLogger("holdfast.worker")
_REAP_S: Final = 1.0
_TROUBLE_S: Final = 0.5
_LOOKED_AT: Final = 200
"""How many ready runs are looked at for declared workflows."""
_STRANGE_MAX: Final = 10_000


class Worker:
    """Moves runs on until it is stopped. `app.worker` makes one.

    Any number of workers may share a store; each run is held by one at a time.

    Example:
        app.worker(concurrency=4, limits={"refund": 2}).run(until_idle=True)
    """

    def __init__(
        self,
        app: AppCore,
        *,
        concurrency: int = 8,
        limits: Mapping[str, int] | None = None,
        workflows: Iterable[str] | None = None,
        drain_s: float = 10.0,
    ) -> None:
        if type(concurrency) is not int or not 1 <= concurrency <= CLAIMS_PER_COMMIT_MAX:
            raise InvalidInput(f"concurrency must be 1 to {CLAIMS_PER_COMMIT_MAX}, not {concurrency!r}")
        self._app = app
        self._concurrency = concurrency
        self._workflows = None if workflows is None else [app.registry.find(name).name for name in workflows]
        self._limits = {app.registry.find(name).name: limit for name, limit in (limits or {}).items()}
        for name, limit in self._limits.items():
            if type(limit) is not int or limit < 1:
                raise InvalidInput(f"the limit of workflow {name!r} must be 1 or more, not {limit!r}")
        self._drain_s = seconds_us("drain_s", drain_s) / US
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._active: dict[bytes, Claimed] = {}
        self._rests_until = 0.0
        """After trouble with the store: no run is taken before."""
        self._put_back: list[Claimed] = []
        self._reaped_at = 0.0
        self._strange: set[str] = set()
        """Runs that were looked at and that this app cannot move on."""
        self._looked_at: int | None = None
        """How far ready runs were looked at for such as this app can get to know."""
        self._adopts_at = 0.0
        self._registered: tuple[list[str], float] = ([], 0.0)
        """What others were told that this worker executes, and when."""
        self.moved = 0
        """How many times a run was moved on."""
        self.failed = 0
        """How many of the runs it moved on failed, or were paused since their input does not fit."""

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self, *, until_idle: bool = False) -> None:
        """Move runs on until `stop`, SIGTERM or SIGINT; then let what is under way come to its next call.

        With `until_idle` it returns as soon as nothing is ready and nothing is under way.
        """
        self._ear = Ear(self._app.store)
        self._stopping.clear()
        try:
            with self._signals():
                self._work(until_idle=until_idle)
        finally:
            self._drain()
            self._ear.close()
            with contextlib.suppress(StorageError):  # then its row expires, or its file ends with the process
                self._register([])
            if self.failed:
                _log.warning("%d of the runs that this worker moved on failed", self.failed)

    def stop(self) -> None:
        """Ask the worker to end; `run` returns when what is under way has given way."""
        self._stopping.set()
        ear = getattr(self, "_ear", None)
        if ear is not None:
            ear.wake()

    def _work(self, *, until_idle: bool) -> None:
        while not self._stopping.is_set():
            try:
                self._register(self._names())
                self._reap()
                claimed = self._claim()
            except StoreClosed as error:
                _log.warning("the worker ends, since its store was closed: %s", error)
                return
            except StorageError as error:
                _log.warning("the store is in trouble, trying again: %s", error)
                self._stopping.wait(_TROUBLE_S)
                continue
            for one in claimed:
                self._begin(one)
            if claimed:
                self._ear.busy()
            elif until_idle and self._is_idle():
                return
            else:
                self._ear.wait()

    def _register(self, names: list[str]) -> None:
        """Let others know what this worker executes, and again before that expires."""
        before, at = self._registered
        if names == before and time.monotonic() < at + self._app.lease_s / 3:
            return
        self._app.executes[id(self)] = names
        together = sorted({name for each in self._app.executes.values() for name in each})
        self._app.core.port.register_worker(self._app.owner, together, int(self._app.lease_s * US))
        self._registered = list(names), time.monotonic()

    def _is_idle(self) -> bool:
        """Whether nothing is under way or ready, and nothing becomes ready by looking once more."""
        if self._active or self._put_back or self._some_ready():
            return False
        self._reaped_at = 0.0
        if self._reap() or self._some_ready():
            return False
        self._looked_at = None
        while True:  # all that is ready, page by page
            found = self._adopted(self._concurrency)
            for claimed in found:
                self._begin(claimed)
            if found or self._looked_at is None:
                return not found

    def _claim(self) -> list[Claimed]:
        """Take as many ready runs as there is room for: of each limited workflow, and of the others together."""
        with self._lock:
            active = Counter(claimed.row.workflow for claimed in self._active.values())
        room = self._concurrency - active.total()
        names = self._names()
        if room <= 0 or time.monotonic() < self._rests_until:
            return []
        found = self._adopted(room) if time.monotonic() >= self._adopts_at else []
        if found:
            return found
        self._adopts_at = max(self._adopts_at, time.monotonic() + _REAP_S) if self._looked_at is None else 0.0
        if not names or not self._some_ready():
            return []
        found = self._take(room, tuple(name for name in names if name not in self._limits))
        for name in names:
            if name in self._limits:
                found += self._taken_of(name, min(room - len(found), self._limits[name] - active[name]), found)
        return found

    def _taken_of(self, name: str, count: int, found: list[Claimed]) -> list[Claimed]:
        """Runs of one workflow. If the store fails now, what was found already must not be lost."""
        try:
            return self._take(count, (name,))
        except StorageError:
            if not found:
                raise
            return []

    def _take(self, count: int, workflows: tuple[str, ...]) -> list[Claimed]:
        if count <= 0 or not workflows:
            return []
        taken_at = time.monotonic()
        takes = [take_of(self._app) for _ in range(count)]
        rows = self._app.core.port.claim_ready(takes, workflows, self._app.token(8))
        self._app.nonces.difference_update({take.nonce for take in takes} - {row.nonce for row in rows})
        return [claimed_of(self._app, row, taken_at) for row in rows]

    def _names(self) -> list[str]:
        """The workflows whose runs are taken whatever they carry."""
        return self._workflows if self._workflows is not None else self._app.registry.declared()

    def _some_ready(self) -> bool:
        names = self._names()
        port = self._app.core.port
        return any(port.runs(RunQuery((READY,), workflow=name, limit=1)) for name in names)

    def _adopted(self, room: int) -> list[Claimed]:
        """Ready runs of declared workflows that this app knows only by what they carry, and has all the functions for.

        Each is looked at by itself, since another of the same name may need what this app does not have.
        """
        if self._workflows is not None or room <= 0:
            return []
        rows = self._app.core.port.runs(RunQuery((READY,), before=self._looked_at, limit=_LOOKED_AT))
        self._looked_at = rows[-1].run if len(rows) == _LOOKED_AT else None
        found: list[Claimed] = []
        for row in rows:
            known = self._app.known(row.workflow)
            if (known is None or known.is_adopted) and row.run_id not in self._strange and len(found) < room:
                claimed = self._claimed_if_known(row.run_id)
                found += [claimed] if claimed is not None else []
        return found

    def _claimed_if_known(self, run_id: str) -> Claimed | None:
        from holdfast.runtime.migrating import adopted  # graphs are loaded by those who use them

        try:
            if self._app.blocking.run(adopted(self._app, run_id)):
                return self._app.blocking.run(claim(self._app, run_id))
        except StorageError:
            raise
        except HoldfastError as error:
            _log.warning("run %r cannot be looked at: %s", run_id, error)
        if len(self._strange) >= _STRANGE_MAX:
            self._strange.clear()
        self._strange.add(run_id)
        return None

    # --- moving on ---------------------------------------------------------------------------------------------------

    def _begin(self, claimed: Claimed) -> None:
        with self._lock:
            self._active[claimed.row.nonce] = claimed
        workflow = self._app.known(claimed.row.workflow)
        if workflow is not None and workflow.is_async:
            future = self._app.loop.submit(self._app.awaiting.move(Move(claimed)))
            future.add_done_callback(lambda done: self._ended(claimed, *_outcome(done)))
            return
        threading.Thread(target=self._move, args=(claimed,), name="holdfast-worker", daemon=True).start()

    def _move(self, claimed: Claimed) -> None:
        """Move a run on, on a thread of its own."""
        moved, error = None, None
        try:
            moved = self._app.blocking.move(Move(claimed))
        except BaseException as raised:
            error = raised
        self._ended(claimed, error, moved)

    def _ended(self, claimed: Claimed, error: BaseException | None, moved: Moved | None) -> None:
        """A run was moved on, or could not be."""
        error = error if moved is None else moved.error
        if isinstance(error, StorageError):
            self._put_back.append(claimed)
            self._rests_until = time.monotonic() + _TROUBLE_S
        if error is not None:
            _log.warning("run %r stopped: %s: %s", claimed.row.run_id, type(error).__name__, error)
        with self._lock:
            self._active.pop(claimed.row.nonce, None)
            self.moved += 1
            self.failed += moved.status == FAILED if moved is not None else isinstance(error, InvalidInput)
            self._adopts_at = 0.0  # it may have woken a run that is known only by what it carries
        self._ear.wake()

    def _reap(self) -> int:
        """See to what nobody else sees to, now and then. How many runs were woken or freed."""
        if time.monotonic() < self._reaped_at + _REAP_S:
            return 0
        self._reaped_at = time.monotonic()
        while self._put_back:  # runs this worker could not give back while the store was in trouble
            claimed = self._put_back[-1]
            commit = Commit(
                claimed.row.run_id, self._app.token(8), claimed.place.guard(), status=READY, release=True
            )  # fmt: skip
            outcome: Any = self._app.core.committer.commit(commit)
            self._put_back.pop()
            if isinstance(outcome, Refused):
                _log.debug("run %r is no longer ours", claimed.row.run_id)
        try:
            return self._app.blocking.run(reap(self._app))
        except StorageError:
            raise
        except HoldfastError as error:
            _log.warning("the reaper met trouble: %s", error)
            return 0

    # --- ending ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop the worker gracefully, if it runs on the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number in before:
            signal.signal(number, lambda *_: self.stop())
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _drain(self) -> None:
        """Let what is under way give way at its next call; what does not within the time is taken from it."""
        until = time.monotonic() + self._drain_s
        while self._active and time.monotonic() < until:
            with self._lock:
                held = {claimed.row.run_id for claimed in self._active.values()}
            self._stop(held)
            time.sleep(0.01)
        with self._lock:
            left = [*self._active.values(), *self._put_back]
        for claimed in left:
            _log.warning("run %r did not give way in %.1f s; another may take it on", claimed.row.run_id, self._drain_s)
            guard = claimed.place.guard()
            commit = Commit(claimed.row.run_id, self._app.token(8), guard, status=READY, release=True)
            with contextlib.suppress(HoldfastError):
                self._app.core.committer.commit(commit)

    def _stop(self, held: set[str]) -> None:
        """Ask these runs to give way, and the children that go on inside them."""
        executions = list(self._app.executions)
        while True:
            inside = {exe.run_id for exe in executions if (exe.record.started.get("parent") or {}).get("run") in held}
            if inside <= held:
                break
            held |= inside
        for exe in executions:
            if exe.run_id in held:
                exe.stop()


def _outcome(done: Future[Any]) -> tuple[BaseException | None, Moved | None]:
    """What a task raised, or what came of it."""
    if done.cancelled():
        return CancelledError("the loop was stopped"), None
    error = done.exception()
    return error, None if error is not None else done.result()
