"""The saver: LangGraph's checkpointer on a Holdfast store."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph import delta, reading, removing, retention, writing
from holdfast.adapters.langgraph.claims import ThreadClaim, place_for
from holdfast.adapters.langgraph.recent import Recent
from holdfast.adapters.langgraph.retention import Age, Retained
from holdfast.adapters.langgraph.serde import Allowed, StrictSerializer
from holdfast.errors import InvalidInput
from holdfast.opening import open as open_store
from holdfast.runtime.owner import Owner
from holdfast.verbs.core import Place
from holdfast.verbs.plans import Plan, run_plan
from holdfast.verbs.store import Store

Result = TypeVar("Result")


class HoldfastSaver(BaseCheckpointSaver[Any]):
    """A LangGraph checkpointer that keeps threads in a Holdfast store.

    Give it a store or a store's URL. Graphs may be called blocking or awaiting, both are native. Nothing has to be set
    up. Each thread is a run of the workflow "langgraph"; each checkpoint costs what changed since the one before.

    Values go through LangGraph's own serde, as with its savers: it imports the classes that stored values name, unless
    LANGGRAPH_STRICT_MSGPACK is set. With `strict` only LangGraph's types and LangChain's messages are written and read,
    and those that `allow` names; `allow` alone is strict, too. `serde` replaces the serde. Pickle is refused with every
    serde.

    Example:
        graph = builder.compile(checkpointer=HoldfastSaver("sqlite:agent.db"))
    """

    def __init__(
        self,
        store: Store | str,
        *,
        strict: bool = False,
        allow: Iterable[Allowed] = (),
        serde: SerializerProtocol | None = None,
    ) -> None:
        if serde is not None and (strict or allow):
            raise InvalidInput("strict= and allow= choose the saver's own serde; configure what your serde may read")
        if not isinstance(store, (Store, str)):
            raise InvalidInput(f"HoldfastSaver needs a store or its URL, not {type(store).__name__}")
        super().__init__(serde=StrictSerializer(allow) if strict or allow else serde)
        self._owned = isinstance(store, str)
        self.store = open_store(store) if isinstance(store, str) else store
        self._core = self.store._place.core
        self._waiter = self.store.aio._waiter
        self._owner = Owner(self._core)
        self._recent = Recent()

    # --- LangGraph's verbs, blocking ---------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the newest of its thread and namespace; None if there is none."""
        return reading.get_tuple(self._core, self.serde, self._recent, config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first: of a thread or of all, of a namespace or of all, with this metadata.

        One namespace is listed in the order of its saves. All namespaces of a thread are listed by id, and ids decide
        what is older than a checkpoint of another namespace, as with LangGraph's own savers. Checkpoints are found in
        the store and read page by page; nothing is held in between.
        """
        listing = reading.Listing(config, filter, before, limit)
        return self._listed(listing)

    def _listed(self, listing: reading.Listing) -> Iterator[CheckpointTuple]:
        while not listing.over:
            yield from listing.page(self._core, self.serde)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, durably; its parent is the one that `config` names."""
        return self._run(self._put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, durably, beside the checkpoint it worked on."""
        self._run(self._put_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread and everything in it. Refused while somebody claims it."""
        self._run(self._delete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that these runs of a graph made. What others need of them is kept."""
        self._run(removing.delete_for_runs(self._place, run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, all namespaces, with its writes. Costs next to nothing, for the state is shared."""
        self._run(removing.copy_thread(self._place, str(source_thread_id), str(target_thread_id)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep only the newest checkpoint of each namespace, or with `strategy="delete"` nothing of these threads.

        A subgraph call's namespace goes with the checkpoint it was called from. A kept checkpoint has no parent then.
        """
        self._run(removing.prune(self._place, thread_ids, strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What the ancestors of a checkpoint wrote to these channels since a value of them was stored."""
        return delta.history(self._core, self.serde, config, channels)

    # --- the same, awaiting ------------------------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple`, to await."""
        return await self._read(lambda: self.get_tuple(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list`, for `async for`."""
        listing = reading.Listing(config, filter, before, limit)
        while not listing.over:
            for found in await self._read(lambda: listing.page(self._core, self.serde)):
                yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`put`, to await."""
        return await self._waiter.run(self._put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`put_writes`, to await."""
        await self._waiter.run(self._put_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """`delete_thread`, to await."""
        await self._waiter.run(self._delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`delete_for_runs`, to await."""
        await self._waiter.run(removing.delete_for_runs(self._place, run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`copy_thread`, to await."""
        await self._waiter.run(removing.copy_thread(self._place, str(source_thread_id), str(target_thread_id)))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`prune`, to await."""
        await self._waiter.run(removing.prune(self._place, thread_ids, strategy))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`get_delta_channel_history`, to await."""
        return await self._read(lambda: delta.history(self._core, self.serde, config, channels))

    # --- more than LangGraph asks for --------------------------------------------------------------------------------

    def claim(self, thread_id: str, *, lease: float = 30.0) -> ThreadClaim:
        """Hold a thread for this caller alone, for `with` or `async with`; RunClaimed if somebody else holds it.

        Example:
            with saver.claim("thread-1"):
                graph.invoke(Command(resume=True), config)
        """
        return ThreadClaim(self._core, self._owner, thread_id, lease, self._waiter)

    def retain(
        self,
        *,
        last: int | None = None,
        newer_than: Age | None = None,
        idle: Age | None = None,
        thread_ids: Iterable[str] | None = None,
        dry_run: bool = False,
    ) -> Retained:
        """Remove old checkpoints of these threads, or of all, and threads that nobody has used for long.

        A checkpoint stays if it is among the `last` ones of its namespace or `newer_than` that age; the newest of each
        namespace always stays. A subgraph call's namespace goes with the checkpoint it was called from. A subgraph that
        remembers also keeps what a replay of a kept checkpoint begins with. Threads without a change for `idle` are
        removed whole. Ages are timedeltas or seconds.

        Example:
            saver.retain(last=20, newer_than=timedelta(days=7), idle=timedelta(days=90), dry_run=True)
        """
        return self._run(retention.retain(self._place, last, newer_than, idle, thread_ids, dry_run=dry_run))

    async def aretain(
        self,
        *,
        last: int | None = None,
        newer_than: Age | None = None,
        idle: Age | None = None,
        thread_ids: Iterable[str] | None = None,
        dry_run: bool = False,
    ) -> Retained:
        """`retain`, to await."""
        plan = retention.retain(self._place, last, newer_than, idle, thread_ids, dry_run=dry_run)
        return await self._waiter.run(plan)

    def get_next_version(self, current: Any, channel: None) -> Any:  # noqa: ARG002
        """Versions are whole numbers; threads that came from LangGraph's own savers keep their kind, which is text."""
        if isinstance(current, str):
            number = int(current.partition(".")[0]) + 1
            return f"{number:032}.{random.random():016}"  # noqa: S311 - only to tell branches apart
        return 1 if current is None else current + 1

    def close(self) -> None:
        """Close the store, if the saver opened it."""
        if self._owned:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owned:
            await self.store.aio.close()

    def __repr__(self) -> str:
        return f"<HoldfastSaver on {self.store.url}>"

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _place(self) -> Place:
        return Place(self._core)

    def _run(self, plan: Plan[Result]) -> Result:
        """Carry out a plan on this thread, even in a notebook whose event loop runs on it: graphs block there, too."""
        return run_plan(self._place, plan)

    async def _read(self, read: Callable[[], Result]) -> Result:
        def plan() -> Plan[Result]:
            return (yield read)  # type: ignore[no-any-return]

        return await self._waiter.run(plan())

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Plan[RunnableConfig]:
        place = self._held_place(config)
        return writing.put(place, self.serde, self._recent, config, checkpoint, metadata, new_versions)

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Plan[None]:
        return writing.put_writes(self._held_place(config), self.serde, config, writes, task_id, task_path)

    def _delete_thread(self, thread_id: str) -> Plan[bool]:
        self._recent.forget(str(thread_id))
        return removing.delete_thread(self._place, str(thread_id))

    def _held_place(self, config: RunnableConfig) -> Place:
        return place_for(self._core, str((config.get("configurable") or {}).get("thread_id")))
