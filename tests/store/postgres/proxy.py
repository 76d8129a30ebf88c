"""A small TCP proxy between a store and its server, which can cut, freeze, and swallow answers.

It runs in threads of the test. `swallow(text)` lets the next message that holds `text` through to the server, waits for
the answer, and cuts the connection instead of passing it on: the client never hears what became of it. `block(text)`
cuts before the message reaches the server.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class Proxy:
    """Listens on a port of the loopback and passes on to another."""

    def __init__(self, target: int, listener: socket.socket | None = None) -> None:
        self._target = target
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._swallowed = self._blocked = b""
        self._refusals = 0
        self._go_on = threading.Event()
        self._go_on.set()
        self._closed = False
        self.count = 0
        """How many connections were made."""
        self.turns = 0
        """How often a client spoke after it had been answered: round trips."""
        self.cuts = 0
        """How many answers were swallowed and messages blocked."""
        self._thread(self._accept)

    # --- what tests say ----------------------------------------------------------------------------------------------

    def swallow(self, text: bytes) -> None:
        self._swallowed = text

    def block(self, text: bytes) -> None:
        self._blocked = text

    def refuse(self, times: int) -> None:
        """Hang up on the next so many new connections."""
        self._refusals = times

    def freeze(self) -> None:
        """Pass on nothing any more, and leave every connection open."""
        self._go_on.clear()

    def thaw(self) -> None:
        self._go_on.set()

    def cut(self) -> None:
        """Cut all connections."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _end(*pair)

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self._go_on.set()
        self.cut()

    # --- threads -----------------------------------------------------------------------------------------------------

    def _thread(self, work: object, *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closed:
                client, _ = self._listener.accept()
                self.count += 1
                if self._refusals > 0:
                    self._refusals -= 1
                    client.close()
                    continue
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    client.close()
                    continue
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._pairs.append((client, server))
                swallowing, answered = threading.Event(), threading.Event()
                answered.set()
                self._thread(self._to_server, client, server, swallowing, answered)
                self._thread(self._to_client, client, server, swallowing, answered)

    def _to_server(
        self, client: socket.socket, server: socket.socket, swallowing: threading.Event, answered: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                self._go_on.wait()
                if answered.is_set():
                    answered.clear()
                    self.turns += 1
                if self._blocked and self._blocked in data:
                    self._blocked, self.cuts = b"", self.cuts + 1
                    break
                if self._swallowed and self._swallowed in data:
                    self._swallowed = b""
                    swallowing.set()
                server.sendall(data)
        _end(client, server)

    def _to_client(
        self, client: socket.socket, server: socket.socket, swallowing: threading.Event, answered: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                self._go_on.wait()
                if swallowing.is_set():
                    self.cuts += 1
                    time.sleep(0.05)
                    break
                answered.set()
                client.sendall(data)
        _end(client, server)


def _end(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
