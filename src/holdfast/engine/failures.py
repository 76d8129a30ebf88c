"""Errors as data: what is recorded of an exception, so that a replay can raise the same."""

from __future__ import annotations

import traceback
from typing import Any, Final, TypeVar

from holdfast.errors import ChildFailed, HoldfastError, RunError, StepFailed
from holdfast.errors.runs import traceback_text

MESSAGE_MAX: Final = 4_000
TRACE_MAX: Final = 16_000
CAUSES_MAX: Final = 8
MEMBERS_MAX: Final = 8
"""So many exceptions of a group are recorded."""

_OURS: Final = __file__.rpartition("engine")[0]
_LIBRARIES: Final = (traceback.__file__.rpartition("traceback")[0], "site-packages", "dist-packages", "<frozen")

E = TypeVar("E", bound=StepFailed)


def failure_of(error: BaseException, causes: int = CAUSES_MAX) -> dict[str, Any]:
    """Type, message, traceback text, the user's line and the chain of causes of `error`; and the call that failed."""
    recorded = getattr(error, "failure", None)
    trace, where = _traced(error)
    failure: dict[str, Any] = {
        "type": type(error).__name__,
        "module": type(error).__module__,
        "message": _text(_message(error), MESSAGE_MAX),
        "trace": _text(trace, TRACE_MAX),
    }
    if where:
        failure["where"] = _text(where, MESSAGE_MAX)
    if isinstance(error, BaseExceptionGroup) and causes > 0:
        failure["members"] = [failure_of(member, causes - 1) for member in error.exceptions[:MEMBERS_MAX]]
    if isinstance(error, StepFailed):
        failure["child" if isinstance(error, ChildFailed) else "call"] = error.call
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and causes > 0:
        failure["cause"] = failure_of(cause, causes - 1)
    elif isinstance(recorded, dict):  # replayed: the cause itself is gone, what was recorded of it is not
        failure["cause"] = recorded
    return failure


def summary_of(error: BaseException) -> str:
    """Type and message of `error` in one line, for people."""
    return " ".join(f"{type(error).__name__}: {_text(_message(error), 500)}".split())


def with_recorded_trace(error: E) -> E:
    """A failure that is raised again on replay: its `__cause__` is gone, so its traceback becomes a note."""
    text = traceback_text(error.failure)
    if text:
        error.add_note(text)
    return error


def place_of(failure: dict[str, Any]) -> str:
    """The user's line where it began to fail, `file:line in function`; empty if none is recorded."""
    cause = failure.get("cause")
    return (place_of(cause) if isinstance(cause, dict) else "") or str(failure.get("where", ""))


def call_of(failure: dict[str, Any]) -> str:
    """The call of the run that failed, by its full name, or its child run; empty if the workflow's own code did."""
    cause = failure.get("cause")
    found = failure.get("call") or failure.get("child")
    return str(found) if found else call_of(cause) if isinstance(cause, dict) else ""


def _traced(error: BaseException) -> tuple[str, str]:
    """The traceback without the library's own frames, and the user's line in it; empty if all are of libraries.

    The library's frames stay where the error is neither the user's nor one the library raises on purpose.
    """
    told = traceback.TracebackException(type(error), error, error.__traceback__)
    if isinstance(error, RunError):
        told.__notes__ = None  # what a replay noted is recorded as the cause
    users = [frame for frame in told.stack if not frame.filename.startswith(_OURS)]
    own = [frame for frame in users if not any(part in frame.filename for part in _LIBRARIES)]
    if users and (isinstance(error, HoldfastError) or told.stack[-1] is users[-1]):
        told.stack = traceback.StackSummary.from_list(users[users.index((own or users)[0]) :])
    where = f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else ""
    return "".join(told.format(chain=False)), where


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
