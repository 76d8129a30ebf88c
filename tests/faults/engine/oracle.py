"""What must be true of a run whose processes were killed, told by the world's own file and by the journal."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections import Counter
from typing import Any, Final, NamedTuple

import holdfast
from holdfast.model.rows import EffectRow, GateRow, TimerRow
from tests.faults.core.report import Figures
from tests.faults.engine import everything as story
from tests.faults.engine import world
from tests.faults.engine.lives import Case

PROBLEMS: Final = ("repeated", "unannounced", "doubt", "wrong_result", "stranded", "unsound", "stuck", "failed")
_FINAL: Final = ("step", "outcome", "answered", "received", "sent", "child_ended", "value", "loop", "saved")
_RUNS: Final = ("", story.KID, story.ASKER)


class Picture(NamedTuple):
    """What stands in the world's file and in the journals, between two lives."""

    lines: list[world.Line]
    entries: dict[str, list[dict[str, Any]]]
    """By what the run's id has behind the case's."""

    def of(self, call: str, run: str = "") -> list[str]:
        """The kinds of a call's entries."""
        return [entry["kind"] for entry in self.entries.get(run, []) if name_of(entry) == call]


def name_of(entry: dict[str, Any]) -> str:
    """A call's full name."""
    return f"{entry['in']}/{entry['call']}" if "in" in entry else str(entry.get("call", ""))


def picture(store: holdfast.Store, case: Case, runs: tuple[str, ...] = _RUNS) -> Picture:
    """Look."""
    entries = {}
    for run in runs:
        if store.port.run(case.run_id + run) is not None:
            entries[run] = [{**entry.data, "kind": entry.kind} for entry in store.journal(case.run_id + run)]
    return Picture(world.lines(case.place), entries)


class Oracle:
    """Follows one case through its lives."""

    def __init__(self, case: Case, figures: Figures, store: holdfast.Store) -> None:
        self._case = case
        self._figures = figures
        self._store = store
        self._before = Picture([], {})
        self._in_doubt = 0
        """After how many lives the effect that a person is asked about was in doubt."""

    def problem(self, kind: str, words: str) -> None:
        self._figures.problem(kind, f"{self._case}: {words}")

    def look(self) -> None:
        """After a life: what had been finished before it was not done again in it."""
        before, after = self._before, picture(self._store, self._case)
        new = Counter((line.kind, line.name, line.arg) for line in after.lines[len(before.lines) :])
        for (run, call), (name, arg) in story.STEPS.items():
            allowed = 0 if "step" in before.of(call, run) else 2 if name == "flaky" else 1
            if new["step", name, arg] > allowed:
                self.problem("repeated", f"step {run}{call} ran {new['step', name, arg]} times, allowed {allowed}")
        for call, effect in story.EFFECTS.items():
            allowed = 0 if "outcome" in before.of(call) else 1
            times = new["effect", effect.name, effect.arg]
            if times > allowed:
                self.problem("repeated", f"effect {call} was performed {times} times, allowed {allowed}")
            if times and "intent" not in after.of(call):
                self.problem("unannounced", f"effect {call} was performed and its intent is not recorded")
        kinds = after.of("pay#1")
        self._in_doubt += bool(kinds) and kinds[-1] == "intent"
        self._before = after

    def end(self) -> None:
        """After the last life: the run has ended as if nothing had happened."""
        row = self._store.port.run(self._case.run_id)
        entries = self._before.entries.get("", [])
        if row is None or row.status != "completed":
            last = entries[-1] if entries else None
            self.problem("stranded", f"the run is {row.status if row else 'not there'}; last entry {last}")
            return
        self._check_result(entries)
        self._check_effects()
        self._check_journals()
        self._check_box()

    def _check_result(self, entries: list[dict[str, Any]]) -> None:
        result = entries[-1]["result"]
        found = {name: result[name] for name in story.RESULT}
        if found != story.RESULT:
            self.problem("wrong_result", f"{found}")
        drawn = {entry["call"]: entry["value"] for entry in entries if entry["kind"] == "value"}
        wanted = {
            "now": dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=drawn["now#1"]),
            "chance": random.Random(drawn["random#1"]).random(),
            "uuid": str(uuid.UUID(bytes=drawn["uuid#1"], version=4)),
        }
        if any(result[name] != value for name, value in wanted.items()):
            self.problem("wrong_result", f"{result} does not go with what was drawn: {wanted}")
        if world.deposits(self._case.place) != [9]:
            self.problem("repeated", f"the account has got {world.deposits(self._case.place)}")

    def _check_effects(self) -> None:
        lines = self._before.lines
        keys: set[str] = set()
        for call, effect in story.EFFECTS.items():
            done = [line for line in lines if line[:3] == ("effect", effect.name, effect.arg)]
            most = self._case.lives if effect.policy == "retry" else 1
            if not 1 <= len(done) <= most:
                self.problem("repeated", f"effect {call} ({effect.policy}) was performed {len(done)} times in all")
            if len({line.key for line in done}) != 1 or not done[0].key:
                self.problem("repeated", f"effect {call} had the keys {[line.key for line in done]}")
            keys.update(line.key for line in done)
        if len(keys) != len(story.EFFECTS):
            self.problem("repeated", "two effects had the same idempotency key")
        asked = self._before.of("pay#1").count("asked")
        if bool(asked) != bool(self._in_doubt):
            self.problem("doubt", f"a person was asked {asked} times, it was in doubt {self._in_doubt} times")
        row = self._store.port.run(self._case.run_id)
        assert row is not None
        states = Counter(effect.state for effect in self._store.port.rows(EffectRow, row.run))
        if states != {"done": len(story.EFFECTS) + 1}:
            self.problem("unsound", f"the ledger says {dict(states)}")

    def _check_journals(self) -> None:
        for run in _RUNS:
            entries = self._before.entries.get(run, [])
            finals = Counter((name_of(entry), entry["kind"]) for entry in entries if entry["kind"] in _FINAL)
            finals += Counter(("", entry["kind"]) for entry in entries if entry["kind"] in ("completed", "log"))
            twice = [name for name, count in finals.items() if count > 1 and name[1] != "answered"]
            if twice or not finals["", "completed"]:
                self.problem("repeated", f"the journal of {run or 'the run'} has {twice or 'no end'}")
            row = self._store.port.run(self._case.run_id + run)
            if row is None or row.status != "completed" or row.owner:
                self.problem("stranded", f"{run or 'the run'} is {row}")
                continue
            left = [gate.gate for gate in self._store.port.rows(GateRow, row.run) if gate.state == "open"]
            left += [timer.timer for timer in self._store.port.rows(TimerRow, row.run)]
            if left:
                self.problem("stranded", f"{run or 'the run'} has ended and left open {left}")
        wanted = set(story.STEPS)
        found = {(run, name_of(e)) for run in _RUNS for e in self._before.entries[run] if e["kind"] == "step"}
        if wanted != found:
            self.problem("wrong_result", f"steps recorded: {sorted(found)}")

    def _check_box(self) -> None:
        run_id = f"{self._case.run_id}-box"
        kinds = [entry.kind for entry in self._store.journal(run_id)]
        row = self._store.port.run(run_id)
        if row is None or row.status != "completed" or kinds.count("received") != 1:
            self.problem("stranded", f"what was sent did not arrive once: {row.status if row else None}, {kinds}")
