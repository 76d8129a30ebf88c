"""Commits with encoded values, retried if the cache of stored chunks is stale.

An encoded value may link to chunks that are stored according to the cache. A sweep may have removed them since, so such
a commit names the incarnation and the sweep epoch of the cache. If the store refuses it for that reason, the cache
forgets the run, and the commit is encoded and sent again with all its chunks.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec import structs

from holdfast.drivers import Plan
from holdfast.model.commit import Commit, Committed, NewAttachment, NewCheckpoint, Outcome, Reason, Refused
from holdfast.operations.context import Access, RunCache, StoreContext
from holdfast.operations.packs import PACK_EVERY, pack_after_save
from holdfast.state.change_stamps import Tracking
from holdfast.state.encoder import SPLIT_MIN, Encoded, Memo, encode
from holdfast.state.tracked_encoder import TrackedState, encode_tracked

Rooted = NewCheckpoint | NewAttachment
AnyEncoded = Encoded | TrackedState


class SavedAs(NamedTuple):
    """How a tracked state was saved last: its chunks are stored as long as the cache is valid."""

    cache: RunCache | None
    memo: Any


_set: Final = structs.force_setattr
_NO_CHUNKS: Final[frozenset[bytes]] = frozenset()

EMPTY_STATE: Final = encode({}).root
"""The root of a state without content."""
_LANES_MAX: Final = 8
"""How many lanes a `BulkEncoder` compares with; the next state of an older one is encoded completely."""
_STORED_MAX: Final = 200_000
"""How many stored chunks a `BulkEncoder` remembers. Above that it forgets all, and some are sent again."""


def commit_values(
    access: Access,
    commit: Commit,
    values: Sequence[object],
    *,
    split_min: int = SPLIT_MIN,
    short: bool = False,
    off_loop: bool = False,
) -> Plan[tuple[Outcome, list[AnyEncoded]]]:
    """Commit `commit` with `values` as the roots of its checkpoints, then of its attachments, in their order.

    Roots and chunks are set in place: the caller has just built the commit, and no other code has it yet. `split_min`
    is passed to the encoder. With `short` the chunks are messages, which are worth compressing well. With `off_loop` an
    async caller encodes and compresses outside its event loop.
    """
    core, guard = access.core, commit.guard
    parts: tuple[Rooted, ...] = commit.checkpoints + commit.attachments if commit.attachments else commit.checkpoints
    while True:
        cache = core.memory.get(commit.run_id)
        if cache is not None and guard.incarnation not in (None, cache.incarnation):
            cache = None
        if off_loop:
            prepare = partial(_prepare, core, commit, parts, values, cache, split_min, short=short)
            encoded: list[AnyEncoded] = yield prepare
        else:
            encoded = _prepare(core, commit, parts, values, cache, split_min, short=short)
        outcome: Outcome = yield commit
        if type(outcome) is Refused and cache is not None and outcome.reason in (Reason.EPOCH, Reason.INCARNATION):
            core.memory.forget(commit.run_id)
            commit = structs.replace(commit, commit_id=core.ids.token(8), guard=guard, chunks=())
            continue
        if type(outcome) is Committed and outcome.fresh:  # an earlier save may have split it otherwise
            for part, value, each in zip(parts, values, encoded, strict=True):
                if not each.linked:
                    continue
                if isinstance(each, TrackedState):
                    value.memo = SavedAs(core.memory.note(outcome.run, each.chunks), each.memo)  # type: ignore[attr-defined]
                else:
                    core.memory.note(outcome.run, each.chunks, part.lane, each if type(part) is NewCheckpoint else None)
            if commit.checkpoints and outcome.run.serial % PACK_EVERY == 0:
                with contextlib.suppress(Exception):  # the save is durable; a later one packs again
                    yield partial(pack_after_save, core, outcome.run.family)
        return outcome, encoded


def _prepare(
    core: StoreContext,
    commit: Commit,
    parts: Sequence[Rooted],
    values: Sequence[object],
    cache: RunCache | None,
    split_min: int,
    *,
    short: bool,
) -> list[AnyEncoded]:
    """Encode the values, set them as the roots of the parts, and add their new chunks to the commit."""
    encoded: list[AnyEncoded] = []
    one: AnyEncoded
    known = _NO_CHUNKS if cache is None else cache.hashes
    for part, value in zip(parts, values, strict=True):
        if isinstance(value, Tracking) and type(part) is NewCheckpoint and split_min == SPLIT_MIN:
            saved: SavedAs | None = value.memo
            one = encode_tracked(value, saved.memo if saved and saved.cache is cache else None, known)
        else:
            memo = cache.memos.get(part.lane) if cache is not None and type(part) is NewCheckpoint else None
            one = encode(value, memo, known, split_min)
        _set(part, "root", one.root)
        encoded.append(one)
    if encoded[0].linked or (len(encoded) > 1 and any(each.linked for each in encoded)):
        _link(core, commit, encoded, cache, short=short)
    return encoded


def _link(
    core: StoreContext, commit: Commit, encoded: list[AnyEncoded], cache: RunCache | None, *, short: bool
) -> None:
    """Add the new chunks to the commit, and guard it by the epoch of the cache that the others are known from."""
    chunks = encoded[0].chunks
    if len(encoded) > 1:
        chunks = {name: plain for each in encoded for name, plain in each.chunks.items()}
    _set(commit, "chunks", core.chunk_rows(chunks, short=short))
    if cache is not None:
        guard = structs.replace(commit.guard, incarnation=cache.incarnation, gc_epoch=cache.epoch)
        _set(commit, "guard", guard)


class BulkEncoder:
    """Encodes many values of one run, for callers that build commits themselves.

    Each chunk is returned once. A caller that links to stored chunks must guard its commits by the run's sweep epoch.
    """

    def __init__(self, split_min: int = SPLIT_MIN) -> None:
        self.chunks: dict[bytes, bytes] = {}
        """The new chunks, for the next commit."""
        self.chunk_bytes = 0
        self._split_min = split_min
        self._stored: set[bytes] = set()
        self._memos: OrderedDict[str, Memo | None] = OrderedDict()

    def add_stored(self, hashes: Iterable[bytes]) -> None:
        """Omit the chunks with these hashes: they are stored."""
        self._stored.update(hashes)

    def encode_state(self, state: object, lane: str = "") -> bytes:
        """Encode the next state of a lane, compared with the one before. Returns its root."""
        encoded = self._encode(state, self._memos.pop(lane, None))
        self._memos[lane] = encoded.memo
        if len(self._memos) > _LANES_MAX:
            self._memos.popitem(last=False)
        return encoded.root

    def encode_value(self, value: object) -> bytes:
        """Encode a single value. Returns its root."""
        return self._encode(value, None).root

    def _encode(self, value: object, memo: Memo | None) -> Encoded:
        encoded = encode(value, memo, self._stored, self._split_min)
        self.chunks |= encoded.chunks
        self.chunk_bytes += sum(map(len, encoded.chunks.values()))
        self._stored.update(encoded.chunks)
        return encoded

    def clear_chunks(self) -> None:
        """Start the next commit: the chunks so far are stored."""
        self.chunks, self.chunk_bytes = {}, 0
        if len(self._stored) > _STORED_MAX:
            self._stored.clear()
