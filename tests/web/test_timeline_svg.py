"""The time scale of a timeline: work is to scale, long idle time is folded."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.inspect.views import AttemptRow, Row
from holdfast.web.timeline_svg import WIDTH, Scale

START = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
NOW = START + dt.timedelta(days=30)


def row(kind: str, start_s: float, end_s: float | None, **more: Any) -> Row:
    end = None if end_s is None else START + dt.timedelta(seconds=end_s)
    return Row(kind=kind, name=kind, started_at=START + dt.timedelta(seconds=start_s), ended_at=end, **more)


def extent(scale: Scale, one: Row) -> tuple[float, float]:
    found = re.search(r' x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', str(scale.bar(one)))
    assert found is not None
    return float(found[1]), float(found[1]) + float(found[2])


def test_three_days_of_waiting_do_not_hide_three_seconds_of_work() -> None:
    first, ask, last = row("step", 0, 2), row("ask", 2, 259_202), row("step", 259_202, 259_203)
    scale = Scale([first, ask, last], NOW)
    widths = [end - start for start, end in (extent(scale, one) for one in (first, ask, last))]
    assert abs(widths[0] - 2 * widths[2]) < 2, "work is to scale"
    assert widths[1] < widths[0]
    assert len(scale.folds) == 1
    assert scale.folds[0].seconds == 259_200
    assert 'fill="url(#stripes)"' in scale.bar(ask)
    assert "stripes" not in scale.bar(first)


def test_short_waits_are_not_folded() -> None:
    first, gap, last = row("step", 0, 10), row("gap", 10, 11), row("step", 11, 20)
    scale = Scale([first, gap, last], NOW)
    assert scale.folds == []
    assert abs(extent(scale, last)[0] - WIDTH * 11 / 20) < 1


def test_a_step_of_microseconds_is_narrower_than_turns_and_waits_of_seconds() -> None:
    """Seen: after 1,999 folded turns of 3.3 s together, a step of 6 µs had a bar as wide as theirs."""
    turns, step, gap = row("turns", 0, 3.3), row("step", 3.3, 3.300_006), row("gap", 3.300_006, 351)
    for rows in ([turns, step, gap], [step, gap]):
        scale = Scale(rows, NOW)
        widths = {one.kind: end - start for one in rows for start, end in [extent(scale, one)]}
        assert widths["step"] == 5, "the least width"
        assert widths["gap"] > 50
        assert widths.get("turns", WIDTH) > widths["gap"]


def test_the_attempts_of_a_retried_step_have_bars_of_their_own_and_the_wait_between_them_is_folded() -> None:
    attempts = [
        AttemptRow(number=number, started_at=one.started_at, ended_at=one.ended_at, duration_us=1)
        for number, one in enumerate((row("step", 0, 1), row("step", 3601, 3602)), 1)
    ]
    step = row("step", 0, 3602, attempts=2, attempt_rows=tuple(attempts))
    scale = Scale([step], NOW)
    assert re.findall('class="([a-z]+ [a-z]+)"', str(scale.bar(step))) == [
        "around done",
        "worked failed",
        "worked done",
    ]
    assert [fold.seconds for fold in scale.folds] == [3600]


def test_what_has_not_ended_reaches_to_now() -> None:
    done, open_ = row("step", 0, 5), row("step", 5, None, state="running")
    scale = Scale([done, open_], START + dt.timedelta(seconds=10))
    assert extent(scale, open_) == (500.0, 1000.0)


def test_rows_without_times_have_no_bar() -> None:
    assert Scale([], NOW).bar(Row(kind="step", name="x")) == ""
    alone = row("step", 3, 3)
    assert Scale([alone], NOW).bar(alone) == ""


kinds = st.sampled_from(["step", "effect", "ask", "gap", "loop", "turns", "log", "sleep", "skipped"])
rows = st.lists(st.tuples(kinds, st.integers(0, 10**6), st.none() | st.integers(0, 10**6)), min_size=1, max_size=30)


@given(rows)
def test_every_bar_is_inside_the_picture_and_order_is_kept(given_rows: list[tuple[str, int, int | None]]) -> None:
    made = [row(kind, start, None if length is None else start + length) for kind, start, length in given_rows]
    scale = Scale(made, NOW)
    moments = sorted(one.started_at for one in made if one.started_at is not None)
    places = [scale.x(moment) for moment in moments]
    assert places == sorted(places)
    for one in made:
        if scale.bar(one):
            start, end = extent(scale, one)
            assert 0 <= start <= end <= WIDTH + 0.2
