"""Deliberately broken variants of the engine and the runtime. They are put into single processes, never the source."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tests.torture.mutants import mutated


@contextlib.contextmanager
def engine_mutated(name: str | None) -> Iterator[None]:
    """Put the mutant in for a while; None changes nothing."""
    make = _MUTANTS.get(name or "")
    with contextlib.nullcontext() if make is None else make(), mutated(name):
        yield


_MUTANTS: dict[str, Callable[[], Any]] = {}
