"""Writing: put and put_writes, each one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph.recent import Kept, Recent
from holdfast.adapters.langgraph.record import (
    VERSION,
    Stored,
    delta_channels,
    frame_of,
    split_metadata,
    stored,
    writes_of,
)
from holdfast.adapters.langgraph.thread_status import opens, status_of
from holdfast.adapters.langgraph.threads import WORKFLOW, Spot, config_of, spot_of
from holdfast.errors import InvalidInput
from holdfast.ids import check_id
from holdfast.limits import KIB, STEP_MAX
from holdfast.model import commit as why
from holdfast.model.commit import Commit, Committed, NewAttachment, NewCheckpoint, Refused
from holdfast.model.rows import RunRow
from holdfast.model.status import WAITING
from holdfast.state.encoder import Encoded, encode
from holdfast.verbs.core import Place
from holdfast.verbs.plans import Plan
from holdfast.verbs.writing import committed, creation, outdated

FINE: Final = 512
"""States and writes are cut finer than elsewhere: a message that a task wrote is then stored once, as a write and as a
part of the conversation."""
_HEAVY: Final = 256 * KIB
"""Threads above this size are serialised beside the event loop and not on it, for awaiting callers."""


def put(
    place: Place,
    serde: SerializerProtocol,
    recent: Recent,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Plan[RunnableConfig]:
    """Store a checkpoint; its parent is the one that `config` names."""
    spot = spot_of(config)
    checkpoint_id = check_id("checkpoint id", checkpoint["id"])
    before = recent.get(spot.thread_id, spot.lane)
    parent = before if before is not None and before.checkpoint_id == spot.checkpoint_id else None
    heavy = before is not None and before.size > _HEAVY

    def make() -> tuple[dict[str, Any], bytes]:
        return _record(serde, spot, config, checkpoint, metadata, new_versions, parent)

    record, described = (yield make) if heavy else make()
    core, step = place.core, metadata.get("step")
    while True:
        known = place.known(spot.thread_id)
        memo, hashes = (known.memos.get(spot.lane), known.hashes) if known else (None, frozenset())

        def pack(memo: Any = memo, hashes: Any = hashes) -> Encoded:
            return encode(record, memo, hashes, FINE)

        encoded: Encoded = (yield pack) if heavy else pack()
        new = NewCheckpoint(
            checkpoint_id, encoded.root, spot.lane, spot.checkpoint_id or "",
            step + 1 if type(step) is int and -1 <= step < STEP_MAX else None, metadata=described, replace=True,
            needs_parent="delta" in record, status=WAITING if spot.lane else status_of(checkpoint),
        )  # fmt: skip
        commit = Commit(
            spot.thread_id, core.ids.token(8), place.guard(known if encoded.linked else None), creation(place),
            WORKFLOW, _status(place), checkpoints=(new,), chunks=core.chunk_rows(encoded.chunks, short=True),
            status_by_head=not place.holder,
        )  # fmt: skip
        outcome = yield commit
        if type(outcome) is not Committed and outdated(place, spot.thread_id, outcome, known):
            continue
        done = committed(place, commit, outcome)
        if encoded.linked and done.fresh:
            core.memory.note(done.run, encoded.chunks, spot.lane, encoded)
        versions, patterns = dict(checkpoint["channel_versions"]), before.patterns if before else {}
        kept = Kept(checkpoint_id, encoded.root, versions, record, encoded.size, patterns)
        recent.note(spot.thread_id, spot.lane, kept)
        return config_of(spot.thread_id, spot.namespace, checkpoint_id)


def _record(
    serde: SerializerProtocol,
    spot: Spot,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    parent: Kept | None,
) -> tuple[dict[str, Any], bytes]:
    """What is stored of a checkpoint, and its metadata."""
    values = _values(serde, checkpoint, new_versions, parent)
    described, more = split_metadata(serde, get_checkpoint_metadata(config, metadata))
    record: dict[str, Any] = {"langgraph": VERSION, "frame": frame_of(serde, checkpoint), "values": values}
    if spot.namespace != spot.lane:
        record["ns"] = spot.namespace
    if more:
        record["more"] = more
    if delta := delta_channels(metadata, values):
        record["delta"] = delta
    return record, described


def _values(
    serde: SerializerProtocol, checkpoint: Checkpoint, new_versions: ChannelVersions, parent: Kept | None
) -> dict[str, Stored]:
    """The channels' values as they are stored; those that are the parent's are not serialised again."""
    versions = checkpoint["channel_versions"]
    values: dict[str, Stored] = {}
    for channel, value in checkpoint["channel_values"].items():
        if parent is None:
            values[channel] = stored(serde, value)
        elif channel in new_versions or channel not in versions or not parent.has(channel, versions[channel]):
            values[channel] = stored(serde, value, parent.value(channel))
        else:
            values[channel] = parent.value(channel)
    return values


def put_writes(
    place: Place,
    serde: SerializerProtocol,
    config: RunnableConfig,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
) -> Plan[None]:
    """Keep a task's writes beside the checkpoint it worked on, which may be stored later."""
    spot = spot_of(config)
    if spot.checkpoint_id is None:
        raise InvalidInput("writes belong to a checkpoint; the config has no checkpoint_id")
    reopens = not spot.lane and opens(writes, task_id)
    yield from attach(place, spot, writes_of(serde, writes, task_id, task_path), reopens=reopens)


def attach(
    place: Place,
    spot: Spot,
    values: Mapping[str, tuple[bool, Any]],
    run: RunRow | None = None,
    *,
    reopens: bool = False,
    keep_updated: bool = False,
) -> Plan[bool]:
    """Keep values beside a checkpoint, in one commit. Each says whether it takes the place of one that is there.

    With `run` only if the thread still is that one; False if it is not. With `reopens` a completed thread is waiting
    again; without, it stays completed, since writes may arrive after the checkpoint that they led to. With
    `keep_updated` the thread does not count as used.
    """
    assert spot.checkpoint_id is not None
    while values:
        known = place.known(spot.thread_id)
        hashes: set[bytes] | frozenset[bytes] = known.hashes if known else frozenset()
        new: list[NewAttachment] = []
        chunks: dict[bytes, bytes] = {}
        linked = False
        for key, (replaces, value) in values.items():
            encoded = encode(value, None, hashes, FINE)
            new.append(NewAttachment(spot.checkpoint_id, key, encoded.root, spot.lane, replaces, keep=not replaces))
            chunks.update(encoded.chunks)
            linked = linked or encoded.linked
        guard = place.guard(known if linked else None)
        if run is not None and guard.incarnation in (None, run.incarnation):
            guard = msgspec.structs.replace(guard, incarnation=run.incarnation)
        commit = Commit(
            spot.thread_id, place.core.ids.token(8), guard, None if run else creation(place), WORKFLOW,
            _status(place), attachments=tuple(new), chunks=place.core.chunk_rows(chunks, short=True),
            status_by_head=not (place.holder or reopens), keep_updated=keep_updated,
        )  # fmt: skip
        outcome = yield commit
        if run is not None and type(outcome) is Refused and outcome.why in (why.NO_RUN, why.INCARNATION):
            return False
        if outdated(place, spot.thread_id, outcome, known):
            continue
        done = committed(place, commit, outcome)
        if done.fresh and chunks:
            place.core.memory.note(done.run, chunks)
        return True
    return True


def _status(place: Place) -> str | None:
    """A thread that nobody holds waits for whoever calls it next; no worker is to take it."""
    return None if place.holder else WAITING
