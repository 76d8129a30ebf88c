"""Finding checkpoints: what all stores share of it, whatever they search with.

A database looks for metadata by its bytes. They may lie inside a value as well, by chance or by intent, so every row it
finds is checked, and the search goes on until there are as many as were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.store.folding import FoldedRun
from holdfast.store.port import CheckpointQuery
from holdfast.store.tags import has_tags

Found = tuple[RunRow, CheckpointRow]


def is_wanted(query: CheckpointQuery, run: RunRow, row: CheckpointRow) -> bool:
    """Whether the checkpoint is one of those that are asked for, by whatever page."""
    return (
        query.run_id in (None, run.run_id)
        and query.workflow in (None, run.workflow)
        and query.lane in (None, row.lane)
        and query.checkpoint_id in (None, row.checkpoint_id)
        and (query.by_id is None or _place_by_id(query, run, row) < query.by_id)
        and (query.before is None or _place(query, run, row) < query.before)
        and has_tags(row.metadata, query.tags)
    )


def _place(query: CheckpointQuery, run: RunRow, row: CheckpointRow) -> tuple[int, int]:
    """Where it stands in the order, and so the cursor of what comes behind it."""
    return (0, row.number) if query.run_id is not None else (row.created_us, run.run << 32 | row.number)


def _place_by_id(query: CheckpointQuery, run: RunRow, row: CheckpointRow) -> tuple[str, int]:
    """The same in the order of ids."""
    return row.checkpoint_id, _place(query, run, row)[1]


def found_in(runs: Iterable[FoldedRun], query: CheckpointQuery) -> list[Found]:
    """What is asked for among all that these runs have."""
    rows = [(run.row, row) for run in runs for row in run.checkpoints.values()]
    if query.by_id is None:
        rows.sort(key=lambda pair: _place(query, *pair), reverse=True)
    else:
        rows.sort(key=lambda pair: _place_by_id(query, *pair), reverse=True)
    wanted = (pair for pair in rows if is_wanted(query, *pair))
    return list(islice(wanted, query.limit if query.limit >= 0 else None))


def found_by_pages(query: CheckpointQuery, page: Callable[[CheckpointQuery], list[Found]]) -> list[Found]:
    """What is asked for among what a database finds, page by page."""
    found: list[Found] = []
    while True:
        rows = page(query)
        found += [pair for pair in rows if has_tags(pair[1].metadata, query.tags)]
        if query.limit < 0:
            return found
        if len(found) >= query.limit or len(rows) < query.limit:
            return found[: query.limit]
        query = behind(query, *rows[-1])


def behind(query: CheckpointQuery, run: RunRow, row: CheckpointRow) -> CheckpointQuery:
    """The query for what comes behind this checkpoint."""
    if query.by_id is None:
        return query._replace(before=_place(query, run, row))
    return query._replace(by_id=_place_by_id(query, run, row))
