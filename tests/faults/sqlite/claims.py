"""Claims: never two owners' writes accepted, nothing lost, every run completed exactly once.

Eight processes contend for the same runs with short leases. A nemesis stops them (SIGSTOP) for longer than their lease
and lets them go on, and kills some. What they were granted and told is kept in a ledger outside the store. At the end
each run's own journal is the witness: entries carry the writer's fence, which must never fall; each step is there once;
whatever was acknowledged is there. Then, without a nemesis, claims are contested as fast as they can be (`contested`).
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import holdfast
from tests.faults.core.report import Figures
from tests.faults.core.scratch import child, kill, reap, scratch
from tests.faults.sqlite import claim_races
from tests.faults.sqlite.mutants import mutated

MUTANTS: Final = {"no_fence": ("stale_writes", "repeated"), "claims_not_exclusive": ("double_owners",)}

_WORKERS: Final = 8
_STEPS: Final = 6
_LEASE_S: Final = 0.2
_THINK_S: Final = 0.03
_OPEN_RUNS: Final = 12
"""So many runs are kept unfinished while the nemesis works."""
_STOPPED_MAX: Final = 4
_DRAIN_S: Final = 60.0


def run(seconds: float, seed: int, mutant: str | None = None) -> Figures:
    """Contend for about so long, three quarters of it with the nemesis."""
    figures = Figures("claims", seed, mutant)
    figures.expect(
        "runs", "grants", "take_overs", "stops", "kills", "refused_stale_writes", "recovered", "acknowledged"
    )
    figures.expect("contested_claims", "claims_per_s", "double_owners", "stale_writes", "repeated", "lost", "failed")
    with mutated(mutant):
        with scratch() as place:
            if mutant != "claims_not_exclusive":
                _Arena(place, seed, figures).run(seconds * 0.75)
        if mutant != "no_fence":
            with scratch(fast=True) as place:
                claim_races.run(place, seconds * 0.25, figures)
    return figures


class _Arena:
    """The runs, the workers and the nemesis."""

    def __init__(self, place: Path, seed: int, figures: Figures) -> None:
        self._url = f"sqlite:{place / 'runs.db'}"
        self._ledger = place / "ledger"
        self._stop = place / "stop"
        self._made = place / "made"
        """Is there once no more runs will be made."""
        self._chance = random.Random(f"{seed} nemesis")
        self._figures = figures
        self._workers: list[int] = []
        self._stopped: dict[int, float] = {}
        """Workers that are stopped, and when they are to go on."""
        self._started = 0

    def run(self, seconds: float) -> None:
        maker = child(self._make_runs)
        try:
            for _ in range(_WORKERS):
                self._start()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                self._torment()
            self._wake(later_than=None)
            self._stop.touch()
            self._drain(maker)
        finally:
            for pid in (maker, *self._workers):
                kill(pid)
        _Witness(self._url, self._ledger.read_text(), self._figures).check()

    def _make_runs(self) -> None:
        """See to it that there are unfinished runs. This process is never stopped or killed."""
        ledger = _Ledger(self._ledger)
        number = 0
        with holdfast.open(self._url) as store:
            while not self._stop.exists():
                for _ in range(_OPEN_RUNS - len(store.runs(status=("ready", "running"), limit=100))):
                    store.save(f"run {number}", {"step": 0, "fence": 0})
                    number += 1
                    ledger.note("K", number)
                time.sleep(0.05)
        self._made.touch()

    def _start(self) -> None:
        name = f"worker {self._started}"
        self._started += 1
        self._workers.append(child(lambda: _Worker(name, self._url, self._ledger, self._made).run()))

    def _torment(self) -> None:
        """Stop one worker for a while, or kill it and start another; let those go on whose time has come."""
        time.sleep(self._chance.uniform(0, 0.03))
        self._wake(later_than=time.monotonic())
        pid = self._chance.choice(self._workers)
        if self._chance.random() < 0.04:
            kill(pid)
            self._workers.remove(pid)
            self._stopped.pop(pid, None)
            self._figures.add("kills")
            self._start()
        elif pid not in self._stopped and len(self._stopped) < _STOPPED_MAX:
            os.kill(pid, signal.SIGSTOP)
            self._stopped[pid] = time.monotonic() + _LEASE_S * self._chance.choice((0.3, 1.1, 1.3, 2.0))
            self._figures.add("stops")

    def _wake(self, later_than: float | None) -> None:
        for pid, due in list(self._stopped.items()):
            if later_than is None or due <= later_than:
                os.kill(pid, signal.SIGCONT)
                del self._stopped[pid]

    def _drain(self, maker: int) -> None:
        end = time.monotonic() + _DRAIN_S
        for pid in (maker, *self._workers):
            status = reap(pid, max(1.0, end - time.monotonic()))
            if status != 0:
                self._figures.problem("failed", f"a worker ended with {status}")
        self._workers.clear()


class _Ledger:
    """Lines that several processes append to a file outside the store."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, *facts: object) -> None:
        os.write(self._file, ("\n" + " ".join(str(fact).replace(" ", "_") for fact in facts)).encode())


