"""Statements and round trips of a save on PostgreSQL, counted on the wire by a proxy in between.

A round trip is a change of direction: the client sends after the server has answered. A statement is an Execute or a
simple Query; BEGIN and COMMIT count like any other.
"""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit

import holdfast
from bench import data
from bench.systems.databases import new_database


class Counter:
    """Forwards connections to a server and counts what the client sends."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self.reset()
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> None:
        """Count from here."""
        self.statements = 0
        self.trips = 0

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(self._target)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            state = {"answered": True}
            threading.Thread(target=self._up, args=(client, server, state), daemon=True).start()
            threading.Thread(target=self._down, args=(server, client, state), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket, state: dict[str, bool]) -> None:
        left = b""
        started = False
        while part := client.recv(65536):
            with self._lock:
                self.trips += state["answered"]
                state["answered"] = False
            left += part
            while len(left) >= 8 and (size := self._size(left, started)) <= len(left):
                if started and left[:1] in (b"E", b"Q"):
                    with self._lock:
                        self.statements += 1
                # An SSL or GSS request comes before the startup message and has eight bytes.
                started = started or size > 8
                left = left[size:]
            server.sendall(part)
        server.close()

    def _size(self, message: bytes, started: bool) -> int:
        at = 1 if started else 0
        return int.from_bytes(message[at : at + 4], "big") + at

    def _down(self, server: socket.socket, client: socket.socket, state: dict[str, bool]) -> None:
        try:
            while part := server.recv(65536):
                state["answered"] = True
                client.sendall(part)
        except OSError:
            pass
        client.close()


def text() -> str:
    """The sentence for the tables."""
    statements, round_trips = counted()
    return f"A save on PostgreSQL takes {statements:.2f} statements and {round_trips:.2f} round trips."


def counted(saves: int = 200) -> tuple[float, float]:
    """Statements and round trips per save, once the store is warm."""
    url = urlsplit(new_database())
    counter = Counter(url.hostname or "127.0.0.1", url.port or 5432)
    through = url._replace(netloc=f"{url.username}@127.0.0.1:{counter.port}").geturl()
    with holdfast.open(through) as store:
        for number in range(20):
            store.save(data.RUN, data.state(number))
        counter.reset()
        for number in range(saves):
            store.save(data.RUN, data.state(number))
        return counter.statements / saves, counter.trips / saves
