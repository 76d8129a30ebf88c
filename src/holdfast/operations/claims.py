"""Claims: take, renew, release, and recover the runs of dead owners.

A claim is revoked only after its lease expired or its owner is certainly dead. `take_or_revoke_dead` is the only code
that takes a run from a dead owner; the runtime and the adapters call it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from msgspec import structs

from holdfast.clock import US
from holdfast.drivers import Plan
from holdfast.errors import InvalidInput
from holdfast.ids import check_id
from holdfast.limits import CLAIMS_PER_COMMIT_MAX, LEASE_S_MAX, LEASE_S_MIN
from holdfast.model.commit import OUTSIDER, Commit, Committed, Guard, Outcome, Reason, Refused, TakeClaim
from holdfast.model.rows import COMPLETED, READY, RunRow, check_status
from holdfast.operations.context import Access, Holder, StoreContext, require_committed
from holdfast.store.capabilities import Liveness
from holdfast.store.port import RunQuery

_BATCH = 100

Held = TypeVar("Held")
MakeClaim = Callable[[Access, RunRow, float], Held]
"""Builds the claim object that a caller gets, from the access, the row and the lease in seconds."""


def lease_us_of(lease: object) -> int:
    """Convert a lease in seconds to microseconds; InvalidInput if it is outside the limits."""
    if isinstance(lease, bool) or not isinstance(lease, (int, float)) or not LEASE_S_MIN <= lease <= LEASE_S_MAX:
        raise InvalidInput(f"lease must be {LEASE_S_MIN} to {LEASE_S_MAX:.0f} seconds, not {lease!r}")
    return int(lease * US)


class OwnClaims(Protocol):
    """The name under which this process claims runs, and the claims it holds or is about to take."""

    nonces: set[bytes]

    @property
    def owner(self) -> str: ...


def take_claim(access: Access, make: MakeClaim[Held], run_id: str, owner: str, lease: float) -> Plan[Held | None]:
    """Take the claim of a run. None if the run is claimed or has ended."""
    check_id("run_id", run_id)
    check_id("owner", owner)
    take = TakeClaim(owner, access.core.ids.token(16), lease_us_of(lease))
    commit = Commit(run_id, access.core.ids.token(8), take=take)
    outcome = yield from take_or_revoke_dead(access, commit)
    if type(outcome) is Refused and outcome.reason in (Reason.CLAIMED, Reason.ENDED):
        return None
    row = require_committed(access, commit, outcome).run
    return make(claim_access(access.core, row), row, float(lease))


def claim_access(core: StoreContext, row: RunRow) -> Access:
    """Access to a run through the claim in its row, which this process has taken."""
    return Access(core, Holder(row.owner, row.incarnation, row.fence, row.nonce))


def take_or_revoke_dead(
    access: Access, commit: Commit, own: OwnClaims | None = None, revocations: int | None = 1
) -> Plan[Outcome]:
    """Commit a change that needs the run unclaimed, and revoke the claim of a dead owner that refuses it.

    The owner is dead as `dead_fence` decides. Before the second commit another owner may have claimed the run and died;
    `revocations` is how many such claims in a row are revoked. None: all of them.
    """
    outcome: Outcome = yield commit
    while type(outcome) is Refused and outcome.reason == Reason.CLAIMED and revocations != 0:
        row = outcome.run
        assert row is not None, "a claim that refuses a commit has a row"
        fence = yield from dead_fence(access, row, own)
        if fence is None:
            break
        guard = structs.replace(commit.guard, incarnation=row.incarnation, gone=fence)
        outcome = yield structs.replace(commit, commit_id=access.core.ids.token(8), guard=guard)
        revocations = None if revocations is None else revocations - 1
    return outcome


def dead_fence(access: Access, row: RunRow, own: OwnClaims | None = None) -> Plan[int | None]:
    """The fence of the claim in this row, if its owner is certainly dead.

    With `own`, a claim under the name of this process that is not among its nonces counts as dead: the store failed
    when the claim was to be released. Its other claims are alive.
    """
    if not row.owner:
        return None
    if own is not None and row.owner == own.owner:
        return None if row.nonce in own.nonces else row.fence
    return row.fence if (yield lambda: access.core.liveness.owner_is_dead(row.owner)) else None


def take_ready(
    access: Access, make: MakeClaim[Held], owner: str, limit: int, lease: float, workflows: Iterable[str]
) -> Plan[list[Held]]:
    """Take the claims of ready runs, longest ready first."""
    check_id("owner", owner)
    if type(limit) is not int or not 0 < limit <= CLAIMS_PER_COMMIT_MAX:
        raise InvalidInput(f"limit must be 1 to {CLAIMS_PER_COMMIT_MAX}, not {limit!r}")
    if isinstance(workflows, str):
        raise InvalidInput(f"workflows is a list of names; write [{workflows!r}]")
    names = tuple(check_id("workflow", name) for name in workflows)
    port, token, lease_us = access.core.port, access.core.ids.token, lease_us_of(lease)
    takes = [TakeClaim(owner, token(16), lease_us) for _ in range(limit)]
    rows: list[RunRow] = yield lambda: port.claim_ready(takes, names, token(8))
    return [make(claim_access(access.core, row), row, float(lease)) for row in rows]


def renewal(access: Access, run_id: str, lease_us: int) -> Commit:
    """Build the commit that extends the lease of a claim, counted from now."""
    return Commit(run_id, access.core.ids.token(8), access.guard(), renew_us=lease_us)


def release(access: Access, run_id: str, status: str | None = READY) -> Commit:
    """Build the commit that releases a claim; by default another owner can take the run at once."""
    return Commit(run_id, access.core.ids.token(8), access.guard(), status=status, release=True)


def renew_claim(access: Access, run_id: str, lease: float) -> Plan[None]:
    """Extend the lease, counted from now."""
    commit = renewal(access, run_id, lease_us_of(lease))
    require_committed(access, commit, (yield commit))


def end_claim(access: Access, run_id: str, status: str | None) -> Plan[None]:
    """Release the claim and set the status, in one commit."""
    if status is not None:
        check_status(status)
    commit = release(access, run_id, status)
    require_committed(access, commit, (yield commit))


def complete_claim(access: Access, run_id: str) -> Plan[None]:
    """End the run as completed and release the claim."""
    return end_claim(access, run_id, COMPLETED)


def announce(access: Access, owner: str) -> Plan[None]:
    """Register this process as the living `owner`, until it ends or the store is closed.

    If a process that announced itself before it claimed dies, other processes take over its runs without waiting for
    its leases. On local stores (`sqlite:`, `dir:`) this happens at once. On PostgreSQL it takes about a second and one
    more connection; behind a transaction pooler, leases have to expire. In memory it does nothing. Each process needs
    an owner name that was never used before: a process under the name of a dead one keeps the dead one's claims alive,
    and the second of two living ones gets a Conflict. A forked process announces itself again.

    Example:
        import os, secrets
        owner = f"worker-{os.getpid()}-{secrets.token_hex(4)}"
        store.announce(owner)
        claim = store.claim("run-1", owner, lease=600)
    """
    check_id("owner", owner)
    yield lambda: access.core.liveness.announce(owner)


def recover_expired(access: Access) -> Plan[int]:
    """Make runs ready again whose lease expired, whose machine restarted, or whose announced owner is known to be dead.

    Runs with a live owner are left alone. Any number of processes may call it; each run is counted once. Returns the
    number of recovered runs.

    Example:
        store.recover_expired()
    """
    port = access.core.port
    count = yield from _recover(access, lambda seen: port.runs(RunQuery(claimed="expired", limit=_BATCH + seen)))
    if isinstance(port, Liveness):
        count += yield from _recover(access, lambda _seen: port.claims_of_dead(), dead=True)
    return count


def _recover(access: Access, find: Callable[[int], list[RunRow]], *, dead: bool = False) -> Plan[int]:
    """Recover runs until `find` returns no new ones. `dead`: their owners are dead, so their leases do not count.

    `find` gets the number of rows seen so far, which it may return again if their recovery was refused.
    """
    seen: set[tuple[int, int]] = set()
    count = 0
    while True:
        found: list[RunRow] = yield lambda: find(len(seen))
        rows = [row for row in found if (row.run, row.fence) not in seen]
        if not rows:
            return count
        for row in rows:
            seen.add((row.run, row.fence))
            guard = Guard(OUTSIDER, incarnation=row.incarnation, gone=row.fence if dead else None)
            outcome = yield Commit(row.run_id, access.core.ids.token(8), guard, rearm=row.fence)
            count += type(outcome) is Committed  # refused: another process was first, or the run is damaged
