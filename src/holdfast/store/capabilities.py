"""Capabilities that only some stores have, detected by isinstance.

They are optional and independent of each other; `holdfast.store.port` is the interface of every store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, Self, runtime_checkable

from holdfast.model.rows import RunRow


class About(NamedTuple):
    """The system below a store, described without reading what the store holds."""

    facts: dict[str, str]
    """Versions and settings by name, for people."""
    path: str | None = None
    """Where on this machine's disk it is; None if it is elsewhere."""
    bytes: int | None = None
    """How large it is, if that is known without reading it."""
    clock_us: int | None = None
    """The time of the machine it is on, if that is another."""
    risks: tuple[str, ...] = ()
    """Settings with which acknowledged commits can be lost."""


class Presence(Enum):
    """Whether other processes may have declared an owner dead, as far as the owner knows."""

    SURE = "sure"
    """No: it may begin an effect."""
    UNSURE = "unsure"
    """Possibly soon: its connection was lost, or did not answer for a while."""
    LOST = "lost"
    """Yes: its claims are forfeited, and it needs another name."""


@runtime_checkable
class Liveness(Protocol):
    """A store that knows which owners have died, so that their runs are recovered before their leases end."""

    def announce(self, owner: str) -> None:
        """Register this process as `owner` until it ends or calls `close`."""

    def owner_is_dead(self, owner: str) -> bool:
        """True: the process that announced itself as `owner` is certainly dead. False: it lives, or is not known."""

    def dead_owners(self, owners: Collection[str]) -> set[str]:
        """Those of `owners` for which `owner_is_dead` is true."""

    def claims_of_dead(self) -> list[RunRow]:
        """All runs claimed by owners that are known to be dead. The traces of other dead owners are removed.

        The rows are read before the owners are judged: a claim taken later, by a new process of the same name, has
        another fence.
        """

    def remove_dead_owners(self, holding: Collection[str]) -> None:
        """Remove the traces of dead owners, except of those that are still `holding` a claim."""

    def presence(self, owner: str) -> Presence:
        """What is known about an owner announced here, without I/O."""

    def confirm(self, owner: str) -> Presence:
        """Find out whether `owner` was declared dead: SURE or LOST, or a StorageError if that cannot be found out."""


@runtime_checkable
class WorkerRegistry(Protocol):
    """A store that knows which workers are alive and what they execute."""

    def register_worker(self, owner: str, workflows: Sequence[str], lease_us: int) -> None:
        """Publish which workflows the announced `owner` executes, for at least `lease_us`. Empty: it stopped."""

    def workers(self) -> dict[str, tuple[str, ...]]:
        """The workflows of each running worker."""


@runtime_checkable
class Catalog(Protocol):
    """A store that keeps descriptions of workflows, so that other processes can list and start them."""

    def publish(self, entries: Mapping[str, bytes]) -> None:
        """Store these descriptions by name, durably; an empty one removes its name. Others stay."""

    def published(self) -> dict[str, bytes]:
        """All descriptions, as stored, by name."""


@runtime_checkable
class Notifications(Protocol):
    """A store that notifies workers of runs that become ready or receive an inbox item."""

    def listen(self) -> Listener:
        """Subscribe. Raises StorageFailed if the connection cannot carry notifications."""


class Listener(Protocol):
    """A subscription to notifications. They are hints: a lost one only costs latency."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def works(self) -> bool:
        """Whether a notification sent now arrives."""

    def notified_runs(self, timeout_s: float) -> Sequence[str]:
        """The ids of runs that changed, as soon as there are any; empty after `timeout_s`."""


@runtime_checkable
class Diagnostics(Protocol):
    """A store that can examine the system below it."""

    def check(self) -> list[str]:
        """The problems that the system below (a database's own check) finds."""

    def describe(self) -> About:
        """Versions and settings of the system below. Fast, however much the store holds."""


class NoLiveness:
    """The liveness of a store without one: nothing is known of any owner, so leases must expire."""

    def announce(self, owner: str) -> None: ...

    def owner_is_dead(self, owner: str) -> bool:  # noqa: ARG002
        return False

    def dead_owners(self, owners: Collection[str]) -> set[str]:  # noqa: ARG002
        return set()

    def claims_of_dead(self) -> list[RunRow]:
        return []

    def remove_dead_owners(self, holding: Collection[str]) -> None: ...

    def presence(self, owner: str) -> Presence:  # noqa: ARG002
        return Presence.SURE

    def confirm(self, owner: str) -> Presence:  # noqa: ARG002
        return Presence.SURE


def liveness_of(port: object) -> Liveness:
    """The store itself if it has Liveness, else NoLiveness."""
    return port if isinstance(port, Liveness) else NoLiveness()
