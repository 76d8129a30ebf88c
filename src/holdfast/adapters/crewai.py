"""The persistence of CrewAI flows in a Holdfast store.

A flow is a run of the workflow "crewai"; each save is a checkpoint that stores only what is new. Feedback that a flow
waits for is a checkpoint of the lane "feedback". CrewAI does not report to a persistence when a flow begins and ends,
so the caller claims it: `with persistence.claim(flow_id)`.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Final, Self

try:
    from crewai.flow.async_feedback.types import PendingFeedbackContext
    from crewai.flow.persistence.base import FlowPersistence
    from pydantic import BaseModel, Field, PrivateAttr
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("crewai", "pydantic"):
        raise
    message = 'holdfast.adapters.crewai needs crewai; pip install "holdfast[crewai]"'
    raise ImportError(message, name=error.name) from error

from holdfast.adapters.shared.persister import LEASE_S, Persister, call_blocking
from holdfast.adapters.shared.run_claim import RunClaim
from holdfast.errors import InvalidInput
from holdfast.operations.store import Store

__all__ = ["FlowClaim", "HoldfastFlowPersistence"]

WORKFLOW: Final = "crewai"
FEEDBACK: Final = "feedback"


class HoldfastFlowPersistence(FlowPersistence):
    """A persistence of CrewAI flows, for `@persist` and `Flow(persistence=…)`.

    It takes a store or its URL. States are stored as JSON, as CrewAI's own persistence does.

    Example:
        persistence = HoldfastFlowPersistence("sqlite:flows.db")
        with persistence.claim(flow_id):
            flow = Review.from_pending(flow_id, persistence)
            flow.resume("looks good")
    """

    persistence_type: str = Field(default="HoldfastFlowPersistence")
    url: str = ""
    """The URL of the store, by which CrewAI can create this object again."""
    _persister: Persister = PrivateAttr()
    _claims: dict[str, FlowClaim] = PrivateAttr(default_factory=dict)

    def __init__(self, store: Store | str | None = None, /, **fields: Any) -> None:
        place: Any = fields.get("url") if store is None else store
        persister = Persister(place, WORKFLOW)
        super().__init__(**{**fields, "url": persister.store.url})
        self._persister = persister

    @property
    def store(self) -> Store:
        """The store, for `verify`, `prune`, `history` and others."""
        return self._persister.store

    def init_db(self) -> None:
        """Do nothing: a store needs no setup."""

    def save_state(self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel) -> None:
        """Save the state after a method, durably."""
        metadata = {"method": method_name}
        plan = self._persister.save(flow_uuid, _to_json(state_data), metadata=metadata, status="waiting")
        self._persister.run(plan)

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the newest state of a flow; None if there is none."""
        found = self._persister.run(self._persister.load(flow_uuid))
        if found is None:
            return None
        if "method" not in found.metadata:
            raise InvalidInput(f"run {flow_uuid!r} is not a flow of CrewAI; use another id or another store")
        return dict(found.state)

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: dict[str, Any] | BaseModel
    ) -> None:
        """Save the state, and the feedback that the flow waits for."""
        if flow_uuid in self._claims:
            self._claims[flow_uuid].is_answered = False
        self._save_pending(flow_uuid, {"state": _to_json(state_data), "context": _to_json(context.to_dict())})
        self.save_state(flow_uuid, context.method_name, state_data)

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return the state of a flow and the feedback it waits for; None if it waits for none."""
        if flow_uuid in self._claims and self._claims[flow_uuid].is_answered:
            return None
        found = self._persister.run(self._persister.load(flow_uuid, lane=FEEDBACK))
        if found is None or "context" not in found.state:
            return None
        return dict(found.state["state"]), PendingFeedbackContext.from_dict(found.state["context"])

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Note that the feedback was given.

        CrewAI calls it before the methods that act on the feedback. Inside a claim it takes effect when the claim ends
        without an error, so that a flow that was killed in between still waits, and can be resumed.
        """
        if flow_uuid in self._claims:
            self._claims[flow_uuid].is_answered = True
        elif self.load_pending_feedback(flow_uuid) is not None:
            self._save_pending(flow_uuid, {})

    def _save_pending(self, flow_uuid: str, pending: dict[str, Any]) -> None:
        self._persister.run(self._persister.save(flow_uuid, pending, lane=FEEDBACK, metadata={"waits": bool(pending)}))

    def claim(self, flow_uuid: str, *, lease: float = LEASE_S) -> FlowClaim:
        """The exclusive right to continue a flow, for `with` or `async with`.

        Load the flow inside the block, by `from_pending` or `kickoff(inputs={"id": …})`. Another process gets
        RunClaimed before one of its methods runs.

        Example:
            with persistence.claim(flow_id):
                Review().kickoff(inputs={"id": flow_id})
        """
        return FlowClaim(self, self._claims, self._persister.claim(flow_uuid, lease=lease))

    def close(self) -> None:
        """Close the store if this object has opened it."""
        call_blocking(self._persister.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FlowClaim:
    """The claim of a flow; `HoldfastFlowPersistence.claim` makes it."""

    def __init__(self, persistence: HoldfastFlowPersistence, claims: dict[str, FlowClaim], claim: RunClaim) -> None:
        self.claim = claim
        self.is_answered = False
        """The feedback that the flow waited for was given inside the claim."""
        self._persistence = persistence
        self._claims = claims

    @property
    def fence(self) -> int:
        """An integer that grows with every claim. Pass it to systems that can refuse older ones."""
        return self.claim.fence

    def _end(self, error: object) -> None:
        del self._claims[self.claim.run_id]
        if error is None and self.is_answered:
            self._persistence.clear_pending_feedback(self.claim.run_id)

    def __enter__(self) -> Self:
        self.claim.__enter__()
        self._claims[self.claim.run_id] = self
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._end(error)
        finally:
            self.claim.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        await self.claim.__aenter__()
        self._claims[self.claim.run_id] = self
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._end(error)
        finally:
            await self.claim.__aexit__(kind, error, trace)


def _to_json(value: dict[str, Any] | BaseModel) -> dict[str, Any]:
    """A state as plain JSON. Values of other types become lists or text, as in CrewAI's own persistence."""
    if not isinstance(value, (dict, BaseModel)):
        raise InvalidInput(f"the state of a flow must be a dict or a Pydantic model, not {type(value).__name__}")
    found: dict[str, Any] = json.loads(json.dumps(_plain_model(value), default=_plain))
    return found


def _plain_model(value: Any) -> Any:
    if not isinstance(value, BaseModel):
        return value
    try:
        return value.model_dump(mode="json")
    except Exception:  # a field has a type that Pydantic cannot serialize
        return value.model_dump(mode="python")


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _plain_model(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return value.isoformat() if isinstance(value, (dt.date, dt.datetime)) else str(value)
