"""What an exception proves about the effect that raised it. Pure.

An exception does not prove that nothing happened: a request whose answer timed out may have been carried out. A verdict
is "not_done" (the exception proves that nothing happened), "doubtful" (it leaves that open) or None (neither is known).
The clients of other packages are recognised by the names of their classes, so none of them is imported.
"""

from __future__ import annotations

import errno
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal

from holdfast.errors import InDoubt, InvalidInput

Verdict = Literal["not_done", "doubtful"]
Classifier = Callable[[BaseException], Verdict | None]

NOT_DONE: Final = "not_done"
DOUBTFUL: Final = "doubtful"
_WRAPS: Final = "wraps"
"""The class stands for both: the exception it was raised for decides, and without one it is open."""
_STATUS: Final = "status"
"""The other side has answered; the status of its answer decides."""
_LINKS_MAX: Final = 200


def _table(package: str, **verdicts: str) -> dict[tuple[str, str], str]:
    return {(package, name): verdict for verdict, names in verdicts.items() for name in names.split()}


_CLASSES: Final[dict[tuple[str, str], str]] = (
    _table("builtins", doubtful="TimeoutError ConnectionError", not_done="ConnectionRefusedError")
    | _table("socket", not_done="gaierror herror")
    | _table("ssl", doubtful="SSLError", not_done="SSLCertVerificationError")
    | _table("asyncio", doubtful="CancelledError IncompleteReadError")
    | _table("concurrent", doubtful="CancelledError BrokenExecutor")
    | _table("subprocess", doubtful="TimeoutExpired")
    | _table("json", doubtful="JSONDecodeError")
    | _table("simplejson", doubtful="JSONDecodeError")
    | _table("http", doubtful="HTTPException", not_done="InvalidURL")
    | _table("urllib", wraps="URLError", status="HTTPError")
    | _table("smtplib", doubtful="SMTPServerDisconnected", not_done="SMTPConnectError SMTPHeloError "
             "SMTPAuthenticationError SMTPSenderRefused SMTPRecipientsRefused SMTPDataError")
    | _table("anyio", doubtful="BrokenResourceError ClosedResourceError EndOfStream IncompleteRead")
    | _table("httpcore", doubtful="TimeoutException NetworkError ProtocolError", not_done="ConnectTimeout ConnectError "
             "PoolTimeout ProxyError UnsupportedProtocol")
    | _table("httpx", doubtful="RequestError StreamError", status="HTTPStatusError", not_done="ConnectTimeout "
             "ConnectError PoolTimeout ProxyError UnsupportedProtocol InvalidURL")
    | _table("urllib3", doubtful="HTTPError", wraps="MaxRetryError ProxyError SSLError", not_done="ConnectTimeoutError "
             "NewConnectionError EmptyPoolError LocationValueError")
    | _table("requests", doubtful="RequestException", wraps="ConnectionError", status="HTTPError",
             not_done="ConnectTimeout MissingSchema InvalidSchema InvalidURL InvalidHeader")
    | _table("aiohttp", doubtful="ClientError ServerTimeoutError HttpProcessingError", status="ClientResponseError",
             not_done="ClientConnectorError ClientHttpProxyError ConnectionTimeoutError InvalidURL")
    | _table("botocore", doubtful="ConnectionError HTTPClientError ResponseParserError", status="ClientError",
             not_done="NoRegionError ConnectTimeoutError EndpointConnectionError ProxyConnectionError "
             "NoCredentialsError ParamValidationError")
    | _table("openai", doubtful="APIError", wraps="APIConnectionError", status="APIStatusError")
    | _table("anthropic", doubtful="APIError", wraps="APIConnectionError", status="APIStatusError")
    | _table("stripe", doubtful="StripeError APIConnectionError IdempotencyError", status="APIError CardError "
             "InvalidRequestError RateLimitError AuthenticationError PermissionError")
    | _table("google", doubtful="GoogleAPIError RetryError", status="GoogleAPICallError APIError",
             not_done="RefreshError DefaultCredentialsError TransportError")
    | _table("grpc", status="RpcError")
    | _table("psycopg", doubtful="OperationalError InterfaceError", not_done="SerializationFailure DeadlockDetected")
    | _table("psycopg2", doubtful="OperationalError InterfaceError", not_done="TransactionRollbackError")
    | _table("asyncpg", doubtful="PostgresConnectionError InterfaceError ConnectionDoesNotExistError")
    | _table("redis", doubtful="ConnectionError TimeoutError", not_done="AuthenticationError BusyLoadingError")
)  # fmt: skip
"""By top-level package and class name; of an exception's classes the most derived one that is listed decides.

"not_done" means that no request was sent (the connection was refused or never made, the name was not found, the
arguments were wrong) or that the other side refused it. A read that timed out, a reset or a broken pipe leave it open.
"""
_DOUBTFUL_STATUS: Final = frozenset({408, 409, 499})
"""Of the client errors these leave it open: a gateway timed out, or an earlier try may be what is in conflict."""
_REFUSED_BY_GRPC: Final = frozenset(
    {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "FAILED_PRECONDITION",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
    }
)
_NETWORK: Final = frozenset(
    getattr(errno, name)
    for name in ("EHOSTUNREACH", "ENETUNREACH", "ENETDOWN", "ENETRESET", "EHOSTDOWN", "ENOTCONN")
    if hasattr(errno, name)
)
_PLUMBING: Final = frozenset({"builtins", "socket", "ssl", "asyncio", "concurrent", "anyio"})


