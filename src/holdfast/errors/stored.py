"""Errors of stores: what is wrong with a call, what is not there, who was first, what is damaged or failed."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AlreadyAnswered",
    "AmbiguousId",
    "AttachmentConflict",
    "BlockingCall",
    "CheckpointConflict",
    "CheckpointNotFound",
    "ClaimLost",
    "Conflict",
    "DamagedData",
    "DamagedFile",
    "GateClosed",
    "HoldfastError",
    "InvalidCursor",
    "InvalidId",
    "InvalidInput",
    "LimitExceeded",
    "NameTaken",
    "NotFound",
    "ParentRemoved",
    "PositionConflict",
    "RunClaimed",
    "RunEnded",
    "RunExists",
    "RunNotFound",
    "StorageBusy",
    "StorageError",
    "StorageFailed",
    "StorageFull",
    "StoreClosed",
    "Unstorable",
    "UnsupportedFormat",
    "WorkflowConflict",
]


class HoldfastError(Exception):
    """Base of everything Holdfast raises on purpose."""

    retryable: ClassVar[bool] = False


class InvalidInput(HoldfastError, ValueError):
    """The call itself is wrong. Nothing was written."""


class InvalidId(InvalidInput):
    """An id is not text of 1 to 512 bytes without control characters."""


class AmbiguousId(InvalidInput):
    """The beginning of an id that several runs share. `candidates` are the newest of them."""

    def __init__(self, text: str, candidates: tuple[str, ...], *, more: bool) -> None:
        listed = ", ".join(map(repr, candidates)) + (" and more" if more else "")
        super().__init__(f"{text!r} is the beginning of several ids; write more of it: {listed}")
        self.text = text
        self.candidates = candidates


class InvalidCursor(InvalidInput):
    """A position (`41` or `"journal.41"`) or a list cursor cannot be read."""


class Unstorable(InvalidInput):
    """A value cannot be stored so that it comes back equal. `path` leads to the offending part."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class LimitExceeded(InvalidInput):
    """Something is larger than the limit named in the message."""


class BlockingCall(InvalidInput):
    """A blocking verb was called inside a running event loop, which it would have stopped."""


class NotFound(HoldfastError, LookupError):
    """What the call names is not there."""


class RunNotFound(NotFound):
    """There is no run with this id."""

    def __init__(self, run_id: str, near: tuple[str, ...] = (), *, whole: bool = False) -> None:
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "store.runs() lists what is there"
        hint += " Type the whole id" if near and whole else ""
        super().__init__(f"there is no run {run_id!r} in this store; {hint}")
        self.run_id = run_id
        self.near = near


class CheckpointNotFound(NotFound):
    """The run is there, the checkpoint is not."""

    def __init__(self, run_id: str, wanted: str) -> None:
        super().__init__(f"run {run_id!r} has no checkpoint {wanted}; store.history({run_id!r}) lists them")
        self.run_id = run_id
        self.wanted = wanted


class Conflict(HoldfastError):
    """Somebody or something was first. Nothing was written."""


class ParentRemoved(Conflict):
    """A checkpoint needs its parent, and that was removed meanwhile; saved without it, it could not be read."""

    def __init__(self, run_id: str, parent_id: str) -> None:
        super().__init__(
            f"the checkpoint to save in run {run_id!r} needs its parent {parent_id!r}, which was removed meanwhile; "
            "go on from the newest checkpoint that is there"
        )
        self.run_id = run_id
        self.parent_id = parent_id


class RunExists(Conflict):
    """A run with this id is already there."""

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
    """The run is completed, failed or cancelled and takes nothing more of this kind."""

    def __init__(self, run_id: str, status: str) -> None:
        retry = "app.retry(run_id) goes on from what failed, or " if status == "failed" else ""
        super().__init__(f"run {run_id!r} has ended ({status}); {retry}fork it to go on from one of its checkpoints")
        self.run_id = run_id
        self.status = status


class RunClaimed(Conflict):
    """Another live owner holds the run, so only that owner may write to it."""

    retryable = True

    def __init__(self, run_id: str, owner: str, left_s: float) -> None:
        super().__init__(
            f"run {run_id!r} is held by {owner!r} for another {left_s:.1f} s; "
            "write through that claim, or wait until it is released or its lease ends"
        )
        self.run_id = run_id
        self.owner = owner
        self.left_s = left_s


class ClaimLost(Conflict):
    """This claim is no longer the run's claim: it was released, ended, or taken over. Stop working on the run."""

    def __init__(self, run_id: str, owner: str, holder: str | None) -> None:
        now = f"it is held by {holder!r} now" if holder else "nobody holds it now"
        super().__init__(
            f"{owner!r} no longer holds run {run_id!r}: {now}; nothing was written, claim it again to go on"
        )
        self.run_id = run_id
        self.owner = owner
        self.holder = holder


class PositionConflict(Conflict):
    """The journal has moved on since it was read."""

    def __init__(self, run_id: str, expected: int, found: int) -> None:
        super().__init__(f"journal of run {run_id!r} stands at {found}, not at {expected}; read it again and retry")
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
    """The file this id would have holds another id: two ids became one name."""

    def __init__(self, place: str, wanted: str, found: str) -> None:
        super().__init__(
            f"{place} belongs to {found!r}, not to {wanted!r}: both ids become this one name; "
            "give one of them another id, nothing was written"
        )
        self.place = place
        self.wanted = wanted
        self.found = found


class AlreadyAnswered(Conflict):
    """The gate has its answer. The first one counts."""

    def __init__(self, run_id: str, gate: str, by: str, at: str) -> None:
        super().__init__(
            f"gate {gate!r} of run {run_id!r} was already answered by {by!r} at {at}; the first answer counts"
        )
        self.run_id = run_id
        self.gate = gate
        self.by = by
        self.at = at


class GateClosed(Conflict):
    """The gate is not there, was closed, or has expired."""

    def __init__(self, run_id: str, gate: str, state: str, more: str = "") -> None:
        super().__init__(f"gate {gate!r} of run {run_id!r} takes no answer: it is {state}" + (more and f"; {more}"))
        self.run_id = run_id
        self.gate = gate
        self.state = state


class DamagedData(HoldfastError):
    """Stored bytes are not what was stored. They are reported, never guessed."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(
            f"{place} is damaged: {reason}; store.verify() lists all damage, "
            "load(run, damaged='previous') gives the newest undamaged checkpoint"
        )
        self.place = place
        self.reason = reason


class DamagedFile(DamagedData):
    """A file of another system is torn, or is not what its name says. It is left as it is."""

    def __init__(self, place: str, reason: str) -> None:
        HoldfastError.__init__(
            self, f"{place} cannot be used: {reason}; it was left as it is: mend it, or move it out of the directory"
        )
        self.place = place
        self.reason = reason


class UnsupportedFormat(DamagedData):
    """The bytes were written by a newer version of Holdfast."""

    def __init__(self, place: str, reason: str) -> None:
        HoldfastError.__init__(self, f"{place} cannot be read: {reason}; a newer version of Holdfast can read it")
        self.place = place
        self.reason = reason


class StorageError(HoldfastError):
    """The machine below failed. What was acknowledged before is intact."""


class StorageFull(StorageError):
    """There is no room. A reserve is kept, so prune and delete still work."""

    retryable = True


class StorageFailed(StorageError):
    """An input/output error. The message says whether the failed call changed nothing, or if that is not known."""


class StorageBusy(StorageError):
    """Others held the store for longer than this store's timeout."""

    retryable = True


class StoreClosed(StorageError):
    """The store was closed."""
