"""How long the workloads take, so that a run can be planned and the rest of its time goes to repeated rounds."""

from __future__ import annotations

from typing import Final

_ONCE_AND_ROUND_S: Final[dict[str, tuple[float, float]]] = {"scale": (45.0, 1.0), "pg_scale": (90.0, 3.0)}
"""Seconds before the first round, and of each round, on two processors that have nothing else to do."""
_UNKNOWN: Final = (10.0, 10.0)


def expected_s(name: str, rounds: int) -> float:
    """The seconds of a workload with so many rounds."""
    once, each = _ONCE_AND_ROUND_S.get(name, _UNKNOWN)
    return once + rounds * each