class _Worker:
    """Claims runs and moves each on, step by step, until it is completed or the claim is lost."""

    def __init__(self, name: str, url: str, ledger: Path, made: Path) -> None:
        self._name = name
        self._store = holdfast.open(url)
        self._note = _Ledger(ledger).note
        self._made = made
        self._chance = random.Random(name)

    def run(self) -> None:
        while True:
            all_made = self._made.exists()
            unfinished = self._store.runs(status=("ready", "running"), limit=100)
            if not unfinished:
                if all_made:
                    return
                time.sleep(0.01)
                continue
            if self._chance.random() < 0.1:
                self._note("E", self._store.recover_expired())
            self._work_on(self._chance.choice(unfinished).run_id)

    def _work_on(self, run_id: str) -> None:
        claim = self._store.claim(run_id, self._name, _LEASE_S)
        if claim is None:
            self._note("N")
            time.sleep(self._chance.uniform(0, 0.01))
            return
        self._note("G", run_id, claim.fence, self._name)
        try:
            self._move_on(claim)
        except holdfast.errors.ClaimLost:
            self._note("R", run_id, claim.fence)

    def _move_on(self, claim: holdfast.Claim) -> None:
        done = len(self._store.journal(claim.run_id))
        for step in range(done + 1, _STEPS + 1):
            time.sleep(self._chance.uniform(0, _THINK_S))
            if self._chance.random() < 0.3:
                claim.renew()
            entry = {"kind": "step", "step": step, "fence": claim.fence, "owner": self._name}
            self._note("I", claim.run_id, step, claim.fence)
            claim.append([entry])
            self._note("A", claim.run_id, step, claim.fence)
            claim.save({"step": step, "fence": claim.fence})
            claim.mark_done(f"step {step}", result=claim.fence)
            if self._chance.random() < 0.1:
                claim.release()
                self._note("L", claim.run_id, claim.fence)
                return
        claim.complete()
        self._note("C", claim.run_id, claim.fence)


_NAMES: Final = {
    "K": "runs",
    "G": "grants",
    "R": "refused_stale_writes",
    "N": "contested_claims",
    "A": "acknowledged",
}
"""What the lines of the ledger count."""


class _Witness:
    """Compares the ledger with what the runs themselves say."""

    def __init__(self, url: str, ledger: str, figures: Figures) -> None:
        self._url = url
        self._lines = [line.split() for line in ledger.splitlines() if line]
        self._figures = figures

    def check(self) -> None:
        kinds = Counter(line[0] for line in self._lines)
        for kind, name in _NAMES.items():
            self._figures.add(name, kinds[kind])
        self._figures.add("recovered", sum(int(line[1]) for line in self._lines if line[0] == "E"))
        self._check_grants()
        with holdfast.open(self._url) as store:
            problems = store.verify().problems
            if problems:
                self._figures.problem("lost", f"verify: {problems[:3]}")
            for number in range(int(self._figures.counts["runs"])):
                self._check_run(store, f"run {number}")

    def _check_grants(self) -> None:
        owners: dict[tuple[str, str], str] = {}
        for line in self._lines:
            if line[0] == "G":
                run_id, fence, owner = line[1:]
                if owners.setdefault((run_id, fence), owner) != owner:
                    self._figures.problem("double_owners", f"{run_id} fence {fence}: {owners[run_id, fence]}, {owner}")
        completed = Counter(line[1] for line in self._lines if line[0] == "C")
        for run_id, count in completed.items():
            if count > 1:
                self._figures.problem("repeated", f"{run_id} was completed {count} times")

    def _check_run(self, store: holdfast.Store, run_id: str) -> None:
        row = store.port.run(run_id)
        assert row is not None
        name = run_id.replace(" ", "_")
        given_back = sum(line[0] in "LC" and line[1] == name for line in self._lines)
        self._figures.add("take_overs", max(0, row.fence - max(1, given_back)))
        if row.status != "completed":
            self._figures.problem("lost", f"{run_id} is {row.status}")
        entries = [entry.data for entry in store.journal(run_id)]
        self._check_fences(run_id, "journal", [entry["fence"] for entry in entries])
        infos = list(store.history(run_id))
        saved = [store.load(run_id, checkpoint_id=info.checkpoint_id).state for info in infos]  # type: ignore[union-attr]
        self._check_fences(run_id, "checkpoints", [state["fence"] for state in saved])
        steps = [entry["step"] for entry in entries]
        if len(set(steps)) != len(steps):
            self._figures.problem("repeated", f"{run_id} has the steps {steps}")
        if sorted(set(steps)) != list(range(1, _STEPS + 1)):
            self._figures.problem("lost", f"{run_id} has the steps {steps}")
        self._check_told(name, entries)

    def _check_fences(self, run_id: str, where: str, fences: list[int]) -> None:
        if fences != sorted(fences):
            self._figures.problem("stale_writes", f"{run_id}: the fences in its {where} are {fences}")

    def _check_told(self, name: str, entries: list[dict[str, Any]]) -> None:
        """What was acknowledged is there, and what is there was meant."""
        there = {(str(entry["step"]), str(entry["fence"])) for entry in entries}
        told = {(line[2], line[3]) for line in self._lines if line[0] == "A" and line[1] == name}
        meant = {(line[2], line[3]) for line in self._lines if line[0] == "I" and line[1] == name}
        if told - there:
            self._figures.problem("lost", f"{name}: acknowledged and not there: {sorted(told - there)}")
        if there - meant:
            self._figures.problem("lost", f"{name}: there and never meant: {sorted(there - meant)}")
