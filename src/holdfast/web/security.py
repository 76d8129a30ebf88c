"""Checks of every request, and headers of every response.

A request must name a host of ours (a foreign name that resolves to this machine is an attack by DNS), and one that
changes something must come from our own origin. Errors that no handler caught become a page without details.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import re
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.web.api.failure import failure

STATIC: Final = Path(__file__).parent / "static"
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: browsers would then send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}
ADDRESS_BYTES_MAX: Final = 16 << 10
HEADER_BYTES_MAX: Final = 32 << 10
HSTS: Final = "max-age=31536000"
IMMUTABLE: Final = "public, max-age=31536000, immutable"
LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_-])?)\.?(?::([0-9]{1,5}))?")
_PORTS: Final = {"http": "80", "https": "443"}
_SAFE: Final = ("GET", "HEAD")
_CAUSES_MAX: Final = 5
_HIDDEN_CHARS_MIN: Final = 3
"""Shorter values of a request are not secret, and occur in messages by chance."""

_log = logging.getLogger("holdfast.web")


class Host(NamedTuple):
    """A host name or address in lower case, and a port; an empty port means any."""

    name: str
    port: str = ""

    @classmethod
    def parse(cls, text: str, scheme: str = "") -> Host | None:
        """Read `name`, `name:port` or `[address]:port`; None if it is none of these."""
        found = _HOST.fullmatch(text.lower())
        return None if found is None else cls(found[1], found[2] or _PORTS.get(scheme, ""))


class HostRules:
    """The hosts under which the page is reached, and the scheme that browsers use."""

    def __init__(self, hosts: Iterable[str] = (), *, scheme: str = "", any_host: bool = False) -> None:
        self.hosts = frozenset(host for text in hosts if (host := Host.parse(text)) is not None)
        self.scheme = scheme
        """Empty: that of the request, or https if a proxy in front ends it."""
        self.any_host = any_host

    def names(self, host: Host) -> bool:
        """Whether the host is one of those that were given."""
        return host in self.hosts or Host(host.name) in self.hosts

    def problem_of_host(self, headers: Headers, scheme: str) -> str:
        """What is wrong with the Host header; empty if nothing is."""
        given = headers.getlist("host")
        host = Host.parse(given[0], self.scheme or scheme) if len(given) == 1 else None
        if host is None:
            return "the request names no host, or an invalid one"
        if self.any_host or self.names(host):
            return ""
        return f"the page is not served as {host.name!r}; --allowed-host, or hosts=, adds a name"

    def problem_of_origin(self, headers: Headers, scheme: str) -> str:
        """What is wrong with the origin of a change; empty if nothing is, or if no browser sent it."""
        problem = problem_of_site(headers)
        if problem:
            return problem
        origins = headers.getlist("origin")
        if not origins:
            return ""
        parts = urlsplit(origins[0] if len(origins) == 1 else "")
        host = Host.parse(parts.netloc, parts.scheme) if parts.scheme in _PORTS else None
        if host is None or parts.path or parts.query or parts.fragment:
            return f"the request comes from the origin {origins[0][:200]!r}"
        own = Host.parse(headers.get("host", ""), parts.scheme)
        if host != own and not self.names(host):
            return f"the request comes from the origin {origins[0][:200]!r}, and the page is at {headers.get('host')!r}"
        if parts.scheme != (self.scheme or scheme) and (self.scheme or parts.scheme != "https"):
            return f"the request comes from {parts.scheme}, and the page is served as {self.scheme or scheme}" + (
                "; --behind-https is for a proxy that ends https" if parts.scheme == "https" else ""
            )
        return ""


def problem_of_site(headers: Headers) -> str:
    """What a browser reports about the page that sent a request; empty if it is ours, or if no page did."""
    site = headers.get("sec-fetch-site", "none")
    return "" if site in ("same-origin", "none") else f"the request comes from another site ({site[:20]!r})"


class RateLimit:
    """At most so many events of a key in a time. It remembers a limited number of keys."""

    def __init__(
        self, count: int, seconds: float = 60.0, *, keys_max: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count
        self._seconds = seconds
        self._keys_max = keys_max
        self._clock = clock
        self._lock = threading.Lock()
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, key: str) -> int:
        """Count an event, and return 0; or, if there were too many, the seconds to wait."""
        with self._lock:
            now = self._clock()
            times = self._times.setdefault(key, deque())
            self._times.move_to_end(key)
            while len(self._times) > self._keys_max:
                self._times.popitem(last=False)
            while times and times[0] <= now - self._seconds:
                times.popleft()
            if len(times) >= self._count:
                return int(times[0] + self._seconds - now) + 1
            times.append(now)
            return 0


class Networks:
    """Addresses of proxies that are trusted."""

    def __init__(self, cidrs: Iterable[str] = ()) -> None:
        self._networks = [ipaddress.ip_network(cidr, strict=False) for cidr in cidrs]

    def __contains__(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)


def client_address(scope: Scope, trusted: Networks) -> str:
    """The address of the client, for limits and the log. A trusted proxy reports it in X-Forwarded-For."""
    address = scope["client"][0] if scope.get("client") else "unknown"
    if address in trusted:
        forwarded = Headers(scope=scope).getlist("x-forwarded-for")
        last = forwarded[-1].rpartition(",")[2].strip() if forwarded else ""
        try:
            address = str(ipaddress.ip_address(last))
        except ValueError:
            return str(address)
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return str(address)
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))  # one customer has the whole network
    return str(address)


def safe_path(text: str) -> str:
    """A path below this page to go to after the login; `/` if the text leads elsewhere."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_path and len(text) <= 2000 and text.isprintable() and "\\" not in text else "/"


