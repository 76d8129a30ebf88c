"""Plays a workload: all systems take turns in short slices, in an order that rotates, so that a slow moment hits all.

A round in which the disk stalled is discarded and played again, up to a bound. Rounds of all systems stand side by
side, so ratios are taken within a round and never across.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, TextIO

from bench.plan import Entry, Plan
from bench.probe import LOST_MAX, Neighbours, Probe, lost
from bench.process import Process, SystemFailed
from bench.results import Point, Result

Found = dict[str, list[dict[str, Any]]]
"""Slices of a round, by system."""


class Player:
    """A system in its process."""

    def __init__(self, entry: Entry, plan: Plan, directory: Path, log: Path) -> None:
        self.entry = entry
        self.directory = directory / f"{plan.name} {entry.name}".replace(" ", "-")
        self._plan = plan
        self._process = Process(log)
        self._offers: list[str] = []
        self.first = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self) -> None:
        """A new database, and nothing done yet."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.first = 0
        plan, entry = self._plan, self.entry
        answer = self._process.ask(
            do="begin",
            subject=entry.subject,
            directory=str(self.directory),
            total=plan.total,
            options={**plan.options, **entry.options},
        )
        self._offers = answer["offers"]

    def slices(self) -> list[dict[str, Any]]:
        """One slice of each kind that the system offers."""
        found = []
        for kind, count in self._plan.kinds.items():
            if kind and kind not in self._offers:
                continue
            share = max(1, round(count * self.entry.share))
            answer = self._process.ask(do="slice", kind=kind, first=self.first, count=share)
            self.first += answer["ops"]
            found.append({"kind": kind, **answer})
        return found

    def end(self) -> dict[str, int]:
        """Close the database; the bytes that stay on disk, and those of the blocks that files take."""
        told: int | None = self._process.ask(do="end")["bytes"]
        if told is not None:
            return {"bytes": told}
        stats = [path.stat() for path in self.directory.rglob("*") if path.is_file()]
        return {"bytes": sum(one.st_size for one in stats), "block_bytes": sum(one.st_blocks * 512 for one in stats)}

    def size(self) -> int:
        """The size of the database while it is open: its pages, wherever they lie."""
        told: int | None = self._process.ask(do="size")["bytes"]
        return sum(map(_size, self.directory.iterdir())) if told is None else told

    def close(self) -> None:
        self._process.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Stage:
    """One workload, played."""

    def __init__(self, plan: Plan, directory: Path, out: Path, lines: TextIO, machine: dict[str, Any]) -> None:
        self._plan = plan
        self._directory, self._out = directory, out
        self._lines, self._machine = lines, machine
        self._players: dict[str, Player] = {}
        self._turn = 0
        self._lost_s = 0.0
        self._result = Result(plan, measured=f"Measured {machine['date']} at {machine['revision']}.")

    def play(self, rounds: int, tell: Callable[[str], None], *, spare_s: float) -> Result:
        """Play the rounds that count. Stalled rounds are repeated as long as that takes less than `spare_s`."""
        probe = Probe(self._directory)
        rounds = rounds if self._plan.timed else 1
        try:
            self._gather()
            neighbours = Neighbours(self._pids())
            while self._counted() < rounds and self._players:
                enough = self._result.discarded >= 2 * rounds or self._lost_s >= spare_s
                start = monotonic()
                stalled = self._round(probe, keep_stalled=enough)
                self._lost_s += monotonic() - start if stalled else 0
                tell(f"{self._plan.name}: round {self._counted()} of {rounds}" + (", discarded" if stalled else ""))
            self._result.neighbours = neighbours.part(self._pids())
        finally:
            for player in self._players.values():
                player.close()
            probe.close()
        self._result.probe_us = (median(probe.seconds) * 1e6, max(probe.seconds) * 1e6) if probe.seconds else (0, 0)
        return self._result

    def _pids(self) -> list[int]:
        return [player.pid for player in self._players.values()]

    def _counted(self) -> int:
        return max((len(found) for found in self._result.rounds.values()), default=0)

    def _gather(self) -> None:
        """Start every process; warm each one up, or learn what lies on disk before the first operation."""
        for entry in self._plan.entries:
            player = Player(entry, self._plan, self._directory, self._out / "workers.log")
            self._players[entry.name] = player
            with self._failing(entry.name):
                player.begin()
                if self._plan.fresh:
                    self._result.base_bytes[entry.name] = player.end()["bytes"]
                else:
                    for _ in range(self._plan.passes):  # until the WAL has its full size
                        player.slices()

    def _round(self, probe: Probe, *, keep_stalled: bool) -> bool:
        """Play a round; whether it was discarded."""
        found: Found = {name: [] for name in self._players}
        curves: dict[str, list[Point]] = {name: [] for name in self._players}
        looks = 0
        quiet = True
        if self._plan.fresh:
            for name in list(self._players):
                with self._failing(name):
                    self._players[name].begin()
        for _ in range(self._plan.passes):
            for name in self._order():
                quiet, looks = not probe.look() and quiet, looks + 1
                with self._failing(name):
                    found[name] += self._players[name].slices()
                    if self._plan.fresh:
                        curves[name].append(self._point(name, found[name][-1]))
        sizes = self._ended() if self._plan.fresh else {}
        stalled = self._plan.timed and (not quiet or probe.slow(looks) or any(map(_stalled, found.values())))
        self._record(found, stalled)
        if stalled and not keep_stalled:
            self._result.discarded += 1
            probe.wait()
            return True
        self._result.stalled += stalled
        self._count(found, curves, sizes)
        return False

    def _order(self) -> list[str]:
        names = list(self._players)
        self._turn += 1
        shift = self._turn // 2 % len(names) if names else 0
        order = names[shift:] + names[:shift]
        return order[::-1] if self._turn % 2 else order  # so that nobody always comes after the same neighbour

    def _point(self, name: str, slice_: dict[str, Any]) -> Point:
        player = self._players[name]
        return Point(player.first, slice_["seconds"] / slice_["ops"] * 1e6, player.size())

    def _ended(self) -> dict[str, dict[str, int]]:
        sizes = {}
        for name in list(self._players):
            with self._failing(name):
                sizes[name] = self._players[name].end()
        return sizes

    def _count(self, found: Found, curves: dict[str, list[Point]], sizes: dict[str, dict[str, int]]) -> None:
        for name in self._players:
            numbers = self._plan.numbers(found[name])
            if name in sizes:
                grown = sizes[name]["bytes"] - self._result.base_bytes[name]
                numbers |= {**sizes[name], "grown_bytes": grown, "bytes_each": grown / self._plan.total}
            self._result.rounds.setdefault(name, []).append(numbers)
            self._result.curves.setdefault(name, []).append(curves[name])

    def _record(self, found: Found, stalled: bool) -> None:
        for name, slices in found.items():
            for number, slice_ in enumerate(slices):
                line = {
                    "workload": self._plan.name,
                    "system": name,
                    "round": self._counted() + self._result.discarded + 1,
                    "slice": number,
                    "discarded": stalled,
                    **{key: value for key, value in slice_.items() if key != "each_us"},
                    "machine": self._machine,
                }
                self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        """If the system fails here, the others go on without it."""
        try:
            yield
        except SystemFailed as failure:
            self._result.failures[name] = " ".join(str(failure).split()).replace("|", "/")[:200]
            self._result.rounds.pop(name, None)
            self._players.pop(name).close()


def _size(path: Path) -> int:
    if path.suffix not in (".db", ".sqlite"):
        return path.stat().st_size if path.suffix == ".json" else 0
    connection = sqlite3.connect(path)
    try:
        pages: int = connection.execute("PRAGMA page_count").fetchone()[0]
        page: int = connection.execute("PRAGMA page_size").fetchone()[0]
    finally:
        connection.close()
    return pages * page


def _stalled(slices: list[dict[str, Any]]) -> bool:
    each: list[list[float]] = [slice_["each_us"] for slice_ in slices]
    return sum(lost([us / 1e6 for us in one]) for one in each) > LOST_MAX * sum(map(sum, each)) / 1e6
