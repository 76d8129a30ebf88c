"""The workloads of a store with very many runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bench.plan import Plan, entry, per_kind

LISTED: Final[Mapping[str, Mapping[str, Any]]] = {
    "list": {},
    "by status": {"status": "failed"},
    "by workflow": {"workflow": "filler-7"},
    "by metadata": {"metadata": {"team": "a"}},
    "by prefix": {"prefix": "filler-"},
}
"""The lists of runs, by what they are filtered; the metadata and the prefix fit nearly all runs."""
KINDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("start", "claim", "answer"), 40),
    **dict.fromkeys((*LISTED, "inbox", "counts", "stats"), 20),
    "doctor": 5,
    "prune": 20,
}
RUNS_QUICK: Final = 20_000


def _plan(name: str, title: str, **options: Any) -> Plan:
    """A store with few runs, and one with very many."""
    entries = tuple(entry(f"{runs:,} runs", "scale:Scale", runs=runs, **options) for runs in (1_000, 1_000_000))
    return Plan(name, title, entries, KINDS, 1, per_kind, table="operations")


SQLITE: Final = _plan("scale", "1,000,000 runs in one SQLite file, and 1,000")
POSTGRES: Final = _plan("pg_scale", "PostgreSQL: 1,000,000 runs in one store, and 1,000", postgres=True)
