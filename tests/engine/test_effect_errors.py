"""What exceptions prove: the built-in table against the real clients that are installed, and by name for the others."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import smtplib
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import httpx
import psycopg
import pytest
import requests

import holdfast
from holdfast.engine.failures import classifier_of, judge


def verdict(error: BaseException) -> str | None:
    return judge(error, ())


def raised(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(BaseException) as caught:
        call()
    return caught.value


# --- real clients against a real socket ------------------------------------------------------------------------------


class Server:
    """Accepts connections and does one thing to each: answer with a status, hang up, or stay silent."""

    def __init__(self, does: str) -> None:
        self._does = does
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._held: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/pay"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._held.append(client)
                data = b""
                while b"\r\n\r\n" not in data:
                    data += client.recv(1 << 16)
                if self._does.isdigit():
                    client.sendall(f"HTTP/1.1 {self._does} x\r\nContent-Length: 0\r\n\r\n".encode())
                elif self._does == "hang up":
                    client.close()

    def close(self) -> None:
        for end in (self._listener, *self._held):
            end.close()


def _post_httpx(url: str, timeout: float = 30) -> None:
    httpx.post(url, timeout=timeout, trust_env=False).raise_for_status()


def _post_httpx_async(url: str, timeout: float = 30) -> None:
    async def post() -> None:
        async with httpx.AsyncClient(timeout=timeout, trust_env=False) as client:
            (await client.post(url)).raise_for_status()

    asyncio.run(post())


def _post_requests(url: str, timeout: float = 30) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.post(url, timeout=timeout).raise_for_status()


def _post_urllib(url: str, timeout: float = 30) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(url, b"", timeout=timeout).close()
    except urllib.error.HTTPError as error:
        error.close()
        raise


def _post_http_client(url: str, timeout: float = 30) -> None:
    host, _, rest = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=timeout)
    try:
        connection.request("POST", f"/{rest}", b"")
        with connection.getresponse() as response:
            if response.status >= 400:
                raise urllib.error.HTTPError(url, response.status, "", response.headers, None)
    finally:
        connection.close()


CLIENTS = [_post_httpx, _post_httpx_async, _post_requests, _post_urllib, _post_http_client]


@pytest.fixture
def server_that() -> Iterator[Callable[[str], str]]:
    servers: list[Server] = []

    def make(does: str) -> str:
        servers.append(Server(does))
        return servers[-1].url

    yield make
    for server in servers:
        server.close()


@pytest.mark.parametrize("post", CLIENTS)
@pytest.mark.parametrize(
    ("does", "expected"),
    [("silent", "doubtful"), ("hang up", "doubtful"), ("500", "doubtful"), ("503", "doubtful"), ("408", "doubtful"),
     ("409", "doubtful"), ("400", "not_done"), ("402", "not_done"), ("404", "not_done"), ("429", "not_done")],
)  # fmt: skip
def test_what_came_of_a_request_that_was_sent(
    post: Callable[[str, float], None], server_that: Callable[[str], str], does: str, expected: str
) -> None:
    error = raised(lambda: post(server_that(does), 0.2 if does == "silent" else 30))
    assert verdict(error) == expected


@pytest.mark.parametrize("post", CLIENTS)
def test_a_refused_connection_and_an_unknown_host_prove_that_nothing_was_sent(post: Callable[[str], None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert verdict(raised(lambda: post(f"http://127.0.0.1:{port}/pay"))) == "not_done"
    assert verdict(raised(lambda: post("http://no-such-host.invalid/pay"))) == "not_done"


def test_a_database_that_is_not_there_leaves_it_open() -> None:
    assert verdict(raised(lambda: psycopg.connect("host=127.0.0.1 port=1 connect_timeout=1"))) == "doubtful"
    assert verdict(psycopg.errors.SerializationFailure("40001")) == "not_done"
    assert verdict(psycopg.errors.UniqueViolation("23505")) is None


# --- by class --------------------------------------------------------------------------------------------------------


def foreign(module: str, *names: str, **facts: Any) -> BaseException:
    """An exception of a package that is not installed: the last name is its class, those before it the bases."""
    kind: type[BaseException] = Exception
    for name in names:
        kind = type(name, (kind,), {"__module__": module})
    error = kind("foreign")
    for name, fact in facts.items():
        setattr(error, name, fact)
    return error


class _Code:
    def __init__(self, name: str) -> None:
        self.name = name


ANSWERED = {"ResponseMetadata": {"HTTPStatusCode": 400, "RetryAttempts": 0}}
RETRIED = {"ResponseMetadata": {"HTTPStatusCode": 400, "RetryAttempts": 2}}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError("late"), "doubtful"),
        (ConnectionResetError("reset"), "doubtful"),
        (BrokenPipeError("pipe"), "doubtful"),
        (ConnectionRefusedError("refused"), "not_done"),
        (socket.gaierror(-2, "unknown"), "not_done"),
        (OSError(113, "no route to host"), "doubtful"),
        (OSError(28, "no space left"), None),
        (ssl.SSLError("record"), "doubtful"),
        (ssl.SSLCertVerificationError("self signed"), "not_done"),
        (asyncio.CancelledError(), "doubtful"),
        (asyncio.IncompleteReadError(b"", 3), "doubtful"),
        (SystemExit(1), "doubtful"),
        (KeyboardInterrupt(), "doubtful"),
        (http.client.RemoteDisconnected("gone"), "doubtful"),
        (subprocess.TimeoutExpired("pay", 3), "doubtful"),
        (smtplib.SMTPServerDisconnected("gone"), "doubtful"),
        (smtplib.SMTPRecipientsRefused({}), "not_done"),
        (anyio.BrokenResourceError(), "doubtful"),
        (httpx.PoolTimeout("busy"), "not_done"),
        (httpx.ConnectTimeout("late"), "not_done"),
        (httpx.ReadTimeout("late"), "doubtful"),
        (httpx.WriteTimeout("late"), "doubtful"),
        (httpx.RemoteProtocolError("cut"), "doubtful"),
        (requests.ConnectTimeout("late"), "not_done"),
        (requests.ReadTimeout("late"), "doubtful"),
        (requests.ConnectionError("who knows"), "doubtful"),
        (foreign("aiohttp.client_exceptions", "ClientError", "ClientOSError", "ClientConnectorError"), "not_done"),
        (foreign("aiohttp.client_exceptions", "ClientError", "ServerDisconnectedError"), "doubtful"),
        (foreign("aiohttp.client_exceptions", "ClientError", "ClientResponseError", status=422), "not_done"),
        (foreign("aiohttp.client_exceptions", "ClientError", "ClientResponseError", status=200), "doubtful"),
        (foreign("botocore.exceptions", "ClientError", response=ANSWERED), "not_done"),
        (foreign("botocore.exceptions", "ClientError", response=RETRIED), "doubtful"),
        (foreign("botocore.exceptions", "ConnectionError", "EndpointConnectionError"), "not_done"),
        (foreign("botocore.exceptions", "HTTPClientError", "ReadTimeoutError"), "doubtful"),
        (foreign("openai", "APIError", "APIStatusError", "RateLimitError", status_code=429), "not_done"),
        (foreign("openai", "APIError", "APIConnectionError"), "doubtful"),
        (foreign("anthropic", "APIError", "APIStatusError", "OverloadedError", status_code=529), "doubtful"),
        (foreign("stripe", "StripeError", "CardError", http_status=402), "not_done"),
        (foreign("stripe", "StripeError", "APIConnectionError"), "doubtful"),
        (foreign("google.api_core.exceptions", "GoogleAPIError", "GoogleAPICallError", code=403), "not_done"),
        (foreign("google.api_core.exceptions", "GoogleAPIError", "GoogleAPICallError", code=504), "doubtful"),
        (foreign("google.genai.errors", "APIError", "ServerError", code=500), "doubtful"),
        (foreign("grpc._channel", "RpcError", "_InactiveRpcError", code=lambda: _Code("UNAVAILABLE")), "doubtful"),
        (foreign("grpc._channel", "RpcError", "_InactiveRpcError", code=lambda: _Code("NOT_FOUND")), "not_done"),
        (foreign("redis.exceptions", "RedisError", "TimeoutError"), "doubtful"),
        (foreign("mine", "TimeoutError"), None),
        (holdfast.InDoubt("the bank did not say"), "doubtful"),
        (ValueError("no"), None),
    ],
    ids=lambda part: f"{type(part).__module__}.{type(part).__name__}" if isinstance(part, BaseException) else None,
)
def test_the_class_of_an_exception_decides(error: BaseException, expected: str | None) -> None:
    assert verdict(error) == expected


# --- chains and groups -----------------------------------------------------------------------------------------------


class PaymentError(Exception):
    pass


class CardDeclined(PaymentError):
    pass


def _from(outer: BaseException, cause: BaseException | None) -> BaseException:
    def call() -> None:
        raise outer from cause

    return raised(call)


def _while_handling(outer: BaseException, handled: BaseException) -> BaseException:
    def call() -> None:
        try:
            raise handled
        except BaseException:
            raise outer  # noqa: B904 - that is what is tested

    return raised(call)


def test_what_an_exception_was_raised_for_counts() -> None:
    assert verdict(_from(PaymentError(), TimeoutError())) == "doubtful"
    assert verdict(_from(PaymentError(), ConnectionRefusedError())) == "not_done"
    assert verdict(_from(PaymentError(), _from(ValueError(), httpx.ReadTimeout("late")))) == "doubtful"
    assert verdict(_from(httpx.ConnectTimeout("late"), TimeoutError())) == "not_done", "the client knows why it waited"
    assert verdict(_from(foreign("openai", "APIConnectionError"), httpx.ConnectError("refused"))) == "not_done"
    assert verdict(_from(foreign("openai", "APIConnectionError"), httpx.ReadTimeout("late"))) == "doubtful"


def test_what_was_being_handled_proves_nothing_but_its_doubt_remains() -> None:
    assert verdict(_while_handling(PaymentError(), TimeoutError())) == "doubtful"
    assert verdict(_while_handling(PaymentError(), ConnectionRefusedError())) is None
    second_bank = _while_handling(ConnectionRefusedError("the second bank"), TimeoutError("the first bank"))
    assert verdict(second_bank) == "doubtful", "the first may have paid"
    inside = _from(httpx.ConnectError("refused"), ConnectionRefusedError())
    assert inside.__cause__ is not None
    inside.__cause__.__context__ = httpx.ReadTimeout("the first bank")
    assert verdict(inside) == "doubtful"
    silent = _while_handling(PaymentError(), TimeoutError())
    silent.__suppress_context__ = True
    assert verdict(silent) == "doubtful", "`from None` hides the doubt from the traceback only"


def test_a_group_is_open_if_one_member_is_and_proven_if_all_are() -> None:
    first, second, late = ConnectionRefusedError(), ConnectionRefusedError(), TimeoutError()
    assert verdict(ExceptionGroup("g", [first, late])) == "doubtful"
    assert verdict(ExceptionGroup("g", [first, ExceptionGroup("h", [second])])) == "not_done"
    assert verdict(ExceptionGroup("g", [first, ValueError()])) is None
    assert verdict(_from(PaymentError(), BaseExceptionGroup("g", [asyncio.CancelledError()]))) == "doubtful"


def test_a_chain_that_goes_round_comes_to_an_end() -> None:
    one, two = PaymentError("one"), PaymentError("two")
    one.__cause__, two.__cause__ = two, one
    assert verdict(one) is None


# --- the user's own --------------------------------------------------------------------------------------------------


def test_the_most_derived_listed_type_decides() -> None:
    own = classifier_of((CardDeclined, TimeoutError), (PaymentError,), None)
    assert judge(CardDeclined(), (own,)) == "not_done"
    assert judge(PaymentError(), (own,)) == "doubtful"
    assert judge(TimeoutError(), (own,)) == "not_done", "the call's own word counts more than the table"
    assert judge(_from(ValueError(), CardDeclined()), (own,)) == "not_done"
    assert judge(_while_handling(ValueError(), PaymentError()), (own,)) == "doubtful"
    assert judge(ExceptionGroup("g", [CardDeclined(), CardDeclined()]), (own,)) == "not_done"


def test_the_call_counts_more_than_the_app_and_the_app_more_than_the_table() -> None:
    def app(error: BaseException) -> Any:
        return "not_done" if isinstance(error, (TimeoutError, PaymentError)) else None

    own = classifier_of((), (CardDeclined,), None)
    assert judge(CardDeclined(), (own, app)) == "doubtful"
    assert judge(PaymentError(), (own, app)) == "not_done"
    assert judge(TimeoutError(), (own, app)) == "not_done"
    assert judge(ConnectionResetError(), (own, app)) == "doubtful"


def test_a_function_counts_more_than_the_lists_and_one_that_fails_leaves_it_open() -> None:
    def by_text(error: BaseException) -> Any:
        return {"declined": "not_done", "odd": "something else"}.get(str(error))

    own = classifier_of((), (PaymentError,), by_text)
    assert judge(PaymentError("declined"), (own,)) == "not_done"
    assert judge(PaymentError("late"), (own,)) == "doubtful"
    assert judge(ValueError("odd"), (own,)) == "doubtful"
    broken = classifier_of((), (), lambda error: vars(error)["no_such_attribute"])
    assert judge(ValueError("declined"), (broken,)) == "doubtful"


@pytest.mark.parametrize(
    ("not_done", "doubtful", "classify", "says"),
    [
        (ValueError, (ValueError,), None, "ValueError is listed both in not_done and in doubtful"),
        ("ValueError", (), None, "not_done must be exception types"),
        ((), (3,), None, "doubtful must be exception types"),
        ((), (), "timeouts", "classify must be a function"),
        ((), (), asyncio.sleep, "that is not async"),
    ],
)
def test_wrong_declarations_are_refused(not_done: Any, doubtful: Any, classify: Any, says: str) -> None:
    with pytest.raises(holdfast.InvalidInput, match=says):
        classifier_of(not_done, doubtful, classify)
    if classify is not None:
        with pytest.raises(holdfast.InvalidInput, match=says):
            holdfast.App("memory:", classify=classify)
