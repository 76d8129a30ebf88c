"""Plays rounds: each piece of work in a process of its own, in an order that rotates."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from bench.adapters.material import PAID, PAYMENT_S
from bench.adapters.pairs import Pair

PATIENCE_S: Final = 600.0
PAYMENT_TAKES_S: Final = 0.2
_QUIET: Final = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}
_BYTECODE: Final = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(Path(sys.prefix) / "pycache")}
"""Imports are compiled once. Without it each process compiles its framework, and its time has our late imports."""
Found = dict[str, Any]


class Worker:
    """A process in the environment of a framework; it waits until it may begin."""

    def __init__(self, python: Path, log: Path, *words: str, payment_s: float = 0.0) -> None:
        environment = {**os.environ, **_QUIET, **_BYTECODE, PAYMENT_S: str(payment_s)}
        with log.open("ab") as errors:
            self._child = subprocess.Popen(
                [str(python), "-m", "bench.adapters.worker", *words],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self._line() == "ready", f"{' '.join(words[:3])} did not start; see {log.name}"

    def begin(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(b"begin\n")
        self._child.stdin.flush()

    def end(self) -> Found:
        """What it reports."""
        found: Found = json.loads(self._line() or '{"outcome": "killed", "seconds": 0}')
        self._child.communicate()
        return found

    def _line(self) -> str:
        assert self._child.stdout is not None
        if not select.select([self._child.stdout], [], [], PATIENCE_S)[0]:
            self._child.kill()
        return self._child.stdout.readline().decode().strip()


class Player:
    """An adapter in its environment."""

    def __init__(self, adapter: str, python: Path, place: Path) -> None:
        self.adapter = adapter
        self._python, self._place = python, place
        self._paused: dict[str, Path] = {}

    def grow(self, way: str, seed: str, turns: int) -> Found:
        """Bytes of all files after the work, and its time."""
        place = self._fresh()
        return {**self._do(way, "grow", seed, turns), "bytes": _size(place)}

    def resume(self, way: str, turns: int) -> Found:
        """The time of a resume in a new process, and the bytes of the paused state, which is made once."""
        place = self._fresh()
        saved = self._paused.get(way)
        if saved is None:
            self._do(way, "pause", "resume", turns)
            saved = self._paused[way] = place.with_suffix(f".{way}")
            shutil.rmtree(saved, ignore_errors=True)
            shutil.copytree(place, saved)
        else:
            shutil.copytree(saved, place, dirs_exist_ok=True)
        found = self._do(way, "resume", "resume", turns)
        assert _payments(place) == 1, f"{way} paid {_payments(place)} times"
        return {**found, "bytes": _size(saved)}

    def resume_twice(self, way: str, seed: str) -> Found:
        """The number of payments after two processes have resumed one paused state at the same moment."""
        place = self._fresh()
        self._do(way, "pause", seed, 0)
        workers = [self._worker(way, "resume", seed, 0, payment_s=PAYMENT_TAKES_S) for _ in range(2)]
        for worker in workers:
            worker.begin()
        found = [worker.end() for worker in workers]
        outcomes = sorted(one["outcome"] for one in found)
        return {"version": found[0]["version"], "outcomes": outcomes, "payments": _payments(place)}

    def _do(self, way: str, verb: str, seed: str, turns: int) -> Found:
        worker = self._worker(way, verb, seed, turns)
        worker.begin()
        found = worker.end()
        assert found["outcome"] == "continued", f"{way} {verb}: {found}"
        return found

    def _worker(self, way: str, verb: str, seed: str, turns: int, payment_s: float = 0.0) -> Worker:
        words = (self.adapter, way, verb, str(self._place), seed, str(turns))
        return Worker(self._python, self._place.with_suffix(".log"), *words, payment_s=payment_s)

    def _fresh(self) -> Path:
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir(parents=True)
        return self._place


def rounds_of(pairs: Iterable[Pair], rounds: int) -> Iterator[tuple[int, list[str]]]:
    """The storages of some pairs in each round, starting with another one each time."""
    ways = list(dict.fromkeys(way for pair in pairs for way in pair.ways()))
    for number in range(rounds):
        shift = number % len(ways)
        yield number, ways[shift:] + ways[:shift]


def _size(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def _payments(place: Path) -> int:
    bank = place / PAID
    return len(bank.read_text("utf-8").splitlines()) if bank.exists() else 0
