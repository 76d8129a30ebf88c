"""Sessions: the user behind a request, by cookie, bearer token, proxy header or the application's own callable."""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import logging
import secrets
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import HoldfastError, InvalidInput
from holdfast.ids import check_id
from holdfast.web.identity import User, clean_name
from holdfast.web.security import Networks, RateLimit, client_address
from holdfast.web.state_directory import EndedSessions
from holdfast.web.users import Entry, Users

SESSION_S: Final = 12 * 3600
"""A session ends when it was not used for this long."""
SESSION_S_MAX: Final = 7 * 24 * 3600
"""A session ends after this time, used or not."""
WRONG_TOKENS_PER_MINUTE: Final = 10
_LOCAL: Final = "local"
_NOTICE_CHARS_MAX: Final = 500
_COOKIE_CHARS_MAX: Final = 4096

UserOf = Callable[[Request], "User | Awaitable[User | None] | None"]
"""Finds the user of a request, for a page that is mounted in an application."""

_log = logging.getLogger("holdfast.web")


class Session(msgspec.Struct, frozen=True):
    """What a session cookie holds, signed."""

    name: str
    key: str
    """Random; the CSRF token of the session is derived from it."""
    proof: str
    """Derived from the token of the login: a session ends when that token is replaced."""
    begun: int
    expires: int


class Identity(NamedTuple):
    """The user of a request, and how it was identified."""

    user: User
    session: Session | None = None
    is_bearer: bool = False


class TooManyTokens(InvalidInput):
    """Too many wrong tokens came from one address."""

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"too many wrong tokens; wait {wait_s} s")
        self.wait_s = wait_s


