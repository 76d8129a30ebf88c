"""Claims on CAR's runs: sidecars that name the owner of a claim.

CAR's layout shows that a run is claimed, but not the owner. `.holdfast/claims/<run_id>.json` records it:

    {"token": random, "owner": process and random, "inode": …, "size": …, "written_ns": …, "changed_ns": …}

A sidecar refers only to the `.inflight` file with this identity: a file that the original created later, or put in its
place, is foreign. `changed_ns` is the inode's change time, which every rename sets. It distinguishes our claim from one
that the original took of the same file after its own recovery had released ours.

A sidecar is written after the rename that it refers to. If it were written before, it could refer to a file that the
original renames first. A process that dies between the two leaves a claim that counts as the original's.

`owner` holds a lock in `.holdfast/owners` (see `holdfast.store.liveness`) while its process lives and has the directory
open. Sidecars are not synced, because only live processes use them; after a power failure no claim is live.
"""

from __future__ import annotations

import json
import os
from typing import Final, NamedTuple

from holdfast.errors import ClaimLost
from holdfast.files.os_files import Identity
from holdfast.fork_safety import reset_after_fork
from holdfast.formats.car.workflow_records import CLAIMED, PAUSED
from holdfast.formats.folder import OWN, Folder
from holdfast.formats.schema import JsonObject
from holdfast.store.liveness import OwnerLocks

_CLAIMS: Final = "claims"
_OWNERS: Final = "owners"
UNKNOWN_OWNER: Final = "an unknown program"
_ABANDONED: Final = "abandoned"
_names: dict[tuple[int, str], str] = {}
"""The owner name of a process in a directory."""


class Claim:
    """A claim that this process has taken."""

    __slots__ = ("done", "ended", "saved", "token", "workflow")

    def __init__(self, token: str, workflow: JsonObject) -> None:
        self.token = token
        self.workflow = workflow
        self.saved = False
        """Whether it has saved a new checkpoint, which can be claimed at once."""
        self.ended = False
        """Whether its marker was removed, perhaps not durably."""
        self.done = False
        """Whether it was completed; completing it again is allowed."""


class ClaimState(NamedTuple):
    """Whether a run is claimed, and the owner, if known.

    A run that is not claimed has an owner if the original removed the claimed file and left no other.
    """

    claimed: bool
    token: str = ""
    owner: str = ""
    file: Identity | None = None
    """The claimed file."""

    @property
    def holder(self) -> str | None:
        """The owner, for messages."""
        return (self.owner or UNKNOWN_OWNER) if self.claimed else None


class Claims:
    """The claims of one directory. The caller of a method that reads files holds the directory's lock."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._owners = OwnerLocks(folder.at(OWN, _OWNERS), files=folder.files)
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Forget the claims of the parent process."""
        self._own: dict[str, list[Claim]] = {}

    @property
    def owner(self) -> str:
        """The name of this process in this directory, shared by all objects that open it."""
        key = os.getpid(), self._folder.path
        return _names.setdefault(key, f"{key[0]}-{os.urandom(8).hex()}")

    @property
    def holds_any(self) -> bool:
        """Whether this object has a claim that has not ended."""
        return bool(self._own)

    def abandon_all(self) -> None:
        """Mark all claims of this object as recoverable, although this process lives."""
        for run_id, claims in self._own.items():
            state = self.claim_state(run_id)
            if any(self.is_held(claim, state) for claim in claims):
                self._write(run_id, state.token, _ABANDONED)
        self._own.clear()

    def close(self) -> None:
        """Release the owner lock, unless this process has the directory open elsewhere."""
        self._owners.close()
        self._own.clear()

    def own(self, run_id: str) -> Claim | None:
        """Return the last claim that this object took on the run; None if it has ended."""
        found = self._own.get(run_id)
        return found[-1] if found else None

    def forget(self, run_id: str, claim: Claim | None = None) -> None:
        """Forget the claim; without one, all claims of this object on the run."""
        left = [other for other in self._own.pop(run_id, ()) if claim is not None and other is not claim]
        if left:
            self._own[run_id] = left

    def claim_state(self, run_id: str) -> ClaimState:
        """Return whether the run is claimed, and the owner."""
        name = run_id + CLAIMED
        there, changed_ns = self._folder.identity(name), self._folder.changed_ns(name)
        if there is None and self._folder.identity(run_id + PAUSED) is not None:
            return ClaimState(False)
        try:
            found = json.loads(self._folder.read(OWN, _CLAIMS, run_id + ".json") or b"{}")
            named = Identity(found["inode"], found["size"], found["written_ns"])
            token, owner = str(found["token"]), str(found["owner"])
            is_same = there is None or (named == there and found.get("changed_ns", changed_ns) == changed_ns)
        except (ValueError, KeyError, TypeError):
            is_same, token, owner = False, "", ""
        return ClaimState(there is not None, token if is_same else "", owner if is_same else "", there)

    def holder_is_alive(self, state: ClaimState) -> bool:
        """Whether the owner is a live process of this library."""
        return bool(state.owner) and self._owners.is_alive(state.owner)

    def announce(self) -> None:
        """Take the owner lock of this process, without which its claims are not live."""
        self._owners.announce(self.owner)

    def take(self, run_id: str, workflow: JsonObject) -> Claim:
        """Record this process as the owner of the file that was just renamed."""
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

    def is_held(self, claim: Claim, state: ClaimState) -> bool:
        """Whether the claim still holds the run, even if the original has removed its file."""
        return state.token == claim.token

    def claim_lost(self, run_id: str, state: ClaimState) -> ClaimLost:
        """Return the error for a process that no longer holds the run."""
        return ClaimLost(run_id, self.owner, state.holder)

    def remove_sidecar(self, run_id: str) -> None:
        """Remove the sidecar of a run that is not claimed."""
        self._folder.remove(OWN, _CLAIMS, run_id + ".json", sync=False)

    def remove_dead_owners(self) -> None:
        """Remove the files of dead owners without claims, and the sidecars of ended claims."""
        holding = set()
        for run_id in [name.removesuffix(".json") for name in self._folder.names(OWN, _CLAIMS)]:
            state = self.claim_state(run_id)
            holding.add(state.owner)
            if not state.claimed and not self.holder_is_alive(state):
                self.remove_sidecar(run_id)
        self._owners.remove_dead_owners(holding)
