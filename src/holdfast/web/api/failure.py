"""Errors of the JSON API: one shape, a status for each kind of error, a code for programs."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from starlette.responses import Response

from holdfast.errors import Conflict, DamagedData, HoldfastError, InvalidInput, NotFound, RunError

STATUSES: Final = {
    400: "The request cannot be read: a path, a query or JSON that is not valid.",
    401: "No valid session or bearer token.",
    403: "The user's role, or the lack of a bearer token, does not allow this.",
    404: "There is no such thing, or the user may not see it.",
    405: "The path does not have this method.",
    409: "The state of the run or gate does not allow this. Nothing was changed.",
    413: "The body is too large.",
    414: "The address is too long.",
    415: "The body is not `application/json`, or it is compressed.",
    421: "The page is not served under this host name.",
    422: "The body is JSON, but its values do not fit. Nothing was changed.",
    429: "Too many requests; wait and try again.",
    431: "The headers are too large.",
    500: "A defect of the server, or damaged data in the store.",
    503: "The store does not respond, or too many streams are open; try again.",
}
CODES: Final = {
    400: "bad_request",
    401: "not_authenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    414: "too_long",
    415: "not_json",
    421: "unknown_host",
    422: "invalid",
    429: "too_many_requests",
    431: "headers_too_large",
    500: "server_error",
    503: "unavailable",
}
"""The codes of errors that no error class of Holdfast describes."""
_FACTS: Final = ("run_id", "gate", "by", "at", "status", "owner", "workflow", "commit")
"""Attributes of errors that are reported as details."""


class ErrorDetail(msgspec.Struct, kw_only=True, omit_defaults=False):
    """What failed."""

    code: str
    """A word for programs, such as `already_answered`."""
    message: str
    """A sentence for people: what failed, and what to do."""
    problems: list[str] = []
    """Everything wrong with the values that were sent."""
    details: dict[str, Any] = {}
    """Facts of the error, such as `by` and `at` of `already_answered`."""


class Error(msgspec.Struct, kw_only=True):
    """The body of every response with a status from 400 on."""

    error: ErrorDetail


class ApiError(Exception):
    """An error that an operation answers with."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        problems: list[str] | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code or CODES[status]
        self.message = message
        self.problems = problems or []
        self.details = details or {}


def status_of(error: HoldfastError, *, changes: bool) -> int:
    """The status of an error of Holdfast. Input that does not fit is a 422 if it came in a body, else a 400."""
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, (Conflict, RunError)):
        return 409
    if isinstance(error, InvalidInput):
        return 422 if changes else 400
    return 500 if isinstance(error, DamagedData) else 409


def error_text(error: HoldfastError) -> str:
    """What an error says, without advice in the words of the library."""
    return error.problem if error.hint_code else str(error)


def code_of(error: HoldfastError) -> str:
    """The code of an error of Holdfast: its class name in snake case."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()


def from_error(error: HoldfastError, *, changes: bool) -> Response:
    """The response for an error of Holdfast."""
    problems = getattr(error, "problems", None)
    listed = [str(problem) for problem in problems] if isinstance(problems, (list, tuple)) else []
    facts = {name: getattr(error, name, None) for name in _FACTS}
    details = {name: value for name, value in facts.items() if isinstance(value, (str, int, float))}
    detail = ErrorDetail(code=code_of(error), message=error_text(error), problems=listed, details=details)
    return _response(status_of(error, changes=changes), detail)


def from_api_error(error: ApiError) -> Response:
    """The response for an error of an operation."""
    detail = ErrorDetail(code=error.code, message=error.message, problems=error.problems, details=error.details)
    return _response(error.status, detail)


def failure(status: int, message: str = "", headers: dict[str, str] | None = None) -> Response:
    """The response for an error found before an operation began, as an unknown path or a missing token."""
    code = CODES.get(status, "error")
    text = message or STATUSES.get(status, "the request failed")
    return _response(status, ErrorDetail(code=code, message=text), headers)


def _response(status: int, detail: ErrorDetail, headers: dict[str, str] | None = None) -> Response:
    more = {**(headers or {}), "Cache-Control": "no-store"}
    if status == 401:
        more.setdefault("WWW-Authenticate", "Bearer")
    return Response(encode(Error(error=detail)), status, more, media_type="application/json")


def encode(value: object) -> bytes:
    """A response as JSON. Text that is not valid Unicode is written with a replacement sign."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_valid(msgspec.to_builtins(value)))


def _valid(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_valid(key): _valid(part) for key, part in value.items()}
    return [_valid(part) for part in value] if isinstance(value, list) else value
