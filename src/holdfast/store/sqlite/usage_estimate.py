"""An estimate of what a large SQLite store holds, from a few rows at evenly spaced places of each table.

SQLite keeps no counts of rows, and to count them reads the whole table. A table is divided into strata by the numbers
of its rows (or of the runs they belong to), and the first rows of each stratum stand for it.
"""

from __future__ import annotations

from statistics import median
from typing import Final, NamedTuple

from holdfast.store.sql.statements import Columns, Fetch

_STRATA: Final = 16
_ROWS: Final = 64
"""How many rows of a stratum are read."""
_RUN: Final = 2**32
"""The numbers of a run's rows; those it uses follow each other without gaps, except where rows were pruned."""
_LONG: Final = 100
"""A run with so many times the rows of a usual sample stands only for itself."""
_LAST: Final = 2**63 - 1


class _Sample(NamedTuple):
    """The rows at the beginning of a stratum."""

    rows: int
    """Those that were read, and the others of the last run among them."""
    read: int
    bytes: int
    """Of those that were read."""
    factor: float
    """How much of the stratum they are."""


def estimate_usage(fetch: Fetch) -> Columns:
    """The columns of the statement `usage`."""
    checkpoints, checkpoint_bytes = _estimate(fetch, "sample_of_checkpoints", _RUN)
    entries, _ = _estimate(fetch, "sample_of_entries", _RUN)
    effects, _ = _estimate(fetch, "sample_of_effects", _RUN)
    attachments, attachment_bytes = _estimate(fetch, "sample_of_attachments", _RUN)
    chunks, chunk_bytes = _estimate(fetch, "sample_of_chunks", 1)
    _, pack_bytes = _estimate(fetch, "sample_of_packs", 1)
    _, plain_bytes = _estimate(fetch, "sample_of_pack_sizes", 1)
    [(packed_size,)] = fetch("packed_size")
    packed = plain_bytes / packed_size if packed_size else 0
    return (
        checkpoints,
        entries,
        effects,
        attachments,
        chunks + packed,
        chunk_bytes + pack_bytes,
        checkpoint_bytes + attachment_bytes,
    )


def _estimate(fetch: Fetch, table: str, unit: int) -> tuple[float, float]:
    """How many rows a table has, and their bytes. A stratum begins at a multiple of `unit`."""
    first, last = fetch([table, "sample_from"], 0, _LAST, 1), fetch([table, "sample_before"], _LAST)
    if not first:
        return 0, 0
    low, high = first[0][0] // unit, last[0][0] // unit
    width = (high - low) // _STRATA + 1
    samples = [_sample(fetch, table, unit, a, min(a + width, high + 1)) for a in range(low, high + 1, width)]
    samples = [sample for sample in samples if sample.read]
    usual = median(sample.rows for sample in samples)
    usual_of_stratum = median(sample.rows * sample.factor for sample in samples)
    rows = bytes_ = 0.0
    for sample in samples:
        if sample.rows > _LONG * usual:
            count = sample.rows + usual_of_stratum
        else:
            count = sample.rows * sample.factor
        rows += count
        bytes_ += count * sample.bytes / sample.read
    return rows, bytes_


def _sample(fetch: Fetch, table: str, unit: int, start: int, end: int) -> _Sample:
    """The first rows of a stratum; all, if they are few."""
    found = fetch([table, "sample_from"], start * unit, end * unit, _ROWS)
    read, size = len(found), sum(size for _, size in found)
    if read < _ROWS:
        return _Sample(read, read, size, 1)
    at = found[-1][0]
    [(last, _)] = fetch([table, "sample_before"], (at // unit + 1) * unit)
    return _Sample(read + last - at, read, size, (end - start) / (at // unit - start + 1))
