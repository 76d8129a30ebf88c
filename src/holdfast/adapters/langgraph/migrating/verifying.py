"""Verifying: what was moved is read back and compared with the source, values by their bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.migrating.source import Row, Unreadable
from holdfast.adapters.langgraph.reading import Found, Reader
from holdfast.adapters.langgraph.record import metadata_of, sorted_writes, typed
from holdfast.adapters.langgraph.threads import lane_of
from holdfast.errors import DamagedData
from holdfast.store.port import Select
from holdfast.verbs.core import Core

_TOGETHER: Final = 50
"""So many checkpoints share what was fetched for one of them; then it is let go."""


def differences(
    core: Core, serde: SerializerProtocol, thread_id: str, rows: Iterable[Row], left_out: set[tuple[str, str]]
) -> Iterator[str]:
    """What of the thread is not stored as it is in the source; those `left_out` are known not to be there."""
    reader: Reader | None = None
    for number, row in enumerate(rows):
        if (row.namespace, row.checkpoint_id) in left_out:
            continue
        found = core.port.whole_checkpoint(thread_id, Select(lane_of(row.namespace), row.checkpoint_id))
        differs: str | None = "it is not there"
        if found is not None and found[1] is not None:
            if reader is None or number % _TOGETHER == 0:
                reader = Reader(core, found[0])
            try:
                reader.know(found[1], found[2])
                differs = _difference(serde, row, reader.found(found[1]))
            except (DamagedData, Unreadable) as error:
                differs = str(error)
        if differs:
            yield f"checkpoint {row.checkpoint_id!r} of namespace {row.namespace!r} differs in the store: {differs}"


def _difference(serde: SerializerProtocol, row: Row, found: Found) -> str | None:
    if found.record.get("ns", found.row.lane) != row.namespace:
        return "the namespace"
    if found.row.parent_id != row.parent_id:
        return "the parent"
    metadata = metadata_of(serde, found.row.metadata, found.record.get("more", {}), "metadata")
    if _text(metadata) != _text(json.loads(row.metadata or b"{}")):
        return "the metadata"
    writes = [(*write[:4], typed(write.value)) for write in sorted_writes(found.attached)]
    if writes != [tuple(write) for write in row.writes]:
        return "the pending writes"
    return row.content.difference(serde, found)


def _text(metadata: object) -> str:
    """Metadata as text to compare; values that are equal to nothing, not even themselves, are so too."""
    return json.dumps(metadata, sort_keys=True)
