"""The driver's side of a worker process."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

_PATIENCE_S: Final = 300.0


class SystemFailed(Exception):
    """A system could not do what the workload asks for. The others go on."""


class Process:
    """One worker process."""

    def __init__(self, log: Path) -> None:
        self._log: IO[bytes] = log.open("ab")
        self._child = subprocess.Popen(
            [sys.executable, "-m", "bench.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    @property
    def pid(self) -> int:
        return self._child.pid

    def ask(self, **command: Any) -> dict[str, Any]:
        """Give a command and wait for its answer."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps(command).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError as error:
            raise SystemFailed("its process ended") from error
        ready, _, _ = select.select([self._child.stdout], [], [], _PATIENCE_S)
        if not ready:
            raise SystemFailed(f"no answer within {_PATIENCE_S:.0f} s")
        line = self._child.stdout.readline()
        if not line:
            raise SystemFailed("its process ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SystemFailed(answer["error"])
        return answer

    def close(self) -> None:
        """End the process, if need be by force."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.close()
            self._child.wait(timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            self._child.kill()
            self._child.wait()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
