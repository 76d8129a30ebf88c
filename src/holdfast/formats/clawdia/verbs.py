"""Clawdia's verbs, written once for files and for memory.

The journal is the truth; a checkpoint only says how far it was read when the state was such. Saving, loading and
pruning follow one order and one meaning of "terminal". A checkpoint that cannot be read hides no other.
"""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager
from typing import Any, Literal

from holdfast.errors import Conflict, DamagedFile, InvalidInput
from holdfast.formats.clawdia.effects import before_pending
from holdfast.formats.clawdia.shape import cursor_of, is_terminal, order, record_to_write, seq_of, to_write
from holdfast.formats.lines import Seen
from holdfast.formats.lossless import read_json, write_json
from holdfast.ids import check_id
from holdfast.model.views import Problem, View


class SaveOutcome(View, frozen=True, kw_only=True):
    """What `save` did."""

    checkpoint_ref: str
    covers_journal_seq: int
    terminal_checkpoint: bool


class PrunePolicy(View, frozen=True, kw_only=True):
    """What `prune` removes: checkpoints that cover less than `prune_covered_before`, except those that are preserved.

    Example:
        clawdia.PrunePolicy(prune_covered_before=10, preserve_latest_terminal=True)
    """

    prune_covered_before: int
    preserve_latest_terminal: bool = True
    preserve_before_pending: bool = True
    """For each effect whose result is not known, the newest checkpoint before it. The original promises it."""


class PruneReport(View, frozen=True, kw_only=True):
    """What `prune` removed and kept."""

    run_id: str
    pruned_count: int
    retained_count: int
    preserved_terminal_checkpoint: str | None
    preserved_before_pending: tuple[str, ...] = ()
    preserved_latest_checkpoint: str | None = None
    """The newest that can be read, if it was kept for that reason alone: a run never loses its last checkpoint."""


class JournalEnd(View, frozen=True, kw_only=True):
    """How far a journal is, and where its records stand."""

    last_seq: int
    seqs: dict[str, int]
    """The sequence number of each record, by its id."""
    seen: Seen | None = None
    """The file as it was read."""


Dicts = list[dict[str, Any]]


def _plain(record: dict[str, Any]) -> Any:
    """The record as it comes back from a file, where a tuple is a list."""
    return read_json(write_json(record, compact=True), "a record")


