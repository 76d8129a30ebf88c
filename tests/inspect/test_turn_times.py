"""Turns of a loop begin with their first call and enclose everything in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.inspect.timeline import fold_turns, timeline
from holdfast.inspect.timeline_page import read_newest
from holdfast.inspect.views import Row
from holdfast.operations.store import Store
from holdfast.store.memory import MemoryStore
from holdfast.testing import ManualClock

US = 1_000_000


class Recorder:
    """A journal that is written entry by entry, at times that the test chooses."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Store(MemoryStore(self.clock), clock=self.clock)
        self.began_us = self.clock.now_us()
        self.add(0, kind="started", workflow="work", version=1, args=[], kwargs={})

    def add(self, after_s: float, **entry: Any) -> None:
        """Append an entry, so many seconds after the one before."""
        self.clock.advance(after_s)
        self.store.append("r", [entry])

    def add_turns(self, count: int) -> None:
        """A loop whose turns have a step of one second and half a second between the steps."""
        self.add(1, kind="loop", call="loop#1")
        for turn in range(1, count + 1):
            step = {"call": f"slow#{turn}", "in": f"loop#1[{turn}]", "us": US, "result": turn, "digest": "d"}
            self.add(1.5, kind="step", **step)
            self.add(0.25, kind="turn", loop="loop#1", turn=turn)

    def times(self, row: Row) -> tuple[float, float]:
        """When a row starts and ends, in seconds."""
        assert row.started_at is not None
        assert row.ended_at is not None
        start, end = ((at.timestamp() * US - self.began_us) / US for at in (row.started_at, row.ended_at))
        assert row.duration_us == pytest.approx((end - start) * US, abs=1)
        return round(start, 3), round(end, 3)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    found = Recorder()
    yield found
    found.store.close()


def test_a_turn_begins_with_its_first_call_and_ends_with_its_own_entry(recorder: Recorder) -> None:
    recorder.add_turns(3)
    rows = timeline(recorder.store, "r").rows
    assert [(row.kind, recorder.times(row)) for row in rows if row.kind in ("turn", "step")] == [
        ("turn", (1.5, 2.75)), ("step", (1.5, 2.5)),
        ("turn", (3.25, 4.5)), ("step", (3.25, 4.25)),
        ("turn", (5.0, 6.25)), ("step", (5.0, 6.0)),
    ]  # fmt: skip


def test_folded_turns_cover_all_from_the_begin_of_the_first_to_the_end_of_the_last(recorder: Recorder) -> None:
    recorder.add_turns(3)
    (turns,) = [row for row in fold_turns(timeline(recorder.store, "r").rows) if row.kind == "turns"]
    assert (turns.name, recorder.times(turns)) == ("turns 1 to 3", (1.5, 6.25))
    (turns,) = [row for row in read_newest(recorder.store, "r").timeline.rows if row.kind == "turns"]
    assert recorder.times(turns) == (1.5, 6.25)


def test_the_turn_that_a_break_ends_encloses_its_steps(recorder: Recorder) -> None:
    recorder.add_turns(1)
    recorder.add(3, kind="step", call="slow#2", us=2 * US, result=2, digest="d", **{"in": "loop#1[2]"})
    recorder.add(0, kind="completed", result=2)
    last = next(row for row in timeline(recorder.store, "r").rows if row.name == "turn 2")
    assert last.started_at is not None
    assert round(last.started_at.timestamp() - recorder.began_us / US, 3) == 3.75


def test_a_turn_without_calls_begins_when_the_one_before_it_ended(recorder: Recorder) -> None:
    recorder.add_turns(1)
    recorder.add(4, kind="turn", loop="loop#1", turn=2)
    last = next(row for row in timeline(recorder.store, "r").rows if row.name == "turn 2")
    assert recorder.times(last) == (2.75, 6.75)
