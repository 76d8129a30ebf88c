"""The workflow `holdfast.notify`: one run sends one message to one target, with retries over hours.

An attempt is an effect that is declared idempotent: the message has the same id in every attempt. Between attempts the
run sleeps, so no claim is held. After the last attempt the run fails, and a retry of the run makes another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from holdfast.errors import StorageError
from holdfast.notifications.composer import Composer, Over
from holdfast.notifications.delivery import Attempt, NotDelivered, Target, later
from holdfast.notifications.events import CONFIGURED, Event
from holdfast.notifications.message import Message
from holdfast.runtime.run import Run

RETRY_S: Final = (10.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0)
"""The delays between attempts: ten attempts in about sixteen hours."""
_SPREAD: Final = 0.2
"""How much a delay varies, so that many messages to one target do not return together."""
_ELSEWHERE_S: Final = 10.0
_ELSEWHERE_S_MAX: Final = 600.0
_ELSEWHERE_MAX: Final = 100
"""A process without the target leaves its notification to others, for at most so many times: about sixteen hours."""

SLOW_S: Final = 1.0
SLOW_MAX: Final = 3
"""After so many slow failures in a row the target is spared."""
SPARED_S: Final = 30.0

Notify = Callable[[Run, Event], Attempt]


def make_workflow(composer: Composer, targets: Mapping[str, Target], retry_s: Sequence[float]) -> Notify:
    """The workflow for these targets."""
    circuits = {name: Circuit(target) for name, target in targets.items()}

    def notify(run: Run, event: Event) -> Attempt:
        if event.event == CONFIGURED:
            return Attempt(state="over")
        left: tuple[str, ...] = ()
        elsewhere = 0
        for number, delay_s in enumerate((*retry_s, None), start=1):
            attempt = _deliver(run, event, left, is_last=delay_s is None)
            while attempt.state == "elsewhere":  # it does not count as an attempt
                elsewhere += 1
                run.sleep(min(_ELSEWHERE_S * elsewhere, _ELSEWHERE_S_MAX) * _spread(event.id, elsewhere))
                is_over = elsewhere >= _ELSEWHERE_MAX
                attempt = _deliver(run, event, left, is_last=delay_s is None, must_be_here=is_over)
            if attempt.state in ("delivered", "over") or delay_s is None:
                return attempt
            left = attempt.left
            run.sleep(max(delay_s * _spread(event.id, number), attempt.after_s))
        raise AssertionError("the last attempt returns or raises")

    def _deliver(
        run: Run, event: Event, left: tuple[str, ...], *, is_last: bool, must_be_here: bool = False
    ) -> Attempt:
        # Only what names the message is an argument, since arguments are stored, and compared when the run resumes.
        def deliver(event_id: str) -> Attempt:  # noqa: ARG001
            attempt = send(event, left, is_last=is_last)
            is_final = {"refused": True, "later": is_last, "elsewhere": must_be_here}.get(attempt.state, False)
            if is_final:
                raise NotDelivered(f"target {event.target!r} was not notified: {attempt.reason}")
            return attempt

        return run.effect(deliver, event.id, name="deliver", target=event.target, in_doubt="retry")

    def send(event: Event, left: tuple[str, ...], *, is_last: bool) -> Attempt:
        circuit = circuits.get(event.target)
        if circuit is None:
            reason = f"target {event.target!r} is not configured in this process, or its secret is missing"
            return Attempt(state="elsewhere", reason=reason)
        try:
            message = composer.compose(event, include_show=circuit.target.include_show)
        except Over as over:
            return Attempt(state="over", reason=str(over))
        except StorageError as error:
            return later(f"the store could not be read: {type(error).__name__}")
        return circuit.send(message, left, is_last=is_last)

    return notify


def _spread(event_id: str, number: int) -> float:
    """A factor around 1 that is the same whenever the run is replayed."""
    chance = int(event_id[(2 * number) % 24 :][:4], 16) / 0xFFFF
    return 1 + _SPREAD * (2 * chance - 1)


class Circuit:
    """Sends to one target, and spares it for a while if it does not respond: it would delay the messages to others.

    Only a few attempts are made at a time. What it remembers concerns this process only.
    """

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        self.target = target
        self._clock = clock
        self._slow = 0
        self._spared_until = float("-inf")

    def send(self, message: Message, left: tuple[str, ...], *, is_last: bool) -> Attempt:
        """Send the message, unless the target did not respond a moment ago. The last attempt is always made."""
        began_at = self._clock()
        if began_at < self._spared_until and not is_last:
            return later("it did not respond to other messages", self._spared_until - began_at, left)
        attempt = self.target.send(message, left)
        if attempt.state != "later" or self._clock() < began_at + SLOW_S:
            self._slow = 0
        elif self._slow + 1 < SLOW_MAX:
            self._slow += 1
        else:
            self._slow, self._spared_until = SLOW_MAX - 1, self._clock() + SPARED_S  # then one attempt decides
        return attempt
