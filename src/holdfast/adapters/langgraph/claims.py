"""Claims on threads: one process at a time moves a thread on.

LangGraph does not tell a saver where a run of the graph begins and ends, so the caller does, with
`with saver.claim(thread_id):` around the call. Inside, all that the graph saves of this thread carries the claim;
others can neither claim the thread nor write to it. The claim is known by context, as LangGraph hands it on to its own
threads and tasks: another thread of the same program that did not claim is refused like another process, and so is a
process forked from this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Self

from holdfast.adapters.langgraph.thread_status import stored_status
from holdfast.adapters.langgraph.threads import WORKFLOW
from holdfast.clock import US
from holdfast.errors import ClaimLost, HoldfastError, InvalidInput, RunClaimed
from holdfast.ids import check_id
from holdfast.model.commit import Commit, NewRun, Refused, Take
from holdfast.runtime.owner import Owner
from holdfast.verbs.aio import Waiter
from holdfast.verbs.core import Core, Holder, Place
from holdfast.verbs.holding import end_claim, lease_us_of, taken
from holdfast.verbs.plans import Plan, run_plan
from holdfast.verbs.writing import committed

_BEATS_PER_LEASE: Final = 3
_held: ContextVar[Mapping[tuple[int, int, str], Holder]] = ContextVar("holdfast_langgraph_claims")
"""By process, store and thread."""


def place_for(core: Core, thread_id: str) -> Place:
    """Where this caller writes to a thread: through its claim, if it holds one."""
    return Place(core, _held.get({}).get((os.getpid(), id(core), thread_id)))


class ThreadClaim:
    """The exclusive right to move a thread on, while inside `with` or `async with`. `saver.claim` makes one.

    The lease is renewed in the background; if the process dies, it ends by itself (on SQLite and in a directory at
    once, because the dead process's lock is free).

    Example:
        with saver.claim("thread-1"):
            graph.invoke(Command(resume=True), config)
    """

    def __init__(self, core: Core, owner: Owner, thread_id: str, lease: float, waiter: Waiter) -> None:
        self.thread_id = check_id("thread_id", str(thread_id))
        self._lease_us = lease_us_of(lease)
        self._core = core
        self._owner = owner
        self._waiter = waiter
        self._holder: Holder | None = None
        self._ended = threading.Event()
        self._undoing: asyncio.Task[None] | None = None

    @property
    def fence(self) -> int:
        """Grows with every claim of the thread; pass it to outside systems that can refuse older ones."""
        if self._holder is None:
            raise InvalidInput(f"the claim of thread {self.thread_id!r} is only held inside `with`")
        return self._holder.fence

    def _take(self) -> Plan[None]:
        """Take the claim, and create the thread if it is not there, in one commit."""
        if self._holder is not None:
            raise InvalidInput(f"the claim of thread {self.thread_id!r} is already held; make another one")
        token, place = self._core.ids.token, Place(self._core)
        take = Take((yield lambda: self._owner.name), token(16), self._lease_us, revive=True)
        commit = Commit(self.thread_id, token(8), create=NewRun(), workflow=WORKFLOW, take=take)
        row = committed(place, commit, (yield from taken(place, commit))).run
        self._holder = Holder(take.owner, row.incarnation, row.fence, take.nonce)

    def _begin(self) -> None:
        """Let what happens in this context know of the claim, and keep it alive."""
        assert self._holder is not None
        _held.set({**_held.get({}), self._key: self._holder})
        self._ended = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(self._ended,), name="holdfast-claim", daemon=True)
        renewing.start()

    @property
    def _key(self) -> tuple[int, int, str]:
        return os.getpid(), id(self._core), self.thread_id

    def _renew(self, ended: threading.Event) -> None:
        place = Place(self._core, self._holder)
        while not ended.wait(self._lease_us / US / _BEATS_PER_LEASE):
            commit = Commit(self.thread_id, self._core.ids.token(8), place.guard(), renew_us=self._lease_us)
            try:
                if isinstance(self._core.committer.commit(commit), Refused):
                    return  # somebody else has the thread; whatever is written through this claim is refused
            except HoldfastError:
                continue  # the store is in trouble; the next beat tries again

    def _end(self) -> Plan[None]:
        self._ended.set()
        holder, self._holder = self._holder, None
        assert holder is not None
        # Not the state before the claim, but this one without it: claims may end in any order, and in another context
        # than they began in, as generators do.
        held = _held.get({})
        if held.get(self._key) == holder:
            _held.set({key: other for key, other in held.items() if key != self._key})
        return self._release(Place(self._core, holder))

    def _release(self, place: Place) -> Plan[None]:
        """Give up the claim, with the status the thread has now; nothing else writes to it before."""
        status = yield lambda: stored_status(self._core, self.thread_id)
        yield from end_claim(place, self.thread_id, status)

    def __enter__(self) -> Self:
        run_plan(Place(self._core), self._take())
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            run_plan(Place(self._core), self._end())
        except (ClaimLost, RunClaimed):
            if error is None:
                raise

    async def __aenter__(self) -> Self:
        taking = asyncio.ensure_future(self._waiter.run(self._take()))
        try:
            await asyncio.shield(taking)
        except asyncio.CancelledError:  # the claim may have been taken all the same, or may yet be: give it back
            self._undoing = asyncio.create_task(self._undo(taking))
            raise
        self._begin()
        return self

    async def _undo(self, taking: asyncio.Future[None]) -> None:
        with contextlib.suppress(HoldfastError):
            await taking
            await self._waiter.run(self._end())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._waiter.run(self._end())
        except (ClaimLost, RunClaimed):
            if error is None:
                raise
