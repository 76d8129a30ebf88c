"""Old notifications are removed, unless their event would then be announced again."""

from __future__ import annotations

import holdfast
from holdfast.notifications.delivery import later
from tests.harness import ShiftedClock, until
from tests.notifications.receivers import recorder
from tests.notifications.test_notifications import HOUR, notification_runs, notifications

DAY = 24 * HOUR


def test_notifications_of_answered_gates_are_removed_and_those_of_open_ones_are_kept(
    app: holdfast.App, clock: ShiftedClock
) -> None:
    ops = recorder()
    one = notifications(app, ops, keep_days=10)
    app.start("asks", run_id="answered")
    app.start("asks", run_id="open")
    one.run(until_idle=True)
    app.answer("answered", {"pay": True})
    assert one.prune() == 0
    clock.advance(11 * DAY)
    assert one.prune() == 1
    assert [run.metadata["run"] for run in notification_runs(app)] == ["open"]
    one.run(until_idle=True)
    assert len(ops.sent) == 2, "the open gate is not announced again"
    app.answer("open", {"pay": True})
    assert one.prune() == 1


def test_a_failure_whose_notification_was_removed_is_not_announced_again(
    app: holdfast.App, clock: ShiftedClock
) -> None:
    ops = recorder()
    one = notifications(app, ops, keep_days=10)
    one.run(until_idle=True)
    app.start("fails", run_id="f")
    one.run(until_idle=True)
    clock.advance(11 * DAY)
    assert one.prune() == 1
    one.run(until_idle=True)
    assert len(ops.sent) == 1
    assert notification_runs(app) == []
    app.start("fails", run_id="g")
    one.run(until_idle=True)
    assert len(ops.sent) == 2, "when the target was configured first is still known"


def test_what_is_not_delivered_yet_is_kept(app: holdfast.App, clock: ShiftedClock) -> None:
    ops = recorder("ops", later("down"))
    one = notifications(app, ops, keep_days=1)
    app.start("asks", run_id="r")
    one.run(until_idle=True)
    app.answer("r", {"pay": True})
    clock.advance(3 * DAY)
    assert one.prune() == 0


def test_without_a_limit_everything_is_kept(app: holdfast.App, clock: ShiftedClock) -> None:
    one = notifications(app, recorder(), keep_days=None)
    app.start("asks", run_id="r")
    one.run(until_idle=True)
    app.answer("r", {"pay": True})
    clock.advance(1000 * DAY)
    assert one.prune() == 0


def test_threads_prune_too(app: holdfast.App, clock: ShiftedClock) -> None:
    one = notifications(app, recorder(), keep_days=1)
    app.start("asks", run_id="r")
    one.run(until_idle=True)
    app.answer("r", {"pay": True})
    clock.advance(3 * DAY)
    with one:
        until(lambda: not notification_runs(app), "it was removed")
