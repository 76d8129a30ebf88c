"""The worker claims ready runs and executes them, up to its concurrency.

Each claimed run is executed, released, or left to its lease: a failing store loses no run.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Final

from holdfast.clock import US
from holdfast.engine.gates import seconds_us
from holdfast.errors import HoldfastError, InvalidInput, StorageError, StoreClosed
from holdfast.limits import CLAIMS_PER_COMMIT_MAX
from holdfast.model.commit import Refused
from holdfast.model.rows import FAILED, READY
from holdfast.operations.claims import release
from holdfast.runtime import schedules
from holdfast.runtime.app_core import AppCore, closed_error
from holdfast.runtime.execute import ExecutionResult
from holdfast.runtime.publication import try_publish
from holdfast.runtime.reaper import WakeupListener, reap
from holdfast.runtime.start import Claimed, Execute, claim, new_take, to_claimed
from holdfast.store.capabilities import WorkerRegistry
from holdfast.store.port import RunQuery

_log: Final = logging.getLogger("holdfast.worker")
_REAP_S: Final = 1.0
_RETRY_S: Final = 0.5
_PAGE: Final = 200
"""How many ready runs are read at a time to find runs of declared workflows."""
_UNKNOWN_MAX: Final = 10_000


class Worker:
    """Executes ready runs until it is stopped. `app.worker` creates one.

    Any number of workers may share a store; each run is claimed by one at a time.

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
        if isinstance(workflows, str):
            raise InvalidInput(f"workflows must be a list of names, not {workflows!r}")
        schedules.register(app)
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
        self._claims_at = 0.0
        """After an error of the store: no run is claimed before this time."""
        self._unreleased: list[Claimed] = []
        """Claims that could not be released because the store failed."""
        self._reaped_at = 0.0
        self._unknown: set[str] = set()
        """Runs that this app cannot execute."""
        self._page_before: int | None = None
        """Where the next page of ready runs begins, in the search for runs of declared workflows."""
        self._adopts_at = 0.0
        self._has_adopted = False
        """Whether the last claims were of declared workflows only, so that runs of others may be ready."""
        self._registered: tuple[list[str], float] = ([], 0.0)
        """The workflows that this worker has registered in the store, and when."""
        self.moved = 0
        """How many executions this worker made."""
        self.failed = 0
        """How many of the runs it executed failed, or were paused since their input does not fit."""

    def run(self, *, until_idle: bool = False) -> None:
        """Execute runs until `stop`, SIGTERM or SIGINT; then let the executing runs reach their next call.

        With `until_idle` it returns as soon as no run is ready and none is executing.
        """
        self._check_open()
        self._wakeups = WakeupListener(self._app.store)
        try_publish(self._app)
        try:
            with self._signals():
                self._work(until_idle=until_idle)
        finally:
            self._drain()
            self._wakeups.close()
            self._stopping.clear()
            with contextlib.suppress(StorageError):  # then its row expires, or its file ends with the process
                self._register([])
            if self.failed:
                _log.warning("%d of the runs that this worker executed failed", self.failed)

    def stop(self) -> None:
        """Ask the worker to end; `run` returns when the executing runs have stopped."""
        self._stopping.set()
        wakeups = getattr(self, "_wakeups", None)
        if wakeups is not None:
            wakeups.wake()

    def _work(self, *, until_idle: bool) -> None:
        began = False
        while not self._stopping.is_set():
            try:
                self._register(self._names())
                began = True
                claimed = self._claim_and_begin()
                is_due = self._reap() > 0
                if not (claimed or is_due) and until_idle:
                    with self._app.claiming:
                        self._check_open()
                        if self._is_idle():
                            return
            except StoreClosed as error:
                if not began:
                    raise
                _log.warning("the worker ends because its store was closed: %s", error)
                return
            except StorageError as error:
                _log.warning("the store failed; retrying: %s", error)
                self._stopping.wait(_RETRY_S)
                continue
            if claimed or is_due:
                self._wakeups.busy()
            if not (is_due or self._has_adopted):  # else there may be more; other runs that are ready were all taken
                self._wakeups.wait()

    def _check_open(self) -> None:
        if self._app.is_closed:
            raise closed_error()

    def _claim_and_begin(self) -> list[Claimed]:
        with self._app.claiming:
            self._check_open()
            claimed = self._claim()
            for one in claimed:
                self._begin(one)
            return claimed

    def _register(self, names: list[str]) -> None:
        """Register the workflows of this worker in the store, and renew that before it expires."""
        before, at = self._registered
        if names == before and time.monotonic() < at + self._app.lease_s / 3:
            return
        self._app.executes[id(self)] = names
        all_names = sorted({name for each in self._app.executes.values() for name in each})
        if isinstance(port := self._app.core.port, WorkerRegistry):
            port.register_worker(self._app.owner, all_names, int(self._app.lease_s * US))
        self._registered = list(names), time.monotonic()

    def _is_idle(self) -> bool:
        """Whether no run is executing or ready, and the reaper makes none ready."""
        if self._active or self._unreleased or self._has_ready():
            return False
        self._reaped_at = 0.0
        if self._reap() or self._has_ready():
            return False
        self._page_before = None
        while True:  # all ready runs, page by page
            found = self._claim_declared(self._concurrency)
            for claimed in found:
                self._begin(claimed)
            if found or self._page_before is None:
                return not found

    def _claim(self) -> list[Claimed]:
        """Claim ready runs up to the concurrency: of each limited workflow, and of the others together."""
        with self._lock:
            active = Counter(claimed.row.workflow for claimed in self._active.values())
        free = self._concurrency - active.total()
        self._has_adopted = False
        names = self._names()
        if free <= 0 or time.monotonic() < self._claims_at:
            return []
        found = self._claim_declared(free) if time.monotonic() >= self._adopts_at else []
        if found:
            self._has_adopted = True
            return found
        self._adopts_at = max(self._adopts_at, time.monotonic() + _REAP_S) if self._page_before is None else 0.0
        is_notified = self._wakeups.take_notice() and not self._limits
        if not names or not (is_notified or self._has_ready()):
            return []
        found = self._take(free, tuple(name for name in names if name not in self._limits))
        for name in names:
            if name in self._limits:
                count = min(free - len(found), self._limits[name] - active[name])
                try:
                    found += self._take(count, (name,))
                except StorageError:  # the runs that are claimed already must not be lost
                    if not found:
                        raise
        return found

    def _take(self, count: int, workflows: tuple[str, ...]) -> list[Claimed]:
        if count <= 0 or not workflows:
            return []
        taken_at = time.monotonic()
        takes = [new_take(self._app) for _ in range(count)]
        rows = self._app.core.port.claim_ready(takes, workflows, self._app.token(8))
        self._app.nonces.difference_update({take.nonce for take in takes} - {row.nonce for row in rows})
        return [to_claimed(self._app, row, taken_at) for row in rows]

    def _names(self) -> list[str]:
        """The workflows whose runs are claimed without reading their definition."""
        return self._workflows if self._workflows is not None else self._app.registry.own_names()

    def _has_ready(self) -> bool:
        port = self._app.core.port
        return any(port.runs(RunQuery((READY,), workflow=name, limit=1)) for name in self._names())

    def _claim_declared(self, count: int) -> list[Claimed]:
        """Claim ready runs whose declared workflow this app knows only from the run, if it has all the functions.

        Each run is checked by itself, since another of the same name may need functions that this app does not have.
        """
        if self._workflows is not None or count <= 0:
            return []
        rows = self._app.core.port.runs(RunQuery((READY,), before=self._page_before, limit=_PAGE))
        self._page_before = rows[-1].run if len(rows) == _PAGE else None
        found: list[Claimed] = []
        for row in rows:
            known = self._app.known(row.workflow)
            if (known is None or known.is_adopted) and row.run_id not in self._unknown and len(found) < count:
                claimed = self._claim_adopted(row.run_id)
                found += [claimed] if claimed is not None else []
        return found

    def _claim_adopted(self, run_id: str) -> Claimed | None:
        from holdfast.runtime.graph_migration import adopt_workflow  # loads graphs

        try:
            if self._app.blocking.run(adopt_workflow(self._app, run_id)):
                return self._app.blocking.run(claim(self._app, run_id))
        except StorageError:
            raise
        except HoldfastError as error:
            _log.warning("cannot read the definition of run %r: %s", run_id, error)
        if len(self._unknown) >= _UNKNOWN_MAX:
            self._unknown.clear()
        self._unknown.add(run_id)
        return None

    def _begin(self, claimed: Claimed) -> None:
        with self._lock:
            self._active[claimed.row.nonce] = claimed
        workflow = self._app.known(claimed.row.workflow)
        if workflow is not None and workflow.is_async:
            try:
                future = self._app.loop.submit(self._app.awaiting.execute(Execute(claimed)))
            except StoreClosed as error:  # the app was closed; `_drain` releases the run
                self._finish(claimed, error, None)
                self._stopping.set()
                return
            future.add_done_callback(lambda done: self._finish(claimed, *_outcome(done)))
            return
        threading.Thread(target=self._execute, args=(claimed,), name="holdfast-worker", daemon=True).start()

    def _execute(self, claimed: Claimed) -> None:
        """Execute a run, on its own thread."""
        result, error = None, None
        try:
            result = self._app.blocking.execute(Execute(claimed))
        except BaseException as raised:
            error = raised
        self._finish(claimed, error, result)

    def _finish(self, claimed: Claimed, error: BaseException | None, result: ExecutionResult | None) -> None:
        """Account for an execution that ended or could not begin."""
        error = error if result is None else result.error
        if isinstance(error, StorageError):
            self._unreleased.append(claimed)
            self._claims_at = time.monotonic() + _RETRY_S
        if error is not None:
            _log.warning("run %r stopped: %s: %s", claimed.row.run_id, type(error).__name__, error)
        with self._lock:
            self._active.pop(claimed.row.nonce, None)
            self.moved += 1
            self.failed += result.status == FAILED if result is not None else isinstance(error, InvalidInput)
            self._adopts_at = 0.0  # it may have woken a run of a declared workflow
        self._wakeups.wake()

    def _reap(self) -> int:
        """Run the reaper if it is due; return how many runs were woken or recovered."""
        if time.monotonic() < self._reaped_at + _REAP_S:
            return 0
        self._reaped_at = time.monotonic()
        while self._unreleased:
            claimed = self._unreleased[-1]
            outcome = self._app.core.committer.commit(release(claimed.access, claimed.row.run_id))
            self._unreleased.pop()
            if isinstance(outcome, Refused):
                _log.debug("this worker no longer claims run %r", claimed.row.run_id)
        try:
            return self._app.blocking.run(reap(self._app))
        except StorageError:
            raise
        except HoldfastError as error:
            _log.warning("the reaper failed: %s", error)
            return 0

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
        """Let the executing runs stop at their next call; release those that do not in time."""
        until = time.monotonic() + self._drain_s
        while self._active and time.monotonic() < until:
            with self._lock:
                held = {claimed.row.run_id for claimed in self._active.values()}
            self._stop(held)
            time.sleep(0.01)
        with self._lock:
            left = [*self._active.values(), *self._unreleased]
        for claimed in left:
            _log.warning("run %r did not stop in %.1f s; its claim is released", claimed.row.run_id, self._drain_s)
            commit = release(claimed.access, claimed.row.run_id)
            with contextlib.suppress(HoldfastError):
                self._app.core.committer.commit(commit)

    def _stop(self, held: set[str]) -> None:
        """Ask these runs to stop, and the children that execute inside them."""
        executions = list(self._app.executions)
        while True:
            inside = {exe.run_id for exe in executions if (exe.record.started.get("parent") or {}).get("run") in held}
            if inside <= held:
                break
            held |= inside
        for exe in executions:
            if exe.run_id in held:
                exe.stop()


def _outcome(done: Future[ExecutionResult]) -> tuple[BaseException | None, ExecutionResult | None]:
    """The error of a task, or its result."""
    if done.cancelled():
        return StoreClosed("the app was closed"), None
    error = done.exception()
    return error, None if error is not None else done.result()
