"""The reaper: sees to what nobody else sees to. Safe to run in any number of processes at once.

Runs whose owner is gone become ready again; timers and gates whose time has come are told to their runs; messages
between runs that were not delivered are delivered. Everything is keyed, so doing it twice is doing it once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.errors import DamagedData
from holdfast.model.commit import OUTSIDER, Commit, Committed, Guard, NewItem
from holdfast.model.rows import MessageRow, RunRow, TimerRow
from holdfast.model.status import READY
from holdfast.runtime.starting import Acts
from holdfast.store.seal import check_seal
from holdfast.verbs.holding import recover_expired

if TYPE_CHECKING:
    from holdfast.runtime.core import AppCore

_BATCH: Final = 200


def reap(app: AppCore) -> Acts[int]:
    """See to everything once. How many runs were woken or freed."""
    count = yield from recover_expired(app.place)
    count += yield from ring(app)
    return count + len((yield from redeliver(app)))


def ring(app: AppCore) -> Acts[int]:
    """Tell runs of timers and gates whose time has come."""
    count = 0
    timers = yield lambda: app.core.port.due_timers(_BATCH)
    for run, timer in timers:
        count += yield from _told(app, run, timer_item(run, timer))
    gates = yield lambda: app.core.port.expired_gates(_BATCH)
    for run, gate in gates:
        count += yield from _told(app, run, NewItem("expiry", gate.gate, f"expiry/{gate.gate}", "", b""))
    return count


def timer_item(run: RunRow, timer: TimerRow) -> NewItem:
    """What a run is told when a timer rings. It may ring again if the run's clock is behind and it set it once more."""
    return NewItem("timer", timer.timer, f"timer/{timer.timer}/{timer.due_us}/{run.inbox}", "", b"")


def _told(app: AppCore, run: RunRow, item: NewItem) -> Acts[int]:
    guard = Guard(OUTSIDER, incarnation=run.incarnation)
    try:
        outcome = yield Commit(run.run_id, app.token(8), guard, deliver=(item,))
    except DamagedData:
        return 0  # verify reports it; the others must not wait for it
    return int(type(outcome) is Committed and outcome.fresh)


def redeliver(app: AppCore) -> Acts[list[str]]:
    """Deliver messages that are not known to be delivered. The runs that became ready by it."""
    woken: list[str] = []
    messages = yield lambda: app.core.port.outbox(_BATCH)
    for sender, message in messages:
        try:
            check_seal(message, sender.incarnation, f"message {message.number} of run {sender.run_id!r}")
        except DamagedData:
            continue  # verify reports it; the others must not wait for it
        woken += yield from _delivered(app, sender, message)
    return woken


def _delivered(app: AppCore, sender: RunRow, message: MessageRow) -> Acts[list[str]]:
    item = NewItem(message.kind, message.name, message.key, sender.run_id, message.body)  # type: ignore[arg-type]
    try:
        outcome = yield Commit(message.target, app.token(8), Guard(OUTSIDER), deliver=(item,))
        guard = Guard(OUTSIDER, incarnation=sender.incarnation)
        yield Commit(sender.run_id, app.token(8), guard, sent=(message.number,))
    except DamagedData:
        return []
    return [message.target] if type(outcome) is Committed and outcome.run.status == READY else []
