"""CAR's checkpoint store: the same names and renames, without its races.

A run is claimed by renaming `<run_id>.json` to `<run_id>.inflight` in one step, never by removing a file first, so its
checkpoint always has one of the two names. A file that cannot be read is not renamed.

The original takes no lock: between any two of our calls it may claim, complete, recover or save. A renamed file is
therefore read again, and a marker is moved aside and compared before it is removed. docs/moving-here.md lists the races
that remain.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Final, Self

from holdfast.errors import (
    Conflict,
    DamagedFile,
    HoldfastError,
    InvalidInput,
    NameTaken,
    StorageError,
    WorkflowConflict,
)
from holdfast.files.os_files import Files
from holdfast.formats.car.claims import Claim, Claims, ClaimState
from holdfast.formats.car.workflow_records import CLAIMED, PAUSED, is_same_definition, read, to_write
from holdfast.formats.folder import OWN, Folder, check_name
from holdfast.formats.schema import JsonObject, write_json
from holdfast.model.views import Problem

_ASIDE: Final = "ended"
"""The marker of a claim that is being ended, in `.holdfast`."""
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{32}\.tmp", re.DOTALL)
_TEMPORARY_AGE_S: Final = 3600.0
"""The original renames such a file right after writing it. One this old was left by a writer that died."""


class Claimed(JsonObject):
    """A claimed checkpoint: the dict, and the claim that `save` and `complete` verify."""

    def __init__(self, content: JsonObject, claim: Claim) -> None:
        super().__init__(content)
        self.claim = claim


class Recovered(int):
    """How many runs were made claimable again. `problems` lists files that were left unchanged."""

    problems: tuple[Problem, ...] = ()


class Directory:
    """A directory of CAR's paused workflows (`~/.car/workflow-runs`), with CAR's operations.

    Several processes of this library may use it at once. Use it as a context manager, or call `close`: other processes
    may then recover its claims.

    Example:
        runs = car.Directory("workflow-runs")
        runs.save(paused)
        claimed = runs.claim("run-1")
        # … resume the workflow; if it pauses again: runs.save(…)
        runs.complete(claimed)
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout_s: float = 20.0, files: Files | None = None) -> None:
        self._folder = Folder(path, timeout_s=timeout_s, files=files)
        self._claims = Claims(self._folder)

    def save(self, paused: JsonObject, *, claimed: Claimed | None = None) -> None:
        """Save a paused workflow atomically and durably.

        For a claimed run, `claimed` is the claim to save under; by default the last one that this object took. Raises
        ClaimLost if that no longer holds the run, Conflict if another live process holds the run, and WorkflowConflict
        if the run has another definition.

        Example:
            runs.save(paused)
        """
        content = to_write(paused)
        run_id = content["run_id"]
        name = _names(run_id)[0]
        data = write_json(content)
        if claimed is not None and not isinstance(claimed, Claimed):
            raise InvalidInput(f"claimed must be the result of claim(), not {type(claimed).__name__}")
        if claimed is not None and claimed["run_id"] != run_id:
            raise InvalidInput(f"claimed is a claim on run {claimed['run_id']!r}, but the checkpoint is of {run_id!r}")
        with self._folder.hold():
            own = self._check_claim(run_id, claimed.claim if claimed is not None else self._claims.own(run_id))
            _check_definition(run_id, content, own.workflow if own else self._definition(run_id))
            self._folder.put(data, name, like=_names(run_id)[1:] if own else None)
            if own:
                own.saved = True

    def load(self, run_id: str) -> JsonObject | None:
        """Return the paused workflow; None if there is none, or if it is claimed.

        Example:
            runs.load("run-1")["prompt"]
        """
        return self._read(run_id, _names(run_id)[0])

    def claim(self, run_id: str) -> Claimed | None:
        """Claim a paused workflow for this process. Return None if there is none, or if it is claimed.

        A file that cannot be read raises DamagedFile and is left unchanged.

        Example:
            claimed = runs.claim("run-1")
            claimed["wf_state"]
        """
        source, target = _names(run_id)
        if self._folder.identity(source) is None:
            return None
        with self._folder.hold():
            content = self._read(run_id, source)
            if content is None:
                return None
            self._claims.announce()
            try:
                if not self._folder.rename((source,), (target,)):
                    return None
                renamed = self._read(run_id, target)  # the original may have saved another one since
                if renamed is None and self._folder.identity(source) is not None:
                    return None  # the original's recovery has made it claimable again
                if renamed is None:  # another claim or complete has removed it: this is the only copy
                    self._folder.put(write_json(content), target)
                claimed = renamed or content
                claim = self._claims.take(run_id, claimed["workflow"])
            except HoldfastError:  # the caller gets no claim, so none may remain
                self._undo_claim(run_id)
                raise
        return Claimed(claimed, claim)

    def _undo_claim(self, run_id: str) -> None:
        source, target = _names(run_id)
        with contextlib.suppress(StorageError):
            self._claims.remove_sidecar(run_id)
            if self._folder.identity(source) is None:
                self._folder.rename((target,), (source,))

    def complete(self, run: str | Claimed) -> None:
        """End a claim: the result of `claim`, of any object of the process, or a run's id for this object's last claim.

        Completing twice is allowed. Raises ClaimLost if another process holds the run, which then keeps it. If this
        claim has saved a new checkpoint that was claimed since, the call does nothing.

        Example:
            runs.complete(claimed)
        """
        run_id = run["run_id"] if isinstance(run, Claimed) else run
        _, target = _names(run_id)
        own = run.claim if isinstance(run, Claimed) else self._claims.own(run_id)
        if own.done if own is not None else self._folder.identity(target) is None:
            return
        with self._folder.hold():
            state = self._claims.claim_state(run_id)
            if own is not None:
                self._end(run_id, own, state)
            elif state.claimed:
                raise self._claims.claim_lost(run_id, state)

    def _end(self, run_id: str, own: Claim, state: ClaimState) -> None:
        if self._claims.is_held(own, state):
            own.ended = True
            if not self._remove_marker(run_id, state):  # the original has removed it, or made it claimable again
                own.ended = self._claims.is_held(own, self._claims.claim_state(run_id))
                self._folder.sync()
            if own.ended:
                self._claims.remove_sidecar(run_id)
        elif own.ended:
            self._folder.sync()
        self._claims.forget(run_id, own)
        own.done = own.ended or own.saved
        if not own.done:
            raise self._claims.claim_lost(run_id, state)

    def _remove_marker(self, run_id: str, state: ClaimState, *, beside: bool = False) -> bool:
        """Remove the claimed file that the state refers to; return False if it is missing.

        The original may have replaced the file since, by claiming the paused one: that file is moved back. With
        `beside` there must be a newer paused file; if it is missing, the original has claimed it, and the claimed file
        is moved back as well.
        """
        source, target = _names(run_id)
        aside = (OWN, _ASIDE)
        if state.file is None or not self._folder.rename((target,), aside):
            return False
        is_other = self._folder.identity(*aside) != state.file
        if is_other or (beside and self._folder.identity(source) is None):
            if self._folder.identity(target) is None:
                self._folder.rename(aside, (target,))
            return True
        self._folder.remove(*aside, sync=False)
        return True

    def recover_orphaned(self, *, foreign: bool = True) -> Recovered:
        """Make runs claimable again whose owner died. Claims of live processes are kept.

        A claim of the original has no recorded owner: it is recovered as by the original, so call this when none of its
        processes resumes a run, or pass `foreign=False`. Files that cannot be read are left unchanged and listed in
        `problems`; the other runs are still recovered. Temporary files of dead writers are removed.

        Example:
            runs.recover_orphaned().problems
        """
        if not self._folder.names():
            return Recovered(0)
        count, problems = 0, []
        with self._folder.hold():
            for name in self._folder.names():
                if not _is_run(name, CLAIMED):
                    continue
                try:
                    count += self._recover(name.removesuffix(CLAIMED), foreign=foreign)
                except DamagedFile as damage:
                    problems.append(Problem(place=damage.place, reason=damage.reason))
                    if damage.place != self._folder.at(name):
                        reason = f"it was not made claimable again, because {damage.place} exists and is damaged"
                        problems.append(Problem(place=self._folder.at(name), reason=reason))
                except HoldfastError as error:
                    problems.append(Problem(place=self._folder.at(name), reason=str(error)))
            self._sweep()
        found = Recovered(count)
        found.problems = tuple(problems)
        return found

    def _recover(self, run_id: str, *, foreign: bool) -> bool:
        source, target = _names(run_id)
        state = self._claims.claim_state(run_id)
        if self._claims.holder_is_alive(state) or not (state.owner or foreign):
            return False
        if self._read(run_id, source) is not None:  # it is newer; the claimed file is only a marker
            self._remove_marker(run_id, state, beside=True)
            self._claims.remove_sidecar(run_id)
            return False
        self._read(run_id, target)
        if self._claims.claim_state(run_id) != state or not self._folder.rename((target,), (source,)):
            return False
        if self._folder.identity(source) not in (state.file, None) and self._folder.identity(target) is None:
            self._folder.rename((source,), (target,))  # the original has claimed a newer file since
            return False
        self._claims.forget(run_id)
        self._claims.remove_sidecar(run_id)
        return True

    def _sweep(self) -> None:
        oldest_ns = time.time_ns() - int(_TEMPORARY_AGE_S * 1e9)
        for name in self._folder.names():
            found = self._folder.identity(name) if _TEMPORARY.fullmatch(name) else None
            if found is not None and found.written_ns < oldest_ns:
                self._folder.remove(name)
        self._claims.remove_dead_owners()

    def remove(self, run_id: str) -> None:
        """Remove a run, claimed or not. A missing one is not an error; another run's file is left alone.

        Example:
            runs.remove("run-1")
        """
        names = _names(run_id)
        if all(self._folder.identity(name) is None for name in names):
            self._claims.forget(run_id)
            self._folder.sync_path()
            return
        with self._folder.hold():
            self._claims.forget(run_id)
            for name in names:
                if self._is_own(run_id, name):
                    self._folder.remove(name)
            self._claims.remove_sidecar(run_id)

    def list(self) -> list[str]:
        """Return the ids of the runs that can be claimed, sorted. Their files are not read.

        Example:
            runs.list()
        """
        return sorted(name.removesuffix(PAUSED) for name in self._folder.names() if _is_run(name, PAUSED))

    def close(self) -> None:
        """Abandon the claims of this object, so that they can be recovered. Closing twice is allowed."""
        if self._claims.holds_any:
            with contextlib.suppress(StorageError), self._folder.hold():
                self._claims.abandon_all()
        self._claims.close()
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- shared by the operations ------------------------------------------------------------------------------------

    def _read(self, run_id: str, name: str) -> JsonObject | None:
        data = self._folder.read(name)
        return None if data is None else read(data, run_id, self._folder.at(name))

    def _is_own(self, run_id: str, name: str) -> bool:
        """Whether a file is not another run's, as on a case-insensitive file system."""
        try:
            self._read(run_id, name)
        except NameTaken:
            return False
        except DamagedFile:
            pass
        return True

    def _check_claim(self, run_id: str, own: Claim | None) -> Claim | None:
        state = self._claims.claim_state(run_id)
        if own is not None and not self._claims.is_held(own, state):
            self._claims.forget(run_id, own)
            raise self._claims.claim_lost(run_id, state)
        if own is None and self._claims.holder_is_alive(state):
            raise Conflict(f"run {run_id!r} is claimed by {state.owner!r}, a live process; only its owner may save it")
        return own

    def _definition(self, run_id: str) -> JsonObject | None:
        """Return the definition in the run's file; None if there is none, or if it cannot be read."""
        try:
            found = self._read(run_id, run_id + PAUSED)
        except DamagedFile:
            return None
        return found["workflow"] if found else None


def _is_run(name: str, ending: str) -> bool:
    return name.endswith(ending) and name != ending


def _names(run_id: str) -> tuple[str, str]:
    """Return the file names of a paused run, and of a claimed one."""
    longest = check_name("run_id", run_id, CLAIMED)
    return longest.removesuffix(CLAIMED) + PAUSED, longest


def _check_definition(run_id: str, content: JsonObject, known: JsonObject | None) -> None:
    if known is None or is_same_definition(known, content["workflow"]):
        return
    raise WorkflowConflict(run_id, _describe(content["workflow"]), _describe(known))


def _describe(workflow: JsonObject) -> str:
    sizes = f"{len(workflow['stages'])} stages, {len(workflow['edges'])} edges"
    return f"{workflow['id']} ({sizes})"
