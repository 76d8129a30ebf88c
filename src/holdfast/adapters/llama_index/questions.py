"""Questions of a LlamaIndex workflow to a person, as gates, and the events that answer them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, create_model
from workflows import Workflow
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent
from workflows.runtime.types.results import AddWaiter

from holdfast.errors import InvalidInput
from holdfast.runtime.async_run import AsyncRun

Gates = Mapping[type[InputRequiredEvent], Mapping[str, Any]]
_PROMPTS: Final = ("prompt", "question", "message", "msg", "prefix")
"""The fields of an InputRequiredEvent that may hold the question, as LlamaIndex's examples name it."""


class Ask:
    """A question of the workflow."""

    def __init__(self, workflow: Workflow, request: Event | None, waiter: AddWaiter[Any] | None = None) -> None:
        self.workflow = workflow
        self.request = request
        self.response: type[Event] | None = None if waiter is None else waiter.event_type
        self.requirements: dict[str, Any] = dict(waiter.requirements) if waiter else {}
        self.is_waiter = waiter is not None

    async def ask(self, run: AsyncRun, key: str, gates: Gates) -> Any:
        """Ask a person; returns the answer as a dict that can be stored."""
        kinds = type(self.request).__mro__ if self.request is not None else ()
        given = dict(next((gates[kind] for kind in kinds if kind in gates), {}))
        shown = _plain(self.request) if self.request is not None else {}
        found = next((shown[name] for name in _PROMPTS if isinstance(shown.get(name), str)), None)
        prompt = given.pop("prompt", None) or found or f"{_words(type(self.request or self.workflow).__name__)}?"
        response = given.pop("response", None)
        self.response = response or self.response or self._only_response()
        fields = given.pop("fields", None)
        answer = await run.ask(prompt, fields or self._form(), show=given.pop("show", shown), key=key, **given)
        return answer.model_dump() if isinstance(answer, BaseModel) else answer

    def event(self, answer: Any) -> Event:
        """The event to send: the answer, what the waiting step requires, and fields that request and event share."""
        assert self.response is not None
        values = dict(answer) if isinstance(answer, Mapping) else {"response": answer}
        return self.response(**{**self._shared(), **values, **self.requirements})

    def takes_answer_of(self, other: Ask) -> bool:
        """Whether LlamaIndex would give the answer to another question to this step too."""
        theirs = other.requirements
        is_met = all(name in theirs and theirs[name] == value for name, value in self.requirements.items())
        return self.response is other.response and is_met

    def describe(self) -> str:
        """The question, for an error."""
        return repr(_plain(self.request)) if self.request is not None else "a step"

    def _only_response(self) -> type[Event]:
        kinds = {kind for kind in self.workflow.events if issubclass(kind, HumanResponseEvent)}
        if len(kinds) != 1:
            names = ", ".join(sorted(kind.__name__ for kind in kinds)) or "none"
            raise InvalidInput(
                f"which event answers {type(self.request).__name__}? The workflow accepts {names}; pass "
                f'gates={{{type(self.request).__name__}: {{"response": …}}}} to run_workflow'
            )
        return kinds.pop()

    def _shared(self) -> dict[str, Any]:
        assert self.response is not None
        request = {} if self.request is None else {name: getattr(self.request, name) for name in _names(self.request)}
        return {name: request[name] for name in self.response.model_fields if name in request}

    def _form(self) -> Any:
        assert self.response is not None
        known = {*self._shared(), *self.requirements}
        asked = {name: field for name, field in self.response.model_fields.items() if name not in known}
        if not asked:
            return {"response": str}
        fields: dict[str, Any] = {name: (field.annotation, field) for name, field in asked.items()}
        return create_model(self.response.__name__, **fields)


def _words(name: str) -> str:
    """`ApprovePayment` as `Approve payment`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name.removesuffix("Event")).capitalize()


def _names(event: Event) -> list[str]:
    return [*type(event).model_fields, *event.keys()]


def _plain(event: Event) -> dict[str, Any]:
    """The fields of an event as JSON."""
    shown = event.model_dump(mode="json")
    return {**shown, **shown.pop("_data", {})}
