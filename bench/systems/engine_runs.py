"""What the systems of the engine's workloads share."""

from __future__ import annotations

from typing import ClassVar

from bench.systems.crowds import CROWD


def trivial(number: int) -> int:
    """A step that costs nothing, so that all one sees is what it costs to record it."""
    return number


async def trivial_async(number: int) -> int:
    """The same, to await."""
    return number


class Runs:
    """`pg_runs`: a slice is a new crowd of runs, each of which takes its share of the steps, one after another."""

    offers: ClassVar[tuple[str, ...]] = ()
    started = 0

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        """All steps share the slice's time equally, because they overlap."""
        each = max(1, count // CROWD)
        names = [f"run-{self.started + member:06d}" for member in range(CROWD)]
        self.started += CROWD
        seconds = self.together(names, each)
        return [seconds / (each * CROWD)] * (each * CROWD)

    def together(self, names: list[str], each: int) -> float:
        """Do all the runs; the seconds from the first start to the last end."""
        raise NotImplementedError
