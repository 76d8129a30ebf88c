"""What moves: a run as its parts, on the way from a directory into a store or back.

Whatever the system, the state of an imported checkpoint is the JSON object of its file, whole; so an export can write
it again as it was, with every field it had. A run becomes one commit: it is there with everything, or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from holdfast.errors import InvalidId, InvalidInput
from holdfast.formats.folder import Folder
from holdfast.ids import check_id
from holdfast.limits import STEP_MAX
from holdfast.model.commit import Commit, NewCheckpoint, NewEffect, NewEntry, NewGate, NewRun
from holdfast.model.views import Checkpoint, Effect, Entry, Problem, RunInfo
from holdfast.state.encoder import Memo, encode
from holdfast.store.pruning import PRUNED, pruned_body
from holdfast.store.tags import write_metadata
from holdfast.verbs.core import Core
from holdfast.verbs.values import metadata_pairs, value_body

FORMAT: Final = "format"
_ENGINE: Final = frozenset({"started", "step", "asked", "answered", "version", "rolled_back", "forked"})
ENDS: Final = frozenset({"completed", "failed", "cancelled"})
FILE: Final = "file"
"""Under these keys the metadata of an imported run says which system's it was, and what its file was called."""


class Step(msgspec.Struct):
    """A checkpoint to be."""

    state: dict[str, Any]
    file: str
    step: int | None = None
    next_node: str | None = None
    covers: int | None = None
    status: str = "paused"
    checkpoint_id: str = ""
    created_us: int | None = None
    resume: dict[str, Any] | None = None
    """What the engine needs to go on from it."""


class Parts(msgspec.Struct):
    """A run to be."""

    run_id: str
    workflow: str
    status: str
    file: str
    entries: list[NewEntry] = []
    steps: list[Step] = []
    effects: list[NewEffect] = []
    gates: list[NewGate] = []
    about: dict[str, Any] = {}
    """More metadata."""


class Source(NamedTuple):
    """Something that can be imported: a file, or a directory of one run."""

    place: str
    read: Callable[[Core, list[Problem]], Parts]
    """Raises a HoldfastError if it cannot be; what is damaged in a part of it is added to the list."""


class Whole(NamedTuple):
    """A run to be exported."""

    run: RunInfo
    checkpoints: list[Checkpoint[Any]]
    """Oldest first, of the default lane."""
    entries: list[Entry]
    effects: list[Effect]
    answered: bool
    """Whether a gate of the run has its answer."""


class File(NamedTuple):
    """A file to be written."""

    name: tuple[str, ...]
    data: bytes
    is_written: bool = False
    """It says what it should already."""


class Mover(Protocol):
    """How one system's files become runs, and runs its files."""

    def sources(self, path: str) -> list[Source]:
        """What there is to import below `path`."""
        ...

    def files(self, whole: Whole) -> list[File]:
        """The files of a run. InvalidInput if it cannot be one of that system's."""
        ...

    def facing(self, folder: Folder, whole: Whole, files: list[File], *, replace: bool) -> list[File]:
        """The files in the face of what lies where they will be, while the folder's lock is held.

        Conflict if they would do harm there.
        """
        ...


class Careless:
    """A mover whose files do no harm beside others."""

    def facing(self, folder: Folder, whole: Whole, files: list[File], *, replace: bool) -> list[File]:  # noqa: ARG002
        return files


def commit_of(core: Core, system: str, parts: Parts) -> Commit:
    """The one commit that makes the run."""
    check_id("run_id", parts.run_id)
    for name in (*(step.checkpoint_id for step in parts.steps if step.checkpoint_id), *(e.key for e in parts.effects)):
        check_id("an imported id", name)
    checkpoints, chunks = _checkpoints(parts.steps)
    return Commit(
        parts.run_id, core.ids.token(8), create=NewRun(required=True), workflow=check_id("workflow", parts.workflow),
        status=parts.status, metadata=metadata_pairs({FORMAT: system, FILE: parts.file, **parts.about}),
        entries=tuple(parts.entries), checkpoints=checkpoints, chunks=core.chunk_rows(chunks),
        effects=tuple(parts.effects), gates=tuple(parts.gates),
    )  # fmt: skip


def _checkpoints(steps: Iterable[Step]) -> tuple[tuple[NewCheckpoint, ...], dict[bytes, bytes]]:
    """The checkpoints, and the chunks of all of them, each once."""
    memo: Memo | None = None
    chunks: dict[bytes, bytes] = {}
    found = []
    for step in steps:
        encoded = encode(step.state, memo, set(chunks))
        chunks |= encoded.chunks
        memo = encoded.memo if encoded.linked else None
        metadata = {FILE: step.file} | ({"holdfast": step.resume} if step.resume else {})
        found.append(
            NewCheckpoint(
                step.checkpoint_id, encoded.root, step=step.step, next_node=acceptable(step.next_node),
                covers=step.covers, status=step.status, metadata=write_metadata(metadata_pairs(metadata)),
                created_us=step.created_us,
            )
        )  # fmt: skip
    return tuple(found), chunks


def entry(core: Core, data: dict[str, Any], created_us: int | None = None, *, for_engine: bool = False) -> NewEntry:
    """A journal entry. Only with `for_engine` may it be one that the engine reads when it goes on."""
    kind = check_id("an entry's kind", data["kind"])
    if kind == PRUNED or (kind in _ENGINE and not for_engine):
        raise InvalidInput(f"an imported entry cannot be of the kind {kind!r}")
    return NewEntry(kind, value_body(core, data, "a journal entry"), created_us)


def resume_after(entries: int) -> dict[str, Any]:
    """What a checkpoint says of the engine's journal, so that its state is not taken for one that was saved by hand."""
    return {"spans": [[1, entries]], "loops": [], "needs": [], "epoch": 0, "version": 1}


def missing_entries(after: int, through: int) -> NewEntry:
    """What stands for entries that are not there: the numbers behind `after` up to `through`."""
    return NewEntry(PRUNED, pruned_body(through), positions=through - after)


def started(
    core: Core, workflow: str, *args: Any, created_us: int | None = None, kwargs: dict[str, Any] | None = None
) -> NewEntry:
    """The entry a workflow's run begins with."""
    data = {"kind": "started", "workflow": workflow, "version": 1, "args": list(args), "kwargs": kwargs or {}}
    return entry(core, data, created_us, for_engine=True)


def is_continued(whole: Whole) -> bool:
    """Whether the engine has moved the run on since it was imported."""
    return any(entry.kind in ENDS or ("call" in entry.data and entry.kind != "asked") for entry in whole.entries)


def same_id(run_id: str, inside: object) -> None:
    """What a fork, or a copy, still calls by its old id is not written over the old one's file."""
    if inside != run_id:
        raise InvalidInput(f"the state of run {run_id!r} says that it is of {inside!r}: save it with its own id first")


def acceptable(value: object) -> str | None:
    """A text that can be an id here, or None."""
    try:
        return check_id("", value)
    except InvalidId:
        return None


def small_step(value: int) -> int | None:
    """A step's number, if it is one here."""
    return value if 0 <= value <= STEP_MAX else None


def root_of(path: str, *below: str) -> str:
    """The directory itself, or the one in a home directory where the original puts it."""
    inner = os.path.join(path, *below)
    return inner if os.path.isdir(inner) else path


def file_of(checkpoint: Checkpoint[Any]) -> str:
    """What the checkpoint's file was called, as far as that is known."""
    return str(checkpoint.metadata.get(FILE, ""))
