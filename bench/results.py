"""What a workload gave: numbers per system and round, and ratios between systems within the same round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from bench.plan import Plan


class Spread(NamedTuple):
    """A median over rounds, with the least and the greatest round."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{shown(self.median)} [{shown(self.least)}..{shown(self.greatest)}]"


def shown(value: float) -> str:
    """A number as tables show it: three digits are enough."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


class Point(NamedTuple):
    """How a slice of a growing conversation went: for the plot."""

    turn: int
    us: float
    size: int


@dataclass
class Result:
    """All numbers of one workload."""

    plan: Plan
    rounds: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """Of each system, the numbers of each round that counts."""
    failures: dict[str, str] = field(default_factory=dict)
    curves: dict[str, list[list[Point]]] = field(default_factory=dict)
    base_bytes: dict[str, int] = field(default_factory=dict)
    """What lies on disk before the first operation."""
    discarded: int = 0
    stalled: int = 0
    """Rounds that count although the disk stalled, because too many had been discarded."""
    probe_us: tuple[float, float] = (0.0, 0.0)
    """Median and greatest time of a bare sync between the slices."""
    neighbours: float = 0.0
    """Processors that other processes kept busy meanwhile, on average."""
    measured: str = ""
    """When, and at which commit."""

    def spread(self, system: str, number: str) -> Spread | None:
        """A number of a system."""
        values = [found[number] for found in self.rounds.get(system, []) if number in found]
        return Spread.of(values) if values else None

    def times(self, system: str, number: str, of: str) -> Spread | None:
        """How many times as large a system's number is as that of another system, in the same round."""
        pairs = zip(self.rounds.get(system, []), self.rounds.get(of, []), strict=False)
        values = [one[number] / other[number] for one, other in pairs if number in one and number in other]
        return Spread.of(values) if values else None

    def part(self, system: str, of: str, number: str = "us") -> Spread | None:
        """The part of another system's speed that a system reaches, by what an operation of each takes."""
        return self.times(of, number, system)
