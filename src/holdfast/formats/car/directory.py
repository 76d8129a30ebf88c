"""CAR's checkpoint store: the same names and renames, with the races taken out.

A run is claimed by renaming `<run_id>.json` to `<run_id>.inflight`, in one step and never by removing something first,
so its checkpoint is at every moment under one of the two names. What cannot be read is not renamed.

The original takes no lock: between any two calls of ours it may claim, complete, recover or save. So what was renamed
is read again, and a marker is moved aside and compared before it is removed. What remains is in docs/moving-here.md.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from types import TracebackType
from typing import Any, Final, Self

from holdfast.errors import (
    Conflict,
    DamagedFile,
    HoldfastError,
    InvalidInput,
    NameTaken,
    StorageError,
    WorkflowConflict,
)
from holdfast.formats.car.claims import Claim, Claims, Standing
from holdfast.formats.car.definition import is_same_definition
from holdfast.formats.car.shape import CLAIMED, PAUSED, read, to_write
from holdfast.formats.folder import OWN, Folder
from holdfast.formats.lossless import write_json
from holdfast.formats.names import check_name
from holdfast.model.views import Problem
from holdfast.store.directory.files import Files

_ASIDE: Final = "ended"
"""The marker of a claim that is being ended, in `.holdfast`."""
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{32}\.tmp", re.DOTALL)
_TEMPORARY_AGE_S: Final = 3600.0
"""The original writes such a file and renames it at once. One this old was left by a writer that died."""


class Claimed(dict[str, Any]):
    """A claimed checkpoint: the dict, and the claim, by which `save` and `complete` know who calls."""

    def __init__(self, content: dict[str, Any], claim: Claim) -> None:
        super().__init__(content)
        self.claim = claim


class Recovered(int):
    """How many runs were made claimable again. `problems` lists files that were left as they are."""

    problems: tuple[Problem, ...] = ()


class Directory:
    """A directory of CAR's paused workflows (`~/.car/workflow-runs`), with CAR's verbs.

    Several processes of ours may use it at once. Use it as a context manager, or call `close`: what it still holds may
    then be recovered by others.

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

    def save(self, paused: dict[str, Any], *, claimed: Claimed | None = None) -> None:
        """Put a paused workflow in place, whole and durably.

        Of a run that was claimed, `claimed` says by which claim; without it, by the one this object took last.
        ClaimLost if that no longer holds the run; Conflict if the run is held by another that lives; WorkflowConflict
        if it has another definition than the one given.

        Example:
            runs.save(paused)
        """
        content = to_write(paused)
        run_id = content["run_id"]
        name = _names(run_id)[0]
        data = write_json(content)
        if claimed is not None and not isinstance(claimed, Claimed):
            raise InvalidInput(f"claimed must be what claim gave, not {type(claimed).__name__}")
        if claimed is not None and claimed["run_id"] != run_id:
            raise InvalidInput(f"run {claimed['run_id']!r} was claimed, but {run_id!r} is to be saved")
        with self._folder.held():
            own = self._may_save(run_id, claimed.claim if claimed is not None else self._claims.own(run_id))
            _same_definition(run_id, content, own.workflow if own else self._definition(run_id))
            self._folder.put(data, name, like=_names(run_id)[1:] if own else None)
            if own:
                own.saved = True

    def load(self, run_id: str) -> dict[str, Any] | None:
        """The paused workflow; None if there is none, or if it is claimed.

        Example:
            runs.load("run-1")["prompt"]
        """
        return self._read(run_id, _names(run_id)[0])

    def claim(self, run_id: str) -> Claimed | None:
        """Take a paused workflow for this process. None if there is none, or if somebody has it.

        A file that cannot be read raises DamagedFile and stays as it is.

        Example:
            claimed = runs.claim("run-1")
            claimed["wf_state"]
        """
        source, target = _names(run_id)
        if self._folder.identity(source) is None:
            return None
        with self._folder.held():
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
                if renamed is None:  # another's claim or complete has removed it: this is the only copy
                    self._folder.put(write_json(content), target)
                claimed = renamed or content
                claim = self._claims.take(run_id, claimed["workflow"])
            except HoldfastError:  # nobody must be left holding what the caller was not given
                self._put_back(run_id)
                raise
        return Claimed(claimed, claim)

    def _put_back(self, run_id: str) -> None:
        source, target = _names(run_id)
        with contextlib.suppress(StorageError):
            self._claims.drop(run_id)
            if self._folder.identity(source) is None:
                self._folder.rename((target,), (source,))

    def complete(self, run: str | Claimed) -> None:
        """End a claim: what `claim` gave, from any object of its process, or the run's id for the one taken here last.

        To do so twice is no mistake.

        ClaimLost if somebody else holds the run, who then keeps it. If this claim has saved a new checkpoint, and that
        was claimed meanwhile, there is nothing left to do.

        Example:
            runs.complete(claimed)
        """
        run_id = run["run_id"] if isinstance(run, Claimed) else run
        _, target = _names(run_id)
        own = run.claim if isinstance(run, Claimed) else self._claims.own(run_id)
        if own.done if own is not None else self._folder.identity(target) is None:
            return
        with self._folder.held():
            standing = self._claims.standing(run_id)
            if own is not None:
                self._end(run_id, own, standing)
            elif standing.claimed:
                raise self._claims.lost(run_id, standing)

    def _end(self, run_id: str, own: Claim, standing: Standing) -> None:
        if self._claims.is_held(own, standing):
            own.ended = True
            if not self._remove_marker(run_id, standing):  # nobody's any more, or made claimable again by the original
                own.ended = self._claims.is_held(own, self._claims.standing(run_id))
                self._folder.sync()
            if own.ended:
                self._claims.drop(run_id)
        elif own.ended:
            self._folder.sync()
        self._claims.forget(run_id, own)
        own.done = own.ended or own.saved
        if not own.done:
            raise self._claims.lost(run_id, standing)

    def _remove_marker(self, run_id: str, standing: Standing, *, beside: bool = False) -> bool:
        """Remove the claimed file that the standing is about; False if it is gone.

        The original may have put its own in the place since, as it claims what waits beside: that one goes back.
        `beside` says that a newer one must wait there; if it does no more, it is what was found in the place.
        """
        source, target = _names(run_id)
        aside = (OWN, _ASIDE)
        if standing.file is None or not self._folder.rename((target,), aside):
            return False
        is_other = self._folder.identity(*aside) != standing.file
        if is_other or (beside and self._folder.identity(source) is None):
            if self._folder.identity(target) is None:
                self._folder.rename(aside, (target,))
            return True
        self._folder.remove(*aside, sync=False)
        return True

    def recover_orphaned(self, *, foreign: bool = True) -> Recovered:
        """Make runs claimable again whose claimant is dead. Runs of the living are left to them.

        A claim made by the original leaves no name: it is recovered as the original would, so call this when none of
        its processes resumes anything, or with `foreign=False`. What cannot be read stays, is listed in `problems`,
        and keeps nothing else from being recovered. Temporary files of dead writers are removed.

        Example:
            runs.recover_orphaned().problems
        """
        if not self._folder.names():
            return Recovered(0)
        count, problems = 0, []
        with self._folder.held():
            for name in self._folder.names():
                if not _is_run(name, CLAIMED):
                    continue
                try:
                    count += self._recover(name.removesuffix(CLAIMED), foreign=foreign)
                except DamagedFile as damage:
                    problems.append(Problem(place=damage.place, reason=damage.reason))
                    if damage.place != self._folder.at(name):
                        reason = f"it was not made claimable again, because {damage.place} has its place"
                        problems.append(Problem(place=self._folder.at(name), reason=reason))
                except HoldfastError as error:
                    problems.append(Problem(place=self._folder.at(name), reason=str(error)))
            self._sweep()
        found = Recovered(count)
        found.problems = tuple(problems)
        return found

    def _recover(self, run_id: str, *, foreign: bool) -> bool:
        source, target = _names(run_id)
        standing = self._claims.standing(run_id)
        if self._claims.lives(standing) or not (standing.owner or foreign):
            return False
        if self._read(run_id, source) is not None:  # there is a newer one: this only says that somebody had claimed
            self._remove_marker(run_id, standing, beside=True)
            self._claims.drop(run_id)
            return False
        self._read(run_id, target)
        if self._claims.standing(run_id) != standing or not self._folder.rename((target,), (source,)):
            return False
        if self._folder.identity(source) not in (standing.file, None) and self._folder.identity(target) is None:
            self._folder.rename((source,), (target,))  # the original has claimed a newer one since
            return False
        self._claims.forget(run_id)
        self._claims.drop(run_id)
        return True

    def _sweep(self) -> None:
        oldest_ns = time.time_ns() - int(_TEMPORARY_AGE_S * 1e9)
        for name in self._folder.names():
            found = self._folder.identity(name) if _TEMPORARY.fullmatch(name) else None
            if found is not None and found.written_ns < oldest_ns:
                self._folder.remove(name)
        self._claims.bury()

    def remove(self, run_id: str) -> None:
        """Remove a run, claimed or not. One that is not there is no mistake; another run's file is left alone.

        Example:
            runs.remove("run-1")
        """
        names = _names(run_id)
        if all(self._folder.identity(name) is None for name in names):
            self._claims.forget(run_id)
            self._folder.settle()
            return
        with self._folder.held():
            self._claims.forget(run_id)
            for name in names:
                if self._is_own(run_id, name):
                    self._folder.remove(name)
            self._claims.drop(run_id)

    def list(self) -> list[str]:
        """The ids of the runs that can be claimed, sorted. Their files are not read.

        Example:
            runs.list()
        """
        return sorted(name.removesuffix(PAUSED) for name in self._folder.names() if _is_run(name, PAUSED))

    def close(self) -> None:
        """Give up what this object holds to whoever recovers it. Closing twice is no mistake."""
        if self._claims.holds_any:
            with contextlib.suppress(StorageError), self._folder.held():
                self._claims.give_up()
        self._claims.close()
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what the verbs share ----------------------------------------------------------------------------------------

    def _read(self, run_id: str, name: str) -> dict[str, Any] | None:
        data = self._folder.read(name)
        return None if data is None else read(data, run_id, self._folder.at(name))

    def _is_own(self, run_id: str, name: str) -> bool:
        """Whether a file is not another run's, as a file system that knows no capitals could make it seem."""
        try:
            self._read(run_id, name)
        except NameTaken:
            return False
        except DamagedFile:
            pass
        return True

    def _may_save(self, run_id: str, own: Claim | None) -> Claim | None:
        standing = self._claims.standing(run_id)
        if own is not None and not self._claims.is_held(own, standing):
            self._claims.forget(run_id, own)
            raise self._claims.lost(run_id, standing)
        if own is None and self._claims.lives(standing):
            raise Conflict(
                f"run {run_id!r} is being resumed by {standing.owner!r}, which lives; only who claimed it may save it"
            )
        return own

    def _definition(self, run_id: str) -> Any:
        """The definition in the file that is there. One that cannot be read will be replaced."""
        try:
            found = self._read(run_id, run_id + PAUSED)
        except DamagedFile:
            return None
        return found["workflow"] if found else None


def _is_run(name: str, ending: str) -> bool:
    return name.endswith(ending) and name != ending


def _names(run_id: str) -> tuple[str, str]:
    """The names of a run that waits, and of one that is claimed."""
    longest = check_name("run_id", run_id, CLAIMED)
    return longest.removesuffix(CLAIMED) + PAUSED, longest


def _same_definition(run_id: str, content: dict[str, Any], known: Any) -> None:
    if known is None or is_same_definition(known, content["workflow"]):
        return
    raise WorkflowConflict(run_id, _described(content["workflow"]), _described(known))


def _described(workflow: dict[str, Any]) -> str:
    sizes = f"{len(workflow['stages'])} stages, {len(workflow['edges'])} edges"
    return f"{workflow['id']} ({sizes})"
