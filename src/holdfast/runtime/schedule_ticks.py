"""When a schedule is due: cron expressions in a time zone, and fixed intervals.

A tick is found from the tick before it and never from the present time, so a clock that is set back repeats none.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

import msgspec

from holdfast.clock import US
from holdfast.engine.gates import seconds_us
from holdfast.errors import InvalidInput
from holdfast.operations.views import moment

Missed = Literal["skip", "latest", "all"]
Overlap = Literal["skip", "queue", "allow"]
ON_TIME_US: Final = 60 * US
"""A tick that is executed later than this was missed."""
_SPAN_US: Final = 3 * 86_400 * US
_UNSURE_US: Final = 6 * 3600 * US
"""Ticks that are found from a time which was no tick may be wrong for so long, if clocks change then."""
BATCH: Final = 100
"""How many ticks one turn of a schedule starts at most."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a schedule is due, and what happens to ticks that were missed or that overlap."""

    cron: str = ""
    every_us: int = 0
    tz: str = "UTC"
    missed: Missed = "latest"
    overlap: Overlap = "skip"

    def next(self, after_us: int) -> int:
        """The first tick after a time."""
        return after_us + self.every_us if self.every_us else self._cron(after_us)

    def newest(self, after_us: int, now_us: int) -> int:
        """The last tick after `after_us` and up to `now_us`; `after_us` if there is none."""
        if self.every_us:
            return after_us + max(0, now_us - after_us) // self.every_us * self.every_us
        span_us = _SPAN_US
        while True:
            start_us = max(after_us, now_us - span_us)
            last_us = start_us
            while (tick := self.next(last_us)) <= now_us:
                last_us = tick
            if start_us == after_us or last_us >= start_us + _UNSURE_US:
                return last_us
            span_us *= 8

    def due(self, after_us: int, now_us: int, queued_us: int = 0) -> tuple[list[int], int]:
        """The ticks to execute now, and the tick from which the next one is found.

        `queued_us`: ticks up to this time were not missed but queued behind an unfinished run.
        """
        ticks: list[int] = []
        while (tick := self.next(after_us)) <= now_us:
            if self.missed != "all" and tick > queued_us:
                after_us = max(tick, self.newest(after_us, now_us))
                if self.missed == "latest" or now_us - after_us <= ON_TIME_US:
                    ticks.append(after_us)
                break
            if len(ticks) == (1 if self.overlap == "queue" else BATCH):  # a change of the schedule is read in between
                break
            ticks.append(after_us := tick)
        return ticks, after_us

    def describe(self) -> str:
        """The rule in words."""
        if self.every_us:
            return f"every {dt.timedelta(microseconds=self.every_us)}"
        return f"{self.cron} ({self.tz})"

    def _cron(self, us: int) -> int:
        from cronsim import CronSim

        start = moment(us).astimezone(ZoneInfo(self.tz))
        # In the hour that is repeated when clocks go back, the first ones may be before the start.
        return next(at for at in (int(found.timestamp()) * US for found in CronSim(self.cron, start)) if at > us)


def rule_of(cron: object, every: object, tz: object, missed: object, overlap: object) -> Rule:
    """A checked rule; InvalidInput says what is wrong."""
    if overlap is None:
        overlap = "queue" if missed == "all" else "skip"
    elif (missed, overlap) == ("all", "skip"):
        raise InvalidInput("missed='all' needs overlap='queue' or 'allow': 'skip' starts only the first of them")
    if (cron is None) == (every is None):
        raise InvalidInput(f"a schedule needs either cron or every, not cron={cron!r} and every={every!r}")
    for name, value, allowed in (("missed", missed, Missed), ("overlap", overlap, Overlap)):
        names = allowed.__args__  # type: ignore[attr-defined]
        if value not in names:
            raise InvalidInput(f"{name} must be one of {', '.join(names)}, not {value!r}")
    options: dict[str, Any] = {"missed": missed, "overlap": overlap}
    if every is not None:
        return Rule(every_us=max(1, seconds_us("every", every, "above 0")), **options)
    rule = Rule(cron=_checked_cron(cron), tz=_checked_zone(tz), **options)
    try:
        rule.next(0)
    except StopIteration:
        raise InvalidInput(f"cron is {cron!r}, which names no date that exists") from None
    return rule


def _checked_cron(cron: object) -> str:
    from cronsim import CronSim, CronSimError

    text = " ".join(str(cron).split())
    advice = "it has five fields: minute, hour, day of month, month, day of week, such as '0 9 * * mon-fri'"
    if len(text.split()) != 5:
        raise InvalidInput(f"cron is {cron!r}", advice)
    try:
        CronSim(text, moment(0))
    except CronSimError as error:
        raise InvalidInput(f"cron is {cron!r}: {error}", advice) from None
    return text


def _checked_zone(tz: object) -> str:
    try:
        ZoneInfo(str(tz))
    except (KeyError, ValueError, OSError):
        raise InvalidInput(f"tz is {tz!r}, which is not a time zone of this machine, such as Europe/Berlin") from None
    return str(tz)
