"""The place of calling code in an agent's run. Tasks and threads of the SDK inherit it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.adapters.shared.calls import ToolPolicy, current
from holdfast.runtime.async_run import AsyncRun

ADAPTER: Final = "holdfast.adapters.openai_agents"


@dataclass
class Segment:
    """The part of an agent's run between two checkpoints."""

    turns_left: int | None = None
    """Model calls until the next checkpoint is due; None if the agent is not in the durable loop."""
    known: set[str] = field(default_factory=set)
    """The ids of the tool calls that recorded responses ask for."""
    saved: dict[str, Any] | None = None
    """The state that the segment began with."""
    plain: dict[tuple[int, str], bool] = field(default_factory=dict)
    """Whether a tool, by the identity of its agent and its name, needs no approval."""

    def knows(self, prefix: str, call_id: str) -> bool:
        """Whether a recorded response or the saved state has this tool call."""
        return f"{prefix}{call_id}" in self.known or json.dumps(call_id) in self._saved_text

    @functools.cached_property
    def _saved_text(self) -> str:
        return json.dumps(self.saved)


@dataclass(frozen=True)
class Place:
    """An agent's run, and there perhaps the call of a tool that runs another agent."""

    segment: Segment
    policies: Mapping[str, ToolPolicy]
    agent: str = ""
    """The name of the agent's run, with a colon. Keys of effects must be unique in the whole Holdfast run."""
    prefix: str = ""
    """The ids of the tool calls around this place, each with a colon. Ids are unique only within an agent's run."""

    @property
    def path(self) -> str:
        """What all keys begin with."""
        return f"{self.agent}{self.prefix}"

    @property
    def is_pause_due(self) -> bool:
        """Whether the outermost agent should stop at its next tool call, so that its state can be saved."""
        left = self.segment.turns_left
        return not self.prefix and left is not None and left <= 0


_place: ContextVar[Place | None] = ContextVar("holdfast_openai_agents", default=None)


def current_place() -> Place | None:
    """The place of the calling code; None outside `run_agent`."""
    return _place.get()


@contextmanager
def inside(place: Place) -> Iterator[None]:
    """Execute code at a place."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def recording() -> tuple[Place, AsyncRun] | None:
    """The place and run to record a call in; None outside `run_agent`, and inside a recorded call."""
    place = _place.get()
    run = current(ADAPTER) if place is not None else None
    return None if place is None or run is None else (place, run)


def has_record(run: AsyncRun, key: str) -> bool:
    """Whether the run has a record of this call, in the current turn of its loop."""
    recorded = run.execution.record.scope(run.scope.path)
    return recorded is not None and key in recorded.calls


def abandon_calls(run: AsyncRun, agent: str) -> None:
    """Count the recorded calls of an agent's run that the code did not reach as reached, because a call has failed.

    The SDK cancels what runs beside a call that fails, such as a guardrail. A replay fails at once, so the calls that
    were completed beside it are not made again. Without this the run would be reported as Diverged.
    """
    recorded = run.execution.record.scope(run.scope.path)
    for key, entries in recorded.calls.items() if recorded is not None else ():
        if key.startswith((agent, f"tool {agent}", f"error of {agent}")):
            entries[0]["seen"] = True


def replace_function(owner: object, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a function of an object by what `make` returns for it, once."""
    original = getattr(owner, name)
    if not hasattr(original, "holdfast_original"):
        made = make(original)
        made.holdfast_original = original
        setattr(owner, name, made)