def classifier_of(not_done: Any, doubtful: Any, classify: Any) -> Classifier | None:
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
        return classify  # type: ignore[no-any-return]

    def listed(error: BaseException) -> Verdict | None:
        found = None if classify is None else classify(error)
        return found or next((known[kind] for kind in type(error).__mro__ if kind in known), None)

    return listed


def check_classifier(classify: Any) -> None:
    """A classifier is a plain function."""
    if classify is not None and (not callable(classify) or inspect.iscoroutinefunction(classify)):
        raise InvalidInput(f"classify must be a function that is not async, not {classify!r}")


def judge(error: BaseException, classifiers: Iterable[Classifier | None]) -> Verdict | None:
    """The verdict on an exception. `classifiers` are the user's, the one that counts most first.

    The exceptions it was raised for (`raise … from`, the members of a group) are judged with it; the outermost verdict
    counts. One that was merely being handled when it was raised proves nothing, but what it leaves open stays open.
    """
    given = tuple(one for one in classifiers if one is not None)
    return _judge(error, given, set())


def _judge(error: BaseException, classifiers: tuple[Classifier, ...], seen: set[int]) -> Verdict | None:
    chain = list(_chain(error, seen))
    if len(seen) >= _LINKS_MAX:
        return DOUBTFUL  # too many to look at all of them
    verdict: Any = None
    decided_by = len(chain)
    for number, link in reversed(list(enumerate(chain))):
        own: Any = next((found for one in classifiers if (found := _asked(one, link)) is not None), None)
        if own is None and isinstance(link, BaseExceptionGroup):
            own = _of_members(link, classifiers, seen)
        elif own is None:
            own = _of_class(link)
            if own == NOT_DONE and verdict == DOUBTFUL and _is_answer(link):
                own = DOUBTFUL  # a status that the client made up while it could not read the answer
        if own is not None:
            verdict, decided_by = (verdict or DOUBTFUL, decided_by) if own == _WRAPS else (own, number)
    for number, link in enumerate(chain):
        handled = link.__context__
        if handled is None or id(handled) in seen or (number > decided_by and _is_plumbing(handled)):
            continue
        if _judge(handled, classifiers, seen) == DOUBTFUL:
            return DOUBTFUL
    return verdict  # type: ignore[no-any-return]


def _asked(classify: Classifier, error: BaseException) -> Verdict | None:
    """What a user's classifier says. If it fails nothing is known, which is a doubt."""
    try:
        verdict = classify(error)
    except Exception:
        return DOUBTFUL
    return verdict if verdict is None or verdict == NOT_DONE else DOUBTFUL


def _chain(error: BaseException, seen: set[int]) -> Iterator[BaseException]:
    """The exception and what it was raised for: its cause, or an exception among its arguments, as some clients do."""
    link: BaseException | None = error
    while link is not None and id(link) not in seen and len(seen) < _LINKS_MAX:
        seen.add(id(link))
        yield link
        given = (part for part in link.args if isinstance(part, BaseException))
        link = link.__cause__ or next(given, None)


def _of_members(group: BaseExceptionGroup[Any], classifiers: tuple[Classifier, ...], seen: set[int]) -> Verdict | None:
    """Of a group: open if one member is, proven if all are."""
    verdicts = {_judge(member, classifiers, seen) for member in group.exceptions}
    if DOUBTFUL in verdicts:
        return DOUBTFUL
    return NOT_DONE if verdicts == {NOT_DONE} else None


def _of_class(error: BaseException) -> Any:
    """What the class of one exception says: a verdict, `_WRAPS`, or None."""
    if isinstance(error, InDoubt):
        return DOUBTFUL
    for kind in type(error).__mro__:
        found = _CLASSES.get((_package(kind), kind.__name__))
        if found is not None:
            return _by_status(error) if found == _STATUS else found
    if not isinstance(error, Exception):  # the process or the task was being ended
        return DOUBTFUL
    return DOUBTFUL if isinstance(error, OSError) and error.errno in _NETWORK else None


def _package(kind: type) -> str:
    """The top-level package of a class; the next generation of a client has its classes under another name."""
    package = kind.__module__.partition(".")[0].lstrip("_")
    return package.rstrip("2") if package in ("httpx2", "httpcore2") else package


def _is_plumbing(error: BaseException) -> bool:
    """Whether a client raises this inside, on its way to the exception that its caller gets."""
    return not isinstance(error, InDoubt) and _package(type(error)) in _PLUMBING


def _by_status(error: BaseException) -> Verdict:
    """The other side refused it, or it is open: by the status of its answer, as the client's exception tells it."""
    try:
        status = _status(error)
    except Exception:  # another version of the client
        return DOUBTFUL
    if isinstance(status, str):
        return NOT_DONE if status in _REFUSED_BY_GRPC else DOUBTFUL
    refused = isinstance(status, int) and 400 <= status < 500 and status not in _DOUBTFUL_STATUS
    return NOT_DONE if refused else DOUBTFUL


def _is_answer(error: BaseException) -> bool:
    """Whether the class of an exception stands for an answer of the other side."""
    found = (_CLASSES.get((_package(kind), kind.__name__)) for kind in type(error).__mro__)
    return next((each for each in found if each is not None), None) == _STATUS


def _status(error: Any) -> Any:
    response: Any = getattr(error, "response", None)
    if getattr(response, "history", None) or getattr(error, "history", None):
        return None  # the client followed a redirect: an earlier request was answered otherwise
    if (
        isinstance(response, dict) and "ResponseMetadata" in response
    ):  # botocore, which also says whether it tried before
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
