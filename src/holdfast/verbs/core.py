"""What all verbs of a store share: the port, the committer, and the memory of the last saves."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from holdfast.clock import Clock
from holdfast.forking import watch
from holdfast.ids import Ids
from holdfast.limits import MEMO_BYTES_MAX
from holdfast.model.commit import HOLDER, Guard
from holdfast.model.rows import ChunkRow, RunRow
from holdfast.state.body import Compressor
from holdfast.state.encoder import Encoded, Memo
from holdfast.store.committer import Committer
from holdfast.store.port import StorePort

_HASH_BYTES = 128
_HASHES_MAX = MEMO_BYTES_MAX // 4 // _HASH_BYTES
"""How many chunks of one run are remembered; then all are forgotten, which costs sending some again."""


class Known:
    """What is known of a run from its last save or load. Only a hint: commits are guarded by the epoch it is of."""

    __slots__ = ("bytes", "epoch", "hashes", "incarnation", "memos", "sizes")

    def __init__(self, row: RunRow) -> None:
        self.incarnation = row.incarnation
        self.epoch = row.gc_epoch
        self.hashes: set[bytes] = set()
        self.memos: dict[str, Memo | None] = {}
        self.sizes: dict[str, int] = {}
        self.bytes = 0
        """About how many bytes this takes."""


class Memory:
    """The runs saved or loaded last, within a budget of bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, Known] = OrderedDict()
        self._size = 0

    def get(self, run_id: str) -> Known | None:
        return self._runs.get(run_id)

    def forget(self, run_id: str) -> None:
        with self._lock:
            known = self._runs.pop(run_id, None)
            self._size -= known.bytes if known else 0

    def note(self, row: RunRow, hashes: Iterable[bytes], lane: str = "", encoded: Encoded | None = None) -> None:
        """Remember that these chunks are stored and, for a save, what the state became."""
        with self._lock:
            known = self._runs.pop(row.run_id, None)
            self._size -= known.bytes if known else 0
            if known is None or known.incarnation != row.incarnation or known.epoch != row.gc_epoch:
                known = Known(row)
            self._runs[row.run_id] = known
            known.hashes.update(hashes)
            if encoded is not None:
                known.memos[lane], known.sizes[lane] = encoded.memo, encoded.size
            if len(known.hashes) > _HASHES_MAX:
                known.hashes.clear()
            known.bytes = sum(known.sizes.values()) + _HASH_BYTES * len(known.hashes)
            self._size += known.bytes
            while self._size > MEMO_BYTES_MAX and len(self._runs) > 1:
                self._size -= self._runs.popitem(last=False)[1].bytes


class Core:
    """A store's port and what the verbs need beside it."""

    def __init__(self, port: StorePort, clock: Clock, ids: Ids) -> None:
        self.port = port
        self.clock = clock
        self.ids = ids
        self.committer = Committer(port.commit)
        self.after_fork()
        watch(self)

    def after_fork(self) -> None:
        """Begin with locks nobody holds, and nothing remembered."""
        self.memory = Memory()
        self._compressor = Compressor()

    def chunk_rows(self, chunks: Mapping[bytes, bytes], *, short: bool = False) -> tuple[ChunkRow, ...]:
        """Plain chunks as rows; `short` if they are messages, for which it pays to compress them well."""
        body = self._compressor.short_body if short else self._compressor.body
        return tuple([ChunkRow(name, body(plain)) for name, plain in chunks.items()])

    def body(self, plain: bytes) -> bytes:
        """A value's body."""
        return self._compressor.body(plain)

    def fetch(self, family: int) -> Any:
        """Gives the decoder the chunks of a family."""
        return lambda hashes: self.port.chunks(family, hashes)


class Holder(NamedTuple):
    """Who writes, when it is the holder of a claim."""

    owner: str
    incarnation: bytes
    fence: int
    nonce: bytes


class Place(NamedTuple):
    """Where a verb works: on a store, or through a claim."""

    core: Core
    holder: Holder | None = None

    def known(self, run_id: str) -> Known | None:
        """What is remembered of the run, if it can be of the run this writer means: a holder means one incarnation."""
        known = self.core.memory.get(run_id)
        if known is not None and self.holder is not None and known.incarnation != self.holder.incarnation:
            return None
        return known

    def guard(self, known: Known | None = None) -> Guard:
        """What must be true for this writer's commits; `known` if they rely on chunks stored before."""
        holder = self.holder
        if holder is not None:
            epoch = known.epoch if known else None
            return Guard(HOLDER, holder.incarnation, holder.fence, holder.nonce, holder.owner, gc_epoch=epoch)
        if known is not None:
            return Guard(incarnation=known.incarnation, gc_epoch=known.epoch)
        return _PLAIN


_PLAIN = Guard()
