"""`holdfast web` in a process of its own, with a state directory of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

from tests.harness import until


class WebProcess:
    """The command, started; and started again on the same port."""

    def __init__(
        self, folder: Path, url: str, *options: str, port: int = 0, program: tuple[str, ...] = ("holdfast",)
    ) -> None:
        self.folder = folder
        self._url, self._options, self._program = url, options, program
        self.port = port
        self.lines: list[str] = []
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", *self._program, "web", "--store", self._url, "--port", str(self.port)]
        self.lines = []
        self._process = subprocess.Popen(
            [*command, *self._options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        until(lambda: bool(self.addresses()) or self._process.poll() is not None, "the server prints its address")
        assert self.addresses(), self.lines
        at = urlsplit(self.addresses()[0])
        self.port, self.origin = at.port or 0, f"{at.scheme}://{at.netloc}"

    def environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.folder / "state"), "HOLDFAST_WEB_SECRET": ""}

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)

    def addresses(self) -> list[str]:
        """The addresses that were printed, oldest first."""
        return re.findall(r"https?://\S+", "".join(line for line in self.lines if "://" in line))

    def command(self, *arguments: str) -> str:
        """Run another `holdfast web …` with the same state directory; what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "web", *arguments],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
        return done.stdout

    def stop(self) -> None:
        self._process.terminate()
        self._end()

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def wait_killed(self) -> None:
        """Wait until it was killed by itself."""
        assert self._process.wait(240) == -signal.SIGKILL, self.lines
        self._end()

    def _end(self) -> None:
        self._process.wait(240)
        self._reader.join(240)
        assert self._process.stdout is not None
        self._process.stdout.close()
