"""`holdfast web` as a process of its own, and sockets to it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import httpx

import holdfast
from tests.cli.processes import environment
from tests.harness import until


class WebProcess:
    """A server that was started as a user starts it. `with` ends it."""

    def __init__(self, folder: Path, *options: str, port: int = 0, **env: str) -> None:
        self.folder = folder
        if not (folder / "holdfast.db").exists():
            with holdfast.open(f"sqlite:{folder / 'holdfast.db'}") as store:
                store.save("run-1", {"a": 1})
        self._clients: list[httpx.Client] = []
        self.lines: list[str] = []
        self.errors: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "web", "--port", str(port), *options],
            cwd=folder,
            env=environment(XDG_STATE_HOME=str(folder / "state"), **env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()
        until(lambda: bool(self.urls) or self.process.poll() is not None, "the server starts")
        if not self.urls:
            self.__exit__(None, None, None)
            raise AssertionError("".join(self.errors))
        parts = urlsplit(self.urls[0])
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.host, self.port = parts.hostname or "", parts.port or 0

    def _read(self, stream: object, lines: list[str]) -> None:
        while line := stream.readline():  # type: ignore[attr-defined]
            lines.append(line)

    @property
    def urls(self) -> list[str]:
        """The addresses that were printed."""
        text = "".join(self.lines)
        if text.startswith("{"):
            return [json.loads(text)["url"]] if text.rstrip().endswith("}") else []
        return [url for line in self.lines if line.endswith("\n") for url in re.findall(r"https?://\S+", line)]

    def client(self, **more: object) -> httpx.Client:
        """A browser."""
        client = httpx.Client(base_url=self.origin, timeout=240, **more)  # type: ignore[arg-type]
        self._clients.append(client)
        return client

    def log_in(self) -> httpx.Client:
        """A browser that used the newest printed address."""
        client = self.client()
        token = self.urls[-1].partition("token=")[2]
        before = len(self.urls)
        assert client.post("/login", data={"token": token}).status_code == 303
        until(lambda: len(self.urls) > before, "the next address is printed")
        return client

    def connect(self) -> socket.socket:
        """A connection to the server."""
        return socket.create_connection((self.host, self.port), timeout=240)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; the exit code."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        code = self.process.wait(240)
        for reader in self._readers:
            reader.join(60)
        for client in self._clients:
            client.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        try:
            self.stop()
        finally:
            self.process.kill()
            for stream in (self.process.stdout, self.process.stderr):
                if stream is not None:
                    stream.close()


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server closes the connection; what it still sent is read."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        return True
    return True


def trusting(certificate: Path) -> ssl.SSLContext:
    """A client that trusts this certificate only."""
    return ssl.create_default_context(cafile=str(certificate))
