"""Moving one thread: its checkpoints, oldest first, several in a commit.

Every commit also leaves a mark in the run's metadata, which says how much of the thread there is after this very
commit. The mark is how a later call knows what it may do; see the package's docstring.
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
    """The store changed harmlessly; the thread must be read again."""


class _Recent(OrderedDict[str, Value], Generic[Value]):
    """Something of each of the last namespaces."""

    def note(self, lane: str, value: Value) -> None:
        self[lane] = value
        self.move_to_end(lane)
        while len(self) > _LANES:
            self.popitem(last=False)


class ThreadCopier:
    """Moves one thread. After an error it must be abandoned."""

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
        self._said: set[str] = set()
        self._last = self._mark.last if self._mark else ("", "")
        self._empty()
        self.checkpoints = 0
        self.writes = 0
        self.problems: list[str] = []
        self.left_out: set[tuple[str, str]] = set()
        """Namespaces and ids of the checkpoints that were not moved."""
        self._late = 0

    def _empty(self) -> None:
        self._new: list[NewCheckpoint] = []
        self._beside: list[NewAttachment] = []
        self._encoder.clear_chunks()
        self._replaced = 0
        self._size = 0

    # --- taking a thread that is there already -----------------------------------------------------------------------

    def take(self) -> None:
        """Claim a thread that an earlier call has begun; RunClaimed if another owner holds it.

        A call that was killed leaves a claim behind. Where the owner's death cannot be proven, its lease has to expire
        first, so that is waited for.
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
            self._held(require_committed(place, commit, outcome), take)
            if not self._mark.fits(self._run):
                raise RetryThread  # the thread was continued just now
            break
        self._encoder.add_stored(self._core.port.chunk_sizes(self._run.family))

    def _held(self, done: Committed, take: TakeClaim) -> None:
        self._run = done.run
        self._holder = Holder(take.owner, done.run.incarnation, done.run.fence, take.nonce)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def add(self, row: Row) -> None:
        """Put a checkpoint into the next commit. One that cannot be moved is a problem, and left out."""
        try:
            self._add(row)
        except (Unreadable, InvalidInput) as error:
            self.left_out.add((row.namespace, row.checkpoint_id))
            self.problems.append(f"{_where(row)} was not moved: {error}")

    def is_full(self) -> bool:
        """Whether it is time to commit."""
        return len(self._new) >= _COMMIT_CHECKPOINTS or self._size + self._encoder.chunk_bytes >= _COMMIT_BYTES

    def _add(self, row: Row) -> None:
        lane, checkpoint_id = lane_of(row.namespace), check_id("checkpoint_id", row.checkpoint_id)
        there, beside = self._there(lane, checkpoint_id)
        parts, metadata = row.content.parts(self._serde), convert.read_metadata(row.metadata)
        if there is None and checkpoint_id <= self._newest.get(lane, ""):
            self.left_out.add((row.namespace, checkpoint_id))
            self._late += 1
            return
        pieces = self._kept(lane, parts)
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
        attached, writes = self._attached(row, parts, metadata, lane, beside)
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
        self._note(new, there, attached)
        self.writes += writes
        self._last = (row.namespace, checkpoint_id)

    def _note(self, new: NewCheckpoint, there: CheckpointRow | None, attached: list[NewAttachment]) -> None:
        if there is None or _differs(new, there):
            self._new.append(new)
            self._replaced += there is not None
            self._size += len(new.root)
            self.checkpoints += 1
        self._beside += attached
        self._size += sum(len(each.root) for each in attached)

    def _there(self, lane: str, checkpoint_id: str) -> tuple[CheckpointRow | None, dict[str, bytes]]:
        """The checkpoint as an earlier call stored it, and the roots of what lies beside it."""
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

    def _kept(self, lane: str, parts: Parts) -> dict[str, tuple[Typed, record_codec.Stored]]:
        """The values as they are stored; those that the checkpoint before had as well are not cut again."""
        before = self._pieces.get(lane, {})
        found: dict[str, tuple[Typed, record_codec.Stored]] = {}
        for channel, value in parts.values.items():
            old = before.get(channel)
            found[channel] = old if old is not None and old[0] == value else (value, convert.kept(value))
        return found

    def _attached(
        self, row: Row, parts: Parts, metadata: record_codec.Record, lane: str, beside: dict[str, bytes]
    ) -> tuple[list[NewAttachment], int]:
        """What is to be attached, as far as it is not there, and how many writes that is."""
        wanted = convert.attachments(row.writes)
        if row.parent_id and (not row.has_parent or (row.namespace, row.parent_id) in self.left_out):
            missing = convert.needs_ancestors(metadata, parts)
            if missing:
                self._say(
                    f"{_where(row)} is incomplete: its channels {', '.join(map(repr, missing))} are kept as what "
                    "changed since ancestors that are not in the source"
                )
            else:
                wanted[FOLD] = convert.Beside({}, 0)
        new: list[NewAttachment] = []
        writes = 0
        for key, (value, count) in wanted.items():
            root = self._encoder.encode_value(value)
            if beside.get(key) != root:
                new.append(NewAttachment(row.checkpoint_id, key, root, lane, key in beside))
                writes += count
        self._look_for_pickle(row, parts)
        return new, writes

    def _look_for_pickle(self, row: Row, parts: Parts) -> None:
        pickled = {channel for channel, (kind, _) in parts.values.items() if record_codec.is_pickle(kind)}
        pickled |= {write.channel for write in row.writes if record_codec.is_pickle(write.value[0])}
        for channel in pickled:
            text = f"channel {channel!r} has pickled values"
            if text not in self._said:
                self._said.add(text)
                self._say(f"{text}, first in {_where(row)}; they were moved as they are, and are never loaded")

    def _say(self, problem: str) -> None:
        self.problems.append(problem)

    # --- commits -----------------------------------------------------------------------------------------------------

    def flush(self, *, last: bool = False) -> None:
        """Commit what was added. A thread that is whole in one commit needs no claim."""
        if last and self._late:
            self._say(
                f"{self._late} checkpoints are older than the newest that the store has of their namespace, and were "
                "not moved: they came late into the source, or were pruned in the store"
            )
        if self._dry_run:
            self._empty()
            return
        if not (self._new or self._beside):
            return  # chunks of checkpoints that were left out stay for the next commit: later ones may share them
        take = None
        if self._run is None and not last:
            take = TakeClaim(self._owner.name, self._core.ids.token(16), int(LEASE_S * US))
        done = self._commit(self._next_mark(""), take=take)
        if take is not None:
            self._held(done, take)
        self._empty()

    def finish(self) -> None:
        """Give up the claim, and if there was no problem mark the thread as moved whole."""
        if self._run is None or self._dry_run:
            return
        source = self._thread.print if not self.problems else ""
        if self._holder is None and not source:
            return
        with contextlib.suppress(Conflict):  # without a claim the thread may have been continued already
            self._commit(self._next_mark(source), release=self._holder is not None)
            self._holder = None

    def abandon(self) -> None:
        """Give up the claim, if there is one, and leave the thread to a later call."""
        if self._holder is not None and self._run is not None:
            status = stored_status(self._core, self._thread.thread_id)
            token = self._core.ids.token(8)
            commit = Commit(self._thread.thread_id, token, self._guard(), release=True, status=status)
            self._holder = None
            with contextlib.suppress(HoldfastError):
                self._core.committer.commit(commit)

    def was_continued(self) -> bool:
        """Whether the thread was continued since it was copied."""
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
        assert mark.fits(done.run), "the mark describes what this commit left"
        self._run = done.run
        return done


def _status(row: Row, parts: Parts) -> str:
    """The status of a thread that ends with this root checkpoint."""
    frame = record_codec.read_frame(parts.frame, _where(row))
    values = {channel: value for channel, value in parts.values.items() if value != (record_codec.USUAL, _EMPTY_LIST)}
    return status_from(frame.v, frame.versions, frame.seen, values)


def _where(row: Row) -> str:
    of = f" of namespace {row.namespace!r}" if row.namespace else ""
    return f"checkpoint {row.checkpoint_id!r}{of}"


def _differs(new: NewCheckpoint, old: CheckpointRow) -> bool:
    same = (new.root, new.metadata or b"", new.parent_id or None) == (old.root, old.metadata, old.parent_id)
    return not same or (new.step is not None and new.step != old.step)
