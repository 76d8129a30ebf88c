"""PostgreSQL: clients are killed and stopped, the server crashes, connections are cut, answers to commits are lost.

Eight processes claim runs, alone and in batches, and move them on; all they say to the server goes through a proxy that
cuts connections and swallows answers. Meanwhile the server is ended at once and started again. What the workers were
granted and told is kept in a ledger outside the store, and at the end each run's own journal is the witness: whatever
was acknowledged is there, every step is there once, fences never fall, every run is completed, and nobody hangs.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import holdfast
from holdfast.store.postgres.transaction import Transaction
from tests.faults.core.report import Figures
from tests.faults.core.scratch import child, kill, reap, scratch
from tests.faults.sqlite.mutants import mutated
from tests.store.postgres.proxy import Proxy
from tests.store.postgres.server import Server, running

MUTANTS: Final = {
    "asynchronous_commit": ("lost",),
    "no_fence": ("stale_writes", "repeated"),
    "retried_without_a_look": ("repeated",),
}

_WORKERS: Final = 8
_STEPS: Final = 6
_LEASE_S: Final = 0.4
_OPEN_RUNS: Final = 16
_STOPPED_MAX: Final = 3
_CRASH_EVERY_S: Final = 1.2
_DRAIN_S: Final = 60.0
_HUNG_S: Final = 30.0
"""No call may take as long, whatever happens."""


def run(seconds: float, seed: int, mutant: str | None = None) -> Figures:
    """Torment for about so long, then let everybody finish."""
    figures = Figures("pg_chaos", seed, mutant)
    figures.expect(
        "runs", "grants", "acknowledged", "crashes", "kills", "stops", "storage_errors", "refused_stale_writes"
    )
    figures.expect("lost", "repeated", "stranded", "double_owners", "stale_writes", "hung", "failed")
    # A crash of the server takes nothing from the machine's page cache, so not syncing only makes this faster.
    settings = {"fsync": "off", "synchronous_commit": "off" if mutant == "asynchronous_commit" else "on"}
    if mutant == "asynchronous_commit":
        settings["wal_writer_delay"] = "10s"
    with mutated(mutant), _without_looks(mutant), running(settings=settings) as server, scratch() as place:
        _Arena(server, place, seed, figures).run(seconds)
    return figures


@contextlib.contextmanager
def _without_looks(mutant: str | None) -> Iterator[None]:
    """After a lost answer the commit is simply done again."""
    if mutant != "retried_without_a_look":
        yield
        return
    with mock.patch.object(Transaction, "is_stored", return_value=False):
        yield


class _Arena:
    """The server, the workers and those who torment them."""

    def __init__(self, server: Server, place: Path, seed: int, figures: Figures) -> None:
        self._server = server
        self._ledger, self._stop, self._made = place / "ledger", place / "stop", place / "made"
        self._seed = seed
        self._chance = random.Random(f"{seed} nemesis")
        self._figures = figures
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        port = self._listener.getsockname()[1]
        self._url = server.url(port=port, durability="relaxed")
        self._workers: list[int] = []
        self._stopped: dict[int, float] = {}
        self._started = 0

    def run(self, seconds: float) -> None:
        holdfast.open(self._server.url(durability="relaxed")).close()
        with self._server.connect() as connection:
            connection.execute("CHECKPOINT")  # whatever becomes of the runs, their tables stay
        proxy = child(self._pass_on)
        maker = child(self._make_runs)
        try:
            for _ in range(_WORKERS):
                self._start()
            begun = crashed = time.monotonic()
            while (now := time.monotonic()) < begun + seconds:
                if now > crashed + _CRASH_EVERY_S:
                    self._server.crash()
                    time.sleep(self._chance.uniform(0, 0.3))
                    self._server.start()
                    self._figures.add("crashes")
                    crashed = time.monotonic()
                self._torment()
            for pid in self._stopped:
                os.kill(pid, signal.SIGCONT)
            self._stop.touch()
            self._drain(maker)
        finally:
            for pid in (maker, proxy, *self._workers):
                kill(pid)
        _Witness(self._server.url(durability="relaxed"), self._ledger.read_text(), self._figures).check()

    def _pass_on(self) -> None:
        """The proxy: cuts now and then, and swallows the answers to commits. Calm once no more runs are made."""
        proxy, chance = Proxy(self._server.port, self._listener), random.Random(f"{self._seed} proxy")
        while True:
            time.sleep(chance.uniform(0, 0.05))
            if self._stop.exists():
                continue
            if chance.random() < 0.1:
                proxy.cut()
            elif chance.random() < 0.5:
                proxy.swallow(chance.choice((b"COMMIT", b"COMMIT", b"\x00save_one\x00")))
            else:
                proxy.block(chance.choice((b"COMMIT", b"\x00save_one\x00")))

    def _make_runs(self) -> None:
        """See to it that there are unfinished runs. This process is never stopped or killed."""
        note, number = _note_to(self._ledger), 0
        with holdfast.open(self._server.url(durability="relaxed")) as store:
            while not self._stop.exists():
                with contextlib.suppress(holdfast.StorageError):
                    for _ in range(_OPEN_RUNS - len(store.runs(status=("ready", "running"), limit=100))):
                        store.save(f"run-{number}", {"step": 0, "fence": 0}, checkpoint_id="first")
                        number += 1
                        note("K")
                time.sleep(0.05)
        self._made.touch()

    def _start(self) -> None:
        name = f"worker-{self._started}"
        self._started += 1
        self._workers.append(child(lambda: _Worker(name, self._url, self._ledger, self._made).run()))

    def _torment(self) -> None:
        """Stop one worker for a while, or kill it and start another; let those go on whose time has come."""
        time.sleep(self._chance.uniform(0, 0.04))
        now = time.monotonic()
        for pid, due in list(self._stopped.items()):
            if due <= now:
                os.kill(pid, signal.SIGCONT)
                del self._stopped[pid]
        pid = self._chance.choice(self._workers)
        if self._chance.random() < 0.08:
            kill(pid)
            self._workers.remove(pid)
            self._stopped.pop(pid, None)
            self._figures.add("kills")
            self._start()
        elif pid not in self._stopped and len(self._stopped) < _STOPPED_MAX:
            os.kill(pid, signal.SIGSTOP)
            self._stopped[pid] = now + _LEASE_S * self._chance.choice((0.5, 1.2, 1.6))
            self._figures.add("stops")

    def _drain(self, maker: int) -> None:
        end = time.monotonic() + _DRAIN_S
        for pid in (maker, *self._workers):
            status = reap(pid, max(1.0, end - time.monotonic()))
            if status is None:
                self._figures.problem("hung", "a worker did not come to its end")
            elif status:
                self._figures.problem("failed", f"a worker ended with {status}")
        self._workers.clear()


def _note_to(path: Path) -> Any:
    """Gives a function that appends a line to the ledger."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    return lambda *facts: os.write(file, ("\n" + " ".join(map(str, facts))).encode())


