"""Sessions: who is behind a request, by cookie, bearer token, proxy header or the application's own callable."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.web.identity import User

SESSION_S: Final = 12 * 3600
_NOTICE: Final = "holdfast_notice"


class Session(msgspec.Struct, frozen=True):
    """What a session cookie holds, signed."""

    name: str
    key: str
    """Random; the CSRF token of the session is derived from it."""
    expires: int


class Access:
    """Finds the user of a request."""

    def __init__(
        self,
        secret: bytes,
        *,
        find_user: Callable[[str], User | None],
        user: Callable[[Request], User | None] | None = None,
        cookie: str = "holdfast",
        secure: bool = False,
    ) -> None:
        self._secret = secret
        self._find_user = find_user
        self._user = user
        self._secure = secure
        self._cookie = f"__Host-{cookie}" if secure else cookie

    def identify(self, request: Request) -> User | None:
        """The user of a request; None: not logged in."""
        if self._user is not None:
            return self._user(request)
        session = self._session(request)
        return self._find_user(session.name) if session is not None else None

    def csrf(self, request: Request, user: User) -> str:
        """The token that forms of this session carry."""
        session = self._session(request)
        return self._sign(b"csrf", (session.key if session else f"user:{user.name}").encode())

    def begin(self, response: Response, name: str, root: str) -> None:
        """Begin a session."""
        session = Session(name, secrets.token_urlsafe(18), int(time.time()) + SESSION_S)
        body = base64.urlsafe_b64encode(msgspec.json.encode(session)).decode()
        value = f"{body}.{self._sign(b'session', body.encode())}"
        response.set_cookie(
            self._cookie,
            value,
            max_age=SESSION_S,
            path="/" if self._secure else root or "/",
            secure=self._secure,
            httponly=True,
            samesite="lax",
        )

    def end(self, response: Response, root: str) -> None:
        """End the session of this browser."""
        response.delete_cookie(self._cookie, path="/" if self._secure else root or "/")

    def _session(self, request: Request) -> Session | None:
        body, _, signature = request.cookies.get(self._cookie, "").partition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(b"session", body.encode()).encode()):
            return None
        try:
            found = msgspec.json.decode(base64.urlsafe_b64decode(body), type=Session)
        except (ValueError, msgspec.DecodeError):
            return None
        return found if found.expires > time.time() else None

    def _sign(self, purpose: bytes, text: bytes) -> str:
        return hmac.new(self._secret, purpose + b"\0" + text, hashlib.sha256).hexdigest()

    # --- a notice that the next page shows once -----------------------------------------------------------------------

    def set_notice(self, request: Request, response: Response, text: str) -> None:
        """Let the next page show a sentence."""
        root = str(request.scope.get("root_path", "")) or "/"
        response.set_cookie(_NOTICE, quote(text[:500]), max_age=30, path=root, httponly=True, samesite="lax")

    def notice(self, request: Request) -> str:
        """The sentence to show."""
        return unquote(request.cookies.get(_NOTICE, ""))[:500]

    def clear_notice(self, request: Request, response: Response) -> None:
        """Do not show the sentence again."""
        root = str(request.scope.get("root_path", "")) or "/"
        response.delete_cookie(_NOTICE, path=root)
