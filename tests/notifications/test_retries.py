"""A target that fails is tried again, for hours, and then the notification fails visibly."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import holdfast
from holdfast.errors import StorageFailed
from holdfast.notifications import Attempt, Message
from holdfast.notifications.delivery import later, refused
from holdfast.notifications.workflow import Circuit
from tests.harness import ShiftedClock, until
from tests.notifications.receivers import Recorder, recorder
from tests.notifications.test_messages import message
from tests.notifications.test_notifications import HOUR, announced, notification_runs, notifications


def test_a_target_that_is_down_is_tried_again_with_the_same_id_for_hours_without_a_claim(
    app: holdfast.App, clock: ShiftedClock
) -> None:
    ops = recorder("ops", *[later("it is down")] * 5)
    one = notifications(app, ops)
    app.start("asks", run_id="r")
    for count in range(1, 7):
        one.run(until_idle=True)
        assert len(ops.sent) == count
        (run,) = notification_runs(app)
        assert run.owner is None
        if count < 6:
            (left,) = one.undelivered()
            assert (left.status, left.attempts, left.reason) == ("waiting", count, "it is down")
            assert left.next_at is not None
        one.run(until_idle=True)
        assert len(ops.sent) == count, "not before its time"
        clock.advance(6 * HOUR)
    assert len({message.id for message in ops.sent}) == 1
    assert one.undelivered() == []


def test_a_delay_that_the_target_asks_for_is_waited_for(app: holdfast.App, clock: ShiftedClock) -> None:
    ops = recorder("ops", later("slow down", after_s=HOUR))
    one = notifications(app, ops)
    app.start("asks", run_id="r")
    one.run(until_idle=True)
    clock.advance(HOUR / 2)
    one.run(until_idle=True)
    assert len(ops.sent) == 1
    clock.advance(HOUR / 2 + 1)
    one.run(until_idle=True)
    assert len(ops.sent) == 2


@pytest.mark.parametrize("attempt", [refused("it responded with status 404"), later("it is down")])
def test_a_notification_that_cannot_be_delivered_fails_visibly_and_can_be_retried(
    app: holdfast.App, attempt: Attempt, caplog: pytest.LogCaptureFixture
) -> None:
    ops = recorder("ops", attempt)
    one = notifications(app, ops, retry_s=())
    app.start("asks", run_id="r")
    with caplog.at_level(logging.ERROR, "holdfast.run"):
        one.run(until_idle=True)
    assert attempt.reason in caplog.text
    (left,) = one.undelivered()
    assert (left.status, left.attempts, left.next_at) == ("failed", 1, None)
    assert attempt.reason in left.reason
    one.run(until_idle=True)
    assert len(ops.sent) == 1, "neither sent again nor announced itself"
    app.retry(left.notification, enqueue=True)
    one.run(until_idle=True)
    assert len(ops.sent) == 2
    assert one.undelivered() == []


def test_failed_notifications_are_not_announced(app: holdfast.App) -> None:
    ops, broken = recorder("ops"), recorder("broken", refused("no"))
    both = notifications(app, ops, broken)
    both.run(until_idle=True)
    app.start("asks", run_id="r")
    for _ in range(3):
        both.run(until_idle=True)
    assert announced(ops) == [("gate_opened", "r")]


def test_a_target_that_this_process_does_not_have_is_left_to_others(app: holdfast.App, clock: ShiftedClock) -> None:
    ops, mail = recorder("ops", later("it is down")), recorder("mail")
    app.start("asks", run_id="r")
    notifications(app, ops).run(until_idle=True)
    clock.advance(60)
    without = notifications(app, mail)
    without.run(until_idle=True)
    (left,) = without.undelivered()
    assert left.reason == "target 'ops' is not configured in this process, or its secret is missing"
    clock.advance(HOUR)
    notifications(app, ops).run(until_idle=True)
    assert len(ops.sent) == 2


def test_a_process_without_a_target_does_not_use_up_the_attempts_of_another(
    app: holdfast.App, clock: ShiftedClock
) -> None:
    ops = recorder("ops", later("it is down"))
    with_it, without = notifications(app, ops), notifications(app, recorder("other"))
    app.start("asks", run_id="r")
    with_it.run(until_idle=True)
    for _ in range(12):  # more often than a target is tried
        clock.advance(HOUR)
        without.run(until_idle=True)
    clock.advance(HOUR)
    with_it.run(until_idle=True)
    assert len(ops.sent) == 2
    assert with_it.undelivered() == []


def test_a_store_that_fails_for_a_while_loses_nothing(
    app: holdfast.App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ops = recorder()
    port, broken = app.store.port, [True]
    read = port.gates

    def gates(*given: Any) -> Any:
        if broken[0]:
            raise StorageFailed("the disk is away")
        return read(*given)

    monkeypatch.setattr(port, "gates", gates)
    app.start("asks", run_id="r")
    with notifications(app, ops):
        until(lambda: "the disk is away" in caplog.text, "the scanner failed")
        broken[0] = False
        until(lambda: len(ops.sent) == 1, "it was announced")


def test_a_message_that_raises_fails_the_notification_alone(app: holdfast.App) -> None:
    class Broken(Recorder, frozen=True, kw_only=True):
        def send(self, message: Message, left: tuple[str, ...] = ()) -> Attempt:
            raise RuntimeError("a bug")

    ops, broken = recorder("ops"), Broken("broken", sent=[], plan=[])
    app.start("asks", run_id="r")
    one = notifications(app, ops, broken)
    one.run(until_idle=True)
    assert len(ops.sent) == 1
    (left,) = one.undelivered()
    assert "a bug" in left.reason


def test_a_target_that_does_not_respond_is_spared_for_a_while() -> None:
    now, took_s = [0.0], [5.0]

    class Slow(Recorder, frozen=True, kw_only=True):
        def send(self, message: Message, left: tuple[str, ...] = ()) -> Attempt:
            now[0] += took_s[0]
            return super().send(message, left)

    down = later("it timed out")
    slow = Slow("slow", sent=[], plan=[down] * 5)
    circuit = Circuit(slow, lambda: now[0])
    for _ in range(6):
        circuit.send(message(), (), is_last=False)
    assert len(slow.sent) == 3
    spared = circuit.send(message(), ("ana@example.org",), is_last=False)
    assert (spared.state, spared.after_s, spared.left) == ("later", 30.0, ("ana@example.org",))
    assert circuit.send(message(), (), is_last=True) == down
    assert len(slow.sent) == 4, "the last attempt is always made"
    now[0] += 31
    circuit.send(message(), (), is_last=False)
    assert circuit.send(message(), (), is_last=False).reason != down.reason, "one attempt decides"
    now[0], took_s[0] = now[0] + 31, 0.0
    for _ in range(5):
        assert circuit.send(message(), (), is_last=False).state == "delivered"
