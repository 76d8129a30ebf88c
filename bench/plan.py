"""What a workload is: which systems take part, what a round is, and which numbers come out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Final, Literal

_SYSTEMS: Final = "bench.systems"

Slices = list[dict[str, Any]]
"""What a worker answered for each slice of one system in one round."""


@dataclass(frozen=True)
class Entry:
    """A system that takes part."""

    name: str
    subject: str
    options: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0
    """Slow systems do this part of the operations; times are per operation, so they stay comparable."""


@dataclass(frozen=True)
class Plan:
    """A workload."""

    name: str
    title: str
    entries: tuple[Entry, ...]
    kinds: Mapping[str, int]
    """Kinds of operation, and how many of each make a slice."""
    passes: int
    """How often each system gets its turn in a round."""
    numbers: Callable[[Slices], dict[str, float]]
    fresh: bool = False
    """Whether every round starts with new databases."""
    memory: bool = False
    """Whether it lies in memory, to show what it costs beside the disk."""
    options: Mapping[str, Any] = field(default_factory=dict)
    turns: int = 0
    """How long the conversation is, or the journal, if it was written before."""
    timed: bool = True
    """Whether times count. If not, one round is enough, and no stall discards it."""
    table: Literal["speed", "turns", "times", "parts", "beside", "bytes", "operations"] = "speed"
    """How its numbers are shown: as speeds, as a growing conversation, each as times or as part of the floor's, beside
    those of a peer, as bytes, or with a row for each operation."""
    raw_each: int = 0
    """In a table of bytes, the text that an operation adds."""
    noun: str = "save"
    shown: tuple[str, ...] = ()
    """The numbers in a table of times, parts or peers, if they are not one for each kind."""
    compared: tuple[tuple[str, str], ...] = ()
    """In a table of peers, whose numbers are shown as times whose."""
    without: Mapping[str, str] = field(default_factory=dict)
    """Peers that take no part, and why."""

    @property
    def total(self) -> int:
        """How many turns or operations a database gets to see in a round."""
        return self.turns or self.passes * max(self.kinds.values())

    @property
    def columns(self) -> tuple[str, ...]:
        return self.shown or tuple(self.kinds)

    @property
    def floor(self) -> str:
        return self.entries[0].name


def entry(name: str, subject: str, share: float = 1.0, **options: Any) -> Entry:
    return Entry(name, f"{_SYSTEMS}.{subject}", options, share)


# --- numbers of a round ----------------------------------------------------------------------------------------------


def _each_us(slices: Slices) -> list[float]:
    return [one for found in slices for one in found["each_us"]]


def per_operation(slices: Slices) -> dict[str, float]:
    """The mean, because now and then an operation pays for a WAL checkpoint and the others have to carry it."""
    mean = fmean(_each_us(slices))
    return {"us": mean, "per_s": 1e6 / mean}


def per_turn(slices: Slices) -> dict[str, float]:
    each = _each_us(slices)
    tenth = max(1, len(each) // 10)
    first, last = fmean(each[:tenth]), fmean(each[-tenth:])
    return {"us": fmean(each), "first_us": first, "last_us": last, "growth": last / first}


def per_kind(slices: Slices) -> dict[str, float]:
    return {f"{found['kind']}_us": median(found["each_us"]) for found in slices}


def per_kind_mean(slices: Slices) -> dict[str, float]:
    """The means, because now and then a turn finishes a page, or packs, and the others have to carry it."""
    kinds = {
        found["kind"]: [one for each in slices if each["kind"] == found["kind"] for one in each["each_us"]]
        for found in slices
    }
    return {f"{kind}_us": fmean(each) for kind, each in kinds.items()}