class _Worker:
    """Claims runs and moves each on, step by step, until it is completed, the claim is lost, or the storage fails."""

    def __init__(self, name: str, url: str, ledger: Path, made: Path) -> None:
        self._name = name
        self._url = url
        self._note = _note_to(ledger)
        self._made = made
        self._chance = random.Random(name)

    def run(self) -> None:
        store: holdfast.Store | None = None
        while True:
            begun = time.monotonic()
            try:
                store = store or holdfast.open(self._url, timeout_s=5)
                if not self._round(store):
                    return
            except (holdfast.StorageError, holdfast.errors.RunNotFound):  # a run that is gone, the witness will miss
                self._note("F")
                time.sleep(0.02)
            self._note("T", round(time.monotonic() - begun, 3))

    def _round(self, store: holdfast.Store) -> bool:
        """Do something; False if there is nothing more to do."""
        all_made = self._made.exists()
        unfinished = store.runs(status=("ready", "running"), limit=100)
        if not unfinished:
            time.sleep(0.02)
            return not all_made
        if self._chance.random() < 0.2:
            store.recover_expired()
        if self._chance.random() < 0.5:
            claims = store.claim_ready(self._name, limit=2, lease=_LEASE_S)
        else:
            found = store.claim(self._chance.choice(unfinished).run_id, self._name, _LEASE_S)
            claims = [found] if found else []
        for claim in claims:
            self._note("G", claim.run_id, claim.fence, self._name)
        for claim in claims:
            try:
                self._move_on(store, claim)
            except holdfast.errors.ClaimLost:
                self._note("R", claim.run_id, claim.fence)
        if not claims:
            time.sleep(self._chance.uniform(0, 0.02))
        return True

    def _move_on(self, store: holdfast.Store, claim: holdfast.Claim) -> None:
        for step in range(len(store.journal(claim.run_id)) + 1, _STEPS + 1):
            time.sleep(self._chance.uniform(0, 0.02))
            if self._chance.random() < 0.3:
                claim.renew()
            self._note("I", claim.run_id, step, claim.fence)
            claim.append([{"kind": "step", "step": step, "fence": claim.fence, "owner": self._name}])
            self._note("A", claim.run_id, step, claim.fence)
            claim.save({"step": step, "fence": claim.fence})
            claim.mark_done(f"step {step}", result=claim.fence)
            if self._chance.random() < 0.1:
                claim.release()
                return
        claim.complete()
        self._note("C", claim.run_id, claim.fence)


