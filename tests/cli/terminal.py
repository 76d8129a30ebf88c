"""A user at a terminal: a process in a pseudo terminal of a certain size, what it shows, keys, its exit code."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.processes import TIMEOUT_S, environment
from tests.fork_server import COMMAND, start

CTRL_C = "\x03"
CTRL_D = "\x04"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


class Terminal:
    """`holdfast` in a terminal. Use it as a context manager; `expect` and `send` take turns, `wait` ends it."""

    def __init__(self, *arguments: str, cwd: Path, columns: int = 80, lines: int = 24, **env: str) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._ours = ours
        self._process = start(
            COMMAND,
            *arguments,
            cwd=cwd,
            env=environment(**env),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            owns_terminal=True,
        )
        os.close(theirs)
        self.raw = ""
        """All it has shown, with colours."""
        self._seen = 0

    @property
    def text(self) -> str:
        """All it has shown, without colours and cursor movements."""
        return _CONTROL.sub("", self.raw).replace("\r\n", "\n")

    def expect(self, words: str, timeout_s: float = TIMEOUT_S) -> None:
        """Read until `words` are shown, behind what was expected before."""
        until = time.monotonic() + timeout_s
        while (at := self.text.find(words, self._seen)) < 0:
            if time.monotonic() > until or not self._read(until):
                raise AssertionError(f"{words!r} was not shown; this was:\n{self.text[self._seen :]}")
        self._seen = at + len(words)

    def send(self, keys: str) -> None:
        """Press keys; "\\n" is Enter."""
        os.write(self._ours, keys.encode())

    def wait(self, timeout_s: float = TIMEOUT_S) -> int:
        """Read to the end; gives the exit code."""
        until = time.monotonic() + timeout_s
        while self._read(until):
            pass
        return self._process.wait(max(0.1, until - time.monotonic()))

    def _read(self, until: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(0.0, until - time.monotonic()))
        try:
            data = os.read(self._ours, 65_536) if ready else b""
        except OSError:  # the other end is closed
            data = b""
        self.raw += data.decode("utf-8", "replace")
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._ours)
