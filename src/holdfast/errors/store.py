"""Errors of stores: invalid calls, missing runs, conflicts, damage and failed storage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar


def close_matches(name: str, known: Iterable[str]) -> list[str]:
    """The known names that resemble a mistyped one, at most three."""
    from difflib import get_close_matches  # loaded only for the error

    return get_close_matches(name, sorted(known))


def did_you_mean(names: Iterable[str], rest: str = "") -> str:
    """Ask for the names that were probably meant, if there are any, then append `rest`."""
    listed = " or ".join(map(repr, names))
    return f"did you mean {listed}? {rest}".rstrip() if listed else rest


class HoldfastError(Exception):
    """Base of all errors of Holdfast. Its text is the problem, then the advice, if there is any.

    `hint_code` names the advice, for a program that words it itself, such as the command line.
    """

    retryable: ClassVar[bool] = False
    hint_code: str = ""

    def __init__(self, problem: object = "", advice: str = "", *, hint_code: str = "") -> None:
        super().__init__(problem)
        if advice:  # in `args`, because attributes are recorded with a refused call
            self.args = (problem, advice)
        if hint_code:
            self.hint_code = hint_code

    def __str__(self) -> str:
        return "; ".join(map(str, self.args))

    @property
    def problem(self) -> str:
        """What failed, without the advice."""
        return str(self.args[0]) if self.args else ""


class InvalidInput(HoldfastError, ValueError):
    """The call itself is wrong. Nothing was written."""


class InvalidId(InvalidInput):
    """An id is not text of 1 to 512 bytes without control characters."""


class AmbiguousId(InvalidInput):
    """A prefix that the ids of several runs share. `candidates` are the newest of them."""

    def __init__(self, text: str, candidates: tuple[str, ...], *, more: bool) -> None:
        listed = ", ".join(map(repr, candidates)) + (" and more" if more else "")
        super().__init__(f"{text!r} is a prefix of several run ids; type more of it: {listed}")
        self.text = text
        self.candidates = candidates


class InvalidCursor(InvalidInput):
    """A position (`41` or `"journal.41"`) or a list cursor cannot be read."""


class Unstorable(InvalidInput):
    """A value cannot be stored so that it is read back equal. `path` names the offending part."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class LimitExceeded(InvalidInput):
    """A value is larger than the limit in the message."""


class BlockingCall(InvalidInput):
    """A blocking method was called inside a running event loop, which it would have blocked."""


class NotFound(HoldfastError, LookupError):
    """What the call names does not exist."""


class RunNotFound(NotFound):
    """There is no run with this id."""

    def __init__(self, run_id: str, near: tuple[str, ...] = (), *, whole: bool = False) -> None:
        advice = did_you_mean(near, "Type the whole id" if near and whole else "") or "store.runs() lists all runs"
        super().__init__(f"there is no run {run_id!r} in this store", advice, hint_code="" if near else "list_runs")
        self.run_id = run_id
        self.near = near


class CheckpointNotFound(NotFound):
    """The run exists, but the checkpoint does not."""

    hint_code = "list_checkpoints"

    def __init__(self, run_id: str, wanted: str) -> None:
        super().__init__(f"run {run_id!r} has no checkpoint {wanted}", f"store.history({run_id!r}) lists them")
        self.run_id = run_id
        self.wanted = wanted


class Conflict(HoldfastError):
    """The stored state does not allow the call. Nothing was written."""


class ParentRemoved(Conflict):
    """A checkpoint needs its parent, which was removed; without it the checkpoint could not be read."""

    def __init__(self, run_id: str, parent_id: str) -> None:
        super().__init__(
            f"the checkpoint to save in run {run_id!r} needs its parent {parent_id!r}, which was removed; "
            "continue from the newest checkpoint of the run"
        )
        self.run_id = run_id
        self.parent_id = parent_id


class RunExists(Conflict):
    """A run with this id already exists."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} already exists; choose another id or delete it first")
        self.run_id = run_id


class WorkflowConflict(Conflict):
    """The run belongs to another workflow, so its state may not be what the caller expects."""

    def __init__(self, run_id: str, workflow: str, found: str) -> None:
        super().__init__(f"run {run_id!r} belongs to workflow {found!r}, not {workflow!r}; use another run id")
        self.run_id = run_id
        self.workflow = workflow
        self.found = found


class RunEnded(Conflict):
    """The run is completed, failed or cancelled, and does not accept such a change."""

    def __init__(self, run_id: str, status: str) -> None:
        fork = "fork it to continue from one of its checkpoints"
        advice, hint_code = fork, ""
        if status == "failed":
            advice, hint_code = f"app.retry(run_id) repeats what failed, or {fork}", "retry_or_fork"
        super().__init__(f"run {run_id!r} has ended ({status})", advice, hint_code=hint_code)
        self.run_id = run_id
        self.status = status


class RunClaimed(Conflict):
    """Another owner has claimed the run, so only that owner may write to it."""

    retryable = True

    def __init__(self, run_id: str, owner: str, left_s: float) -> None:
        super().__init__(
            f"run {run_id!r} is claimed by {owner!r} for another {left_s:.1f} s; "
            "write through that claim, or wait until it is released or its lease expires"
        )
        self.run_id = run_id
        self.owner = owner
        self.left_s = left_s


class ClaimLost(Conflict):
    """This claim is no longer the run's claim: it was released, expired, or taken over. Stop executing the run."""

    def __init__(self, run_id: str, owner: str, holder: str | None) -> None:
        now = f"it is claimed by {holder!r} now" if holder else "it is not claimed now"
        super().__init__(
            f"{owner!r} has lost its claim on run {run_id!r}: {now}; nothing was written, claim the run again"
        )
        self.run_id = run_id
        self.owner = owner
        self.holder = holder


