"""The claim of a run around code of a framework, which saves without knowing of claims.

Frameworks do not notify a persister when an execution begins and ends, so the caller marks it with a `with` block.
Inside, all saves to this run carry the claim, and other owners can neither claim the run nor write to it. The claim is
bound to the context, which frameworks pass on to their own threads and tasks: another thread of the program is refused
like another process, and so is a forked process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Final, Self

from holdfast.clock import US
from holdfast.drivers import Plan
from holdfast.errors import ClaimLost, HoldfastError, InvalidInput, RunClaimed
from holdfast.ids import check_id
from holdfast.model.commit import Commit, NewRun, Refused, TakeClaim
from holdfast.operations.claims import end_claim, lease_us_of, renewal, take_or_revoke_dead
from holdfast.operations.context import Access, Holder, StoreContext, require_committed
from holdfast.runtime.app_core import Owner

Status = Callable[[StoreContext, str], str]

_RENEWALS_PER_LEASE: Final = 3
_held: ContextVar[Mapping[tuple[int, int, str], Holder]] = ContextVar("holdfast_claims")
"""The claims of this context, by process, store and run."""


_active: dict[tuple[int, int, str], RunClaim] = {}
"""The claims of this process, by process, store and run."""


def access_for(core: StoreContext, run_id: str, execution: object = None) -> Access:
    """Return the caller's access to a run, through its claim if it has one.

    `execution` is an object that a framework passes to all calls of one execution. Once such a call was made in a
    context with the claim, its other calls have the claim too, also from threads without a context: those that
    complete a future call back in an empty one.
    """
    key = (os.getpid(), id(core), run_id)
    holder = _held.get({}).get(key)
    claim = _active.get(key) if execution is not None else None
    if claim is not None:
        holder = claim.share(execution, holder)
    return Access(core, holder)


class RunClaim:
    """The exclusive right to write to a run within `with` or `async with`.

    The lease is renewed in the background. If the process dies, the claim ends when the lease expires; on SQLite and in
    a directory immediately, because the lock of the process is released.

    `status` returns the status that the run has after its release; without it the status does not change.

    Example:
        with persister.claim("order-17"):
            application.run(halt_after=["pay"])
    """

    def __init__(
        self, core: StoreContext, owner: Owner, run_id: str, lease: float, workflow: str, status: Status | None = None
    ) -> None:
        self.run_id = check_id("run_id", run_id)
        self._workflow = workflow
        self._status = status
        self._lease_us = lease_us_of(lease)
        self._core = core
        self._owner = owner
        self._holder: Holder | None = None
        self._ended = threading.Event()
        self._undoing: asyncio.Task[None] | None = None
        self._executions: dict[int, object] = {}
        """Kept alive, so that their ids stay theirs."""

    @property
    def fence(self) -> int:
        """An integer that grows with every claim. Pass it to systems that can refuse older ones."""
        if self._holder is None:
            raise InvalidInput(f"the claim of run {self.run_id!r} is only held inside `with`")
        return self._holder.fence

    def _take(self) -> Plan[None]:
        """Take the claim, and create the run if it does not exist, in one commit."""
        if self._holder is not None:
            raise InvalidInput(f"the claim of run {self.run_id!r} is already held; ask for another one")
        token, place = self._core.ids.token, Access(self._core)
        take = TakeClaim((yield lambda: self._owner.name), token(16), self._lease_us, revive=True)
        commit = Commit(self.run_id, token(8), create=NewRun(), workflow=self._workflow, take=take)
        row = require_committed(place, commit, (yield from take_or_revoke_dead(place, commit))).run
        self._holder = Holder(take.owner, row.incarnation, row.fence, take.nonce)

    def _hold(self) -> None:
        """Bind the claim to this context, and start to renew the lease."""
        assert self._holder is not None
        _held.set({**_held.get({}), self._key: self._holder})
        _active[self._key] = self
        self._ended = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(self._ended,), name="holdfast-claim", daemon=True)
        renewing.start()

    def share(self, execution: object, holder: Holder | None) -> Holder | None:
        """Return the holder of a call; a call that has this claim gives it to its execution."""
        if holder is not None and holder == self._holder:
            self._executions[id(execution)] = execution
        elif holder is None and id(execution) in self._executions:
            return self._holder
        return holder

    @property
    def _key(self) -> tuple[int, int, str]:
        return os.getpid(), id(self._core), self.run_id

    def _renew(self, ended: threading.Event) -> None:
        access = Access(self._core, self._holder)
        while not ended.wait(self._lease_us / US / _RENEWALS_PER_LEASE):
            commit = renewal(access, self.run_id, self._lease_us)
            try:
                if isinstance(self._core.committer.commit(commit), Refused):
                    return  # another owner has the run; every write through this claim is refused
            except HoldfastError:
                continue  # the store failed; the next renewal tries again

    def _end(self) -> Plan[None]:
        self._ended.set()
        holder, self._holder = self._holder, None
        assert holder is not None
        self._executions = {}
        if _active.get(self._key) is self:
            del _active[self._key]
        # Claims may end in any order, and in another context than they began in, as generators do. So this claim is
        # removed from the current mapping; the previous mapping is not restored.
        held = _held.get({})
        if held.get(self._key) == holder:
            _held.set({key: other for key, other in held.items() if key != self._key})
        return self._release(Access(self._core, holder))

    def _release(self, access: Access) -> Plan[None]:
        """Release the claim, and set the status of the run in the same commit."""
        status = self._status
        status_after = None if status is None else (yield lambda: status(self._core, self.run_id))
        yield from end_claim(access, self.run_id, status_after)

    def __enter__(self) -> Self:
        Access(self._core).run(self._take())
        self._hold()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            Access(self._core).run(self._end())
        except (ClaimLost, RunClaimed):
            if error is None:
                raise

    async def __aenter__(self) -> Self:
        taking = asyncio.ensure_future(self._core.awaiting.run(self._take()))
        try:
            await asyncio.shield(taking)
        except asyncio.CancelledError:  # the claim may still be taken; release it then
            self._undoing = asyncio.create_task(self._undo(taking))
            raise
        self._hold()
        return self

    async def _undo(self, taking: asyncio.Future[None]) -> None:
        with contextlib.suppress(HoldfastError):
            await taking
            await self._core.awaiting.run(self._end())

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        try:
            await self._core.awaiting.run(self._end())
        except (ClaimLost, RunClaimed):
            if error is None:
                raise
