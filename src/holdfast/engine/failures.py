"""Exceptions as recorded data, and what they prove about an effect.

An exception does not prove that nothing happened: a request whose answer timed out may have been processed. A verdict
is "not_done" (the exception proves that nothing happened), "doubtful" (it leaves that open) or None (unknown). Client
libraries are recognised by the names of their classes, so none of them is imported.
"""

from __future__ import annotations

import errno
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, TypeVar

from holdfast.errors import ChildFailed, HoldfastError, InDoubt, InvalidInput, RunError, StepFailed
from holdfast.errors.workflow import traceback_text

MESSAGE_MAX: Final = 4_000
TRACE_MAX: Final = 16_000
CAUSES_MAX: Final = 8
MEMBERS_MAX: Final = 8
"""The number of exceptions of a group that are recorded."""

_OURS: Final = __file__.rpartition("engine")[0]
_LIBRARIES: Final = (traceback.__file__.rpartition("traceback")[0], "site-packages", "dist-packages", "<frozen")

E = TypeVar("E", bound=StepFailed)
FailureData = dict[str, Any]
"""An exception as data, as `failure_of` returns it."""


def failure_of(error: BaseException, causes: int = CAUSES_MAX) -> FailureData:
    """Type, message, traceback, the user's line and the causes of `error`, and the call that failed."""
    recorded = getattr(error, "failure", None)
    trace, where = _trace_and_place(error)
    failure: FailureData = {
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
    elif isinstance(recorded, dict):  # replayed: only the recorded data of the cause is left
        failure["cause"] = recorded
    return failure


def summary_of(error: BaseException) -> str:
    """Type and message of `error` in one line."""
    return " ".join(f"{type(error).__name__}: {_text(_message(error), 500)}".split())


def with_recorded_trace(error: E) -> E:
    """Add the recorded traceback as a note: an error raised on replay has no `__cause__`."""
    text = traceback_text(error.failure)
    if text:
        error.add_note(text)
    return error


def place_of(failure: FailureData) -> str:
    """The user's line that failed first, `file:line in function`; empty if none is recorded."""
    cause = failure.get("cause")
    return (place_of(cause) if isinstance(cause, dict) else "") or str(failure.get("where", ""))


def call_of(failure: FailureData) -> str:
    """The full name of the call that failed, or its child run; empty if the workflow's own code failed."""
    cause = failure.get("cause")
    found = failure.get("call") or failure.get("child")
    return str(found) if found else call_of(cause) if isinstance(cause, dict) else ""


def _trace_and_place(error: BaseException) -> tuple[str, str]:
    """The traceback without Holdfast's frames, and the user's line in it; empty if all frames are of libraries.

    Holdfast's frames stay in an unexpected error of Holdfast itself.
    """
    trace = traceback.TracebackException(type(error), error, error.__traceback__)
    if isinstance(error, RunError):
        trace.__notes__ = None  # the note of a replay is recorded as the cause
    users = [frame for frame in trace.stack if not frame.filename.startswith(_OURS)]
    own = [frame for frame in users if not any(part in frame.filename for part in _LIBRARIES)]
    if users and (isinstance(error, HoldfastError) or trace.stack[-1] is users[-1]):
        trace.stack = traceback.StackSummary.from_list(users[users.index((own or users)[0]) :])
    where = f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else ""
    return "".join(trace.format(chain=False)), where


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a broken __str__ of a user's class must not hide the error
        return f"<{type(error).__name__} whose __str__ failed>"


def _text(text: str, longest: int) -> str:
    """Text that can be stored, shortened in the middle if it is very long."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


# --- verdicts ---

Verdict = Literal["not_done", "doubtful"]
Classifier = Callable[[BaseException], Verdict | None]

NOT_DONE: Final = "not_done"
DOUBTFUL: Final = "doubtful"
_WRAPS: Final = "wraps"
"""The cause of the exception decides; without a cause it is doubtful."""
_STATUS: Final = "status"
"""The server has answered; the status of its answer decides."""
_LINKS_MAX: Final = 200
_Own = Literal["not_done", "doubtful", "wraps"]


_TABLE: Final = """
builtins   doubtful: TimeoutError ConnectionError  not_done: ConnectionRefusedError
socket     not_done: gaierror herror
ssl        doubtful: SSLError  not_done: SSLCertVerificationError
asyncio    doubtful: CancelledError IncompleteReadError
concurrent doubtful: CancelledError BrokenExecutor
subprocess doubtful: TimeoutExpired
json       doubtful: JSONDecodeError
simplejson doubtful: JSONDecodeError
http       doubtful: HTTPException  not_done: InvalidURL
urllib     wraps: URLError  status: HTTPError
smtplib    doubtful: SMTPServerDisconnected
smtplib    not_done: SMTPConnectError SMTPHeloError SMTPAuthenticationError SMTPSenderRefused SMTPRecipientsRefused
smtplib    not_done: SMTPDataError
anyio      doubtful: BrokenResourceError ClosedResourceError EndOfStream IncompleteRead
httpcore   doubtful: TimeoutException NetworkError ProtocolError
httpcore   not_done: ConnectTimeout ConnectError PoolTimeout ProxyError UnsupportedProtocol
httpx      doubtful: RequestError StreamError  status: HTTPStatusError
httpx      not_done: ConnectTimeout ConnectError PoolTimeout ProxyError UnsupportedProtocol InvalidURL
urllib3    doubtful: HTTPError  wraps: MaxRetryError ProxyError SSLError
urllib3    not_done: ConnectTimeoutError NewConnectionError EmptyPoolError LocationValueError
requests   doubtful: RequestException  wraps: ConnectionError  status: HTTPError
requests   not_done: ConnectTimeout MissingSchema InvalidSchema InvalidURL InvalidHeader
aiohttp    doubtful: ClientError ServerTimeoutError HttpProcessingError  status: ClientResponseError
aiohttp    not_done: ClientConnectorError ClientHttpProxyError ConnectionTimeoutError InvalidURL
botocore   doubtful: ConnectionError HTTPClientError ResponseParserError  status: ClientError
botocore   not_done: NoRegionError ConnectTimeoutError EndpointConnectionError ProxyConnectionError NoCredentialsError
botocore   not_done: ParamValidationError
openai     doubtful: APIError  wraps: APIConnectionError  status: APIStatusError
anthropic  doubtful: APIError  wraps: APIConnectionError  status: APIStatusError
stripe     doubtful: StripeError APIConnectionError IdempotencyError
stripe     status: APIError CardError InvalidRequestError RateLimitError AuthenticationError PermissionError
google     doubtful: GoogleAPIError RetryError  status: GoogleAPICallError APIError
google     not_done: RefreshError DefaultCredentialsError TransportError
grpc       status: RpcError
psycopg    doubtful: OperationalError InterfaceError  not_done: SerializationFailure DeadlockDetected
psycopg2   doubtful: OperationalError InterfaceError  not_done: TransactionRollbackError
asyncpg    doubtful: PostgresConnectionError InterfaceError ConnectionDoesNotExistError
redis      doubtful: ConnectionError TimeoutError  not_done: AuthenticationError BusyLoadingError
"""


def _parse_table(table: str) -> Iterator[tuple[tuple[str, str], str]]:
    for package, *words in map(str.split, table.strip().splitlines()):
        verdict = ""
        for word in words:
            if word.endswith(":"):
                verdict = word[:-1]
            else:
                yield (package, word), verdict


_CLASSES: Final = dict(_parse_table(_TABLE))
"""By top-level package and class name; the most derived listed class of an exception decides.

"not_done" means that no request was sent (the connection was refused or never made, the name was not found, the
arguments were wrong) or that the server refused it. A read timeout, a reset or a broken pipe is doubtful.
"""
_DOUBTFUL_STATUS: Final = frozenset({408, 409, 499})
"""Client errors that are doubtful: a gateway timed out, or an earlier attempt may cause the conflict."""
_REFUSED_BY_GRPC: Final = frozenset(
    {"INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED"}
    | {"FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED"}
)
_NETWORK: Final = frozenset(
    getattr(errno, name)
    for name in ("EHOSTUNREACH", "ENETUNREACH", "ENETDOWN", "ENETRESET", "EHOSTDOWN", "ENOTCONN")
    if hasattr(errno, name)
)
_PLUMBING: Final = frozenset({"builtins", "socket", "ssl", "asyncio", "concurrent", "anyio"})


def classifier_of(not_done: object, doubtful: object, classify: Classifier | None) -> Classifier | None:
    """The classifier of one call: its function first, then its two lists of exception types."""
    check_classifier(classify)
    known: dict[type[BaseException], Verdict] = {}
    verdict: Verdict
    for verdict, given in ((NOT_DONE, not_done), (DOUBTFUL, doubtful)):
        for kind in given if isinstance(given, (tuple, list, set, frozenset)) else (given,):
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise InvalidInput(f"{verdict} must be exception types, not {given!r}")
            if known.setdefault(kind, verdict) != verdict:
                raise InvalidInput(f"{kind.__name__} is listed both in not_done and in doubtful; list it once")
    if not known:
        return classify

    def look_up(error: BaseException) -> Verdict | None:
        found = None if classify is None else classify(error)
        return found or next((known[kind] for kind in type(error).__mro__ if kind in known), None)

    return look_up


def check_classifier(classify: object) -> None:
    """Raise InvalidInput if a classifier is not a plain function."""
    if classify is not None and (not callable(classify) or inspect.iscoroutinefunction(classify)):
        raise InvalidInput(f"classify must be a function that is not async, not {classify!r}")


def judge(error: BaseException, classifiers: Iterable[Classifier | None]) -> Verdict | None:
    """The verdict on an exception. `classifiers` are the user's, in order of precedence.

    Its causes (`raise … from`, the members of a group) are judged with it; the outermost verdict counts. An exception
    that was only being handled when it was raised cannot prove "not_done", but can make the verdict "doubtful".
    """
    given = tuple(one for one in classifiers if one is not None)
    return _judge(error, given, set())


def _judge(error: BaseException, classifiers: tuple[Classifier, ...], seen: set[int]) -> Verdict | None:
    chain = list(_chain(error, seen))
    if len(seen) >= _LINKS_MAX:
        return DOUBTFUL  # too many to judge them all
    verdict: Verdict | None = None
    decided_by = len(chain)
    for number, link in reversed(list(enumerate(chain))):
        own: _Own | None = next(
            (found for one in classifiers if (found := _ask_classifier(one, link)) is not None), None
        )
        if own is None and isinstance(link, BaseExceptionGroup):
            own = _judge_members(link, classifiers, seen)
        elif own is None:
            own = _judge_class(link)
            if own == NOT_DONE and verdict == DOUBTFUL and _is_answer(link):
                own = DOUBTFUL  # the client could not read the answer and invented a status
        if own == _WRAPS:
            verdict = verdict or DOUBTFUL
        elif own is not None:
            verdict, decided_by = own, number
    for number, link in enumerate(chain):
        handled = link.__context__
        if handled is None or id(handled) in seen or (number > decided_by and _is_plumbing(handled)):
            continue
        if _judge(handled, classifiers, seen) == DOUBTFUL:
            return DOUBTFUL
    return verdict


def _ask_classifier(classify: Classifier, error: BaseException) -> Verdict | None:
    """The verdict of a user's classifier; doubtful if it fails."""
    try:
        verdict = classify(error)
    except Exception:
        return DOUBTFUL
    return verdict if verdict is None or verdict == NOT_DONE else DOUBTFUL


def _chain(error: BaseException, seen: set[int]) -> Iterator[BaseException]:
    """The exception and its causes: `__cause__`, or an exception among its arguments, as some clients pass it."""
    link: BaseException | None = error
    while link is not None and id(link) not in seen and len(seen) < _LINKS_MAX:
        seen.add(id(link))
        yield link
        given = (part for part in link.args if isinstance(part, BaseException))
        link = link.__cause__ or next(given, None)


def _judge_members(
    group: BaseExceptionGroup[BaseException], classifiers: tuple[Classifier, ...], seen: set[int]
) -> Verdict | None:
    """The verdict on a group: doubtful if one member is, not_done if all are."""
    verdicts = {_judge(member, classifiers, seen) for member in group.exceptions}
    if DOUBTFUL in verdicts:
        return DOUBTFUL
    return NOT_DONE if verdicts == {NOT_DONE} else None


def _judge_class(error: BaseException) -> _Own | None:
    """The verdict by the class of one exception, `_WRAPS`, or None."""
    if isinstance(error, InDoubt):
        return DOUBTFUL
    for kind in type(error).__mro__:
        found = _CLASSES.get((_package(kind), kind.__name__))
        if found == _STATUS:
            return _judge_status(error)
        if found is not None:
            return _WRAPS if found == _WRAPS else NOT_DONE if found == NOT_DONE else DOUBTFUL
    if not isinstance(error, Exception):  # the process or the task was shutting down
        return DOUBTFUL
    return DOUBTFUL if isinstance(error, OSError) and error.errno in _NETWORK else None


def _package(kind: type) -> str:
    """The top-level package of a class; httpx2 and httpcore2 count as httpx and httpcore."""
    package = kind.__module__.partition(".")[0].lstrip("_")
    return package.rstrip("2") if package in ("httpx2", "httpcore2") else package


def _is_plumbing(error: BaseException) -> bool:
    """Whether a client raises this internally, before the exception that its caller sees."""
    return not isinstance(error, InDoubt) and _package(type(error)) in _PLUMBING


def _judge_status(error: BaseException) -> Verdict:
    """The verdict by the status of the answer, as the client's exception has it."""
    try:
        status = _status(error)
    except Exception:  # another version of the client
        return DOUBTFUL
    if isinstance(status, str):
        return NOT_DONE if status in _REFUSED_BY_GRPC else DOUBTFUL
    refused = isinstance(status, int) and 400 <= status < 500 and status not in _DOUBTFUL_STATUS
    return NOT_DONE if refused else DOUBTFUL


def _is_answer(error: BaseException) -> bool:
    """Whether the class of an exception stands for an answer of the server."""
    found = (_CLASSES.get((_package(kind), kind.__name__)) for kind in type(error).__mro__)
    return next((each for each in found if each is not None), None) == _STATUS


def _status(error: BaseException) -> object:
    response: Any = getattr(error, "response", None)
    if getattr(response, "history", None) or getattr(error, "history", None):
        return None  # the client followed a redirect: an earlier request had another answer
    if isinstance(response, dict) and "ResponseMetadata" in response:  # botocore, which also counts its retries
        facts = response["ResponseMetadata"]
        return None if facts.get("RetryAttempts") else facts["HTTPStatusCode"]
    if hasattr(response, "status_code"):
        return response.status_code
    for name in ("status_code", "http_status", "status", "code"):
        found: Any = getattr(error, name, None)
        found = found() if callable(found) else found
        if isinstance(found, int):
            return found
        if hasattr(found, "name"):  # a code of gRPC
            return found.name
    return None
