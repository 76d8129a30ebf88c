"""What every target has in common: its options, its secrets and the outcome of an attempt to send.

Secrets are read from the environment or from a file right before they are used. They are never part of a message, of
an outcome or of an error, because these are stored.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal

import msgspec

from holdfast.errors import HoldfastError, InvalidInput
from holdfast.ids import check_id
from holdfast.notifications.events import EVENTS
from holdfast.notifications.message import Message

_SECRET_BYTES_MAX: Final = 64 << 10
DEADLINES: Final = 3
"""How many times `timeout_s` an attempt may take in all."""


class NotDelivered(HoldfastError):
    """A target refused a notification, or could not be reached in any attempt."""


class SecretMissing(InvalidInput):
    """A secret is configured, and this process does not have it."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of an attempt to send a message."""

    state: Literal["delivered", "over", "later", "refused", "elsewhere"]
    """`over`: it is not worth announcing any more. `later`: try again. `refused`: trying again is useless. `elsewhere`:
    this process cannot send to the target, so the attempt is left to another one."""
    reason: str = ""
    after_s: float = 0.0
    """The target asks to wait at least this long."""
    left: tuple[str, ...] = ()
    """The recipients that have not got it yet; empty: all."""


DELIVERED: Final = Attempt(state="delivered")


def later(reason: str, after_s: float = 0.0, left: tuple[str, ...] = ()) -> Attempt:
    return Attempt(state="later", reason=reason, after_s=after_s, left=left)


def refused(reason: str) -> Attempt:
    return Attempt(state="refused", reason=reason)


class Named(msgspec.Struct, frozen=True):
    """Base of targets, so that the name is the first argument of all of them."""

    name: str
    """It is a part of the identity of a notification: under another name it is another target."""


class Target(Named, frozen=True, kw_only=True):
    """A place that is notified. `Webhook`, `Slack` and `Email` are targets."""

    events: tuple[str, ...] | None = None
    """The events it is notified of; None: those of `Notifications`."""
    workflows: tuple[str, ...] | None = None
    """Patterns of the workflows it is notified of; None: those of `Notifications`."""
    include_show: bool = False
    """Whether it gets what a gate shows; the mask applies."""
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        check_id("the name of a target", self.name)
        if len(self.name.encode()) > 200:
            raise InvalidInput(f"the name of target {self.name[:40]!r}… has more than 200 bytes")
        check_events(self.events or ())
        if not 0 < self.timeout_s <= 120:
            raise InvalidInput(
                f"timeout_s of target {self.name!r} must be above 0 and at most 120, not {self.timeout_s!r}"
            )

    def check(self) -> None:
        """Raise InvalidInput if a secret cannot be used here, SecretMissing if this process does not have it."""

    def send(self, message: Message, left: tuple[str, ...] = ()) -> Attempt:
        """Try once to send the message, to the recipients `left` if any are named. Does not raise."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"  # an address may be a secret


def check_events(events: Any) -> tuple[str, ...]:
    """The events as a tuple; InvalidInput lists those there are."""
    found = (events,) if isinstance(events, str) else tuple(events)
    for event in found:
        if event not in EVENTS:
            raise InvalidInput(f"event {event!r} is not one of {', '.join(EVENTS)}")
    return found


def read_secret(target: str, what: str, variable: str, file: str) -> str:
    """A secret from an environment variable or a file; InvalidInput without the secret if it cannot be read."""
    if bool(variable) == bool(file):
        raise InvalidInput(f"target {target!r} needs either {what}_env or {what}_file")
    if variable:
        found = os.environ.get(variable, "")
        if not found:
            raise SecretMissing(f"target {target!r}: the environment variable {variable} ({what}_env) is not set")
        return found
    try:
        with open(file, "rb") as opened:
            text = opened.read(_SECRET_BYTES_MAX).decode("utf-8").strip("\r\n")
    except OSError as error:
        raise SecretMissing(f"target {target!r}: {what}_file {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"target {target!r}: {what}_file {file} is not text") from None
    if not text:
        raise InvalidInput(f"target {target!r}: {what}_file {file} is empty")
    return text


def describe_error(error: Exception) -> str:
    """What went wrong with a connection, without any text of the server or of the address."""
    if isinstance(error, TimeoutError):
        return "it timed out"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, socket.gaierror):
        return "the host was not found"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return "TLS failed"
    if isinstance(error, ConnectionError):
        return "the connection was closed"
    return f"it failed with {type(error).__name__}"


@contextmanager
def deadline(seconds: float, connected: Callable[[], socket.socket | None]) -> Iterator[None]:
    """Cut the connection after this time, however slowly the other side goes on sending."""

    def cut() -> None:
        found = connected()
        if found is not None:
            with suppress(OSError):  # it is closed already
                found.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
