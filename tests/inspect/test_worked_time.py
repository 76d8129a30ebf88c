"""Worked, waited and idle: they never overlap, and are never longer than the run is old."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.inspect.calls import FACTS, KINDS, JournalEntry
from holdfast.inspect.idle import Gap, find_gaps, find_work
from holdfast.inspect.timeline import timeline
from holdfast.operations.store import Store
from holdfast.store.memory import MemoryStore
from holdfast.testing import ManualClock

US = 1_000_000


class Place:
    """An app on a clock that a test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Store(MemoryStore(self.clock), clock=self.clock)
        self.app = holdfast.App(self.store)
        self.began_us = self.clock.now_us()

    def check(self, run_id: str = "r") -> tuple[int, int, int]:
        """Worked, waited and idle in whole seconds."""
        seen = timeline(self.store, run_id)
        age_us = self.clock.now_us() - self.began_us
        assert seen.worked_us + seen.idle_us <= age_us
        assert 0 <= seen.waited_us <= seen.idle_us
        return round(seen.worked_us / US), round(seen.waited_us / US), round(seen.idle_us / US)


@pytest.fixture
def place() -> Any:
    found = Place()
    yield found
    found.app.close()
    found.store.close()


def test_an_answer_that_no_worker_has_taken_up_ends_the_wait_for_a_person(place: Place) -> None:
    @place.app.workflow
    def work(run: Any) -> Any:
        return run.ask("ok?", bool)

    place.app.start(work, run_id="r")
    place.clock.advance(10)
    place.app.answer("r", True, by="ana", enqueue=True)
    place.clock.advance(30)
    assert place.check() == (0, 10, 40)
    seen = timeline(place.store, "r")
    assert [(row.kind, row.reason, row.by, row.state) for row in seen.rows[1:]] == [
        ("ask", "", "ana", "done"), ("gap", "person", None, "done"), ("gap", "unclaimed", None, "waiting")
    ]  # fmt: skip


def test_one_of_two_answers_leaves_the_wait_for_the_other(place: Place) -> None:
    @place.app.workflow
    def work(run: Any) -> Any:
        return run.gather(lambda branch: branch.ask("a?", bool), lambda branch: branch.ask("b?", bool))

    place.app.start(work, run_id="r")
    place.clock.advance(10)
    first, second = place.app.gates("r")
    place.app.answer("r", True, by="ana", gate=first.gate, enqueue=True)
    place.clock.advance(30)
    seen = timeline(place.store, "r")
    assert [(row.state, row.by) for row in seen.rows if row.kind == "ask"] == [("done", "ana"), ("waiting", None)]
    assert [(row.reason, row.name) for row in seen.rows if row.kind == "gap"] == [("person", second.gate)]


def test_an_effect_in_doubt_that_a_person_is_asked_about_did_not_work_meanwhile(place: Place) -> None:
    """Seen: worked 37.0 s of a run 51.8 s old that was idle for 51.2 s."""

    def pay() -> str:
        raise ConnectionResetError("the line was cut")

    @place.app.workflow
    def work(run: Any) -> Any:
        return run.effect(pay)

    place.app.start(work, run_id="r")
    assert place.app.gates("r"), "it asks what became of it"
    place.clock.advance(37)
    (gate,) = place.app.gates("r")
    place.app.answer("r", {"outcome": "happened", "result": "receipt"}, gate=gate.gate)
    assert place.app.handle("r").status() == "completed"
    assert place.check() == (0, 37, 37)


def test_gates_timers_children_and_retries_are_waited_for_not_worked(place: Place) -> None:
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("not yet")
        return 7

    @place.app.workflow
    def child(run: Any) -> Any:
        return run.ask("well?", bool)

    @place.app.workflow
    def work(run: Any) -> Any:
        run.ask("go?", bool)
        run.sleep(100)
        run.step(flaky, retry=holdfast.Retry(attempts=3, initial_delay=60, jitter=0))
        return run.child(child, key="c")

    place.app.start(work, run_id="r")
    place.clock.advance(10)
    assert place.check() == (0, 10, 10)
    place.app.answer("r", True)
    place.clock.advance(100)
    place.app.resume("r")
    assert place.check() == (0, 110, 110)
    place.clock.advance(60)
    place.app.resume("r")
    place.clock.advance(1000)
    assert place.check() == (0, 1170, 1170)
    (gate,) = place.app.gates()
    place.app.answer(gate.run_id, True)
    assert place.app.handle("r").status() == "completed"
    assert place.check() == (0, 1170, 1170)


def test_a_fork_counts_only_its_own_time(place: Place) -> None:
    @place.app.workflow
    def work(run: Any) -> Any:
        return run.ask("go?", bool)

    place.app.start(work, run_id="source")
    place.clock.advance(500)
    place.began_us = place.clock.now_us()
    place.app.fork("source", "r")
    place.clock.advance(3)
    assert place.check()[2] <= 3


KIND = st.sampled_from(sorted({*KINDS, *FACTS, "turn", "rolled_back", "forked"}))
SECOND = st.integers(-5, 60).map(lambda s: s * US // 2)
ENTRY = st.fixed_dictionaries(
    {"after": SECOND, "kind": KIND, "call": st.sampled_from(["a", "b", "c"])},
    optional={
        "us": st.integers(-US, 90 * US),
        "due": st.integers(-60, 120).map(lambda s: s * US),
        "at": st.integers(-60, 120).map(lambda s: s * US),
        "detached": st.booleans(),
    },
)


def journal(entries: list[dict[str, Any]]) -> list[JournalEntry]:
    """Entries with times that mostly grow; a clock may also go back."""
    now_us, found = 1_000 * US, []
    for position, entry in enumerate(entries, 1):
        now_us += entry["after"]
        data = {"call": entry["call"]} | ({"us": entry["us"]} if "us" in entry else {})
        data |= {"due_us": now_us + entry["due"]} if "due" in entry else {}
        data |= {"at_us": now_us + entry["at"]} if "at" in entry else {}
        data |= {"detached": entry["detached"]} if "detached" in entry else {}
        found.append(JournalEntry(position, entry["kind"], now_us, data))
    return found


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ENTRY, min_size=1, max_size=12), st.integers(-10, 100), st.booleans(), st.booleans())
def test_in_random_journals_no_gap_overlaps_another_or_any_work(
    entries: list[dict[str, Any]], later: int, ended: bool, held: bool
) -> None:
    met = journal(entries)
    now_us = met[-1].created_us + later * US
    work, gaps = find_work(met), find_gaps(met, now_us, ended=ended, held=held)
    spans = sorted([*work, *((gap.start_us, _end(gap, now_us)) for gap in gaps)])
    assert all(start <= end for start, end in spans)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert all(gap.start_us >= min(each.created_us for each in met) for gap in gaps)


def _end(gap: Gap, now_us: int) -> int:
    return now_us if gap.end_us is None else gap.end_us
