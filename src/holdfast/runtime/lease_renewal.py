"""Lease renewal extends the claims of this process's executions while user code runs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from holdfast.clock import US
from holdfast.errors import HoldfastError
from holdfast.model.commit import Refused
from holdfast.operations.claims import renewal

if TYPE_CHECKING:
    from holdfast.runtime.interpreter import Interpreter

_RENEWALS_PER_LEASE: Final = 3


class LeaseRenewer:
    """Renews the claims of the executions it holds. Its thread starts with the first one."""

    def __init__(self, lease_s: float) -> None:
        self._interval_s = lease_s / _RENEWALS_PER_LEASE
        self._held: set[Interpreter] = set()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def hold(self, interpreter: Interpreter) -> None:
        """Begin to renew the claim of an execution."""
        self._held.add(interpreter)
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closing.is_set():
                    self._thread = threading.Thread(target=self._loop, name="holdfast-lease", daemon=True)
                    self._thread.start()

    def remove(self, interpreter: Interpreter) -> None:
        """Stop renewing: the execution is over."""
        self._held.discard(interpreter)

    def close(self) -> None:
        self._closing.set()

    def _loop(self) -> None:
        while not self._closing.wait(self._interval_s / 2):
            soon = time.monotonic() + 2 * self._interval_s
            for interpreter in list(self._held):
                if interpreter.lease_until < soon and interpreter in self._held:
                    self._renew(interpreter)

    def _renew(self, interpreter: Interpreter) -> None:
        """Extend the lease. A run whose code runs for long before its first call is created here."""
        asked_at = time.monotonic()
        creation = interpreter.creation
        commit = creation or renewal(interpreter.access, interpreter.row.run_id, int(interpreter.lease_s * US))
        try:
            outcome = interpreter.core.committer.commit(commit)
        except HoldfastError:  # the next round retries, and every effect checks the lease
            return
        if creation is not None and not interpreter.note_created(outcome):
            self._held.discard(interpreter)  # another process created it; the run's first call reports that
        elif isinstance(outcome, Refused) and creation is None:
            if interpreter in self._held and not interpreter.exe.released:
                interpreter.lost(outcome.run.owner if outcome.run is not None else "")
            self._held.discard(interpreter)
        else:
            interpreter.lease_until = asked_at + interpreter.lease_s
