"""The reaper recovers orphaned runs, fires due timers and redelivers outbox messages; wakeups notify workers.

Any number of processes may run the reaper at once. Every delivery has a key, so a second one has no effect.
Notifications are hints; workers also poll, so a lost one only costs latency.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from holdfast.drivers import Plan
from holdfast.errors import DamagedData, HoldfastError
from holdfast.model.commit import OUTSIDER, Commit, Committed, Guard, NewItem
from holdfast.model.rows import READY, GateRow, MessageRow, RunRow, TimerRow
from holdfast.operations.claims import recover_expired
from holdfast.operations.store import Store
from holdfast.store.capabilities import Notifications
from holdfast.store.checksum import verify_checksum

if TYPE_CHECKING:
    from holdfast.runtime.app_core import AppCore

_log: Final = logging.getLogger("holdfast.worker")
_BATCH: Final = 200


def reap(app: AppCore) -> Plan[int]:
    """Recover, fire and redeliver once; return how many runs were woken or recovered."""
    count = yield from recover_expired(app.access)
    count += yield from fire_all_due(app)
    return count + len((yield from redeliver(app)))


def fire_all_due(app: AppCore) -> Plan[int]:
    """Notify runs of due timers and expired gates."""
    count = 0
    timers = yield lambda: app.core.port.due(TimerRow, _BATCH)
    for run, timer in timers:
        count += yield from _notify(app, run, timer_item(run, timer))
    gates = yield lambda: app.core.port.due(GateRow, _BATCH)
    for run, gate in gates:
        count += yield from _notify(app, run, NewItem("expiry", gate.gate, f"expiry/{gate.gate}", "", b""))
    return count


def timer_item(run: RunRow, timer: TimerRow) -> NewItem:
    """The item of a due timer. A run whose clock is behind may set the timer again; then it fires again."""
    return NewItem("timer", timer.timer, f"timer/{timer.timer}/{timer.due_us}/{run.inbox}", "", b"")


def _notify(app: AppCore, run: RunRow, item: NewItem) -> Plan[int]:
    guard = Guard(OUTSIDER, incarnation=run.incarnation)
    try:
        outcome = yield Commit(run.run_id, app.token(8), guard, deliver=(item,))
    except DamagedData:
        return 0  # verify reports it; the others are not delayed
    return int(type(outcome) is Committed and outcome.fresh)


def redeliver(app: AppCore) -> Plan[list[str]]:
    """Deliver messages that are not confirmed as delivered; return the runs that became ready."""
    woken: list[str] = []
    messages = yield lambda: app.core.port.due(MessageRow, _BATCH)
    for sender, message in messages:
        try:
            verify_checksum(message, sender.incarnation, f"message {message.number} of run {sender.run_id!r}")
        except DamagedData:
            continue  # verify reports it; the others are not delayed
        woken += yield from _deliver(app, sender, message)
    return woken


def _deliver(app: AppCore, sender: RunRow, message: MessageRow) -> Plan[list[str]]:
    item = NewItem(message.kind, message.name, message.key, sender.run_id, message.body)  # type: ignore[arg-type]
    try:
        outcome = yield Commit(message.target, app.token(8), Guard(OUTSIDER), deliver=(item,))
        guard = Guard(OUTSIDER, incarnation=sender.incarnation)
        yield Commit(sender.run_id, app.token(8), guard, sent=(message.number,))
    except DamagedData:
        return []
    return [message.target] if type(outcome) is Committed and outcome.run.status == READY else []


POLL_NOTIFIED_S: Final = 1.0
"""The poll interval while notifications work."""
POLL_FIRST_S: Final = 0.01
POLL_MAX_S: Final = 0.2
"""The poll intervals without notifications: from the first, after work, to the longest, when idle."""
_LISTEN_S: Final = 2.0
_RECONNECT_S: Final = 15.0


class WakeupListener:
    """Wakes a worker when runs may be ready. Its thread listens if the store has notifications."""

    def __init__(self, store: Store) -> None:
        self._port = store.port if isinstance(store.port, Notifications) else None
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._quiet = 0
        self._has_notice = False
        self.notified = False
        """Whether a test notification has arrived."""
        if self._port is not None:
            threading.Thread(target=self._listen, args=(self._port,), name="holdfast-wakeups", daemon=True).start()

    def wake(self) -> None:
        """End the current wait of the worker."""
        self._woken.set()

    def take_notice(self) -> bool:
        """Whether the store has notified since the last call: then a run is probably ready."""
        found, self._has_notice = self._has_notice, False
        return found

    def wait(self) -> None:
        """Wait for a wakeup, or until the next poll is due."""
        self._quiet += 1
        poll_s = POLL_NOTIFIED_S if self.notified else min(POLL_MAX_S, POLL_FIRST_S * 1.3**self._quiet)
        if self._woken.wait(poll_s):
            self._woken.clear()
            self._quiet = 0

    def busy(self) -> None:
        """Return to the shortest poll interval, since there was work."""
        self._quiet = 0

    def close(self) -> None:
        self._closing.set()
        self._woken.set()

    def _listen(self, port: Notifications) -> None:
        while not self._closing.is_set():
            try:
                with port.listen() as listener:
                    self.notified = listener.works()
                    if not self.notified:
                        _log.warning("notifications of the store do not arrive; polling for ready runs instead")
                        return
                    while not self._closing.is_set():
                        if listener.notified_runs(_LISTEN_S):
                            self._has_notice = True
                            self.wake()
            except HoldfastError as error:
                self.notified = False
                _log.warning("cannot listen to the store (%s); polling for ready runs instead", error)
                self._closing.wait(_RECONNECT_S)
