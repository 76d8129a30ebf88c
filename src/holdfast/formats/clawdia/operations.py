"""Clawdia's operations, shared by files and memory, and the store in memory.

The journal takes precedence; a checkpoint records a state and how much of the journal it covers. Saving, loading and
pruning use the same order and the same definition of "terminal". A checkpoint that cannot be read hides no other.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Literal

from holdfast.errors import Conflict, DamagedFile, InvalidInput
from holdfast.formats.clawdia.replay import before_pending
from holdfast.formats.clawdia.run_records import cursor_of, is_terminal, order, record_to_write, seq_of, to_write
from holdfast.formats.json_lines import Snapshot
from holdfast.formats.schema import JsonObject, read_json, write_json
from holdfast.ids import check_id
from holdfast.model.views import Problem, View

__all__ = ["Memory"]


class SaveOutcome(View, frozen=True, kw_only=True):
    """The result of `save`."""

    checkpoint_ref: str
    covers_journal_seq: int
    terminal_checkpoint: bool


class PrunePolicy(View, frozen=True, kw_only=True):
    """The policy of `prune`: it removes checkpoints that cover less than `prune_covered_before`, with exceptions.

    Example:
        clawdia.PrunePolicy(prune_covered_before=10, preserve_latest_terminal=True)
    """

    prune_covered_before: int
    preserve_latest_terminal: bool = True
    preserve_before_pending: bool = True
    """Keep, for each effect whose result is unknown, the newest checkpoint before it, as the original documents."""


class PruneReport(View, frozen=True, kw_only=True):
    """The result of `prune`."""

    run_id: str
    pruned_count: int
    retained_count: int
    preserved_terminal_checkpoint: str | None
    preserved_before_pending: tuple[str, ...] = ()
    preserved_latest_checkpoint: str | None = None
    """The newest readable checkpoint, if no other rule kept it: a run never loses its last checkpoint."""


class JournalEnd(View, frozen=True, kw_only=True):
    """The end of a journal, and the positions of its records."""

    last_seq: int
    seqs: dict[str, int]
    """The sequence number of each record, by its id."""
    seen: Snapshot | None = None
    """The file as it was read."""


Objects = list[JsonObject]
"""Used in class bodies, where `list` is a method."""


def _round_trip(record: JsonObject) -> object:
    """Return the record as it is read from a file, where a tuple is a list."""
    return read_json(write_json(record, compact=True), "a record")


class Operations:
    """The operations. Subclasses define how the data is stored."""

    # --- implemented by subclasses -----------------------------------------------------------------------------------

    def _exclusive(self) -> AbstractContextManager[None]:
        """Exclude all other changes."""
        raise NotImplementedError

    def _checkpoints(self, run_id: str) -> list[JsonObject]:
        """Return the run's readable checkpoints in any order."""
        raise NotImplementedError

    def _put(self, checkpoint: JsonObject) -> None:
        """Store a checkpoint, replacing one with the same id."""
        raise NotImplementedError

    def _remove(self, run_id: str, unwanted: dict[str, JsonObject]) -> None:
        """Remove checkpoints by id. One that the original has saved again since is kept."""
        raise NotImplementedError

    def _records(self, run_id: str) -> tuple[list[JsonObject], list[Problem]]:
        """Return the records of a run's journal in order, and its broken records."""
        raise NotImplementedError

    def _journal_end(self, run_id: str) -> JournalEnd:
        """Return the end of the run's journal. Raises DamagedFile if it is unknown."""
        raise NotImplementedError

    def _append(self, record: JsonObject, end: JournalEnd) -> bool:
        """Append a record to its run's journal durably; return False if the journal no longer ends at `end`."""
        raise NotImplementedError

    def _sync(self, run_id: str) -> None:
        """Sync the journal: an earlier call may have failed to."""

    def problems(self, run_id: str) -> list[Problem]:
        """Return the files and records of the run that cannot be read. They are left unchanged.

        Example:
            runs.problems("run.a")
        """
        raise NotImplementedError

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def save(self, checkpoint: JsonObject, latest_journal_seq: int | None = None) -> SaveOutcome:
        """Save a checkpoint, replacing one with the same id.

        It must not cover more than `latest_journal_seq`, the last record of the journal; by default that of the journal
        in this store.

        Example:
            runs.save(checkpoint, latest_journal_seq=1).terminal_checkpoint
        """
        content = to_write(checkpoint)
        run_id, covers = content["run_id"], content["covers_journal_seq"]
        latest = None if latest_journal_seq is None else seq_of(latest_journal_seq)
        with self._exclusive():
            latest = self._journal_end(run_id).last_seq if latest is None else latest
            if covers > latest:
                raise InvalidInput(
                    f"checkpoint {content['checkpoint_id']!r} covers the journal up to {covers}, "
                    f"but the journal ends at {latest}; append the records first"
                )
            self._put(content)
        return SaveOutcome(
            checkpoint_ref=content["checkpoint_id"], covers_journal_seq=covers, terminal_checkpoint=is_terminal(content)
        )

    def load_latest(self, run_id: str) -> JsonObject | None:
        """Return the newest readable checkpoint; None if there is none.

        Example:
            runs.load_latest("run.a")
        """
        found = self.list(run_id)
        return found[-1] if found else None

    def load_at_or_before(self, run_id: str, cursor: int | str) -> JsonObject | None:
        """Return the newest checkpoint that covers no more than a cursor. Raises InvalidCursor.

        Example:
            runs.load_at_or_before("run.a", "journal.2")
        """
        seq = seq_of(cursor)
        found = [checkpoint for checkpoint in self.list(run_id) if checkpoint["covers_journal_seq"] <= seq]
        return found[-1] if found else None

    def list(self, run_id: str) -> list[JsonObject]:
        """Return the run's readable checkpoints, oldest first.

        Example:
            [checkpoint["checkpoint_id"] for checkpoint in runs.list("run.a")]
        """
        check_id("run_id", run_id)
        return sorted(self._checkpoints(run_id), key=order)

    def prune(self, run_id: str, policy: PrunePolicy) -> PruneReport:
        """Remove checkpoints by a policy. Unreadable ones are left unchanged, and the newest is always kept.

        Raises DamagedFile if the journal has a broken record and `preserve_before_pending` is set: the record may be
        the intent of an effect.

        Example:
            runs.prune("run.a", clawdia.PrunePolicy(prune_covered_before=2)).pruned_count
        """
        check_id("run_id", run_id)
        if not isinstance(policy, PrunePolicy):
            raise InvalidInput(f"prune takes a PrunePolicy, not {type(policy).__name__}")
        before = seq_of(policy.prune_covered_before)
        with self._exclusive():
            found = self.list(run_id)
            ended = [c["checkpoint_id"] for c in found if is_terminal(c)]
            terminal = ended[-1] if ended and policy.preserve_latest_terminal else None
            pending = self._before_pending(run_id, found) if policy.preserve_before_pending else ()
            kept = {c["checkpoint_id"] for c in found if c["covers_journal_seq"] >= before} | {terminal, *pending}
            latest = None if not found or found[-1]["checkpoint_id"] in kept else found[-1]["checkpoint_id"]
            unwanted = {c["checkpoint_id"]: c for c in found if c["checkpoint_id"] not in {*kept, latest}}
            if unwanted:
                self._remove(run_id, unwanted)
        return PruneReport(
            run_id=run_id,
            pruned_count=len(unwanted),
            retained_count=len(found) - len(unwanted),
            preserved_terminal_checkpoint=terminal,
            preserved_before_pending=pending,
            preserved_latest_checkpoint=latest,
        )

    def _before_pending(self, run_id: str, found: Objects) -> tuple[str, ...]:
        records, problems = self._records(run_id)
        if problems:  # it may be an intent, and the checkpoint before it would be unknown
            raise DamagedFile(problems[0].place, problems[0].reason)
        return before_pending(found, records)

    # --- the journal -------------------------------------------------------------------------------------------------

    def append(self, record: JsonObject) -> str:
        """Append a record to its run's journal durably. Return its cursor.

        A record without `journal_seq` gets the next number; others must be above the last. A known `record_id` returns
        its cursor; with other content it raises Conflict. Raises InvalidInput if Clawdia could not read the record.

        Example:
            cursor = runs.append(record)
        """
        run_id = check_id("run_id", record.get("run_id") if isinstance(record, dict) else None)
        record_to_write(record, 1)  # an invalid record is refused before anything is read
        with self._exclusive():
            while True:
                end = self._journal_end(run_id)
                content = record_to_write(record, end.last_seq + 1)
                seq, known = content["journal_seq"], end.seqs.get(content["record_id"])
                if known is not None:
                    self._check_same({**content, **({} if record.get("journal_seq") else {"journal_seq": known})})
                    self._sync(run_id)
                    return cursor_of(known)
                if seq <= end.last_seq:
                    raise Conflict(
                        f"journal_seq {seq} of run {run_id!r} must be above the last, {end.last_seq}; nothing written"
                    )
                if self._append(copy.deepcopy(content), end):
                    return cursor_of(seq)

    def _check_same(self, content: JsonObject) -> None:
        known = [r for r in self._records(content["run_id"])[0] if r["record_id"] == content["record_id"]]
        if not known or any(_round_trip(found) != _round_trip(content) for found in known):
            raise Conflict(
                f"record {content['record_id']!r} of run {content['run_id']!r} already exists with other content"
            )

    def records(self, run_id: str, after: int | str = 0, *, damaged: Literal["error", "skip"] = "error") -> Objects:
        """Return the records of a run's journal after a cursor, in order.

        A torn end is skipped. A broken record raises DamagedFile; with `damaged="skip"` it is left out.

        Example:
            runs.records("run.a", after="journal.1")
        """
        check_id("run_id", run_id)
        seq = seq_of(after)
        if damaged not in ("error", "skip"):
            raise InvalidInput(f'damaged must be "error" or "skip", not {damaged!r}')
        found, problems = self._records(run_id)
        if problems and damaged == "error":
            raise DamagedFile(problems[0].place, problems[0].reason)
        return [record for record in found if record["journal_seq"] > seq]

    def latest_journal_seq(self, run_id: str) -> int:
        """Return the number of the last record of a run's journal; 0 if it has none.

        Example:
            runs.latest_journal_seq("run.a")
        """
        check_id("run_id", run_id)
        return self._journal_end(run_id).last_seq


