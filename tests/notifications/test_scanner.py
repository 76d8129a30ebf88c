"""A scanner reads little when little happens, and finds what it cannot expect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import StorageFailed
from holdfast.model.rows import GateRow
from holdfast.notifications.events import Event
from holdfast.notifications.scanner import Memory, Scanner, Sweep
from tests.harness import ShiftedClock, until
from tests.notifications.flows import register
from tests.notifications.many import fill


class Watched:
    """A scanner, and how many rows it reads."""

    def __init__(self, app: holdfast.App, monkeypatch: pytest.MonkeyPatch, sweep_s: float = 10_000.0) -> None:
        self.rows = 0
        self.events: list[Event] = []
        self.port = app.store.port
        for name in ("gates", "runs", "rows"):
            monkeypatch.setattr(self.port, name, self._counted(getattr(self.port, name)))

        def announce(event: Event, workflow: str) -> int:
            self.events.append(event)
            return 1

        self.scanner = Scanner(
            app.store, announce, lead_us=0, watch_gates=True, failed_since_us=lambda: 0, sweep_s=sweep_s
        )

    def _counted(self, read: Any) -> Any:
        def counted(*given: Any, **options: Any) -> Any:
            found = read(*given, **options)
            self.rows += len(found)
            return found

        return counted


@pytest.fixture
def app(tmp_path: Path, clock: ShiftedClock) -> Iterator[holdfast.App]:
    with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}", clock=clock) as store, holdfast.App(store) as app:
        yield register(app)


def test_what_is_known_is_not_read_again_in_each_step(
    app: holdfast.App, clock: ShiftedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(app.store, gates=1_100, failures=2_300)
    clock.advance(3600)
    watched = Watched(app, monkeypatch)
    for _ in range(10_000):
        watched.scanner.step()
        if len(watched.events) == 3_400:
            break
    assert len(watched.events) == 3_400
    watched.scanner.step()  # each sweep ends with the step after its last page at the latest
    watched.rows = 0
    for _ in range(20):
        watched.scanner.step()
    assert watched.rows <= 20 * 100, "only the newest failed runs"
    app.start("asks", run_id="new")
    app.start("fails", run_id="bad")
    before = watched.rows
    watched.scanner.step()
    assert [event.run_id for event in watched.events[3_400:]] == ["new", "bad"]
    assert watched.rows < before + 300


def test_a_gate_that_was_committed_late_is_found_by_the_sweep(
    app: holdfast.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(app, monkeypatch, sweep_s=0.0)
    app.start("asks", run_id="a")
    watched.scanner.step()
    watched.scanner._newest_us += 10**12  # as if all later gates had older times
    app.start("asks", run_id="late")
    until(lambda: bool(watched.scanner.step()), "the sweep found it")
    assert [event.run_id for event in watched.events] == ["a", "late"]


def test_a_reassigned_gate_is_found_by_the_sweep(app: holdfast.App, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(app, monkeypatch, sweep_s=0.0)
    app.start("asks", "Pay?", {"who": ["ana"]}, run_id="a")
    watched.scanner.step()
    app.reassign("a", "ben", by="ana")
    until(lambda: bool(watched.scanner.step()), "the sweep found it")
    assert [event.who for event in watched.events if event.event == "gate_escalated"] == [("ben",)]


def test_the_failure_of_an_old_run_is_found_by_the_sweep(app: holdfast.App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.workflow
    def later_fails(run: holdfast.Run) -> None:
        run.ask("Go on?", bool)
        raise ValueError

    app.start(later_fails, run_id="old")
    fill(app.store, gates=0, failures=1_200)
    watched = Watched(app, monkeypatch, sweep_s=0.0)
    watched.scanner.read_all()
    app.answer("old", True)

    def is_found() -> bool:
        watched.scanner.step()
        return ("run_failed", "old") in [(event.event, event.run_id) for event in watched.events]

    until(is_found, "the sweep found it")


def test_an_error_in_the_middle_loses_nothing(
    app: holdfast.App, clock: ShiftedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.start("asks", "Pay?", {"who": ["ana"], "escalate": [(60, ["ben"])]}, run_id="a")
    watched = Watched(app, monkeypatch)
    watched.scanner.step()
    clock.advance(61)
    inner, failing = watched.port.rows, [True]

    def rows(kind: type[Any], *given: Any, **options: Any) -> Any:
        if kind is GateRow and failing[0]:
            raise StorageFailed("away")
        return inner(kind, *given, **options)

    monkeypatch.setattr(watched.port, "rows", rows)
    with pytest.raises(StorageFailed):
        watched.scanner.step()
    failing[0] = False
    watched.scanner.step()
    assert [event.who for event in watched.events if event.event == "gate_escalated"] == [("ben",)]


def test_a_sweep_that_fails_begins_again() -> None:
    calls = []

    def pages() -> Iterator[int]:
        calls.append("begin")
        yield 1
        if len(calls) < 3:
            raise StorageFailed("away")

    sweep = Sweep(pages, 10_000)
    for _ in range(2):
        with pytest.raises(StorageFailed):
            sweep.advance()
    assert sweep.advance() == 1
    assert sweep.advance() == 0
    assert len(calls) == 3


def test_what_is_not_seen_for_a_whole_sweep_is_forgotten() -> None:
    memory = Memory()
    memory.remember("a", 1)
    memory.remember("b", 1)
    memory.turn()
    assert memory.is_known("a", 1)
    assert not memory.is_known("a", 2)
    memory.turn()
    assert memory.is_known("a", 1)
    assert not memory.is_known("b", 1)


def test_a_damaged_gate_does_not_stop_the_others(
    app: holdfast.App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import apsw

    app.start("asks", run_id="a")
    app.start("asks", run_id="b")
    db = apsw.Connection(str(tmp_path / "runs.db"))
    db.execute("UPDATE gates SET body = x'00ff' WHERE run = (SELECT run FROM runs WHERE run_id = 'a')")
    db.close()
    watched = Watched(app, monkeypatch)
    watched.scanner.step()
    watched.scanner.step()
    assert [event.run_id for event in watched.events] == ["b"]
    assert caplog.text.count("cannot be announced") == 1
