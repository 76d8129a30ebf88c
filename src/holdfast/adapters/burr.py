"""Persisters that keep the states of Burr applications in a Holdfast store.

An application is a run of the workflow "burr"; each save is a checkpoint that stores only what is new. Burr does not
report to a persister when an application begins and ends, so the caller claims it: `with persister.claim(app_id)`.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

try:
    from burr.core import State
    from burr.core.application import PRIOR_STEP, SEQUENCE_ID
    from burr.core.persistence import AsyncBaseStatePersister, BaseStatePersister, PersistedStateData
except ImportError as error:
    if (error.name or "").partition(".")[0] != "burr":
        raise
    message = 'holdfast.adapters.burr needs apache-burr; pip install "holdfast[burr]"'
    raise ImportError(message, name=error.name) from error

from holdfast.adapters.shared.persister import LEASE_S, Persister, call_blocking
from holdfast.adapters.shared.run_claim import RunClaim
from holdfast.drivers import Plan
from holdfast.errors import CheckpointConflict, InvalidInput
from holdfast.limits import RUNS_PAGE_MAX
from holdfast.model.views import Checkpoint, RunInfo
from holdfast.operations import read
from holdfast.operations.store import Store

__all__ = ["AsyncHoldfastPersister", "HoldfastPersister"]

WORKFLOW: Final = "burr"
_METADATA: Final = ("partition_key", "app_id", "position", "outcome", "save")


class _States:
    """What both persisters do, as plans."""

    def __init__(self, store: Store | str, *, serde_kwargs: Mapping[str, Any] | None = None) -> None:
        self.persister = Persister(store, WORKFLOW)
        self.serde_kwargs = dict(serde_kwargs or {})

    def claim(self, app_id: str, partition_key: str | None = None, *, lease: float = LEASE_S) -> RunClaim:
        """The exclusive right to continue an application, for `with` or `async with`.

        Build the application inside the block: an application that was built before may have loaded an old state.
        Another process gets RunClaimed before one of its actions runs.

        Example:
            with persister.claim("order-17"):
                application = build(persister)
                application.run(halt_after=["pay"])
        """
        return self.persister.claim(run_id_of(partition_key, app_id), lease=lease)

    @property
    def store(self) -> Store:
        """The store, for `verify`, `prune`, `history` and others."""
        return self.persister.store

    def set_serde_kwargs(self, serde_kwargs: Mapping[str, Any]) -> None:
        """Set the arguments for Burr's serializers, as with Burr's own persisters."""
        self.serde_kwargs = dict(serde_kwargs)

    # Not a generator: `Persister.save` must be called where the caller's claim is known, not on the thread of the plan.
    def _save(
        self, partition_key: str | None, app_id: str, sequence_id: int, position: str, state: State[Any], status: str
    ) -> Plan[Any]:
        if not isinstance(state, State):
            raise InvalidInput(f"save needs a State of Burr, not {type(state).__name__}")
        status = _outcome(state, position, status)
        # The token makes two saves of one sequence id differ: two processes that perform the same action, and compute
        # the same state, conflict.
        values = (partition_key or "", app_id, position, status, secrets.token_hex(4))
        plan = self.persister.save(
            run_id_of(partition_key, app_id),
            state.serialize(**self.serde_kwargs),
            step=sequence_id,
            checkpoint_id=f"{sequence_id} {position}",
            metadata=dict(zip(_METADATA, values, strict=True)),
            status="failed" if status == "failed" else "waiting",
        )
        return _explain_conflict(plan, app_id, sequence_id)

    def _load(
        self, partition_key: str | None, app_id: str | None, sequence_id: int | None
    ) -> Plan[PersistedStateData | None]:
        if app_id is None:
            runs = yield from self._runs(partition_key)
            if not runs:
                return None
            app_id = str(max(runs, key=lambda run: run.updated_at).metadata["app_id"])
        run_id = run_id_of(partition_key, app_id)
        found: Checkpoint[Any] | None = yield from self.persister.load(run_id, step=sequence_id)
        if found is None:
            return None
        if any(name not in found.metadata for name in _METADATA):
            raise InvalidInput(f"run {run_id!r} is not an application of Burr; use another app_id or another store")
        return {
            "partition_key": found.metadata["partition_key"],
            "app_id": app_id,
            "sequence_id": found.step,
            "position": found.metadata["position"],
            "state": State.deserialize(found.state, **self.serde_kwargs),
            "created_at": found.created_at.isoformat(),
            "status": found.metadata["outcome"],
        }

    def _list(self, partition_key: str | None) -> Plan[list[str]]:
        runs = yield from self._runs(partition_key)
        return [str(run.metadata["app_id"]) for run in runs]

    def _runs(self, partition_key: str | None) -> Plan[list[RunInfo]]:
        """The applications of a partition, newest first."""
        found: list[RunInfo] = []
        after: str | None = None
        while True:
            page = yield from read.runs(
                self.store.access,
                workflow=WORKFLOW,
                metadata={"partition_key": partition_key or ""},
                limit=RUNS_PAGE_MAX,
                after=after,
            )
            found += page
            after = page.cursor
            if after is None:
                return found


class HoldfastPersister(_States, BaseStatePersister):
    """A Burr persister on a Holdfast store, for `with_state_persister` and `initialize_from`.

    It takes a store or its URL; `initialize` is not needed. `serde_kwargs` are for Burr's own serializers.

    Example:
        persister = HoldfastPersister("sqlite:applications.db")
        with persister.claim("order-17"):
            application = builder.with_state_persister(persister).with_identifiers(app_id="order-17").build()
            application.run(halt_after=["pay"])
    """

    def load(
        self, partition_key: str | None, app_id: str | None, sequence_id: int | None = None, **_: Any
    ) -> PersistedStateData | None:
        """Return the newest state of an application, or that of a sequence id; None if there is none.

        Without `app_id` it is the state of the application of the partition that was changed last.
        """
        return self.persister.run(self._load(partition_key, app_id, sequence_id))

    def list_app_ids(self, partition_key: str | None = None, **_: Any) -> list[str]:
        """Return the ids of the applications of a partition, newest first."""
        return self.persister.run(self._list(partition_key))

    def save(
        self,
        partition_key: str | None,
        app_id: str,
        sequence_id: int,
        position: str,
        state: State[Any],
        status: Literal["completed", "failed"],
        **_: Any,
    ) -> None:
        """Save a state, durably. A second save with the same sequence id and position is a CheckpointConflict."""
        self.persister.run(self._save(partition_key, app_id, sequence_id, position, state, status))

    def is_initialized(self) -> bool:
        """Return True: a store needs no setup."""
        return True

    def close(self) -> None:
        """Close the store if this persister has opened it."""
        call_blocking(self.persister.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncHoldfastPersister(_States, AsyncBaseStatePersister):
    """`HoldfastPersister` for applications that are built with `abuild`.

    Example:
        async with AsyncHoldfastPersister("sqlite:applications.db") as persister, persister.claim("order-17"):
            application = await builder.with_state_persister(persister).with_identifiers(app_id="order-17").abuild()
            await application.arun(halt_after=["pay"])
    """

    async def load(
        self, partition_key: str | None, app_id: str | None, sequence_id: int | None = None, **_: Any
    ) -> PersistedStateData | None:
        """`HoldfastPersister.load`, async."""
        return await self.persister.run_async(self._load(partition_key, app_id, sequence_id))

    async def list_app_ids(self, partition_key: str | None = None, **_: Any) -> list[str]:
        """`HoldfastPersister.list_app_ids`, async."""
        return await self.persister.run_async(self._list(partition_key))

    async def save(
        self,
        partition_key: str | None,
        app_id: str,
        sequence_id: int,
        position: str,
        state: State[Any],
        status: Literal["completed", "failed"],
        **_: Any,
    ) -> None:
        """`HoldfastPersister.save`, async."""
        await self.persister.run_async(self._save(partition_key, app_id, sequence_id, position, state, status))

    async def is_initialized(self) -> bool:
        """Return True: a store needs no setup."""
        return True

    async def close(self) -> None:
        """Close the store if this persister has opened it."""
        call_blocking(self.persister.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def run_id_of(partition_key: str | None, app_id: str) -> str:
    """The run of an application: its id, preceded by the partition key if there is one.

    No two applications have the same run: a "/" of a partition key is escaped, so the first "/" ends the key.
    """
    if not isinstance(app_id, str) or not isinstance(partition_key, (str, type(None))):
        raise InvalidInput(f"app_id and partition_key must be text, not {app_id!r} and {partition_key!r}")
    if not partition_key and "/" not in app_id:
        return app_id
    return f"{(partition_key or '').replace('%', '%25').replace('/', '%2F')}/{app_id}"


def _outcome(state: State[Any], position: str, status: str) -> str:
    """The status of an action, corrected where Burr 0.43 reports an action as completed with the state from before it.

    It does so for an action that KeyboardInterrupt, SystemExit or GeneratorExit ended, and for a `def` action of an
    async application. Loaded again, such a state would skip the action and lack what it did.
    """
    if status != "completed" or SEQUENCE_ID not in state or state.get(PRIOR_STEP) == position:
        return status
    if sys.exception() is not None:
        return "failed"
    raise InvalidInput(
        f"Burr passed the state from before action {position!r} to be saved as the state after it, as it does for "
        f"`def` actions of an async application; make {position!r} an `async def`, or run the application with `run`"
    )


def _explain_conflict(plan: Plan[Any], app_id: str, sequence_id: int) -> Plan[Any]:
    try:
        return (yield from plan)
    except CheckpointConflict as error:
        error.add_note(
            f"application {app_id!r} already has a state of sequence id {sequence_id}: two processes continued it from "
            "the same state; build and run it inside `with persister.claim(app_id)`"
        )
        raise
