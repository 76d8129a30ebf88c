"""Copies one thread from a source: its checkpoints, oldest first, several per commit.

Every commit also writes a mark into the run's metadata, which counts what the run contains after the commit. A later
call reads it to decide whether it may continue; see the docstring of the package.
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from typing import Final, Generic, TypeVar

import msgspec
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph import record_codec
from holdfast.adapters.langgraph.migration import convert
from holdfast.adapters.langgraph.migration.convert import MARK, Mark, mark_of
from holdfast.adapters.langgraph.migration.source import Parts, Row, Thread, Typed, Unreadable
from holdfast.adapters.langgraph.put import FINE
from holdfast.adapters.langgraph.thread import WORKFLOW, attachment_leaves_work, lane_of, status_from, stored_status
from holdfast.clock import US
from holdfast.errors import Conflict, HoldfastError, InvalidInput
from holdfast.ids import check_id
from holdfast.limits import MIB, STEP_MAX
from holdfast.model.commit import (
    Commit,
    Committed,
    Guard,
    NewAttachment,
    NewCheckpoint,
    NewRun,
    Reason,
    Refused,
    TakeClaim,
)
from holdfast.model.rows import WAITING, AttachmentRow, CheckpointRow, RunRow
from holdfast.operations.checkpoint_needs import FOLD
from holdfast.operations.claims import take_or_revoke_dead
from holdfast.operations.context import Access, Holder, StoreContext, require_committed
from holdfast.operations.packs import StoredChunks
from holdfast.operations.state_commit import BulkEncoder
from holdfast.operations.views import metadata_pairs
from holdfast.runtime.app_core import Owner
from holdfast.store.port import Select

LEASE_S: Final = 10.0
_COMMIT_CHECKPOINTS: Final = 64
_COMMIT_BYTES: Final = 4 * MIB
_LANES: Final = 8
"""Namespaces whose last checkpoint is cached."""
_PAUSE_S: Final = 0.1
_EMPTY_LIST: Final = b"\x90"

Value = TypeVar("Value")


class RetryThread(Exception):
    """The run changed while it was copied. No data is lost; the thread must be read again."""


class _Recent(OrderedDict[str, Value], Generic[Value]):
    """A value for each of the most recently used lanes."""

    def note(self, lane: str, value: Value) -> None:
        self[lane] = value
        self.move_to_end(lane)
        while len(self) > _LANES:
            self.popitem(last=False)


class ThreadCopier:
    """Copies one thread. After an error, `abandon` must be called."""

    def __init__(
        self,
        core: StoreContext,
        owner: Owner,
        serde: SerializerProtocol,
        thread: Thread,
        run: RunRow | None,
        *,
        dry_run: bool,
    ) -> None:
        self._core = core
        self._owner = owner
        self._serde = serde
        self._thread = thread
        self._dry_run = dry_run
        self._run = run
        self._resumed = run is not None
        self._mark = mark_of(run) if run is not None else None
        self._holder: Holder | None = None
        self._encoder = BulkEncoder(FINE)
        self._pieces: _Recent[dict[str, tuple[Typed, record_codec.Stored]]] = _Recent()
        self._newest: dict[str, str] = {}
        self._reported: set[str] = set()
        self._last = self._mark.last if self._mark else ("", "")
        self._clear_pending()
        self.checkpoints = 0
        self.writes = 0
        self.problems: list[str] = []
        self.left_out: set[tuple[str, str]] = set()
        """Namespaces and ids of the checkpoints that were not moved."""
        self._late = 0

    def _clear_pending(self) -> None:
        self._new: list[NewCheckpoint] = []
        self._beside: list[NewAttachment] = []
        self._encoder.clear_chunks()
        self._replaced = 0
        self._size = 0

    # --- the claim of an existing thread -----------------------------------------------------------------------------

    def take(self) -> None:
        """Claim a thread that an earlier call has begun. RunClaimed if another owner has claimed it.

        A call that was killed leaves its claim. If the store cannot prove that the owner died, this waits until the
        lease has expired.
        """
        assert self._run is not None
        assert self._mark is not None
        until, place = time.monotonic() + LEASE_S + 1, Access(self._core)
        guard = Guard(incarnation=self._run.incarnation)
        while not self._dry_run:
            take = TakeClaim(self._owner.name, self._core.ids.token(16), int(LEASE_S * US), revive=True)
            commit = Commit(
                self._thread.thread_id,
                self._core.ids.token(8),
                guard,
                workflow=WORKFLOW,
                status=WAITING,
                take=take,
                status_by_head=True,
            )
            outcome = place.run(take_or_revoke_dead(place, commit))
            is_held = type(outcome) is Refused and outcome.reason == Reason.CLAIMED
            if is_held and not self._mark.source and time.monotonic() < until:
                time.sleep(_PAUSE_S)
                continue
            self._note_claim(require_committed(place, commit, outcome), take)
            if not self._mark.fits(self._run):
                raise RetryThread  # the thread was continued just now
            break
        self._encoder.add_stored(StoredChunks(self._core.port, self._run.family).names)

    def _note_claim(self, done: Committed, take: TakeClaim) -> None:
        self._run = done.run
        self._holder = Holder(take.owner, done.run.incarnation, done.run.fence, take.nonce)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def add(self, row: Row) -> None:
        """Add a checkpoint to the next commit. One that cannot be moved is omitted and reported as a problem."""
        try:
            self._add(row)
        except (Unreadable, InvalidInput) as error:
            self.left_out.add((row.namespace, row.checkpoint_id))
            self.problems.append(f"{_place(row)} was not moved: {error}")

    def is_full(self) -> bool:
        """Return whether the next commit is large enough."""
        return len(self._new) >= _COMMIT_CHECKPOINTS or self._size + self._encoder.chunk_bytes >= _COMMIT_BYTES

    def _add(self, row: Row) -> None:
        lane, checkpoint_id = lane_of(row.namespace), check_id("checkpoint_id", row.checkpoint_id)
        there, beside = self._find_stored(lane, checkpoint_id)
        parts, metadata = row.content.parts(self._serde), convert.read_metadata(row.metadata)
        if there is None and checkpoint_id <= self._newest.get(lane, ""):
            self.left_out.add((row.namespace, checkpoint_id))
            self._late += 1
            return
        pieces = self._split_values(lane, parts)
        values = {channel: piece for channel, (_, piece) in pieces.items()}
        record: record_codec.Record = {"langgraph": record_codec.VERSION, "frame": parts.frame, "values": values}
        if row.namespace != lane:
            record["ns"] = row.namespace
        described, more = record_codec.split_metadata(self._serde, metadata)
        if more:
            record["more"] = more
        if delta := convert.needs_ancestors(metadata, parts):
            record["delta"] = delta
        root = self._encoder.encode_state(record, lane)
        step = metadata.get("step")
        attached, writes = self._new_attachments(row, parts, metadata, lane, beside)
        is_open = bool(lane) or any(map(attachment_leaves_work, (*beside, *(each.key for each in attached))))
        new = NewCheckpoint(
            checkpoint_id,
            root,
            lane,
            check_id("parent_id", row.parent_id) if row.parent_id else "",
            step + 1 if type(step) is int and -1 <= step < STEP_MAX else None,
            metadata=described,
            created_us=convert.created_us(checkpoint_id, parts.ts),
            replace=True,
            status=WAITING if is_open else _status(row, parts),
        )
        self._pieces.note(lane, pieces)
        self._add_to_commit(new, there, attached)
        self.writes += writes
        self._last = (row.namespace, checkpoint_id)

    def _add_to_commit(self, new: NewCheckpoint, there: CheckpointRow | None, attached: list[NewAttachment]) -> None:
        if there is None or _differs(new, there):
            self._new.append(new)
            self._replaced += there is not None
            self._size += len(new.root)
            self.checkpoints += 1
        self._beside += attached
        self._size += sum(len(each.root) for each in attached)

    def _find_stored(self, lane: str, checkpoint_id: str) -> tuple[CheckpointRow | None, dict[str, bytes]]:
        """Return the checkpoint that an earlier call stored, and the roots of its attachments."""
        if not self._resumed:
            return None, {}
        assert self._run is not None
        thread_id, port = self._thread.thread_id, self._core.port
        if lane not in self._newest:
            head = port.checkpoint(thread_id, Select(lane))
            self._newest[lane] = head[1].checkpoint_id if head is not None and head[1] is not None else ""
        found = port.checkpoint(thread_id, Select(lane, checkpoint_id))
        beside = port.rows(AttachmentRow, self._run.run, keys=[(lane, checkpoint_id)])
        return found[1] if found else None, {each.key: each.root for each in beside}

    def _split_values(self, lane: str, parts: Parts) -> dict[str, tuple[Typed, record_codec.Stored]]:
        """Convert the values to their stored form. Those of the previous checkpoint are reused if equal."""
        before = self._pieces.get(lane, {})
        found: dict[str, tuple[Typed, record_codec.Stored]] = {}
        for channel, value in parts.values.items():
            old = before.get(channel)
            found[channel] = old if old is not None and old[0] == value else (value, convert.to_stored(value))
        return found

    def _new_attachments(
        self, row: Row, parts: Parts, metadata: record_codec.Record, lane: str, beside: dict[str, bytes]
    ) -> tuple[list[NewAttachment], int]:
        """Return the attachments that are not stored yet, and the number of writes in them."""
        wanted = convert.attachments(row.writes)
        if row.parent_id and (not row.has_parent or (row.namespace, row.parent_id) in self.left_out):
            missing = convert.needs_ancestors(metadata, parts)
            if missing:
                self.problems.append(
                    f"{_place(row)} is incomplete: its delta channels {', '.join(map(repr, missing))} need ancestors "
                    "that are not in the source"
                )
            else:
                wanted[FOLD] = convert.AttachmentValue({}, 0)
        new: list[NewAttachment] = []
        writes = 0
        for key, (value, count) in wanted.items():
            root = self._encoder.encode_value(value)
            if beside.get(key) != root:
                new.append(NewAttachment(row.checkpoint_id, key, root, lane, key in beside))
                writes += count
        self._report_pickle(row, parts)
        return new, writes

    def _report_pickle(self, row: Row, parts: Parts) -> None:
        pickled = {channel for channel, (kind, _) in parts.values.items() if record_codec.is_pickle(kind)}
        pickled |= {write.channel for write in row.writes if record_codec.is_pickle(write.value[0])}
        for channel in pickled:
            text = f"channel {channel!r} has pickled values"
            if text not in self._reported:
                self._reported.add(text)
                self.problems.append(
                    f"{text}, first in {_place(row)}; they were copied unchanged, and are never loaded"
                )

    # --- commits -----------------------------------------------------------------------------------------------------

    def flush(self, *, last: bool = False) -> None:
        """Commit the added checkpoints. A thread that fits into one commit needs no claim."""
        if last and self._late:
            self.problems.append(
                f"{self._late} checkpoints are older than the newest stored one of their namespace, and were not "
                "moved: they were added to the source late, or were pruned in the store"
            )
        if self._dry_run:
            self._clear_pending()
            return
        if not (self._new or self._beside):
            return  # chunks of omitted checkpoints wait for the next commit: later checkpoints may share them
        take = None
        if self._run is None and not last:
            take = TakeClaim(self._owner.name, self._core.ids.token(16), int(LEASE_S * US))
        done = self._commit(self._next_mark(""), take=take)
        if take is not None:
            self._note_claim(done, take)
        self._clear_pending()

    def finish(self) -> None:
        """Release the claim, and mark the thread as completely moved if there was no problem."""
        if self._run is None or self._dry_run:
            return
        source = self._thread.print if not self.problems else ""
        if self._holder is None and not source:
            return
        with contextlib.suppress(Conflict):  # without a claim the thread may have been continued already
            self._commit(self._next_mark(source), release=self._holder is not None)
            self._holder = None

    def abandon(self) -> None:
        """Release the claim, if there is one, so that a later call can continue."""
        if self._holder is not None and self._run is not None:
            status = stored_status(self._core, self._thread.thread_id)
            token = self._core.ids.token(8)
            commit = Commit(self._thread.thread_id, token, self._guard(), release=True, status=status)
            self._holder = None
            with contextlib.suppress(HoldfastError):
                self._core.committer.commit(commit)

    def was_continued(self) -> bool:
        """Return whether the thread was continued since it was copied."""
        run = self._core.port.run(self._thread.thread_id)
        mine = self._run
        if run is None or mine is None:
            return True
        return (run.serial, run.attached, run.rewrites) != (mine.serial, mine.attached, mine.rewrites)

    def _next_mark(self, source: str) -> Mark:
        run = self._run
        serial, attached, rewrites = (run.serial, run.attached, run.rewrites) if run else (0, 0, 0)
        return Mark(
            self._thread.thread_id,
            serial + len(self._new) - self._replaced,
            attached + len(self._beside),
            rewrites + self._replaced,
            self._last,
            source,
        )

    def _guard(self) -> Guard:
        run = self._run
        if run is None:
            return Guard()
        if self._holder is None:
            return Guard(incarnation=run.incarnation, gc_epoch=run.gc_epoch if self._new or self._beside else None)
        guard = Access(self._core, self._holder).guard()
        return msgspec.structs.replace(guard, gc_epoch=run.gc_epoch) if self._new or self._beside else guard

    def _commit(self, mark: Mark, *, take: TakeClaim | None = None, release: bool = False) -> Committed:
        create = NewRun(required=True) if self._run is None else None
        commit = Commit(
            self._thread.thread_id,
            self._core.ids.token(8),
            self._guard(),
            create,
            WORKFLOW,
            WAITING,
            metadata_pairs({MARK: msgspec.to_builtins(mark)}),
            checkpoints=tuple(self._new),
            chunks=self._core.chunk_rows(self._encoder.chunks, short=True),
            attachments=tuple(self._beside),
            take=take,
            renew_us=int(LEASE_S * US) if self._holder and not release else None,
            release=release,
            status_by_head=True,
        )
        outcome = self._core.committer.commit(commit)
        if type(outcome) is Refused and outcome.reason in (Reason.EPOCH, Reason.RUN_EXISTS):
            raise RetryThread
        done = require_committed(Access(self._core), commit, outcome)
        assert mark.fits(done.run), "the mark must count what the run contains after this commit"
        self._run = done.run
        return done


def _status(row: Row, parts: Parts) -> str:
    """Return the status of a thread whose newest root checkpoint this is."""
    frame = record_codec.read_frame(parts.frame, _place(row))
    values = {channel: value for channel, value in parts.values.items() if value != (record_codec.USUAL, _EMPTY_LIST)}
    return status_from(frame.v, frame.versions, frame.seen, values)


def _place(row: Row) -> str:
    of = f" of namespace {row.namespace!r}" if row.namespace else ""
    return f"checkpoint {row.checkpoint_id!r}{of}"


def _differs(new: NewCheckpoint, old: CheckpointRow) -> bool:
    same = (new.root, new.metadata or b"", new.parent_id or None) == (old.root, old.metadata, old.parent_id)
    return not same or (new.step is not None and new.step != old.step)
