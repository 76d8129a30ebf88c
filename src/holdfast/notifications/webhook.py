"""Targets that are notified by HTTP: a signed webhook, and Slack or what accepts its payload.

Only the configuration decides where a request goes: no stored value is part of an address, and redirects are not
followed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast import __version__
from holdfast.errors import InvalidInput
from holdfast.notifications.delivery import (
    DEADLINES,
    DELIVERED,
    Attempt,
    Target,
    deadline,
    describe_error,
    later,
    read_secret,
    refused,
)
from holdfast.notifications.message import Message, line, plain

RETRY_AFTER_S_MAX: Final = 6 * 3600.0
"""A target that asks for a longer delay is asked again after this time."""
SECRET_CHARS_MIN: Final = 16
_REPEATABLE: Final = frozenset({408, 409, 425, 429})
_BUTTON_URL_CHARS_MAX: Final = 3_000
"""Slack refuses longer links on buttons."""


class Addressed(Target, frozen=True):
    """Base of targets with an address, so that it is their second argument."""

    url: str = ""


class HttpTarget(Addressed, frozen=True, kw_only=True):
    """A target with an http address, which may itself be a secret."""

    url_env: str = ""
    url_file: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.url) + bool(self.url_env) + bool(self.url_file) != 1:
            raise InvalidInput(f"target {self.name!r} needs one of url, url_env and url_file")
        if self.url:
            self.check_url(self.url)

    def address(self) -> str:
        """The address, read now."""
        return self.url or self.check_url(read_secret(self.name, "url", self.url_env, self.url_file))

    def check_url(self, url: str) -> str:
        """The address, if it is one; an error does not repeat it."""
        try:
            parts = urlsplit(url)
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            is_usable = is_usable and url.isascii() and url.isprintable() and " " not in url
        except ValueError:
            is_usable = False
        if not is_usable:
            raise InvalidInput(f"the url of target {self.name!r} is not an http or https address")
        if "@" in parts.netloc:
            raise InvalidInput(f"the url of target {self.name!r} contains a name or a password; leave them out")
        return url

    def check(self) -> None:
        self.address()

    def post(self, payload: dict[str, Any], headers: Mapping[str, str], secret: str = "") -> Attempt:
        """Post a payload once and judge the response; with a secret it is signed."""
        try:
            url = self.address()
        except InvalidInput as error:
            return later(str(error))
        body = json.dumps(payload).encode()
        signed = {SIGNATURE: sign(secret, body)} if secret else {}
        return post(url, body, {"Content-Type": "application/json", **headers, **signed}, self.timeout_s)


class Webhook(HttpTarget, frozen=True, kw_only=True):
    """A webhook: each message is posted as JSON, signed with a secret that both sides know.

    Example:
        Webhook("ops", "https://example.org/hook", secret_env="HOOK_SECRET")
    """

    secret_env: str = ""
    secret_file: str = ""

    def check(self) -> None:
        super().check()
        self.secret()

    def secret(self) -> str:
        """The secret, read now."""
        found = read_secret(self.name, "secret", self.secret_env, self.secret_file)
        if len(found) < SECRET_CHARS_MIN:
            raise InvalidInput(f"the secret of target {self.name!r} has less than {SECRET_CHARS_MIN} characters")
        return found

    def send(self, message: Message, left: tuple[str, ...] = ()) -> Attempt:  # noqa: ARG002 - it has no recipients
        try:
            secret = self.secret()
        except InvalidInput as error:
            return later(str(error))
        headers = {"Holdfast-Event-Id": message.id, "Idempotency-Key": message.id}
        return self.post(message.payload(include_show=self.include_show), headers, secret)


class Slack(HttpTarget, frozen=True, kw_only=True):
    """An incoming webhook of Slack, or of a program that accepts its payload. The address is the secret.

    Example:
        Slack("chat", url_env="SLACK_URL")
    """

    def send(self, message: Message, left: tuple[str, ...] = ()) -> Attempt:  # noqa: ARG002 - it has no recipients
        headers = {"Holdfast-Event-Id": message.id, "Idempotency-Key": message.id}
        return self.post(slack_payload(message, include_show=self.include_show), headers)


# --- payloads --------------------------------------------------------------------------------------------------------

SIGNATURE: Final = "Holdfast-Signature"


def sign(secret: str, body: bytes, at: int | None = None) -> str:
    """The value of the signature header: the time, and an HMAC-SHA256 of the time and the body."""
    at = int(time.time()) if at is None else at
    return f"t={at},v1={hmac.new(secret.encode(), b'%d.' % at + body, hashlib.sha256).hexdigest()}"


def verify_signature(
    secret: str, header: str, body: bytes, *, tolerance_s: float = 300.0, now: float | None = None
) -> bool:
    """Whether a webhook request was signed with this secret, at most `tolerance_s` ago.

    Example:
        verify_signature("secret", request.headers["Holdfast-Signature"], request.body)
    """
    parts = dict(part.split("=", 1) for part in header.split(",") if "=" in part)
    text = parts.get("t", "")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        return False
    if abs((time.time() if now is None else now) - int(text)) > tolerance_s:
        return False
    expected = sign(secret, body, int(text)).partition("v1=")[2]
    return hmac.compare_digest(expected.encode(), parts.get("v1", "").encode())


def slack_payload(message: Message, *, include_show: bool) -> dict[str, Any]:
    """Blocks of plain text, which cannot mention anyone, and a button that is a link."""
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain_text(message.title)}]
    texts = [message.prompt, "\n".join(f"{name}: {value}" for name, value in message.facts())]
    texts.append(message.shown(2_000) if include_show else "")
    blocks += [{"type": "section", "text": _plain_text(plain(text, 3_000))} for text in texts if text]
    if len(message.url) <= _BUTTON_URL_CHARS_MAX:
        button = {"type": "button", "text": _plain_text("Open"), "url": message.url}
        blocks.append({"type": "actions", "elements": [button]})
    return {"text": _escape(f"{message.title}: {line(message.prompt, 200)}".removesuffix(": ")), "blocks": blocks}


def _plain_text(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _escape(text: str) -> str:
    """Text that Slack does not read as a mention or a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# --- requests --------------------------------------------------------------------------------------------------------


