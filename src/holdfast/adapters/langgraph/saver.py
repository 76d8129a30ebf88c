"""The saver: LangGraph's checkpointer on a Holdfast store."""

from __future__ import annotations

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
    SerializerProtocol,
)

from holdfast.adapters.langgraph import delta, reading, removing, writing
from holdfast.adapters.langgraph.claims import ThreadClaim, place_for
from holdfast.adapters.langgraph.recent import Recent
from holdfast.adapters.langgraph.serde import Allowed, StrictSerializer
from holdfast.adapters.langgraph.versions import next_version
from holdfast.opening import open as open_store
from holdfast.verbs.core import Core, Place
from holdfast.verbs.plans import Plan, run_plan
from holdfast.verbs.store import Store

Result = TypeVar("Result")
