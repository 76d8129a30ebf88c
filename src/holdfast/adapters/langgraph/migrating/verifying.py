"""Verifying: what was moved is read back and compared with the source, values by their bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.migrating.source import Row, Unreadable
from holdfast.adapters.langgraph.reading import Found, Reader
from holdfast.adapters.langgraph.record import metadata_of, sorted_writes, typed
from holdfast.adapters.langgraph.threads import lane_of
from holdfast.errors import DamagedData
from holdfast.model.rows import CheckpointRow, RunRow
from holdfast.store.port import Select
from holdfast.verbs.core import Core

_AT_ONCE: Final = 50
"""Checkpoints that are read together; what they share is fetched once, and then let go."""


def differences(
    core: Core, serde: SerializerProtocol, thread_id: str, rows: Iterable[Row], left_out: set[tuple[str, str]]
) -> Iterator[str]:
    """What of the thread is not stored as it is in the source; those `left_out` are known not to be there."""
    rows = iter(rows)
    while page := list(islice(rows, _AT_ONCE)):
        wanted = [row for row in page if (row.namespace, row.checkpoint_id) not in left_out]
        run, found = _fetched(core, thread_id, wanted)
        reader = Reader(core, run) if run is not None else None
        if reader is not None:
            reader.attachments_of(found.values())
        for row in wanted:
            there = found.get((lane_of(row.namespace), row.checkpoint_id))
            differs = "the checkpoint, which is not there"
            if there is not None and reader is not None:
                try:
                    differs = _difference(serde, row, reader.found(there)) or ""
                except (DamagedData, Unreadable) as error:
                    differs = str(error)
            if differs:
                yield f"checkpoint {row.checkpoint_id!r} of namespace {row.namespace!r} differs in the store: {differs}"


def _fetched(
    core: Core, thread_id: str, rows: Iterable[Row]
) -> tuple[RunRow | None, dict[tuple[str, str], CheckpointRow]]:
    run: RunRow | None = None
    found: dict[tuple[str, str], CheckpointRow] = {}
    for row in rows:
        lane = lane_of(row.namespace)
        pair = core.port.checkpoint(thread_id, Select(lane, row.checkpoint_id))
        if pair is not None:
            run = pair[0]
            if pair[1] is not None:
                found[lane, row.checkpoint_id] = pair[1]
    return run, found


def _difference(serde: SerializerProtocol, row: Row, found: Found) -> str | None:
    if found.record.get("ns", found.row.lane) != row.namespace:
        return "the namespace"
    if found.row.parent_id != row.parent_id:
        return "the parent"
    if _text(metadata_of(serde, found.row.metadata, "metadata")) != _text(json.loads(row.metadata or b"{}")):
        return "the metadata"
    writes = [(*write[:4], typed(write.value)) for write in sorted_writes(found.attached)]
    if writes != [tuple(write) for write in row.writes]:
        return "the pending writes"
    return row.content.difference(serde, found)


def _text(metadata: object) -> str:
    """Metadata as text to compare; values that are equal to nothing, not even themselves, are so too."""
    return json.dumps(metadata, sort_keys=True)