def post(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> Attempt:
    """Send one POST request and judge its response."""
    parts = urlsplit(url)
    connection: HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = HTTPSConnection(parts.hostname or "", parts.port or 443, timeout=timeout_s, context=context)
    else:
        connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout_s)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    failure: Exception
    try:
        with deadline(DEADLINES * timeout_s, lambda: connection.sock):
            connection.request("POST", path, body, {"User-Agent": f"holdfast/{__version__}", **headers})
            response = connection.getresponse()
            return judge(response.status, response.getheader("Retry-After"))
    except (OSError, HTTPException, ValueError) as error:  # ValueError: a host that cannot be encoded
        failure = error
    finally:
        connection.close()
    return later(describe_error(failure))


def judge(status: int, retry_after: str | None = None) -> Attempt:
    """The outcome that a status means."""
    if 200 <= status < 300:
        return DELIVERED
    reason = f"it responded with status {status}"
    if 300 <= status < 400:
        return refused(f"{reason}, and redirects are not followed")
    if 400 <= status < 500 and status not in _REPEATABLE:
        return refused(reason)
    return later(reason, retry_after_s(retry_after))


def retry_after_s(text: str | None) -> float:
    """The delay that a header Retry-After asks for, within bounds: seconds, or a date."""
    if not text:
        return 0.0
    text = text.strip()
    try:
        if text.isascii() and text.isdigit():
            seconds = float(text[:12])
        else:
            moment = parsedate_to_datetime(text)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
            seconds = moment.timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(max(0.0, seconds), RETRY_AFTER_S_MAX)
