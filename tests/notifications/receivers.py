"""Servers that tests notify: one of HTTP and one of SMTP, each of which behaves as the test plans."""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.notifications import Attempt, Message, Target


class Request(NamedTuple):
    """A request that arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


Action = int | tuple[int, dict[str, str]] | str
"""A status, a status with headers, or `drop`, `drip`, `garbage`."""


class Receiver:
    """A web server. It answers with the next planned action, and when none is left with 204."""

    def __init__(self, *plan: Action, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.plan = list(plan)
        self.before: Callable[[], object] = lambda: None
        """Called before each request is answered."""
        self.ended = threading.Event()
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.before()
                with outer._lock:
                    outer.requests.append(Request(self.path, dict(self.headers), body))
                    action = outer.plan.pop(0) if outer.plan else 204
                outer.act(self, action)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.url = f"{'http' if context is None else 'https'}://127.0.0.1:{self.port}/hook"

    def act(self, handler: BaseHTTPRequestHandler, action: Action) -> None:
        if action == "drop":
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        if action == "garbage":
            handler.wfile.write(b"no such protocol\r\n\r\n")
            return
        if action == "drip":
            with suppress(OSError):
                handler.wfile.write(b"HTTP/1.1 ")
                while not self.ended.wait(0.02):
                    handler.wfile.write(b"x")
            return
        assert not isinstance(action, str)
        status, headers = (action, {}) if isinstance(action, int) else action
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()

    def ids(self, event: str | None = None) -> list[str]:
        """The ids of the messages that arrived."""
        return [one.data["id"] for one in list(self.requests) if event in (None, one.data["event"])]

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()


class Mail(NamedTuple):
    """A mail that was accepted."""

    sender: str
    recipients: list[str]
    text: str
    user: str | None
    is_encrypted: bool


class MailServer:
    """An SMTP server. `replies` has what it replies to commands that begin so, once each; "drop" closes."""

    def __init__(self, context: ssl.SSLContext | None = None, *, extensions: tuple[str, ...] = ("AUTH PLAIN",)) -> None:
        self.mails: list[Mail] = []
        self.commands: list[str] = []
        self.replies: list[tuple[str, str]] = []
        self.context = context
        self.extensions = extensions
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    outer.talk(self)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    def talk(self, handler: socketserver.StreamRequestHandler) -> None:
        with handler.request as plain:
            self._talk(plain)

    def _talk(self, connection: socket.socket, *, is_encrypted: bool = False) -> None:
        user: str | None = None
        reader = connection.makefile("rb")
        sender = ""
        recipients: list[str] = []

        def say(text: str) -> None:
            connection.sendall(f"{text}\r\n".encode())

        if not is_encrypted or self.context is None:
            say("220 here")
        while line := reader.readline().decode().strip():
            self.commands.append(line)
            planned = next((one for one in self.replies if line.upper().startswith(one[0].upper())), None)
            if planned is not None:
                self.replies.remove(planned)
                if planned[1] == "drop":
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                say(planned[1])
                continue
            verb = line.split()[0].upper()
            if verb == "EHLO":
                offered = [*self.extensions, *(["STARTTLS"] if self.context is not None and not is_encrypted else [])]
                for text in ["here", *offered][:-1]:
                    say(f"250-{text}")
                say(f"250 {['here', *offered][-1]}")
            elif verb == "STARTTLS":
                assert self.context is not None
                say("220 go")
                with self.context.wrap_socket(connection, server_side=True) as wrapped:
                    self._talk(wrapped, is_encrypted=True)
                return
            elif verb == "AUTH":
                user = line
                say("235 welcome")
            elif verb == "MAIL":
                sender, recipients = line, []
                say("250 ok")
            elif verb == "RCPT":
                recipients.append(line.partition("<")[2].partition(">")[0])
                say("250 ok")
            elif verb == "DATA":
                say("354 go")
                lines = []
                while (part := reader.readline()) != b".\r\n":
                    lines.append(part)
                text = b"".join(lines).decode()
                self.mails.append(Mail(sender, recipients, text, user, is_encrypted))
                say("250 accepted")
            else:
                say("221 bye" if verb == "QUIT" else "250 ok")
                if verb == "QUIT":
                    return

    def __enter__(self) -> MailServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Recorder(Target, frozen=True, kw_only=True):
    """A target that notes what it is sent, and answers as planned."""

    sent: list[Message]
    plan: list[Attempt]

    def send(self, message: Message, left: tuple[str, ...] = ()) -> Attempt:
        self.sent.append(message)
        return self.plan.pop(0) if self.plan else Attempt(state="delivered")


def recorder(name: str = "ops", *plan: Attempt, **options: Any) -> Recorder:
    return Recorder(name, sent=[], plan=list(plan), **options)


@contextmanager
def tls(folder: Path) -> Iterator[tuple[ssl.SSLContext, str]]:
    """A server's context, and the path of its certificate, which nothing trusts by itself."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    yield context, str(certificate)


# For localhost and 127.0.0.1, and for these tests only.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBmjCCAUGgAwIBAgIUG9SYywZgH/3yB8SdzQv8c9tNUfQwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTExODA1NDIzNVoYDzIxMjYxMDI1
MDU0MjM1WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAATehWjflisHY+TFZoNdg8uFoH8u19CQhkA6XgkpgqNw0J7w58MQFDFM
lXawAJ+NBelkbWH4oZQTKKHXxXJ5MoW0o28wbTAdBgNVHQ4EFgQU1dIcozb7UchD
sfMK6fJAMUGhl5AwHwYDVR0jBBgwFoAU1dIcozb7UchDsfMK6fJAMUGhl5AwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDRwAwRAIgOqzZAhqqfGqdjYBPdmWe4g1DyFkCLKvm2N61L+uevbMCIGAZ
vnDDWRkZg//RRNALl2D2MnJfEKIUKiRoO440Z/xn
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgHVx+eMqcwJRI4pxH
4yOEd+AsFJ18suNwNhuKVa2EAAqhRANCAATehWjflisHY+TFZoNdg8uFoH8u19CQ
hkA6XgkpgqNw0J7w58MQFDFMlXawAJ+NBelkbWH4oZQTKKHXxXJ5MoW0
-----END PRIVATE KEY-----
"""
