"""Who holds which run: the sidecars by which completing and recovering are fenced.

CAR's layout says that a run is claimed, not by whom. Beside it, `.holdfast/claims/<run_id>.json` says it:

    {"token": random, "owner": process and random, "inode": …, "size": …, "written_ns": …, "changed_ns": …}

A sidecar is about the `.inflight` file with this identity, and about no other: one that the original made later, or
put in its place, is foreign. `changed_ns` is the inode's change time, which every rename sets: it tells our claim from
one that the original made of the same file, after its own recovery had taken the file from us.

A sidecar is written after the rename that it is about. Written before, it would name the file that the original may
rename first. A process that dies between the two leaves a claim that counts as the original's.

`owner` gives a sign of life in `.holdfast/owners` (see `holdfast.store.owners`) as long as its process lives and has
the directory open. Sidecars are not synced: they tell the living about each other, and after a power cut nobody holds
anything.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final, NamedTuple

from holdfast.errors import ClaimLost
from holdfast.forking import watch
from holdfast.formats.car.shape import CLAIMED, PAUSED
from holdfast.formats.folder import OWN, Folder
from holdfast.store.directory.files import Identity
from holdfast.store.owners import Owners

_CLAIMS: Final = "claims"
_OWNERS: Final = "owners"
SOMEBODY: Final = "a program that leaves no name"
_NOBODY: Final = "nobody any more"
_names: dict[tuple[int, str], str] = {}
"""The owner's name of a process in a directory."""


class Claim:
    """What this process knows of a run it holds."""

    __slots__ = ("done", "ended", "saved", "token", "workflow")

    def __init__(self, token: str, workflow: Any) -> None:
        self.token = token
        self.workflow = workflow
        self.saved = False
        """It has put a new checkpoint in place, which the next may claim at once."""
        self.ended = False
        """Its marker was removed, though perhaps not durably."""
        self.done = False
        """It was completed; to complete it again is no mistake."""


class Standing(NamedTuple):
    """How a run stands: whether it is claimed, and by whom, if that is known.

    A run that is not claimed has an owner if the original removed the claimed file and left none to claim.
    """

    claimed: bool
    token: str = ""
    owner: str = ""
    file: Identity | None = None
    """The claimed file."""

    @property
    def holder(self) -> str | None:
        """Who holds it, for messages."""
        return (self.owner or SOMEBODY) if self.claimed else None


class Claims:
    """The claims of one directory. What looks at files is called while the directory's lock is held."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._owners = Owners(folder.at(OWN, _OWNERS))
        self.after_fork()
        watch(self)

    def after_fork(self) -> None:
        """What the parent claimed the child did not."""
        self._own: dict[str, list[Claim]] = {}

    @property
    def owner(self) -> str:
        """The name of this process in this directory, the same for all that it opens of it."""
        key = os.getpid(), self._folder.path
        return _names.setdefault(key, f"{key[0]}-{os.urandom(8).hex()}")

    @property
    def holds_any(self) -> bool:
        """Whether a claim was taken here and not ended."""
        return bool(self._own)

    def give_up(self) -> None:
        """Say of all that is held here that it may be recovered, though this process lives."""
        for run_id, claims in self._own.items():
            standing = self.standing(run_id)
            if any(self.is_held(claim, standing) for claim in claims):
                self._write(run_id, standing.token, _NOBODY)
        self._own.clear()

    def close(self) -> None:
        """End the sign of life, unless this process has the directory open elsewhere."""
        self._owners.close()
        self._own.clear()

    def own(self, run_id: str) -> Claim | None:
        """The claim that was taken here last; None if it has been ended."""
        found = self._own.get(run_id)
        return found[-1] if found else None

    def forget(self, run_id: str, claim: Claim | None = None) -> None:
        """This process has nothing to do with the claim any more; without one, with none of the run."""
        left = [other for other in self._own.pop(run_id, ()) if claim is not None and other is not claim]
        if left:
            self._own[run_id] = left

    def standing(self, run_id: str) -> Standing:
        """How the run stands."""
        name = run_id + CLAIMED
        there, changed_ns = self._folder.identity(name), self._folder.changed_ns(name)
        if there is None and self._folder.identity(run_id + PAUSED) is not None:
            return Standing(False)
        try:
            found = json.loads(self._folder.read(OWN, _CLAIMS, run_id + ".json") or b"{}")
            named = Identity(found["inode"], found["size"], found["written_ns"])
            token, owner = str(found["token"]), str(found["owner"])
            is_same = there is None or (named == there and found.get("changed_ns", changed_ns) == changed_ns)
        except (ValueError, KeyError, TypeError):
            is_same, token, owner = False, "", ""
        return Standing(there is not None, token if is_same else "", owner if is_same else "", there)

    def lives(self, standing: Standing) -> bool:
        """Whether whoever holds the run is one of ours and alive."""
        return bool(standing.owner) and self._owners.lives(standing.owner)

    def announce(self) -> None:
        """Give the sign of life of this process, without which a claim of it counts for nothing."""
        self._owners.announce(self.owner)

    def take(self, run_id: str, workflow: Any) -> Claim:
        """Record that the file that was just renamed is held by this process."""
        claim = Claim(os.urandom(8).hex(), workflow)
        self._write(run_id, claim.token, self.owner)
        self._own.setdefault(run_id, []).append(claim)
        return claim

    def _write(self, run_id: str, token: str, owner: str) -> None:
        name = run_id + CLAIMED
        identity = self._folder.identity(name) or Identity(0, 0, 0)  # the original may have removed the file
        times = {"changed_ns": self._folder.changed_ns(name) or 0}
        content = {"token": token, "owner": owner, **identity._asdict(), **times}
        self._folder.put(json.dumps(content).encode(), OWN, _CLAIMS, run_id + ".json", sync=False)

    def is_held(self, claim: Claim, standing: Standing) -> bool:
        """Whether the run is still held by this claim, though the original may have removed its file."""
        return standing.token == claim.token

    def lost(self, run_id: str, standing: Standing) -> ClaimLost:
        """The error for one who no longer holds the run."""
        return ClaimLost(run_id, self.owner, standing.holder)

    def drop(self, run_id: str) -> None:
        """The run is claimed by nobody: its sidecar may go."""
        self._folder.remove(OWN, _CLAIMS, run_id + ".json", sync=False)

    def bury(self) -> None:
        """Remove the signs of the dead who hold nothing any more, and the sidecars of claims that are over."""
        holding = set()
        for run_id in [name.removesuffix(".json") for name in self._folder.names(OWN, _CLAIMS)]:
            standing = self.standing(run_id)
            holding.add(standing.owner)
            if not standing.claimed and not self.lives(standing):
                self.drop(run_id)
        self._owners.bury(holding)
