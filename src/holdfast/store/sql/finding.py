"""Finding runs and checkpoints in SQL: which of the fixed parts a statement is made of, and what is bound to them."""

from __future__ import annotations

from typing import Any, Final

from holdfast.limits import ID_BYTES_MAX, NUMBER_MAX
from holdfast.store.port import CheckpointQuery, RunQuery
from holdfast.store.tags import tag_needle

_HIGHEST: Final = 0x10FFFF
_BEHIND_ALL: Final = chr(_HIGHEST) * (ID_BYTES_MAX // 4 + 1)
"""Sorts behind every id there can be: it begins with more of the highest code point than an id has room for."""


def leading_part(query: RunQuery) -> tuple[str, list[Any], tuple[tuple[str, bytes], ...]]:
    """The part a list of runs begins with, what is bound to it, and the tags that are still to be asked for."""
    before = query.before or 2**62
    if query.prefix:
        return "runs_page_of_prefix", [query.prefix, behind(query.prefix), before], query.tags
    if query.tags:
        return "runs_page_of_tag", [before, *query.tags[0]], query.tags[1:]
    return "runs_page", [before], ()


def behind(prefix: str) -> str:
    """The first text that sorts behind all that begin with `prefix`; UTF-8 sorts as code points do.

    The last code point that has one after it is counted up; surrogates, which are no text, are passed over.
    """
    head = prefix.rstrip(chr(_HIGHEST))
    if not head:
        return _BEHIND_ALL
    following = ord(head[-1]) + 1
    return head[:-1] + chr(0xE000 if following == 0xD800 else following)


def filter_parts(query: CheckpointQuery) -> tuple[list[str], list[Any]]:
    """The names of the parts that narrow a search for checkpoints, and their bindings."""
    parts: list[str] = []
    bindings: list[Any] = []
    for part, text in {"found_lane": query.lane, "found_id": query.checkpoint_id}.items():
        if text is not None:
            parts.append(part)
            bindings.append(text)
    if query.by_id is not None:
        parts.append("found_by_id" if query.run_id is None else "found_of_run_by_id")
        bindings += query.by_id
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
    end = "found_end" if query.by_id is None else "found_by_id_end"
    return [*parts, *narrowing, end], [*bindings, *narrowed]
