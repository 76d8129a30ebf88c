"""Every event reaches every target, once if nothing goes wrong, and not if it is over."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest

import holdfast
from holdfast.errors import InvalidInput
from holdfast.notifications import Notifications, Webhook
from holdfast.notifications.delivery import later
from holdfast.notifications.events import WORKFLOW
from tests.harness import ShiftedClock, until
from tests.notifications.receivers import Receiver, Recorder, recorder

HOUR = 3600.0


def notifications(app: holdfast.App, *targets: Any, **options: Any) -> Notifications:
    given: dict[str, Any] = {"base_url": "https://page.example", "poll_s": 0.02}
    return Notifications(app, targets, **given | options)


def announced(target: Recorder) -> list[tuple[str, str]]:
    return [(message.event, message.run_id) for message in target.sent]


def notification_runs(app: holdfast.App) -> list[holdfast.RunInfo]:
    return [run for run in app.runs(workflow=WORKFLOW) if "/since/" not in run.run_id]


def test_a_gate_and_a_failure_are_announced_to_every_target_once(app: holdfast.App) -> None:
    ops, mail = recorder("ops"), recorder("mail")
    both = notifications(app, ops, mail)
    both.run(until_idle=True)
    app.start("asks", "Pay 40?", {"who": ["ana"], "show": {"amount": 40}}, run_id="order/17")
    app.start("fails", run_id="bad")
    for _ in range(3):
        both.run(until_idle=True)
    for target in (ops, mail):
        assert sorted(announced(target)) == [("gate_opened", "order/17"), ("run_failed", "bad")]
    gate = next(message for message in ops.sent if message.gate)
    assert (gate.prompt, gate.who, gate.workflow, gate.show) == ("Pay 40?", ("ana",), "asks", None)
    assert gate.url == "https://page.example/runs/order%2F17/gates/ask%231"
    failure = next(message for message in ops.sent if not message.gate)
    assert failure.url == "https://page.example/runs/bad"
    assert "this text" not in str(failure.payload(include_show=True))
    ids = {message.id for target in (ops, mail) for message in target.sent}
    assert len(ids) == 4
    runs = notification_runs(app)
    assert {run.status for run in runs} == {"completed"}
    assert {run.run_id for run in runs} == {f"notify/{one}" for one in ids}
    facts = {"run": "order/17", "gate": "ask#1", "event": "gate_opened", "target": "mail"}
    assert [run.metadata for run in runs].count(facts) == 1


def test_threads_announce_while_the_app_works(app: holdfast.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_HOOK_SECRET", "a secret of some length")
    with Receiver() as receiver:
        target = Webhook("ops", receiver.url, secret_env="TEST_HOOK_SECRET")
        with notifications(app, target):
            app.start("asks", run_id="a")
            until(lambda: len(receiver.ids("gate_opened")) == 1, "the gate was announced")
            app.start("fails", run_id="b")
            until(lambda: len(receiver.ids("run_failed")) == 1, "the failure was announced")
            until(lambda: {run.status for run in notification_runs(app)} == {"completed"}, "it was recorded")
        assert len(receiver.requests) == 2


def test_two_notifiers_at_once_announce_once(app: holdfast.App) -> None:
    first, second = recorder(), recorder()
    with notifications(app, first), notifications(app, second):
        for number in range(20):
            app.start("asks", run_id=f"r{number}")
        until(lambda: len(first.sent) + len(second.sent) >= 20, "all were announced")
        until(lambda: {run.status for run in notification_runs(app)} == {"completed"}, "all were recorded")
    sent = announced(first) + announced(second)
    assert sorted(sent) == sorted(("gate_opened", f"r{number}") for number in range(20))
    assert len(notification_runs(app)) == 20


def test_a_gate_that_was_answered_before_is_not_announced(app: holdfast.App) -> None:
    ops = recorder("ops", later("it is down"))
    one = notifications(app, ops, retry_s=(0.0,))
    app.start("asks", run_id="r")
    app.answer("r", {"pay": True})
    one.run(until_idle=True)
    assert ops.sent == []
    assert notification_runs(app) == []


def test_a_gate_that_is_answered_between_two_attempts_is_not_sent_again(app: holdfast.App, clock: ShiftedClock) -> None:
    ops = recorder("ops", later("it is down"))
    one = notifications(app, ops)
    app.start("asks", run_id="r")
    one.run(until_idle=True)
    assert len(ops.sent) == 1
    app.answer("r", {"pay": True})
    clock.advance(60)
    one.run(until_idle=True)
    assert len(ops.sent) == 1
    (run,) = notification_runs(app)
    assert run.status == "completed"
    assert app.handle(run.run_id).result()["reason"] == "the gate is answered"


def test_a_gate_that_was_found_and_then_answered_is_not_sent(app: holdfast.App) -> None:
    ops = recorder()
    one = notifications(app, ops)
    app.start("asks", run_id="r")
    assert one._make_scanner(one._open()).read_all() == 1
    one._end()
    app.answer("r", {"pay": False})
    one.run(until_idle=True)
    assert ops.sent == []


@pytest.mark.parametrize("change", ["delete", "retry", "again"])
def test_a_failure_that_is_over_is_not_sent(app: holdfast.App, clock: ShiftedClock, change: str) -> None:
    ops = recorder("ops", later("it is down"))
    one = notifications(app, ops)
    one.run(until_idle=True)
    app.start("fails", run_id="r")
    one.run(until_idle=True)
    assert len(ops.sent) == 1
    if change == "delete":
        app.store.delete("r")
    if change != "delete":
        app.retry("r")  # it fails again, which is another event
    if change == "again":
        app.store.delete("r")
        app.start("fails", run_id="r")
    clock.advance(60)
    one.run(until_idle=True)
    one.run(until_idle=True)
    first = ops.sent[0].id
    assert [message.id for message in ops.sent].count(first) == 1
    assert len(ops.sent) == (1 if change == "delete" else 2)


def test_a_gate_is_announced_again_before_it_expires_and_when_others_are_asked(
    app: holdfast.App, clock: ShiftedClock
) -> None:
    ops = recorder()
    one = notifications(app, ops, expiring_s=HOUR)
    app.start("asks", "Pay?", {"who": ["ana"], "expires": 10 * HOUR, "escalate": [(2 * HOUR, ["ben"])]}, run_id="r")
    for _ in range(11):
        one.run(until_idle=True)
        clock.advance(HOUR)
    assert [message.event for message in ops.sent] == ["gate_opened", "gate_escalated", "gate_expiring"]
    assert [message.who for message in ops.sent] == [("ana",), ("ben",), ("ana", "ben")]
    assert len({message.id for message in ops.sent}) == 3


def test_threads_announce_expiry_and_escalation_when_the_time_comes(app: holdfast.App, clock: ShiftedClock) -> None:
    ops = recorder()
    with notifications(app, ops):
        app.start("asks", "Pay?", {"who": ["ana"], "expires": 10 * HOUR, "escalate": [(2 * HOUR, ["ben"])]}, run_id="r")
        until(lambda: len(ops.sent) == 1, "it was announced")
        clock.advance(2.5 * HOUR)
        until(lambda: len(ops.sent) == 2, "the escalation was announced")
        clock.advance(7 * HOUR)
        until(lambda: len(ops.sent) == 3, "the expiry was announced")
    assert [message.event for message in ops.sent] == ["gate_opened", "gate_escalated", "gate_expiring"]


def test_an_expired_gate_is_not_announced(app: holdfast.App, clock: ShiftedClock) -> None:
    ops = recorder()
    app.start("asks", "Pay?", {"expires": HOUR}, run_id="r")
    clock.advance(2 * HOUR)
    notifications(app, ops).run(until_idle=True)
    assert ops.sent == []


def test_a_reassigned_gate_is_announced_to_those_it_is_for_now(app: holdfast.App, clock: ShiftedClock) -> None:
    ops = recorder("ops", later("it is down"))
    one = notifications(app, ops)
    app.start("asks", "Pay?", {"who": ["ana"], "escalate": [(HOUR, ["ben"])]}, run_id="r")
    clock.advance(1.5 * HOUR)
    one.run(until_idle=True)  # one of both is tried again later
    before = len(ops.sent)
    app.reassign("r", "eva", by="ana")
    clock.advance(60)
    one.run(until_idle=True)
    escalated = [message.who for message in ops.sent[before:] if message.event == "gate_escalated"]
    assert escalated == [("eva",)], "and not to those of the escalation before"


def test_failures_before_a_target_was_configured_are_not_announced_and_open_gates_are(app: holdfast.App) -> None:
    app.start("fails", run_id="old")
    app.start("asks", run_id="waiting")
    ops = recorder("ops")
    notifications(app, ops).run(until_idle=True)
    app.start("fails", run_id="new")  # while no process announces anything
    mail = recorder("mail")
    notifications(app, ops, mail).run(until_idle=True)
    assert sorted(announced(ops)) == [("gate_opened", "waiting"), ("run_failed", "new")]
    assert announced(mail) == [("gate_opened", "waiting")]


def test_since_decides_what_is_too_old(app: holdfast.App, clock: ShiftedClock) -> None:
    app.start("fails", run_id="old")
    app.start("asks", run_id="old gate")
    clock.advance(HOUR)
    since = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=30)
    app.start("fails", run_id="new")
    app.start("asks", run_id="new gate")
    ops = recorder()
    notifications(app, ops, since=since).run(until_idle=True)
    assert sorted(announced(ops)) == [("gate_opened", "new gate"), ("run_failed", "new")]


def test_events_and_workflows_select_what_a_target_gets(app: holdfast.App) -> None:
    every, gates = recorder("every"), recorder("gates", events=("gate_opened",))
    none, failing = recorder("none", workflows=("other*",)), recorder("failing", workflows=("fa?ls",))
    one = notifications(app, every, gates, none, failing)
    one.run(until_idle=True)
    app.start("asks", run_id="a")
    app.start("fails", run_id="f")
    one.run(until_idle=True)
    assert sorted(announced(every)) == [("gate_opened", "a"), ("run_failed", "f")]
    assert announced(gates) == [("gate_opened", "a")]
    assert announced(none) == []
    assert announced(failing) == [("run_failed", "f")]
    few = recorder("few")
    notifications(app, few, events=("run_failed",), workflows=("asks",)).run(until_idle=True)
    assert few.sent == []


def test_what_a_gate_shows_is_sent_only_if_asked_for_and_masked(app: holdfast.App) -> None:
    ops, more = recorder("ops"), recorder("more", include_show=True)
    show = {"customer": {"iban": "DE02 1234", "name": "Ana"}}
    app.start("asks", "Pay DE02 1234?", {"show": show}, run_id="r")
    notifications(app, ops, more, mask=["customer.iban"]).run(until_idle=True)
    assert ops.sent[0].show is None
    assert more.sent[0].show == {"customer": {"iban": "•••", "name": "Ana"}}
    assert {message.prompt for message in (*ops.sent, *more.sent)} == {"Pay •••?"}


def test_a_test_message_is_sent_without_a_run(app: holdfast.App) -> None:
    ops = recorder()
    one = notifications(app, ops)
    assert one.targets == ("ops",)
    assert one.test("ops").state == "delivered"
    assert ops.sent[0].event == "test"
    assert ops.sent[0].url == "https://page.example"
    with pytest.raises(InvalidInput, match="the targets are ops"):
        one.test("opps")
    assert app.runs() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"base_url": "page"}, "base_url"),
        ({"events": ("opened",)}, "is not one of gate_opened"),
        ({"workflows": "refund"}, "must be a list of patterns"),
        ({"mask": "a.b"}, "must be a list of paths"),
        ({"since": dt.datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001 - that is the mistake
        ({"keep_days": 0}, "keep_days"),
        ({"expiring_s": -1}, "expiring_s"),
        ({"targets": [recorder("a"), recorder("a")]}, "two targets are named 'a'"),
        ({"targets": ["https://x"]}, "must be a Webhook, Slack or Email"),
        ({"targets": [Webhook("ops", "https://x", secret_env="NOT_SET")]}, "NOT_SET"),
    ],
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any], words: str) -> None:
    with holdfast.App("memory:") as app, pytest.raises(InvalidInput, match=words):
        notifications(app, *options.pop("targets", []), **options)


def test_notifications_can_be_stopped_and_started_again() -> None:
    with holdfast.App("memory:") as app:
        one = notifications(app, recorder())
        for _ in range(2):
            with one, pytest.raises(InvalidInput, match="started already"):
                one.start()
        one.stop()


def test_the_workflow_of_notifications_is_not_offered_to_people(app: holdfast.App) -> None:
    with notifications(app, recorder()):
        app.publish_workflows()
    notifications(app, recorder()).run(until_idle=True)
    assert [one.name for one in app.store.workflows()] == ["asks", "fails"]


def test_a_call_of_run_announces_until_it_is_stopped(app: holdfast.App) -> None:
    ops = recorder()
    one = notifications(app, ops)
    thread = threading.Thread(target=one.run)
    thread.start()
    app.start("asks", run_id="r")
    until(lambda: len(ops.sent) == 1, "it was announced")
    one.stop()
    thread.join()
    for _ in range(5):
        with one:  # it can be started again, and stopped before it has begun
            pass