class Verbs:
    """The verbs. Those who keep the data say how."""

    # --- what a place must be able to do -----------------------------------------------------------------------------

    def _held(self) -> AbstractContextManager[None]:
        """While it lasts nobody else changes anything."""
        raise NotImplementedError

    def _checkpoints(self, run_id: str) -> list[dict[str, Any]]:
        """The run's checkpoints that can be read, in any order."""
        raise NotImplementedError

    def _put(self, checkpoint: dict[str, Any]) -> None:
        """Keep a checkpoint, in place of one with the same id."""
        raise NotImplementedError

    def _remove(self, run_id: str, gone: dict[str, dict[str, Any]]) -> None:
        """Remove checkpoints, by id. One that the original has saved again meanwhile stays."""
        raise NotImplementedError

    def _records(self, run_id: str) -> tuple[list[dict[str, Any]], list[Problem]]:
        """The records of a run's journal, in order, and what could not be read in its middle."""
        raise NotImplementedError

    def _journal_end(self, run_id: str) -> JournalEnd:
        """How far the run's journal is. DamagedFile if that cannot be told."""
        raise NotImplementedError

    def _append(self, record: dict[str, Any], end: JournalEnd) -> bool:
        """Add a record to its run's journal, durably; False if the journal no longer ends at `end`."""
        raise NotImplementedError

    def _settle(self, run_id: str) -> None:
        """Make durable what stands in the journal, if an earlier call failed in that."""

    def problems(self, run_id: str) -> list[Problem]:
        """What of the run cannot be read. It is left as it is, and hides nothing else.

        Example:
            runs.problems("run.a")
        """
        raise NotImplementedError

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def save(self, checkpoint: dict[str, Any], latest_journal_seq: int | None = None) -> SaveOutcome:
        """Keep a checkpoint, in place of one with the same id, if there is one.

        It must not cover more than `latest_journal_seq`, the last record of the journal; if that is not given, it is
        taken from the journal that is here.

        Example:
            runs.save(checkpoint, latest_journal_seq=1).terminal_checkpoint
        """
        content = to_write(checkpoint)
        run_id, covers = content["run_id"], content["covers_journal_seq"]
        latest = None if latest_journal_seq is None else seq_of(latest_journal_seq)
        with self._held():
            latest = self._journal_end(run_id).last_seq if latest is None else latest
            if covers > latest:
                raise InvalidInput(
                    f"checkpoint {content['checkpoint_id']!r} covers the journal up to {covers}, "
                    f"but it ends at {latest}; append the records first"
                )
            self._put(content)
        return SaveOutcome(
            checkpoint_ref=content["checkpoint_id"], covers_journal_seq=covers, terminal_checkpoint=is_terminal(content)
        )

    def load_latest(self, run_id: str) -> dict[str, Any] | None:
        """The newest checkpoint that can be read; None if there is none.

        Example:
            runs.load_latest("run.a")
        """
        found = self.list(run_id)
        return found[-1] if found else None

    def load_at_or_before(self, run_id: str, cursor: int | str) -> dict[str, Any] | None:
        """The newest checkpoint that covers no more than a cursor. One that cannot be read is an InvalidCursor.

        Example:
            runs.load_at_or_before("run.a", "journal.2")
        """
        seq = seq_of(cursor)
        found = [checkpoint for checkpoint in self.list(run_id) if checkpoint["covers_journal_seq"] <= seq]
        return found[-1] if found else None

    def list(self, run_id: str) -> list[dict[str, Any]]:
        """The run's checkpoints that can be read, oldest first.

        Example:
            [checkpoint["checkpoint_id"] for checkpoint in runs.list("run.a")]
        """
        check_id("run_id", run_id)
        return sorted(self._checkpoints(run_id), key=order)

    def prune(self, run_id: str, policy: PrunePolicy) -> PruneReport:
        """Remove checkpoints by a policy. Those that cannot be read are left alone, and the newest is always kept.

        DamagedFile if the journal has a broken record and what comes before a pending effect is to be preserved: the
        record may be the effect's.

        Example:
            runs.prune("run.a", clawdia.PrunePolicy(prune_covered_before=2)).pruned_count
        """
        check_id("run_id", run_id)
        if not isinstance(policy, PrunePolicy):
            raise InvalidInput(f"prune takes a PrunePolicy, not {type(policy).__name__}")
        before = seq_of(policy.prune_covered_before)
        with self._held():
            found = self.list(run_id)
            ended = [c["checkpoint_id"] for c in found if is_terminal(c)]
            terminal = ended[-1] if ended and policy.preserve_latest_terminal else None
            pending = self._before_pending(run_id, found) if policy.preserve_before_pending else ()
            kept = {c["checkpoint_id"] for c in found if c["covers_journal_seq"] >= before} | {terminal, *pending}
            latest = None if not found or found[-1]["checkpoint_id"] in kept else found[-1]["checkpoint_id"]
            gone = {c["checkpoint_id"]: c for c in found if c["checkpoint_id"] not in {*kept, latest}}
            if gone:
                self._remove(run_id, gone)
        return PruneReport(
            run_id=run_id, pruned_count=len(gone), retained_count=len(found) - len(gone),
            preserved_terminal_checkpoint=terminal, preserved_before_pending=pending,
            preserved_latest_checkpoint=latest,
        )  # fmt: skip

    def _before_pending(self, run_id: str, found: Dicts) -> tuple[str, ...]:
        records, problems = self._records(run_id)
        if problems:  # it may be an intent, and then nobody knows which checkpoint comes before it
            raise DamagedFile(problems[0].place, problems[0].reason)
        return before_pending(found, records)

    # --- the journal -------------------------------------------------------------------------------------------------

    def append(self, record: dict[str, Any]) -> str:
        """Append a record to its run's journal, durably. Gives its cursor. InvalidInput if Clawdia could not read it.

        A record without `journal_seq` gets the next number; others must be above the last. The same `record_id` again
        gives the cursor it has; with other content it is a Conflict.

        Example:
            cursor = runs.append(record)
        """
        named = record.get("run_id") if isinstance(record, dict) else None
        check_id("run_id", named)
        record_to_write(record, 1)  # what is wrong with it is told before anything is looked at
        with self._held():
            while True:
                end = self._journal_end(str(named))
                content = record_to_write(record, end.last_seq + 1)
                seq, known = content["journal_seq"], end.seqs.get(content["record_id"])
                if known is not None:
                    self._same_record({**content, **({} if record.get("journal_seq") else {"journal_seq": known})})
                    self._settle(str(named))
                    return cursor_of(known)
                if seq <= end.last_seq:
                    raise Conflict(
                        f"journal_seq {seq} of run {named!r} is not above the last, {end.last_seq}; nothing was written"
                    )
                if self._append(copy.deepcopy(content), end):
                    return cursor_of(seq)

    def _same_record(self, content: dict[str, Any]) -> None:
        known = [r for r in self._records(content["run_id"])[0] if r["record_id"] == content["record_id"]]
        if not known or any(_plain(found) != _plain(content) for found in known):
            raise Conflict(
                f"record {content['record_id']!r} of run {content['run_id']!r} is already there with other content"
            )

    def records(self, run_id: str, after: int | str = 0, *, damaged: Literal["error", "skip"] = "error") -> Dicts:
        """The records of a run's journal behind a cursor, in order.

        A torn end is passed over. A broken record in the middle is a DamagedFile; with `damaged="skip"` it is left out.

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
        """The number of the last record of a run's journal, 0 if it has none.

        Example:
            runs.latest_journal_seq("run.a")
        """
        check_id("run_id", run_id)
        return self._journal_end(run_id).last_seq
