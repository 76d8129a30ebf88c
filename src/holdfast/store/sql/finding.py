"""Finding checkpoints in SQL: which of the fixed parts a statement is put together of, and what is bound to them."""

from __future__ import annotations

from typing import Any

from holdfast.limits import NUMBER_MAX
from holdfast.store.port import CheckpointQuery
from holdfast.store.tags import tag_needle


def filter_parts(query: CheckpointQuery) -> tuple[list[str], list[Any]]:
    """The names of the parts that narrow a search for checkpoints, and their bindings."""
    parts: list[str] = []
    bindings: list[Any] = []
    texts = {"found_lane": query.lane, "found_id": query.checkpoint_id, "found_before_id": query.before_id}
    for part, text in texts.items():
        if text is not None:
            parts.append(part)
            bindings.append(text)
    for key, value in query.tags:
        parts.append("found_tag")
        bindings.append(tag_needle(key, value))
    return parts, bindings


def number_before(query: CheckpointQuery) -> int:
    """The number below which checkpoints of one run are searched; it does not lead out of the run."""
    return NUMBER_MAX + 1 if query.before is None else max(0, min(query.before[1], NUMBER_MAX + 1))


def all_parts(query: CheckpointQuery) -> tuple[list[str], list[Any]]:
    """The parts of a search through all runs, except its limit, and their bindings."""
    parts = ["found" if query.workflow is None else "found_of_workflow"]
    bindings: list[Any] = [] if query.workflow is None else [query.workflow]
    if query.before is not None:
        parts.append("found_before")
        bindings += query.before
    narrowing, narrowed = filter_parts(query)
    return [*parts, *narrowing, "found_end"], [*bindings, *narrowed]
