"""Errors as data: what is recorded of an exception, so that a replay can raise the same."""

from __future__ import annotations

import traceback
from typing import Any, Final

MESSAGE_MAX: Final = 4_000
TRACE_MAX: Final = 16_000
CAUSES_MAX: Final = 8


def failure_of(error: BaseException, causes: int = CAUSES_MAX) -> dict[str, Any]:
    """Type, message, traceback text and chain of causes of `error`."""
    recorded = getattr(error, "failure", None)
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__, chain=False))
    failure: dict[str, Any] = {
        "type": type(error).__name__,
        "module": type(error).__module__,
        "message": _text(_message(error), MESSAGE_MAX),
        "trace": _text(trace, TRACE_MAX),
    }
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and causes > 0:
        failure["cause"] = failure_of(cause, causes - 1)
    elif isinstance(recorded, dict):  # replayed: the cause itself is gone, what was recorded of it is not
        failure["cause"] = recorded
    return failure


def summary_of(error: BaseException) -> str:
    """Type and message of `error` in one line, for people."""
    return " ".join(f"{type(error).__name__}: {_text(_message(error), 500)}".split())


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a user's __str__ may be broken, which must not lose the error itself
        return f"<{type(error).__name__} whose text cannot be made>"


def _text(text: str, longest: int) -> str:
    """Text that can be stored, cut in the middle if it is very long."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
