"""A checkpoint storage for the workflows of Microsoft Agent Framework, without pickle."""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import typing
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from agent_framework import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    ChatResponse,
    Content,
    Message,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowEvent,
    WorkflowMessage,
)
from pydantic import BaseModel

from holdfast.adapters.shared.calls import AgentStopped
from holdfast.adapters.shared.persister import LEASE_S, Persister, call_blocking
from holdfast.adapters.shared.run_claim import RunClaim
from holdfast.errors import HoldfastError, InvalidInput, RunNotFound, Unstorable
from holdfast.ids import check_id
from holdfast.operations import read
from holdfast.operations.context import StoreContext
from holdfast.operations.store import Store

_FRAMEWORK_TYPES: Final[tuple[type[Any], ...]] = (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    ChatResponse,
    Content,
    Message,
    WorkflowCheckpoint,
    WorkflowMessage,
    type(WorkflowMessage("", "").type),
)
_PLAIN: Final = frozenset(
    {type(None), bool, int, float, str, bytes, dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID, decimal.Decimal}
)
"""Types that Holdfast stores as they are; lists, tuples, sets and dicts as well."""
_TYPE: Final = "__type__"
_DICT: Final = "dict"
_EVENT: Final = "request_info"


class HoldfastCheckpointStorage:
    """Keeps the checkpoints of one workflow instance of the framework in a run, without pickle.

    The framework names checkpoints by workflow, not by instance, so every instance gets a storage and a run of its own.
    `types` are the dataclasses, Pydantic models and enums that the workflow's messages and state consist of, and
    classes with `to_dict` and `from_dict`; only these, plain data and the framework's own types are written and read.
    The framework only logs an error of a storage and goes on, so a checkpoint that cannot be saved raises AgentStopped.

    Example:
        storage = HoldfastCheckpointStorage("sqlite:orders.db", "order-17", types=[Order])
        async with storage.claim():
            await workflow.run(order, checkpoint_storage=storage)
    """

    def __init__(self, store: Store | str, run_id: str, *, types: Iterable[type[Any]] = ()) -> None:
        self.run_id = check_id("run_id", run_id)
        self._codec = _Codec(types)
        self._persister = Persister(store, "agent_framework")

    @property
    def store(self) -> Store:
        """The store, for `verify`, `prune`, `history` and others."""
        return self._persister.store

    def claim(self, *, lease: float = LEASE_S) -> RunClaim:
        """The exclusive right to continue this instance, for `async with`. Read the newest checkpoint inside it."""
        return self._persister.claim(self.run_id, lease=lease, status=_status_of)

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Save a checkpoint, durably, and return its id."""
        is_over = not checkpoint.messages and not checkpoint.pending_request_info_events
        try:
            plan = self._persister.save(
                self.run_id,
                self._codec.encode(checkpoint.to_dict(), ()),
                checkpoint_id=checkpoint.checkpoint_id,
                parent_id=checkpoint.previous_checkpoint_id or "",
                metadata={"workflow_name": checkpoint.workflow_name},
                status="completed" if is_over else "waiting",
                replace=True,
            )
            await self._persister.run_async(plan)
        except HoldfastError as error:
            raise AgentStopped(str(error)) from error
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Load a checkpoint of this instance."""
        found = await self._persister.run_async(self._persister.load(self.run_id, checkpoint_id=checkpoint_id))
        if found is None:
            raise WorkflowCheckpointException(f"run {self.run_id!r} has no checkpoint {checkpoint_id!r}")
        return WorkflowCheckpoint.from_dict(self._codec.decode(found.state))

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of this instance's checkpoints, oldest first."""
        try:
            infos = await self.store.aio.history(self.run_id, lane="")
        except RunNotFound:
            return []
        return [info.checkpoint_id for info in infos if info.metadata.get("workflow_name") == workflow_name]

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Load all checkpoints of this instance, oldest first."""
        return [await self.load(name) for name in await self.list_checkpoint_ids(workflow_name=workflow_name)]

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Load the checkpoint that was saved last; None if there is none."""
        names = await self.list_checkpoint_ids(workflow_name=workflow_name)
        return await self.load(names[-1]) if names else None

    async def delete(self, checkpoint_id: str) -> bool:
        """Remove a checkpoint; False if there is none of this id."""
        with contextlib.suppress(RunNotFound):
            return bool((await self.store.aio.delete_checkpoint(self.run_id, checkpoint_id)).removed)
        return False

    async def close(self) -> None:
        """Close the store if this object has opened it."""
        call_blocking(self._persister.close)


