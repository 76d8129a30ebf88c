"""What every system under test looks like to the worker process that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Protocol, TypeVar

Given = TypeVar("Given")


class Subject(Protocol):
    """One system under one workload, with a database of its own.

    It is made with the directory for its files, the number of operations a whole round has, and options of the
    workload. Making it may take time; only what `slice` reports is measured.
    """

    offers: ClassVar[tuple[str, ...]]
    """The kinds of operation it can do, as the workload names them; empty if the workload has only one."""

    def __init__(self, directory: Path, total: int, **options: Any) -> None: ...

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        """Do operations `first` to `first + count - 1`; the seconds each of them took."""
        ...

    def close(self) -> None:
        """End as a user would, so that what lies on disk afterwards is what stays there."""
        ...


def timed(do: Callable[[Given], object], given: Iterable[Given]) -> list[float]:
    """The seconds that `do` took for each of `given`."""
    seconds: list[float] = []
    for one in given:
        start = perf_counter()
        do(one)
        seconds.append(perf_counter() - start)
    return seconds
