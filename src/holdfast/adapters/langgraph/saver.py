"""The saver, a LangGraph checkpointer on a Holdfast store."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

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
from langgraph.pregel import Pregel

from holdfast.adapters.langgraph import delete, delta_channels, get, retention
from holdfast.adapters.langgraph import put as put_operations
from holdfast.adapters.langgraph.cache import CheckpointCache
from holdfast.adapters.langgraph.graph_runs import GuardedGraph
from holdfast.adapters.langgraph.messages import Codec, Decoded, MessageCache
from holdfast.adapters.langgraph.retention import Age, Retained
from holdfast.adapters.langgraph.serde import Allowed, StrictSerializer
from holdfast.adapters.langgraph.thread import ThreadClaim
from holdfast.adapters.shared.run_claim import access_for
from holdfast.drivers import Plan
from holdfast.errors import InvalidInput
from holdfast.open_store import open as open_store
from holdfast.operations.context import Access
from holdfast.operations.store import Store
from holdfast.runtime.app_core import Owner

Result = TypeVar("Result")
_RUNTIME: Final = "__pregel_runtime"
"""LangGraph's name of the object that all calls of one execution share."""


class HoldfastSaver(BaseCheckpointSaver[Any]):
    """A LangGraph checkpointer that stores threads in a Holdfast store.

    It takes a store or its URL; no setup is needed. Blocking and async calls are both native. Each thread is a run of
    the workflow "langgraph"; each checkpoint stores only the changes since its predecessor.

    Values are serialised by LangGraph's own serde, as in its savers: it imports the classes that stored values name,
    unless LANGGRAPH_STRICT_MSGPACK is set. With `strict`, only LangGraph's types, LangChain's messages and the types
    that `allow` names are written and read; `allow` alone implies `strict`. `serde` replaces the serde. Pickle is
    refused with every serde.

    Messages are compared at every save, because a node may have changed one in place. With `immutable_messages` an
    object that was saved or loaded before is not read again: a later change in place is not saved.

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
        immutable_messages: bool = False,
    ) -> None:
        if serde is not None and (strict or allow):
            raise InvalidInput("strict= and allow= choose the saver's own serde; configure what your serde may read")
        if not isinstance(store, (Store, str)):
            raise InvalidInput(f"HoldfastSaver needs a store or its URL, not {type(store).__name__}")
        super().__init__(serde=StrictSerializer(allow) if strict or allow else serde)
        self._owned = isinstance(store, str)
        self.store = open_store(store) if isinstance(store, str) else store
        self._core = self.store.access.core
        self._owner = Owner(self._core)
        self._cache = CheckpointCache()
        self._histories = delta_channels.Histories()
        self._messages = MessageCache(immutable=immutable_messages)
        self._decoded = Decoded()

    # --- the interface of LangGraph, blocking ------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that `config` names, or the newest of its namespace, or None."""
        self._claimed_access(config)  # the first call of an execution: the claim of this context is its claim
        return get.get_tuple(self._core, self._codec, self._cache, config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over checkpoints, newest first, filtered by thread, namespace and metadata.

        One namespace is listed in the order of its saves. All namespaces of a thread are listed by id, and ids decide
        what is older than a checkpoint of another namespace, as with LangGraph's own savers. Checkpoints are read page
        by page; no resource is held in between.
        """
        listing = get.Listing(config, filter, before, limit)
        return self._pages(listing)

    def _pages(self, listing: get.Listing) -> Iterator[CheckpointTuple]:
        while not listing.over:
            yield from listing.page(self._core, self._codec)

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
        """Store the writes of a task, durably, with the checkpoint it executes."""
        self._run(self._put_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread and everything in it. Refused while the thread is claimed."""
        self._run(self._delete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that these runs of a graph saved. The state of other checkpoints does not change."""
        self._run(delete.delete_for_runs(self.access, run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all namespaces and writes. The copy is cheap, because the state is shared."""
        self._run(delete.copy_thread(self.access, str(source_thread_id), str(target_thread_id)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep only the newest checkpoint of each namespace, or with `strategy="delete"` remove the threads.

        The namespace of a subgraph call is removed with the checkpoint it was called from. Kept checkpoints then have
        no parent.
        """
        self._run(delete.prune(self.access, thread_ids, strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the last stored value of these channels and the writes of ancestors since."""
        return delta_channels.history(self._core, self._codec, self._histories, config, channels)

    # --- the same, async ---------------------------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple`, async."""
        return await self._read(lambda: self.get_tuple(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list`, async."""
        listing = get.Listing(config, filter, before, limit)
        while not listing.over:
            for found in await self._read(lambda: listing.page(self._core, self._codec)):
                yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`put`, async."""
        plan = self._put(config, checkpoint, metadata, new_versions, in_loop=True)
        return await self._core.awaiting.run(plan)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`put_writes`, async."""
        await self._core.awaiting.run(self._put_writes(config, writes, task_id, task_path, in_loop=True))

    async def adelete_thread(self, thread_id: str) -> None:
        """`delete_thread`, async."""
        await self._core.awaiting.run(self._delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`delete_for_runs`, async."""
        await self._core.awaiting.run(delete.delete_for_runs(self.access, run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`copy_thread`, async."""
        await self._core.awaiting.run(delete.copy_thread(self.access, str(source_thread_id), str(target_thread_id)))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`prune`, async."""
        await self._core.awaiting.run(delete.prune(self.access, thread_ids, strategy))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`get_delta_channel_history`, async."""
        return await self._read(lambda: self.get_delta_channel_history(config=config, channels=channels))

    # --- beyond the interface of LangGraph ---------------------------------------------------------------------------

    def claim(self, thread_id: str, *, lease: float = 30.0) -> ThreadClaim:
        """Claim a thread within `with` or `async with`; RunClaimed if another owner has claimed it.

        A thread that does not exist is created, so that its first call can be claimed too.

        Example:
            with saver.claim("thread-1"):
                graph.invoke(Command(resume=True), config)
        """
        return ThreadClaim(self._core, self._owner, thread_id, lease)

    def guard(self, graph: Pregel[Any, Any, Any, Any], *, lease: float = 30.0) -> GuardedGraph:
        """Return the graph with calls that claim their thread, so that only one process at a time executes it.

        Example:
            graph = saver.guard(builder.compile(checkpointer=saver))
            graph.invoke(Command(resume=True), config)  # RunClaimed if another process executes this thread
        """
        return GuardedGraph(self, graph, lease)

    def retain(
        self,
        *,
        last: int | None = None,
        newer_than: Age | None = None,
        idle: Age | None = None,
        thread_ids: Iterable[str] | None = None,
        dry_run: bool = False,
    ) -> Retained:
        """Remove old checkpoints of these threads, or of all threads, and idle threads.

        A checkpoint is kept if it is among the `last` ones of its namespace or `newer_than` that age. The newest of
        each namespace is kept, but the namespace of a subgraph call is removed with the checkpoint it was called from.
        A subgraph with memory also keeps the checkpoints that replays of kept ones start from. Threads without a change
        for `idle` are removed. Ages are timedeltas or seconds.

        Example:
            saver.retain(last=20, newer_than=timedelta(days=7), idle=timedelta(days=90), dry_run=True)
        """
        return self._run(retention.retain(self.access, last, newer_than, idle, thread_ids, dry_run=dry_run))

    async def aretain(
        self,
        *,
        last: int | None = None,
        newer_than: Age | None = None,
        idle: Age | None = None,
        thread_ids: Iterable[str] | None = None,
        dry_run: bool = False,
    ) -> Retained:
        """`retain`, async."""
        plan = retention.retain(self.access, last, newer_than, idle, thread_ids, dry_run=dry_run)
        return await self._core.awaiting.run(plan)

    def get_next_version(self, current: Any, channel: None) -> Any:  # noqa: ARG002
        """Return the next version of a channel. It is an integer, or text in threads from LangGraph's own savers."""
        if isinstance(current, str):
            number = int(current.partition(".")[0]) + 1
            return f"{number:032}.{random.random():016}"  # noqa: S311 - only distinguishes branches
        return 1 if current is None else current + 1

    def close(self) -> None:
        """Close the store, if the saver opened it."""
        if self._owned:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._owned:
            await self.store.aio.close()

    def __repr__(self) -> str:
        return f"<HoldfastSaver on {self.store.url}>"

    # --- internals ---------------------------------------------------------------------------------------------------

    @property
    def access(self) -> Access:
        return Access(self._core)

    @property
    def _codec(self) -> Codec:
        return Codec(self.serde, self._messages, self._decoded)

    def _run(self, plan: Plan[Result]) -> Result:
        """Execute a plan on this thread, even if an event loop runs on it, as in a notebook."""
        return self.access.run(plan)

    async def _read(self, read: Callable[[], Result]) -> Result:
        def plan() -> Plan[Result]:
            return (yield read)  # type: ignore[no-any-return]

        return await self._core.awaiting.run(plan())

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        *,
        in_loop: bool = False,
    ) -> Plan[RunnableConfig]:
        access = self._claimed_access(config)
        return put_operations.put(
            access, self._codec, self._cache, config, checkpoint, metadata, new_versions, in_loop=in_loop
        )

    def _put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, object]],
        task_id: str,
        task_path: str,
        *,
        in_loop: bool = False,
    ) -> Plan[None]:
        access = self._claimed_access(config)
        return put_operations.put_writes(access, self._codec, config, writes, task_id, task_path, in_loop=in_loop)

    def _delete_thread(self, thread_id: str) -> Plan[bool]:
        self._cache.forget(str(thread_id))
        self._histories.forget(str(thread_id))
        return delete.delete_thread(self.access, str(thread_id))

    def _claimed_access(self, config: RunnableConfig) -> Access:
        configurable = config.get("configurable") or {}
        return access_for(self._core, str(configurable.get("thread_id")), configurable.get(_RUNTIME))
