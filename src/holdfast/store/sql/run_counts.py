"""Counts of runs whose cost does not grow with the runs that have ended.

Runs that have not ended are counted, and so are up to `COUNTED_MAX` that have ended with one status. More are
estimated: the numbers of these runs are divided into strata, and of each stratum only the first rows are read. Their
density is that of the stratum, so the estimate is exact where no number is missing between them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Final

from holdfast.model.rows import TERMINAL
from holdfast.store.port import RunCounts
from holdfast.store.sql.statements import Columns, Fetch

COUNTED_MAX: Final = 1_000
"""With more runs of a status that have ended, or of a workflow, their number is estimated."""
_STRATA: Final = 32
_ROWS: Final = 16
"""How many rows of a stratum are read."""


def count_runs(fetch: Fetch) -> RunCounts:
    """Count all runs by their status."""
    counts: dict[str, int] = {}
    estimated: set[str] = set()
    for status, count, low, high in fetch("count_runs", *[COUNTED_MAX + 1] * len(TERMINAL)):
        if count > COUNTED_MAX and status in TERMINAL:
            found = _estimate(fetch, "strata_of_status", status, low, high)
            counts[status] = max(COUNTED_MAX + 1, round(found[status]))
            estimated.add(status)
        elif count:
            counts[status] = count
    return RunCounts(counts, frozenset(estimated))


def count_visible_runs(
    fetch: Fetch, can_see: Callable[[str], bool], bind_texts: Callable[[Sequence[str]], object]
) -> RunCounts:
    """Count the runs of the workflows that `can_see` allows; the cost grows with the number of these workflows."""
    names = [name for (name,) in fetch("workflows") if can_see(name)]
    counts: Counter[str] = Counter(dict(fetch("count_runs_of_workflows", bind_texts(names))))
    estimated: set[str] = set()
    for name in names:
        found = fetch("count_ended_of_workflow", name, name, name, COUNTED_MAX + 1)
        ended: dict[str, float] = {status: count for status, count, _, _ in found}
        if sum(ended.values()) > COUNTED_MAX:
            low, high = found[0][2:]
            ended = _estimate(fetch, "strata_of_workflow", name, low, high)
            estimated |= TERMINAL & set(ended)
        counts.update({status: round(ended[status]) for status in TERMINAL & set(ended)})
    return RunCounts(dict(counts), frozenset(estimated))


def _estimate(fetch: Fetch, statement: str, key: str, low: int, high: int) -> dict[str, float]:
    """The number of runs of each status, of those with this status or workflow."""
    width = (high - low) // _STRATA + 1
    found: defaultdict[str, float] = defaultdict(float)
    rows = fetch(statement, low, high, width, key, key, _ROWS - 1)
    for start, parts in groupby(rows, key=lambda row: row[0]):
        _add_stratum(found, list(parts), min(width, high - start + 1))
    return found


def _add_stratum(found: dict[str, float], parts: Iterable[Columns], width: int) -> None:
    """Extrapolate the rows read of a stratum to all its numbers, unless these are all its rows."""
    read = sum(count for _, _, count, _ in parts)
    factor = 1.0
    if read >= _ROWS:
        start = min(row[0] for row in parts)
        seen = max(last for _, _, _, last in parts) - start
        factor = width * (read - 1) / seen / read
    for _, status, count, _ in parts:
        found[status] += count * factor