_NAMES: Final = {"K": "runs", "G": "grants", "A": "acknowledged", "R": "refused_stale_writes", "F": "storage_errors"}


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
        for line in self._lines:
            if line[0] == "T":
                self._figures.most("longest_round_s", float(line[1]))
        if self._figures.counts.get("longest_round_s", 0) > _HUNG_S:
            self._figures.problem("hung", f"a worker did nothing for {self._figures.counts['longest_round_s']} s")
        self._check_grants()
        with holdfast.open(self._url) as store:
            problems = store.verify().problems
            if problems:
                self._figures.problem("lost", f"verify: {problems[:3]}")
            for number in range(kinds["K"]):
                self._check_run(store, f"run-{number}")

    def _check_grants(self) -> None:
        owners: dict[tuple[str, str], str] = {}
        for run_id, fence, owner in [line[1:] for line in self._lines if line[0] == "G"]:
            if owners.setdefault((run_id, fence), owner) != owner:
                self._figures.problem("double_owners", f"{run_id} fence {fence}: {owners[run_id, fence]}, {owner}")
        for run_id, count in Counter(line[1] for line in self._lines if line[0] == "C").items():
            if count > 1:
                self._figures.problem("repeated", f"{run_id} was completed {count} times")

    def _check_run(self, store: holdfast.Store, run_id: str) -> None:
        row = store.port.run(run_id)
        if row is None:
            self._figures.problem("lost", f"{run_id} was made and is not there")
            return
        if row.status != "completed":
            self._figures.problem("stranded", f"{run_id} is {row.status}")
        entries = [entry.data for entry in store.journal(run_id)]
        infos = list(store.history(run_id))
        states = [store.load(run_id, checkpoint_id=info.checkpoint_id).state for info in infos]  # type: ignore[union-attr]
        for where, fences in (
            ("journal", [e["fence"] for e in entries]),
            ("checkpoints", [s["fence"] for s in states]),
        ):
            if fences != sorted(fences):
                self._figures.problem("stale_writes", f"{run_id}: the fences in its {where} are {fences}")
        steps = [entry["step"] for entry in entries]
        if len(set(steps)) != len(steps):
            self._figures.problem("repeated", f"{run_id} has the steps {steps}")
        there = {(str(entry["step"]), str(entry["fence"])) for entry in entries}
        told = {(line[2], line[3]) for line in self._lines if line[0] == "A" and line[1] == run_id}
        if told - there:
            self._figures.problem("lost", f"{run_id}: acknowledged and not there: {sorted(told - there)}")