def static_version(name: str) -> str:
    """A version of a static file, from its content; empty if there is none."""
    try:
        return _version(name, (STATIC / name).stat().st_mtime_ns) if "/" not in name else ""
    except (OSError, ValueError):
        return ""


@lru_cache(maxsize=100)
def _version(name: str, _: int) -> str:
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def refuse(scope: Scope, status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    """A response without a page around it: JSON for the API, else plain text."""
    root = str(scope.get("root_path", ""))
    if str(scope["path"]).removeprefix(root).startswith("/api/"):
        return failure(status, text, headers)
    return PlainTextResponse(f"{text}\n", status, headers)


class Guard:
    """Middleware around the whole page: hosts, origins, headers, and errors that were not caught."""

    def __init__(self, app: ASGIApp, *, rules: HostRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_started = False
        inner, scope = scope, dict(scope)  # the routes change what they are given

        async def send_with_headers(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                self._add_headers(scope, message)
            await send(message)

        response = self._check(scope)
        if response is not None:
            await response(scope, receive, send_with_headers)
            return
        try:
            await self._app(inner, receive, send_with_headers)
        except ClientDisconnect:
            _log.debug("%s %a: the client has disconnected", scope["method"], scope["path"])
        except Exception as error:
            log_failure(scope, error)
            if not is_started:  # else the server closes the connection, because the response is incomplete
                await failed(scope)(scope, receive, send_with_headers)

    def _check(self, scope: Scope) -> Response | None:
        headers, scheme = Headers(scope=scope), str(scope.get("scheme", "http"))
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string", b"")) > ADDRESS_BYTES_MAX:
            return refuse(scope, 414, f"the address has more than {ADDRESS_BYTES_MAX} bytes")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES_MAX:
            return refuse(scope, 431, f"the headers have more than {HEADER_BYTES_MAX} bytes")
        problem = self._rules.problem_of_host(headers, scheme)
        if problem:
            return refuse(scope, 421, problem)
        if scope["method"] not in _SAFE:
            problem = self._rules.problem_of_origin(headers, scheme)
        elif headers.get("sec-fetch-mode", "navigate") != "navigate":
            problem = problem_of_site(headers)  # another site may link to a page, but not load it into one of its own
        if problem:
            _log.warning("refused %s %a: %s", scope["method"], scope["path"], problem)
            return refuse(scope, 403, problem)
        return None

    def _add_headers(self, scope: Scope, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in HEADERS.items():
            headers[name] = value
        host = Host.parse(Headers(scope=scope).get("host", ""))
        if self._rules.scheme == "https" and host is not None and host.name not in LOOPBACK_NAMES:
            headers["Strict-Transport-Security"] = HSTS
        headers["Cache-Control"] = _cache_control(scope, message["status"])


def _cache_control(scope: Scope, status: int) -> str:
    path = str(scope["path"]).removeprefix(str(scope.get("root_path", "")))
    if not path.startswith("/static/") or status not in (200, 206, 304):
        return "no-store"
    version = static_version(path.removeprefix("/static/"))
    return IMMUTABLE if version and scope.get("query_string", b"") == f"v={version}".encode() else "no-cache"


def failed(scope: Scope) -> Response:
    """The response to a request that raised; details are only in the log."""
    return refuse(scope, 500, "something failed on the server; its log has the details")


def log_failure(scope: Scope, error: BaseException, values: Iterable[str] = ()) -> None:
    """Log an error with its traceback. Values of the request, also those in messages, are left out."""
    headers = Headers(scope=scope)
    hidden = {*values, *re.split(r"[&=]", scope.get("query_string", b"").decode("latin-1"))}
    for header in (*headers.getlist("authorization"), *headers.getlist("cookie")):
        hidden |= {header, *re.split(r"[\s;=,.]+", header)}
    lines, at = [], 0
    cause: BaseException | None = error
    while cause is not None and at < _CAUSES_MAX:
        lines += [_message(cause, hidden), *traceback.format_tb(cause.__traceback__)]
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
        at += 1
    _log.error("%s %a failed\n%s", scope["method"], scope["path"], "\n".join(line.rstrip("\n") for line in lines))


def _message(error: BaseException, hidden: Iterable[str]) -> str:
    text = str(error)
    for value in sorted((value for value in hidden if len(value) >= _HIDDEN_CHARS_MIN), key=len, reverse=True):
        text = text.replace(value, "…")
    return f"{type(error).__qualname__}: {text!a}"
