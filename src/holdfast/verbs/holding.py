"""Holding a run: claim, renew, complete, release, and taking runs back from owners who are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import structs

from holdfast.clock import US
from holdfast.errors import InvalidInput
from holdfast.ids import check_id
from holdfast.limits import CLAIMS_PER_COMMIT_MAX, LEASE_S_MAX, LEASE_S_MIN
from holdfast.model import commit as why
from holdfast.model.commit import OUTSIDER, Commit, Committed, Guard, Outcome, Refused, Take
from holdfast.model.rows import RunRow
from holdfast.model.status import COMPLETED, check_status
from holdfast.store.port import StorePort
from holdfast.verbs.core import Holder, Place
from holdfast.verbs.plans import Plan
from holdfast.verbs.writing import committed

_BATCH = 100

Held = TypeVar("Held")


def lease_us_of(lease: object) -> int:
    """A lease in seconds as microseconds."""
    if isinstance(lease, bool) or not isinstance(lease, (int, float)) or not LEASE_S_MIN <= lease <= LEASE_S_MAX:
        raise InvalidInput(f"lease must be {LEASE_S_MIN} to {LEASE_S_MAX:.0f} seconds, not {lease!r}")
    return int(lease * US)


def take_claim(
    place: Place, make: Callable[[Place, RunRow, float], Held], run_id: str, owner: str, lease: float
) -> Plan[Held | None]:
    """Take the claim of a run; `make` makes what the caller gets to hold."""
    check_id("run_id", run_id)
    check_id("owner", owner)
    take = Take(owner, place.core.ids.token(16), lease_us_of(lease))
    commit = Commit(run_id, place.core.ids.token(8), take=take)
    outcome = yield from taken(place, commit)
    if type(outcome) is Refused and outcome.why in (why.CLAIMED, why.ENDED):
        return None
    row = committed(place, commit, outcome).run
    holder = Holder(owner, row.incarnation, row.fence, take.nonce)
    return make(Place(place.core, holder), row, float(lease))


def taken(place: Place, commit: Commit) -> Plan[Outcome]:
    """What became of a commit that takes a claim. A claim whose owner is known to be dead does not stand in its way."""
    outcome: Outcome = yield commit
    if type(outcome) is Refused and outcome.why == why.CLAIMED and outcome.run is not None:
        gone = yield from _gone(place, outcome.run)
        if gone is not None:
            guard = structs.replace(commit.guard, incarnation=outcome.run.incarnation, gone=gone)
            outcome = yield structs.replace(commit, commit_id=place.core.ids.token(8), guard=guard)
    return outcome


def _gone(place: Place, row: RunRow | None) -> Plan[int | None]:
    """The fence of the claim in this row, if its owner is certainly dead."""
    port = place.core.port
    if row is None or not _can_tell(port):
        return None
    return row.fence if (yield lambda: port.is_gone(row.owner)) else None


def _can_tell(port: StorePort) -> bool:
    """Whether the store ever knows that an owner is gone. Others are not asked, and their runs not listed for it."""
    return getattr(port.is_gone, "__func__", None) is not StorePort.is_gone


def take_ready(
    place: Place,
    make: Callable[[Place, RunRow, float], Held],
    owner: str,
    limit: int,
    lease: float,
    workflows: Iterable[str],
) -> Plan[list[Held]]:
    """Take the claims of runs that are ready, longest ready first."""
    check_id("owner", owner)
    if type(limit) is not int or not 0 < limit <= CLAIMS_PER_COMMIT_MAX:
        raise InvalidInput(f"limit must be 1 to {CLAIMS_PER_COMMIT_MAX}, not {limit!r}")
    if isinstance(workflows, str):
        raise InvalidInput(f"workflows is a list of names; write [{workflows!r}]")
    names = tuple(check_id("workflow", name) for name in workflows)
    port, token, lease_us = place.core.port, place.core.ids.token, lease_us_of(lease)
    takes = [Take(owner, token(16), lease_us) for _ in range(limit)]
    rows: list[RunRow] = yield lambda: port.claim_ready(takes, names, token(8))
    return [
        make(Place(place.core, Holder(owner, row.incarnation, row.fence, row.nonce)), row, float(lease)) for row in rows
    ]


def renew_claim(place: Place, run_id: str, lease: float) -> Plan[None]:
    """Extend the lease from now on."""
    commit = Commit(run_id, place.core.ids.token(8), place.guard(), renew_us=lease_us_of(lease))
    committed(place, commit, (yield commit))


def end_claim(place: Place, run_id: str, status: str | None) -> Plan[None]:
    """Give up the claim and, in the same commit, set the status."""
    if status is not None:
        check_status(status)
    commit = Commit(run_id, place.core.ids.token(8), place.guard(), status=status, release=True)
    committed(place, commit, (yield commit))


def complete_claim(place: Place, run_id: str) -> Plan[None]:
    """End the run as completed and give up the claim."""
    return end_claim(place, run_id, COMPLETED)


def announce(place: Place, owner: str) -> Plan[None]:
    """Give a sign of life as `owner`, which ends with this process, or when the store is closed.

    A process that announces itself before it claims, and dies, need not be waited for: others take over its runs at
    once, and not only after its leases. So it is on local stores (`sqlite:`, `dir:`); on PostgreSQL it takes about a
    second and one more connection, and behind a transaction pooler leases remain; in memory it does nothing. Every
    process needs a name of its own that none before it had: one that lives under the name of a dead one keeps the dead
    one's claims alive, and of two living ones the second gets a Conflict. A forked process announces itself anew.

    Example:
        import os, secrets
        owner = f"worker-{os.getpid()}-{secrets.token_hex(4)}"
        store.announce(owner)
        claim = store.claim("run-1", owner, lease=600)
    """
    check_id("owner", owner)
    yield lambda: place.core.port.announce(owner)


def recover_expired(place: Place) -> Plan[int]:
    """Make runs ready again whose owner is gone: whose lease has ended, or ended with the machine, or who is known to
    be dead because it had announced itself.

    Runs with a live owner are left alone. Safe to call from any number of processes; each run is counted once. Returns
    how many runs were re-armed.

    Example:
        store.recover_expired()
    """
    port, count = place.core.port, 0
    seen: set[tuple[int, int]] = set()
    while True:
        found = yield lambda: port.expired_claims(_BATCH + len(seen))
        rows = [row for row in found if (row.run, row.fence) not in seen]
        if not rows:
            return count + (yield from _recover_from_the_dead(place))
        for row in rows:
            seen.add((row.run, row.fence))
            guard = Guard(OUTSIDER, incarnation=row.incarnation)
            outcome = yield Commit(row.run_id, place.core.ids.token(8), guard, rearm=row.fence)
            count += type(outcome) is Committed  # refused: somebody else was first, or it is damaged; go on


def _recover_from_the_dead(place: Place) -> Plan[int]:
    """Re-arm the runs whose owners are known to be dead, whatever their leases say."""
    port, count = place.core.port, 0
    seen: set[tuple[int, int]] = set()
    while _can_tell(port):
        found = yield port.claims_of_dead
        rows = [row for row in found if (row.run, row.fence) not in seen]
        if not rows:
            break
        for row in rows:
            seen.add((row.run, row.fence))
            guard = Guard(OUTSIDER, incarnation=row.incarnation, gone=row.fence)
            outcome = yield Commit(row.run_id, place.core.ids.token(8), guard, rearm=row.fence)
            count += type(outcome) is Committed  # refused: another process was first, or it is damaged
    return count
