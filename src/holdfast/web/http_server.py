"""Serves the page by uvicorn: binds the port, cuts slow clients, ends cleanly on a signal."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import resource
import signal
import socket
import threading
from collections.abc import Callable, Generator
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.errors import HoldfastError, InvalidInput
from holdfast.web.security import ADDRESS_BYTES_MAX, HEADER_BYTES_MAX

REQUEST_S: Final = 20.0
"""The time in which the headers of a request must arrive, and then its body."""
_READ_FACTOR: Final = 3
"""A client must read what fills the buffers of its connection in this many times that."""
SHUTDOWN_S: Final = 5
CONNECTIONS_MAX: Final = 2_000
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class PortInUse(HoldfastError):
    """Another process listens on the port."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host, whatever the name resolves to."""
    return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in _resolve(host, 0))


def _resolve(host: str, port: int) -> list[tuple[Any, Any, int, str, tuple[Any, ...]]]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InvalidInput(f"--host {host!r} cannot be resolved: {error}") from error


def bind(host: str, port: int) -> socket.socket:
    """Listen on a port; 0 picks a free one. PortInUse if it is taken."""
    family, kind, number, _, address = _resolve(host, port)[0]
    listener = socket.socket(family, kind, number)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"port {port} of {host} is in use, perhaps by another `holdfast web`; "
                f"choose another with --port {port % 65535 + 1}, or let --port 0 pick a free one"
            ) from error
        raise InvalidInput(f"cannot listen on port {port} of {host}: {error.strerror}") from error
    return listener


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with deadlines: clients that send or read too slowly are disconnected."""

    request_s = REQUEST_S
    _deadline: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _awaited: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._reading):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Set a deadline for what is awaited from the client: the headers of a request, or its body."""
        state = self.conn.their_state
        awaited = (self.cycle, state) if state in (h11.IDLE, h11.SEND_BODY) else None
        if awaited == self._awaited:
            return
        self._awaited = awaited
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(self.request_s, self._cut) if awaited is not None else None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self.loop.call_later(_READ_FACTOR * self.request_s, self._cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _cut(self) -> None:
        self.transport.abort()


class PageServer(uvicorn.Server):
    """A server that reports when it has started, ends open streams first, and then returns normally."""

    def __init__(self, config: uvicorn.Config, *, on_start: Callable[[], None], on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Stop on a signal. Unlike uvicorn's own, it does not raise the signal again at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(
    application: ASGIApp,
    listener: socket.socket,
    *,
    on_start: Callable[[], None],
    on_stop: Callable[[], None],
    certificate: str | None = None,
    key: str | None = None,
    request_s: float = REQUEST_S,
) -> None:
    """Serve until SIGINT or SIGTERM."""
    protocol = type("Protocol", (TimedProtocol,), {"request_s": request_s})
    config = uvicorn.Config(
        application,
        http=protocol,
        ws="none",
        loop="asyncio",
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=min(5, int(request_s) or 1),
        timeout_graceful_shutdown=SHUTDOWN_S,
        h11_max_incomplete_event_size=ADDRESS_BYTES_MAX + HEADER_BYTES_MAX,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    _allow_connections()
    PageServer(config, on_start=on_start, on_stop=on_stop).run(sockets=[listener])


def _allow_connections() -> None:
    """Raise the limit of open files as far as the connections need it and the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + 200
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, raised), hard))
