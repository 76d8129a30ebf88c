"""Writes of the saver: put and put_writes, each in one commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)

from holdfast.adapters.langgraph.cache import CachedCheckpoint, CheckpointCache
from holdfast.adapters.langgraph.messages import Codec, Decoded, Frozen, has_messages
from holdfast.adapters.langgraph.record_codec import (
    VERSION,
    Record,
    Stored,
    delta_channels,
    frame_of,
    split_metadata,
    writes_of,
)
from holdfast.adapters.langgraph.thread import WORKFLOW, ThreadRef, config_of, leaves_work, status_of, thread_ref
from holdfast.drivers import Plan
from holdfast.errors import InvalidInput
from holdfast.ids import check_id
from holdfast.limits import KIB, STEP_MAX
from holdfast.model.commit import Commit, NewAttachment, NewCheckpoint, Reason, Refused
from holdfast.model.rows import WAITING, RunRow
from holdfast.operations.context import Access, require_committed
from holdfast.operations.state_commit import commit_values

FINE: Final = 512
"""States and writes above this size are split, so that a task's write and the conversation share a message."""
_HEAVY: Final = 64 * KIB
"""For async callers, larger values are serialised outside the event loop. 1 MiB takes about 50 ms."""
_NODE: Final = 256
"""What a value counts besides its text."""


def put(
    access: Access,
    codec: Codec,
    cache: CheckpointCache,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    *,
    in_loop: bool = False,
) -> Plan[RunnableConfig]:
    """Store a checkpoint; its parent is the one that `config` names.

    With `in_loop` the caller is async, and large values are serialised on another thread. They are read before: the
    nodes that run next may change them in place.
    """
    ref = thread_ref(config)
    checkpoint_id = check_id("checkpoint id", checkpoint["id"])
    before = cache.get(ref.thread_id, ref.lane)
    parent = before if before is not None and before.checkpoint_id == ref.checkpoint_id else None
    heavy = in_loop and ((before is not None and before.size > _HEAVY) or is_heavy(checkpoint["channel_values"]))
    versions = dict(checkpoint["channel_versions"])
    record, described = _build_record(codec, ref, config, checkpoint, metadata)
    values, frozen = _freeze_values(codec, checkpoint, new_versions, parent)
    record["values"] = values
    images = dict(before.images) if before else {}

    step = metadata.get("step")
    new = NewCheckpoint(
        checkpoint_id,
        root=b"",
        lane=ref.lane,
        parent_id=ref.checkpoint_id or "",
        step=step + 1 if type(step) is int and -1 <= step < STEP_MAX else None,
        status=WAITING if ref.lane else status_of(checkpoint),
        metadata=described,
        replace=True,
        needs_parent="delta" in record,
    )

    def make() -> None:
        for channel, store in frozen.items():
            values[channel], image = store(values[channel], images.pop(channel, None))
            if image is not None:
                images[channel] = image

    if heavy:
        yield make
    else:
        make()
    commit = Commit(
        ref.thread_id,
        access.core.ids.token(8),
        access.guard(),
        create=access.creation(),
        workflow=WORKFLOW,
        status=_status(access),
        checkpoints=(new,),
        status_by_head=not access.holder,
    )
    outcome, (encoded,) = yield from commit_values(
        access, commit, (record,), split_min=FINE, short=True, off_loop=heavy
    )
    require_committed(access, commit, outcome)
    codec.decoded.add(encoded.root, record, encoded.size)
    kept = CachedCheckpoint(checkpoint_id, encoded.root, versions, record, encoded.size, images)
    cache.note(ref.thread_id, ref.lane, kept)
    return config_of(ref.thread_id, ref.namespace, checkpoint_id)


def _build_record(
    codec: Codec, ref: ThreadRef, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
) -> tuple[Record, bytes]:
    """Return the record of a checkpoint, without the values of its channels, and its metadata."""
    serde = codec.serde
    described, more = split_metadata(serde, get_checkpoint_metadata(config, metadata))
    record: Record = {"langgraph": VERSION, "frame": frame_of(serde, checkpoint), "values": {}}
    if ref.namespace != ref.lane:
        record["ns"] = ref.namespace
    if more:
        record["more"] = more
    if delta := delta_channels(metadata, checkpoint["channel_values"]):
        record["delta"] = delta
    return record, described


