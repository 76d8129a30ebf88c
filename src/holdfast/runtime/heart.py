"""The heart: renews the claims of this process's executions while user code runs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from holdfast.clock import US
from holdfast.errors import HoldfastError
from holdfast.model.commit import Commit, Refused

if TYPE_CHECKING:
    from holdfast.runtime.carrier import Carrier

_BEATS_PER_LEASE: Final = 3


class Heart:
    """Holds the carriers whose claims must not end. Its thread is started when the first one comes."""

    def __init__(self, lease_s: float) -> None:
        self._beat_s = lease_s / _BEATS_PER_LEASE
        self._held: set[Carrier] = set()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def hold(self, carrier: Carrier) -> None:
        """Renew this one's claim from now on."""
        self._held.add(carrier)
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closing.is_set():
                    self._thread = threading.Thread(target=self._beat, name="holdfast-heart", daemon=True)
                    self._thread.start()

    def let_go(self, carrier: Carrier) -> None:
        """Its execution is over."""
        self._held.discard(carrier)

    def close(self) -> None:
        self._closing.set()

    def _beat(self) -> None:
        while not self._closing.wait(self._beat_s / 2):
            soon = time.monotonic() + 2 * self._beat_s
            for carrier in list(self._held):
                if carrier.lease_until < soon and carrier in self._held:
                    self._renew(carrier)

    def _renew(self, carrier: Carrier) -> None:
        asked_at = time.monotonic()
        core, guard = carrier.core, carrier.place.guard()
        commit = Commit(carrier.row.run_id, core.ids.token(8), guard, renew_us=int(carrier.lease_s * US))
        try:
            outcome = core.committer.commit(commit)
        except HoldfastError:  # the store is in trouble; the next beat tries again, and every effect checks the lease
            return
        if isinstance(outcome, Refused):
            if carrier in self._held and not carrier.exe.released:
                carrier.lost(outcome.run.owner if outcome.run is not None else "")
            self._held.discard(carrier)
        else:
            carrier.lease_until = asked_at + carrier.lease_s
