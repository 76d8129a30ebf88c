"""A target that is notified by e-mail. The Message-ID is derived from the notification, so a repeated one is equal."""

from __future__ import annotations

import contextlib
import re
import smtplib
import socket
import ssl
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from html import escape
from typing import Final, Literal

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
from holdfast.notifications.message import Message, line

_ADDRESS: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,255}")
_PORTS: Final = {"starttls": 587, "ssl": 465, "none": 25}
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


class Email(Target, frozen=True, kw_only=True):
    """E-mail through an SMTP server, with STARTTLS by default.

    Example:
        Email("mail", to=("ops@example.org",), sender="holdfast@example.org", host="smtp.example.org",
              username="holdfast", password_env="SMTP_PASSWORD")
    """

    to: tuple[str, ...]
    sender: str
    host: str
    port: int = 0
    """0: the usual one for `security`."""
    security: Literal["starttls", "ssl", "none"] = "starttls"
    username: str = ""
    password_env: str = ""
    password_file: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.to, list | tuple) or not self.to:
            raise InvalidInput(f"to of target {self.name!r} must be a list of addresses, not {self.to!r}")
        for address in (*self.to, self.sender):
            if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
                raise InvalidInput(f"{address!r} of target {self.name!r} is not an e-mail address as ana@example.org")
        if self.security not in _PORTS:
            raise InvalidInput(f"security of target {self.name!r} must be starttls, ssl or none, not {self.security!r}")
        if not self.host or not self.host.isascii() or not self.host.isprintable() or " " in self.host:
            raise InvalidInput(f"host of target {self.name!r} must be the name of an SMTP server, not {self.host!r}")
        if self.username and self.security == "none" and self.host not in _LOCAL:
            raise InvalidInput(f"target {self.name!r} would send a password without TLS; set security to starttls")

    def check(self) -> None:
        self._password()

    def _password(self) -> str:
        return read_secret(self.name, "password", self.password_env, self.password_file) if self.username else ""

    def send(self, message: Message, left: tuple[str, ...] = ()) -> Attempt:
        try:
            password = self._password()
        except InvalidInput as error:
            return later(str(error))
        recipients = tuple(address for address in self.to if not left or address in left) or self.to
        mail = compose(message, self.sender, self.to, include_show=self.include_show)
        failure: Exception
        smtp: smtplib.SMTP | None = None
        try:
            smtp = self._connect()
            with deadline(DEADLINES * self.timeout_s, lambda: None if smtp is None else smtp.sock):
                if self.security == "starttls":
                    smtp.starttls(context=ssl.create_default_context())
                if self.username:
                    smtp.login(self.username, password)
                return judge_recipients(smtp.send_message(mail, self.sender, recipients), len(recipients))
        except (smtplib.SMTPException, OSError, ValueError) as error:
            failure = error
        finally:
            if smtp is not None:
                with contextlib.suppress(smtplib.SMTPException, OSError):  # what it accepted is accepted
                    smtp.quit()
        return judge(failure)

    def _connect(self) -> smtplib.SMTP:
        """Connect. Without a name of this host, smtplib would search the DNS for it."""
        name, port = socket.gethostname(), self.port or _PORTS[self.security]
        if self.security == "ssl":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(self.host, port, name, timeout=self.timeout_s, context=context)
        return smtplib.SMTP(self.host, port, name, timeout=self.timeout_s)


def compose(message: Message, sender: str, to: tuple[str, ...], *, include_show: bool) -> EmailMessage:
    """The mail, as plain text and as simple HTML."""
    mail = EmailMessage(policy=SMTP)
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Subject"] = line(f"[Holdfast] {message.title} {message.label}", 200)
    mail["Date"] = formatdate()
    mail["Message-ID"] = f"<{message.id}@{sender.rpartition('@')[2]}>"
    mail["Holdfast-Event-Id"] = message.id
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text(include_show=include_show))
    mail.add_alternative(_html(message, include_show=include_show), subtype="html")
    return mail


def _html(message: Message, *, include_show: bool) -> str:
    rows = "".join(
        f"<tr><th align=left>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in message.facts()
    )
    shown = message.shown(2_000) if include_show else ""
    parts = [
        f"<h1>{escape(message.title)}</h1>",
        f"<p>{escape(message.prompt).replace(chr(10), '<br>')}</p>" if message.prompt else "",
        f"<table>{rows}</table>",
        f"<pre>{escape(shown)}</pre>" if shown else "",
        f'<p><a href="{escape(message.url)}">Open the page</a></p>',
    ]
    return f"<!doctype html><html><body>{''.join(parts)}</body></html>\n"


Refusals = dict[str, tuple[int, bytes]]
"""The recipients that a server refused, with its responses."""


def judge_recipients(refusals: Refusals, count: int) -> Attempt:
    """The outcome for a mail that some recipients may not have got. The server's text is not repeated."""
    waiting = tuple(address for address, (code, _) in refusals.items() if 400 <= code < 500)
    if waiting:
        return later(f"{len(waiting)} of {count} recipients were refused for now", left=waiting)
    if refusals and len(refusals) == count:
        code = next(iter(refusals.values()))[0]
        return refused(f"it refused all recipients, with code {code}")
    if refusals:
        return Attempt(state="delivered", reason=f"{len(refusals)} of {count} recipients were refused")
    return DELIVERED


def judge(error: Exception) -> Attempt:
    """The outcome that an error means: a code of 500 and more is final, everything else is not."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return judge_recipients(error.recipients, len(error.recipients))
    if isinstance(error, smtplib.SMTPResponseException):
        reason = f"it responded with code {error.smtp_code}"
        return refused(reason) if 500 <= error.smtp_code < 600 else later(reason)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return refused("it does not offer STARTTLS, or a way to log in")
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return later("the connection was closed")
    return later(describe_error(error))