def _status_of(core: StoreContext, run_id: str) -> str:
    """The status of the newest checkpoint, which the run keeps after a claim in which nothing was saved."""
    found = read.find_checkpoint(core, run_id, read.selection(None, None, None, ""))
    return "waiting" if found is None else found[1].status


class _Codec:
    """Turns the values of a checkpoint into plain data, and back. A stored name is only looked up in a table."""

    def __init__(self, types: Iterable[type[Any]]) -> None:
        self._types: dict[str, type[Any]] = {}
        for kind in (*_FRAMEWORK_TYPES, *types):
            if not isinstance(kind, type) or _form_of(kind) is None:
                needed = "dataclasses, enums, Pydantic models and classes with to_dict and from_dict"
                raise InvalidInput(f"types has {kind!r}; it takes {needed}")
            self._types[_name_of(kind)] = kind

    def encode(self, value: Any, path: tuple[str, ...]) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind in (list, tuple, set, frozenset):
            return kind(self.encode(part, (*path, str(index))) for index, part in enumerate(value))
        if kind is dict:
            parts = [(key, self.encode(part, (*path, str(key)))) for key, part in value.items()]
            if _TYPE in value or not all(type(key) is str for key in value):
                return {_TYPE: _DICT, "value": parts}
            return dict(parts)
        if kind is WorkflowEvent:
            return {_TYPE: _EVENT, "value": self._dump_event(value, path)}
        name = _name_of(kind)
        if self._types.get(name) is not kind:
            raise _refusal(f"a {name}", path, kind.__name__)
        form = _form_of(kind)
        assert form is not None
        return {_TYPE: name, "value": self.encode(form.dump(value), (*path, kind.__name__))}

    def decode(self, value: Any) -> Any:
        kind = type(value)
        if kind in (list, tuple, set, frozenset):
            return kind(map(self.decode, value))
        if kind is not dict:
            return value
        if _TYPE not in value:
            return {key: self.decode(part) for key, part in value.items()}
        name, inner = value[_TYPE], self.decode(value["value"])
        if name == _DICT:
            return dict(inner)
        if name == _EVENT:
            response_type = self._known_type(inner.pop("response_type"))
            return WorkflowEvent.request_info(**inner, response_type=response_type)
        found = self._known_type(name)
        form = _form_of(found)
        assert form is not None
        return form.load(found, inner)

    def _dump_event(self, event: WorkflowEvent[Any], path: tuple[str, ...]) -> dict[str, Any]:
        """A request of a workflow that has no response yet."""
        response_type = typing.get_origin(event.response_type) or event.response_type
        name = _name_of(response_type) if isinstance(response_type, type) else repr(response_type)
        if self._types.get(name, getattr(builtins, name, None)) is not response_type:
            raise _refusal(f"a request whose response is a {name}", path, name.rpartition(".")[2])
        return {
            "request_id": event.request_id,
            "source_executor_id": event.source_executor_id,
            "request_data": self.encode(event.data, (*path, "data")),
            "response_type": name,
        }

    def _known_type(self, name: str) -> type[Any]:
        found = self._types.get(name, getattr(builtins, name, None))
        if not isinstance(found, type):
            short = name.rpartition(".")[2]
            message = f"the checkpoint has a {name}; pass types=[{short}] to HoldfastCheckpointStorage"
            raise WorkflowCheckpointException(message)
        return found


class _Form(NamedTuple):
    dump: Callable[[Any], Any]
    load: Callable[[Any, Any], Any]


def _form_of(kind: type[Any]) -> _Form | None:
    """How values of a type are dumped and loaded; None if they cannot be."""
    if issubclass(kind, enum.Enum):
        return _Form(lambda value: value.value, lambda found, value: found(value))
    if issubclass(kind, BaseModel):
        return _Form(lambda value: value.model_dump(mode="json"), lambda found, value: found.model_validate(value))
    if dataclasses.is_dataclass(kind):
        return _Form(_fields_of, _from_fields)
    if hasattr(kind, "to_dict") and hasattr(kind, "from_dict"):
        return _Form(lambda value: value.to_dict(), lambda found, value: found.from_dict(value))
    return None


def _fields_of(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _from_fields(kind: type[Any], values: dict[str, Any]) -> Any:
    """A dataclass as it was, without its `__init__`, as a copy is made."""
    found = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(found, name, value)
    return found


def _name_of(kind: type[Any]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _refusal(what: str, path: tuple[str, ...], name: str) -> Unstorable:
    return Unstorable(
        f"the checkpoint has {what} at {'/'.join(path)!r}, which the framework would pickle; Holdfast does not store "
        f"pickle: pass types=[{name}] to HoldfastCheckpointStorage, or use plain data"
    )
