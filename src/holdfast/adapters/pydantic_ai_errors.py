"""Errors of Pydantic AI's models, made again from a record."""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic_ai import exceptions

from holdfast.errors import StepFailed

_STATUS: Final = re.compile(r"status_code: (\d+), model_name: (.*?), body: (.*)", re.DOTALL)


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
