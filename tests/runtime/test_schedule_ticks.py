"""When a schedule is due: no tick twice and none of the future, also when clocks change."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from holdfast.runtime.schedule_ticks import Rule, rule_of

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def ticks_between(rule: Rule, first: str, last: str) -> list[str]:
    at, end = (int(dt.datetime.fromisoformat(text).timestamp()) * 1_000_000 for text in (first, last))
    found = []
    while (at := rule.next(at)) <= end:
        found.append(dt.datetime.fromtimestamp(at / 1e6, dt.UTC).isoformat()[:16])
    return found


def test_the_clock_change_in_spring_loses_no_tick() -> None:
    rule = rule_of("30 2 * * *", None, "Europe/Berlin", "latest", None)
    found = ticks_between(rule, "2026-03-27T12:00+00:00", "2026-03-31T00:00+00:00")
    assert found == ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]


def test_the_clock_change_in_autumn_doubles_no_tick() -> None:
    rule = rule_of("30 2 * * *", None, "Europe/Berlin", "latest", None)
    found = ticks_between(rule, "2026-10-23T12:00+00:00", "2026-10-26T12:00+00:00")
    assert found == ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]
    half_hours = rule_of("*/30 * * * *", None, "Europe/Berlin", "latest", None)
    found = ticks_between(half_hours, "2026-10-24T23:30+00:00", "2026-10-25T02:00+00:00")
    assert found == [f"2026-10-25T{hour}:{minute}" for hour in ("00", "01") for minute in ("00", "30")] + [
        "2026-10-25T02:00"
    ]


@pytest.mark.parametrize("missed", ["latest", "skip", "all"])
@pytest.mark.parametrize("minute", [20, 45, 61, 75, 88, 95, 130])
@pytest.mark.parametrize("created", ["2026-10-24T12:00+00:00", "2026-10-25T00:40+00:00", "2026-10-25T01:05+00:00"])
def test_no_tick_is_found_twice_in_the_repeated_hour(created: str, minute: int, missed: Any) -> None:
    rule = rule_of("30 2 * * *", None, "Europe/Berlin", missed, None)
    after = int(dt.datetime.fromisoformat(created).timestamp()) * 1_000_000
    now = int(dt.datetime.fromisoformat("2026-10-25T00:00:30+00:00").timestamp() + 60 * minute) * 1_000_000
    seen: list[int] = []
    for _ in range(3):
        ticks, after = rule.due(after, now)
        seen += ticks
    assert seen == sorted(set(seen))
    assert all(tick <= now for tick in seen)
    assert rule.next(after) > now


@pytest.mark.parametrize("rule", [Rule(every_us=7_000_000), Rule(cron="*/5 * * * *", tz="Europe/Berlin")])
def test_the_newest_tick_is_the_last_of_all(rule: Rule) -> None:
    start = int(START.timestamp()) * 1_000_000 + 3
    for now in (start, start + 7_000_000, start + 299_999_999, start + 301_000_000, start + 3 * 3600 * 1_000_000):
        at = start
        while rule.next(at) <= now:
            at = rule.next(at)
        assert rule.newest(start, now) == at