class PositionConflict(Conflict):
    """The journal has grown since it was read."""

    def __init__(self, run_id: str, expected: int, found: int) -> None:
        super().__init__(f"the journal of run {run_id!r} ends at {found}, not at {expected}; read it again and retry")
        self.run_id = run_id
        self.expected = expected
        self.found = found


class CheckpointConflict(Conflict):
    """The checkpoint id is taken by a checkpoint with other content."""

    def __init__(self, run_id: str, checkpoint_id: str, differs: str) -> None:
        super().__init__(
            f"checkpoint {checkpoint_id!r} of run {run_id!r} is already saved with other {differs}; "
            "use another id, or replace=True to overwrite it"
        )
        self.run_id = run_id
        self.checkpoint_id = checkpoint_id


class AttachmentConflict(Conflict):
    """The attachment key is taken by another value."""

    def __init__(self, run_id: str, checkpoint_id: str, key: str) -> None:
        super().__init__(
            f"attachment {key!r} of checkpoint {checkpoint_id!r} in run {run_id!r} already has another value; "
            "use replace=True to overwrite it"
        )
        self.run_id = run_id
        self.checkpoint_id = checkpoint_id
        self.key = key


class NameTaken(Conflict):
    """The file of this id belongs to another id: both ids have the same file name."""

    def __init__(self, place: str, wanted: str, found: str) -> None:
        super().__init__(
            f"{place} belongs to {found!r}, not to {wanted!r}: both ids have this file name, and nothing was written; "
            "choose another id for one of them"
        )
        self.place = place
        self.wanted = wanted
        self.found = found


class AlreadyAnswered(Conflict):
    """The gate was answered before. Only the first answer is used."""

    def __init__(self, run_id: str, gate: str, by: str, at: str) -> None:
        super().__init__(
            f"gate {gate!r} of run {run_id!r} was already answered by {by!r} at {at}; the first answer counts"
        )
        self.run_id = run_id
        self.gate = gate
        self.by = by
        self.at = at


class PlanChanged(Conflict):
    """The run, or a child that goes back with it, has changed since the plan of a rollback or fork was made."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} or a child has changed since the plan was made; make the plan again")
        self.run_id = run_id


class GateClosed(Conflict):
    """The gate does not exist, was closed, or has expired."""

    def __init__(self, run_id: str, gate: str, state: str, more: str = "") -> None:
        is_unknown = state == "unknown"
        problem = (
            f"run {run_id!r} has no gate {gate!r}" if is_unknown else f"gate {gate!r} of run {run_id!r} is {state}"
        )
        super().__init__(problem + (more and f"; {more}"))
        self.run_id = run_id
        self.gate = gate
        self.state = state


class DamagedData(HoldfastError):
    """Stored bytes are not what was stored. They are reported, never guessed."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(
            f"{place} is damaged: {reason}",
            "store.verify() lists all damage, load(run, damaged='previous') returns the newest undamaged checkpoint",
            hint_code="list_damage",
        )
        self.place = place
        self.reason = reason


class DamagedFile(DamagedData):
    """A file of another system is torn, or is not what its name says. It is not changed."""

    def __init__(self, place: str, reason: str) -> None:
        HoldfastError.__init__(
            self, f"{place} cannot be used: {reason}; it was not changed, so repair it or move it out of the directory"
        )
        self.place = place
        self.reason = reason


class UnsupportedFormat(DamagedData):
    """The bytes were written by a newer version of Holdfast."""

    def __init__(self, place: str, reason: str) -> None:
        HoldfastError.__init__(self, f"{place} cannot be read: {reason}; install a newer version of Holdfast")
        self.place = place
        self.reason = reason


class StorageError(HoldfastError):
    """The storage failed. Commits that were acknowledged before are intact."""


class StorageFull(StorageError):
    """The disk is full. A reserve is kept, so prune and delete still work."""

    retryable = True


class StorageFailed(StorageError):
    """An input/output error. The message says whether nothing was changed, or whether that is unknown."""


class StorageBusy(StorageError):
    """Other processes held the store for longer than its timeout."""

    retryable = True


class StoreClosed(StorageError):
    """The store was closed."""