def _freeze_values(
    codec: Codec, checkpoint: Checkpoint, new_versions: ChannelVersions, parent: CachedCheckpoint | None
) -> tuple[dict[str, Stored], dict[str, Frozen]]:
    """Return the stored values of the parent, and the values of the channels that replace them.

    Messages of a channel whose version has not changed are compared all the same: a node may have changed one in place.
    """
    versions = checkpoint["channel_versions"]
    values: dict[str, Stored] = {}
    frozen: dict[str, Frozen] = {}
    for channel, value in checkpoint["channel_values"].items():
        values[channel] = parent.value(channel) if parent is not None else None
        if (
            parent is None
            or channel in new_versions
            or channel not in versions
            or not parent.has(channel, versions[channel])
            or has_messages(value)
        ):
            frozen[channel] = codec.freeze(value)
    return values, frozen


def put_writes(
    access: Access,
    codec: Codec,
    config: RunnableConfig,
    writes: Sequence[tuple[str, object]],
    task_id: str,
    task_path: str,
    *,
    in_loop: bool = False,
) -> Plan[None]:
    """Attach the writes of a task to its checkpoint, which may be stored later. `in_loop` as in `put`."""
    ref = thread_ref(config)
    if ref.checkpoint_id is None:
        raise InvalidInput("writes belong to a checkpoint; the config has no checkpoint_id")
    reopens = not ref.lane and leaves_work(writes, task_id)
    heavy = in_loop and is_heavy(writes)

    frozen = [(channel, codec.freeze(value)) for channel, value in writes]

    def make() -> dict[str, tuple[bool, Record]]:
        return writes_of(lambda store: store(None, None)[0], frozen, task_id, task_path)

    values = (yield make) if heavy else make()
    yield from attach(access, ref, values, reopens=reopens, decoded=codec.decoded, off_loop=heavy)


def is_heavy(value: object) -> bool:
    """Return whether it may take longer to serialise a value than an event loop should wait."""
    return _weigh(value, _HEAVY) < 0


def _weigh(value: object, left: int) -> int:
    """Return what is left of a budget after the size of this value; negative if it is too large."""
    left -= _NODE
    if isinstance(value, (str, bytes, bytearray)):
        return left - len(value)
    if isinstance(value, (int, float)) or value is None:
        return left
    parts: Iterable[object] = ()
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        parts = value
    elif hasattr(value, "__dict__"):
        parts = vars(value).values()
    for part in tuple(parts):  # other threads may add to them
        if left < 0:
            break
        left = _weigh(part, left)
    return left


def attach(
    access: Access,
    ref: ThreadRef,
    values: Mapping[str, tuple[bool, object]],
    run: RunRow | None = None,
    *,
    reopens: bool = False,
    keep_updated: bool = False,
    decoded: Decoded | None = None,
    off_loop: bool = False,
) -> Plan[bool]:
    """Attach values to a checkpoint, in one commit. Each value states whether it replaces an existing one.

    With `run`, return False if the thread was deleted or created again since. With `reopens` a completed thread waits
    again; without it the thread stays completed, because writes may arrive after the checkpoint that they led to. With
    `keep_updated` the thread does not count as used.
    """
    assert ref.checkpoint_id is not None
    if not values:
        return True
    guard = access.guard()
    if run is not None and guard.incarnation is None:
        guard = msgspec.structs.replace(guard, incarnation=run.incarnation)
    new = [
        NewAttachment(ref.checkpoint_id, key, root=b"", lane=ref.lane, replace=replaces, keep=not replaces)
        for key, (replaces, _) in values.items()
    ]
    commit = Commit(
        ref.thread_id,
        access.core.ids.token(8),
        guard,
        create=None if run else access.creation(),
        workflow=WORKFLOW,
        status=_status(access),
        attachments=tuple(new),
        status_by_head=not (access.holder or reopens),
        keep_updated=keep_updated,
    )
    stored = [value for _, value in values.values()]
    outcome, encoded = yield from commit_values(access, commit, stored, split_min=FINE, short=True, off_loop=off_loop)
    if run is not None and type(outcome) is Refused and outcome.reason in (Reason.NO_RUN, Reason.INCARNATION):
        return False
    require_committed(access, commit, outcome)
    if decoded is not None:
        for value, each in zip(stored, encoded, strict=True):
            decoded.add(each.root, value, each.size)
    return True


def _status(access: Access) -> str | None:
    """Return the status to commit. An unclaimed thread waits for the next call of its graph, not for a worker."""
    return None if access.holder else WAITING