class Memory(Operations):
    """Checkpoints and journals in memory, which end with the process. Threads may share it.

    Example:
        runs = clawdia.Memory()
        runs.save(checkpoint, latest_journal_seq=1)
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._saved: dict[str, dict[str, JsonObject]] = {}
        self._journals: dict[str, list[JsonObject]] = {}

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._lock:
            yield

    def _checkpoints(self, run_id: str) -> list[JsonObject]:
        with self._lock:
            return copy.deepcopy(list(self._saved.get(run_id, {}).values()))

    def _put(self, checkpoint: JsonObject) -> None:
        write_json(checkpoint)
        self._saved.setdefault(checkpoint["run_id"], {})[checkpoint["checkpoint_id"]] = copy.deepcopy(checkpoint)

    def _remove(self, run_id: str, unwanted: dict[str, JsonObject]) -> None:
        for checkpoint_id in unwanted:
            del self._saved[run_id][checkpoint_id]

    def _records(self, run_id: str) -> tuple[list[JsonObject], list[Problem]]:
        with self._lock:
            return copy.deepcopy(self._journals.get(run_id, [])), []

    def _journal_end(self, run_id: str) -> JournalEnd:
        with self._lock:
            records = self._journals.get(run_id, [])
            last = records[-1]["journal_seq"] if records else 0
            return JournalEnd(last_seq=last, seqs={r["record_id"]: r["journal_seq"] for r in records})

    def _append(self, record: JsonObject, end: JournalEnd) -> bool:  # noqa: ARG002 - see Operations
        write_json(record)
        self._journals.setdefault(record["run_id"], []).append(record)
        return True

    def problems(self, run_id: str) -> list[Problem]:  # noqa: ARG002 - nothing here can be damaged
        """Return an empty list: memory is never damaged.

        Example:
            runs.problems("run.a")
        """
        return []
