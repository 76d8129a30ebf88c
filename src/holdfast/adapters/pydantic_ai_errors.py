"""Errors of Pydantic AI: of models, made again from a record, and of tools, in what a call has returned."""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic_ai import exceptions

from holdfast.adapters.shared.calls import OnlyAsked
from holdfast.errors import InDoubt, StepFailed

_STATUS: Final = re.compile(r"status_code: (\d+), model_name: (.*?), body: (.*)", re.DOTALL)
UNKNOWN_OUTCOME: Final = re.compile(r"Timed out after [\d.]+ seconds\.|Request .* timed out|Connection closed")
"""What Pydantic AI and the MCP client report as a retry although the call may have happened."""


def model_error(failed: StepFailed, model_name: str) -> Exception:
    """The error that the model raised, for hooks and fallbacks that know it by its type. Its body is text."""
    kind = getattr(exceptions, failed.error_type, None)
    if not (isinstance(kind, type) and str(failed.failure.get("module", "")).startswith("pydantic_ai")):
        return failed
    if issubclass(kind, exceptions.ModelAPIError):
        found = _STATUS.match(failed.error_message)
        try:
            if found is None:
                return kind(model_name, failed.error_message)
            category: Any = None if kind is exceptions.ModelHTTPError else kind
            facts: dict[str, Any] = {"status_code": int(found[1]), "model_name": found[2], "body": found[3]}
            return exceptions.ModelHTTPError.for_category(category, **facts)
        except TypeError:
            return exceptions.ModelAPIError(model_name, failed.error_message)
    return kind(failed.error_message) if issubclass(kind, exceptions.UnexpectedModelBehavior) else failed


def check_payload(payload: Any, *, validates: bool) -> None:
    """Raise what the payload of a tool call stands for, if the model must not read it as a result.

    `validates`: the arguments are validated inside the call.
    """
    kind = payload["kind"] if isinstance(payload, dict) else ""  # a result that cannot be stored has none
    if kind == "model_retry" and UNKNOWN_OUTCOME.fullmatch(payload["message"]):
        raise InDoubt(payload["message"])
    if kind == "approval_required":
        raise OnlyAsked(payload)
    if kind == "validation_error" and not validates:
        raise ValueError(f"{payload['title']}: {payload['errors'][0]['msg']}; raise ModelRetry to tell the model")
