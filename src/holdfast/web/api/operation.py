"""Operations of the JSON API: reads a request, calls the function, writes its result or its error as JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.datastructures import QueryParams
from starlette.responses import Response

from holdfast.errors import GateClosed, HoldfastError, InvalidId, NotFound, RunNotFound, StorageError
from holdfast.web.api.failure import ApiError, encode, from_api_error, from_error
from holdfast.web.api.requests import Body, Nothing, Query, RunQuery
from holdfast.web.api.schemas import Result
from holdfast.web.routes import Page
from holdfast.web.site import Context

PREFIX: Final = "/api/v1"
_HALF_PAIR: Final = "the JSON text is not valid Unicode: a text has one half of a surrogate pair without the other"
_FIELDS: Final = {
    "Object missing required field ": "is missing",
    "Object contains unknown field ": "is not a field",
}
Q = TypeVar("Q", bound=Query)
B = TypeVar("B", bound=Body)


class Reply(NamedTuple):
    """A result with another status than 200."""

    result: Result
    status: int
    location: str = ""


Answer = Result | Reply | Response


class Operation(NamedTuple):
    """An operation: its route, what it accepts and returns, and the function that performs it.

    The function is called with the context, with the query if it has parameters of its own, and with the body if it
    may have fields.
    """

    method: Literal["GET", "POST"]
    path: str
    call: Callable[..., Answer]
    returns: type[Result] | None
    """None: not a JSON object of the API's own."""
    query: type[Query] = Query
    body: type[Body] | None = None
    role: str = "viewer"
    created: bool = False
    """Whether it may answer 201."""
    errors: tuple[int, ...] = ()
    """Statuses beside those that follow from the method and the path."""
    media: str = "application/json"
    """The type of its response."""
    example: Any = None
    """A body, or the values of the query."""

    @property
    def name(self) -> str:
        """The name of the operation, which is that of its function."""
        return self.call.__name__

    @property
    def is_about_run(self) -> bool:
        return "{run_id}" in self.path

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    @property
    def statuses(self) -> list[int]:
        """The statuses of errors that it may answer with."""
        found = {400, 401, 403, 405, 414, 421, 429, 431, 500, 503, *self.errors}
        found |= {404} if self.is_about_run else set()
        found |= {409, 413, 415, 422} if self.changes else set()
        return sorted(found)

    def page(self) -> Page:
        """The route."""
        return Page(self.method, PREFIX + self.path, functools.partial(perform, self), self.role, "api")


def perform(operation: Operation, c: Context) -> Response:
    """Perform an operation for a request."""
    try:
        if operation.is_about_run:  # first: what the user may not see does not exist, whatever else is wrong
            run_of(c)
        given: list[object] = []
        query = parse_query(operation.query, c.request.query_params)
        if operation.query not in (Query, RunQuery):
            given.append(query)
        if operation.body is not None:
            body = parse_body(operation.body, c.request.headers.get("content-type", ""), c.body)
            given += [body] if operation.body is not Nothing else []
        return respond(operation.call(c, *given))
    except ApiError as error:
        return from_api_error(error)
    except GateClosed as error:
        if error.state == "unknown":
            return from_error(NotFound(str(error)), changes=operation.changes)
        return from_error(error, changes=operation.changes)
    except StorageError:  # the server logs it
        raise
    except HoldfastError as error:
        return from_error(error, changes=operation.changes)


def run_of(c: Context) -> str:
    """The run of the path. RunNotFound if the user may not see it, and for an id that is not valid."""
    try:
        return c.run_id()
    except InvalidId:
        raise RunNotFound(unquote(str(c.request.path_params["run_id"]))) from None


def respond(answer: Answer) -> Response:
    """The response for what an operation returned."""
    if isinstance(answer, Response):
        return answer
    result, status, location = answer if isinstance(answer, Reply) else (answer, 200, "")
    headers = {"Cache-Control": "no-store"} | ({"Location": location} if location else {})
    return Response(encode(result), status, headers, media_type="application/json")


def parse_query(kind: type[Q], params: QueryParams) -> Q:
    """The query of a request; a 400 names what is wrong with it."""
    lists = {field.name for field in msgspec.structs.fields(kind) if _is_list(field.type)}
    known = set(kind.__struct_fields__)
    values: dict[str, object] = {}
    for name in params:
        given = params.getlist(name)
        if name not in known:
            listed = ", ".join(sorted(known - {"run"} if kind is not RunQuery else known)) or "none"
            raise _bad_query(f"{name!r} is not a parameter; there are: {listed}")
        if name not in lists and len(given) > 1:
            raise _bad_query(f"{name!r} may be given once, not {len(given)} times")
        values[name] = given if name in lists else given[0]
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _bad_query(describe(error)) from None


def _is_list(annotation: Any) -> bool:
    plain = getattr(annotation, "__origin__", annotation)
    return plain is list or getattr(plain, "__origin__", None) is list


def _bad_query(problem: str) -> ApiError:
    return ApiError(400, f"the query is not valid: {problem}", code="invalid_query", problems=[problem])


def parse_body(kind: type[B], content_type: str, body: bytes) -> B:
    """The body of a request: a 415 if it is not JSON by its type, 400 if not by its text, 422 if it does not fit."""
    if not body and kind is Nothing:
        return kind()
    media = content_type.partition(";")[0].strip().lower()
    if media != "application/json":
        shown = repr(media) if media else "none"
        raise ApiError(415, f"the body must have the content type application/json, not {shown}")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = _HALF_PAIR if _has_half_pair(body) else f"the body is not JSON: {error}"
        raise ApiError(400, problem, code="invalid_json") from None
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem = describe(error)
        raise ApiError(422, f"the body does not fit: {problem}", code="invalid_body", problems=[problem]) from None


def _has_half_pair(body: bytes) -> bool:
    """Whether the body is JSON except for half of a surrogate pair, such as `\\ud800`, in a text."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def describe(error: msgspec.ValidationError) -> str:
    """What msgspec found wrong, with the field first: `limit: expected int >= 1`."""
    text, _, place = str(error).partition(" - at ")
    for found, words in _FIELDS.items():
        if text.startswith(found):
            text = f"{text.removeprefix(found).strip('`')!r} {words}"
    text = text.replace("`", "")
    field = place.strip("`").removeprefix("$").lstrip(".")
    return f"{field}: {text[:1].lower()}{text[1:]}" if field else text