class LocalLogin:
    """The login of the person at this machine: a token that is printed, and valid once."""

    def __init__(self, user: User, on_used: Callable[[str], None] = lambda _: None) -> None:
        self.user = user
        self.on_used = on_used
        """Called with the next token when one was used."""
        self._lock = threading.Lock()
        self.token = secrets.token_urlsafe(32)

    def is_current(self, token: str) -> bool:
        """Whether this is the token; it stays valid."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def take(self, token: str) -> bool:
        """Use the token up. False if it is wrong or was used."""
        with self._lock:
            if not self.is_current(token):
                return False
            self.token = secrets.token_urlsafe(32)
        self.on_used(self.token)
        return True


class Proxy(NamedTuple):
    """A proxy that identifies the users and names them in a header."""

    header: str
    trusted: Networks
    groups_header: str = ""
    role: str = "viewer"
    """The role of users that a valid users file does not have, with all workflows; the empty role refuses them."""


class Access:
    """Finds the user of a request."""

    def __init__(
        self,
        secret: bytes,
        *,
        users: Users | None = None,
        local: LocalLogin | None = None,
        proxy: Proxy | None = None,
        user: UserOf | None = None,
        cookie: str = "holdfast",
        secure: bool = False,
        ended: EndedSessions | None = None,
        trusted: Networks | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.users = users
        self.local = local
        self._secret = secret
        self._proxy = proxy
        self._user = user
        self._secure = secure
        self._cookie = f"__Host-{cookie}" if secure else cookie
        self._notice = f"{self._cookie}_notice"
        self._ended = ended or EndedSessions()
        self._trusted = trusted or (proxy.trusted if proxy else Networks())
        self._clock = clock
        self._wrong = RateLimit(WRONG_TOKENS_PER_MINUTE)

    @property
    def has_login(self) -> bool:
        """Whether users log in on this page, and not in front of it or in the application around it."""
        return self._user is None and self._proxy is None

    async def identify(self, request: Request, *, api: bool = False) -> Identity | None:
        """The user of a request; None: not logged in. TooManyTokens if an address guesses tokens."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        is_bearer = api and scheme.lower() == "bearer"
        if is_bearer and (self._user is None or (self.users is not None and token.startswith("hf_"))):
            entry = await run_in_threadpool(self._by_token, request, token.strip())
            return Identity(entry.user, is_bearer=True) if entry is not None else None
        if self._user is not None:
            found = await run_in_threadpool(self._user, request)
            if inspect.isawaitable(found):
                found = await found
            if found is not None and not isinstance(found, User):
                raise TypeError(f"user= must return a holdfast.web.User or None, not {type(found).__name__}")
            return Identity(found, is_bearer=is_bearer) if found is not None else None
        find = self._by_proxy if self._proxy is not None else self._by_session
        return await run_in_threadpool(find, request)

    def csrf(self, session: Session | None, user: User) -> str:
        """The token that forms carry: bound to the session, or to the user if the session is not ours."""
        return self._sign(b"csrf", (f"session:{session.key}" if session else f"user:{user.name}").encode())

    def address(self, request: Request) -> str:
        """The address of the client."""
        return client_address(request.scope, self._trusted)

    # --- bearer tokens and proxies -----------------------------------------------------------------------------------

    def _by_token(self, request: Request, token: str) -> Entry | None:
        entry = self.users.by_token(token) if self.users is not None else None
        if entry is None:
            self._count_wrong(request)
        return entry

    def _count_wrong(self, request: Request) -> None:
        address = self.address(request)
        wait_s = self._wrong.wait_s(address)
        if wait_s:
            raise TooManyTokens(wait_s)
        _log.warning("a wrong token from %s", address)  # not for every guess: that would flood the log

    def _by_proxy(self, request: Request) -> Identity | None:
        assert self._proxy is not None, "called only with a proxy"
        client = request.client
        if client is None or client.host not in self._proxy.trusted:
            return None
        names = request.headers.getlist(self._proxy.header)
        if len(names) != 1 or not names[0].strip():
            return None
        given = request.headers.getlist(self._proxy.groups_header) if self._proxy.groups_header else []
        if len(given) > 1:
            return None
        try:
            name = check_id("user", _header_text(names[0]))
            if self.users is not None and self.users.has_name(name):
                entry = self.users.by_name(name)  # None: it has expired
                return Identity(entry.user) if entry is not None else None
            if not self._proxy.role:
                return None
            groups = tuple(part for text in given for part in map(clean_name, _header_text(text).split(",")) if part)
            return Identity(User(name=name, role=self._proxy.role, groups=groups))
        except (HoldfastError, UnicodeError):
            return None

    # --- sessions ----------------------------------------------------------------------------------------------------

    def log_in(self, request: Request, token: str) -> tuple[User, str] | None:
        """The user of a token that was typed in, with the proof for `begin`; None if it is wrong."""
        if self.local is not None and self.local.take(token):
            return self.local.user, _LOCAL
        entry = self._by_token(request, token)
        return None if entry is None else (entry.user, self._proof(entry))

    def begin(self, response: Response, user: User, proof: str) -> None:
        """Begin a session. Its key is new, so a session that another person prepared is never continued."""
        now = int(self._clock())
        self._set_cookie(response, Session(user.name, secrets.token_urlsafe(18), proof, now, now + SESSION_S))

    def renew(self, response: Response, session: Session) -> None:
        """Prolong a session of which half has passed."""
        now = int(self._clock())
        expires = min(now + SESSION_S, session.begun + SESSION_S_MAX)
        if session.expires - now < SESSION_S // 2 and expires > session.expires:
            self._set_cookie(response, msgspec.structs.replace(session, expires=expires))

    def end(self, response: Response, session: Session | None) -> None:
        """End a session. Copies of its cookie are refused from now on."""
        if session is not None:
            self._ended.add(session.key, session.begun + SESSION_S_MAX)
        response.delete_cookie(self._cookie, path="/", secure=self._secure, httponly=True, samesite="lax")

    def _set_cookie(self, response: Response, session: Session) -> None:
        body = base64.urlsafe_b64encode(msgspec.json.encode(session)).decode().rstrip("=")
        response.set_cookie(
            self._cookie,
            f"{body}.{self._sign(self._purpose, body.encode())}",
            max_age=max(0, session.expires - int(self._clock())),
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="lax",
        )

    @property
    def _purpose(self) -> bytes:
        return f"session {self._cookie}".encode()  # a cookie of another port is not valid here

    def _by_session(self, request: Request) -> Identity | None:
        session = self._session(request)
        if session is None:
            return None
        if session.proof == _LOCAL:
            is_local = self.local is not None and self.local.user.name == session.name
            return Identity(self.local.user, session) if self.local is not None and is_local else None
        entry = self.users.by_name(session.name) if self.users is not None else None
        if entry is None or not hmac.compare_digest(session.proof, self._proof(entry)):
            return None
        return Identity(entry.user, session)

    def _session(self, request: Request) -> Session | None:
        body, _, signature = request.cookies.get(self._cookie, "")[:_COOKIE_CHARS_MAX].partition(".")
        if not self._is_signed(self._purpose, body, signature):
            return None
        try:
            found = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=Session)
        except (ValueError, msgspec.DecodeError):
            return None
        now = self._clock()
        is_over = found.expires <= now or found.begun + SESSION_S_MAX <= now or found.key in self._ended
        return None if is_over else found

    def _proof(self, entry: Entry) -> str:
        return self._sign(b"proof", entry.token_hash.encode())[:32]

    def _sign(self, purpose: bytes, text: bytes) -> str:
        return hmac.new(self._secret, purpose + b"\0" + text, hashlib.sha256).hexdigest()

    def _is_signed(self, purpose: bytes, text: str, signature: str) -> bool:
        wanted = self._sign(purpose, text.encode("utf-8", "surrogatepass"))
        return hmac.compare_digest(signature.encode("utf-8", "surrogatepass"), wanted.encode())

    # --- a notice that the next page shows once -----------------------------------------------------------------------

    def set_notice(self, request: Request, response: Response, text: str) -> None:
        """Let the next page show a sentence."""
        body = base64.urlsafe_b64encode(text[:_NOTICE_CHARS_MAX].encode("utf-8", "replace")).decode().rstrip("=")
        response.set_cookie(
            self._notice,
            f"{body}.{self._sign(b'notice', body.encode())}",
            max_age=30,
            path=self._notice_path(request),
            secure=self._secure or request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )

    def notice(self, request: Request) -> str:
        """The sentence to show. Only sentences of this page are shown."""
        body, _, signature = request.cookies.get(self._notice, "").partition(".")
        if not self._is_signed(b"notice", body, signature):
            return ""
        return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "replace")

    def clear_notice(self, request: Request, response: Response) -> None:
        """Do not show the sentence again."""
        response.delete_cookie(
            self._notice, path=self._notice_path(request), secure=self._secure, httponly=True, samesite="lax"
        )

    def _notice_path(self, request: Request) -> str:
        return "/" if self._secure else str(request.scope.get("root_path", "")) or "/"


def _header_text(value: str) -> str:
    """The name, or the names, in a header, which servers decode as Latin-1. Raises UnicodeError."""
    return clean_name(value.encode("latin-1").decode("utf-8"))
