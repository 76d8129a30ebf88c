"""The bars of a timeline: one time scale for all rows, on which long idle time is folded.

Time in which something was executing is drawn to scale. A longer stretch without work has a fixed width, so that three
days of waiting do not hide three seconds of work. Short idle time is drawn to scale as well, so a step
of some microseconds does not look like one of seconds.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import Final, NamedTuple

from markupsafe import Markup

from holdfast.inspect.views import Row

WIDTH: Final = 1000
_HEIGHT: Final = 16
_THIN: Final = 4
_TICK: Final = 5
"""The least width of a bar."""
_IDLE_SHARE: Final = 0.15
"""How wide a folded stretch is, as a part of all work."""
_IDLE_SHARE_ALL: Final = 0.6
_IDLE_S: Final = 0.1
_FOLDED_S: Final = 60.0
"""Idle time, and rows that stand for several others, are drawn to scale up to these lengths, even beside less work."""
_WAITS: Final = frozenset({"ask", "sleep", "wait", "child", "gap", "breakpoint"})
_AROUND: Final = frozenset({"loop", "map", "gather", "turn", "turns", "stage", "stages", "rollback", "skipped"})
_FOLDED: Final = frozenset({"turns", "stages", "skipped"})
_OPEN: Final = frozenset({"waiting", "running", "in_doubt"})

STRIPES: Final = Markup(
    '<svg class="defs" width="0" height="0" aria-hidden="true" focusable="false"><defs>'
    '<pattern id="stripes" width="22" height="16" patternUnits="userSpaceOnUse">'
    '<rect class="stripe" width="11" height="16"/></pattern></defs></svg>'
)
"""The pattern of bars that show waiting; once in a page."""


Interval = tuple[dt.datetime, dt.datetime]


class _Stretch(NamedTuple):
    """A part of the scale between two moments."""

    start: dt.datetime
    seconds: float
    is_busy: bool
    is_folded: bool
    """Whether a row stands for it that folds several others."""


class Fold(NamedTuple):
    """A stretch of idle time that is drawn narrower than it was."""

    x: float
    width: float
    seconds: float


class Scale:
    """The time scale of some rows."""

    def __init__(self, rows: Sequence[Row], now: dt.datetime) -> None:
        self._now = now
        spans = [(row, *span) for row in rows if (span := self._span(row)) is not None]
        attempts = {id(row): attempt_spans(row) for row, *_ in spans}
        moments = sorted({moment for row, *ends in spans for moment in (*ends, *chain(*attempts[id(row)]))})
        worked = [(row, start, end) for row, start, end in spans if row.kind not in _WAITS | _AROUND]
        busy = _joined([span for row, start, end in worked for span in attempts[id(row)] or [(start, end)]])
        folded = _joined([(start, end) for row, start, end in spans if row.kind in _FOLDED])
        self._stretches = [
            _Stretch(one, (two - one).total_seconds(), _is_inside(one, busy), _is_inside(one, folded))
            for one, two in pairwise(moments)
        ]
        self._moments = moments
        widths = self._widths()
        total = sum(widths) or 1.0
        self._xs = [0.0, *(width / total * WIDTH for width in accumulate(widths))]
        self._widths_of = [width / total * WIDTH for width in widths]

    def _span(self, row: Row) -> Interval | None:
        if row.started_at is None:
            return None
        end = row.ended_at or (self._now if row.state in _OPEN else row.started_at)
        start = row.started_at
        if row.kind == "effect" and row.attempts == 1 and row.ended_at is not None and row.duration_us is not None:
            start = max(start, end - dt.timedelta(microseconds=row.duration_us))  # without the time of its records
        return start, max(end, start)

    def _widths(self) -> list[float]:
        """The widths of the stretches, in any unit."""
        busy_s = sum(one.seconds for one in self._stretches if one.is_busy)
        idle = [one.seconds for one in self._stretches if not one.is_busy]
        if not idle:
            return [one.seconds for one in self._stretches]
        if not busy_s:
            most = max(idle)
            return [max(one.seconds, most / 10) for one in self._stretches]
        most = max(busy_s, _FOLDED_S)
        folded_s = sum(min(one.seconds, most) for one in self._stretches if one.is_folded and not one.is_busy)
        longest = max(_IDLE_S, (busy_s + folded_s) * min(_IDLE_SHARE, _IDLE_SHARE_ALL / len(idle)))
        return [
            one.seconds if one.is_busy else min(one.seconds, most if one.is_folded else longest)
            for one in self._stretches
        ]

    @property
    def is_empty(self) -> bool:
        """Whether no row has a duration."""
        return not self._stretches

    @property
    def folds(self) -> list[Fold]:
        """The stretches that are drawn narrower than to scale."""
        busy_s = sum(one.seconds for one in self._stretches if one.is_busy)
        busy_x = sum(width for one, width in zip(self._stretches, self._widths_of, strict=True) if one.is_busy)
        if not busy_s:
            return []
        per_second = busy_x / busy_s
        found = zip(self._stretches, self._xs, self._widths_of, strict=False)
        return [Fold(x, width, one.seconds) for one, x, width in found if one.seconds * per_second > 2 * width]

    def x(self, moment: dt.datetime) -> float:
        """The place of a moment on the scale."""
        at = bisect_right(self._moments, moment) - 1
        if at < 0:
            return 0.0
        if at >= len(self._stretches):
            return self._xs[-1] if self._stretches else 0.0
        stretch = self._stretches[at]
        part = (moment - stretch.start).total_seconds() / stretch.seconds if stretch.seconds else 0.0
        return self._xs[at] + part * self._widths_of[at]

    def bar(self, row: Row) -> Markup:
        """The bar of a row; empty if its time is not known."""
        span = self._span(row)
        if span is None or self.is_empty:
            return Markup()
        attempts = attempt_spans(row)
        kind = "around" if row.kind in _AROUND or attempts else "waited" if row.kind in _WAITS else "worked"
        frame = self._rect(kind, row.state, span)
        for number, attempt in enumerate(attempts, 1):
            state = row.state if number == row.attempts else "failed"
            frame += self._rect("worked", state, attempt)
        return Markup(
            '<svg class="bar" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
            "{}</svg>"
        ).format(WIDTH, _HEIGHT, frame)

    def _rect(self, kind: str, state: str, span: Interval) -> Markup:
        start, end = self.x(span[0]), self.x(span[1])
        width = max(_TICK, end - start)
        height = _THIN if kind == "around" else _HEIGHT - 4
        fill = Markup(' fill="url(#stripes)"') if kind == "waited" else ""
        return Markup('<rect class="{} {}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"{}/>').format(
            kind, state, min(start, WIDTH - width), (_HEIGHT - height) / 2, width, height, fill
        )


def attempt_spans(row: Row) -> list[Interval]:
    """When the attempts of a row were executing; empty if it was not retried, or if that is not recorded."""
    found = [(one.started_at, one.ended_at) for one in row.attempt_rows]
    spans = [(start, end) for start, end in found if start is not None and end is not None]
    return spans if len(spans) == len(found) else []


def _joined(spans: list[Interval]) -> list[Interval]:
    """Intervals in order, with overlapping ones joined."""
    found: list[Interval] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif end > start:
            found.append((start, end))
    return found


def _is_inside(moment: dt.datetime, spans: list[Interval]) -> bool:
    at = bisect_right(spans, (moment, dt.datetime.max.replace(tzinfo=dt.UTC))) - 1
    return at >= 0 and spans[at][0] <= moment < spans[at][1]
