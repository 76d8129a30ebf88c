"""Starts processes by forking one that has loaded LangGraph, which saves seconds.

`python -m tests.adapters.langgraph.forge` reads lines of JSON: [program, arguments, when to kill it or null]. For
each it makes a process, waits for its end, and answers with how it ended and what it printed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    """Negative: the signal that killed it."""
    output: str


class Forge:
    """Runs programs in processes of their own, one after the other."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.adapters.langgraph.forge"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, program: str, *args: str, kill_after: float | None = None) -> Ended:
        """Run a program to its end, or until it is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([program, args, kill_after]) + "\n")
        self._process.stdin.flush()
        return Ended(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate(timeout=240)


def _child(program: str, args: list[str], output: int) -> None:
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = ["-c", *args]
    code = 0
    try:
        exec(compile(program, "<program>", "exec", dont_inherit=True), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


def _made(program: str, args: list[str], kill_after: float | None) -> list[Any]:
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            _child(program, args, output.fileno())
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        output.seek(0)
        return [os.waitstatus_to_exitcode(status), output.read().decode()]


if __name__ == "__main__":
    import holdfast.adapters.langgraph
    import holdfast.store.postgres.postgres_store
    import holdfast.store.sqlite.sqlite_store  # noqa: F401 - what its children need

    for line in sys.stdin:
        sys.stdout.write(json.dumps(_made(*json.loads(line))) + "\n")
        sys.stdout.flush()
