"""Run the command as a user does: another process, its output in pipes, its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.fork_server import COMMAND, LANGGRAPH, PLAIN, run

SOURCE = str(Path(__file__).parents[2] / "src")
PROJECT = str(Path(__file__).parents[2])
TIMEOUT_S = 240.0


class Done(NamedTuple):
    """What a process left behind."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Standard output as JSON; fails if there is anything else."""
        return json.loads(self.out)


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what would change the command, with `more`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HOLDFAST_") and name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    return {**kept, "PYTHONPATH": os.pathsep.join((SOURCE, PROJECT)), "TERM": "xterm-256color", **more}


def command(*arguments: str, cwd: Path, stdin: str = "", **env: str) -> Done:
    """Run `holdfast` to its end, without a terminal."""
    wanted = environment(**env)
    if any(name.startswith(("PYTHON", "LC_", "LANG")) for name in env):  # Python itself reads these when it starts
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments],
            cwd=cwd, env=wanted, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)
    loaded = LANGGRAPH if "langgraph" in arguments else PLAIN
    ended = run(COMMAND, *arguments, loaded=loaded, cwd=cwd, env=wanted, given=stdin, timeout_s=TIMEOUT_S)
    return Done(ended.returncode, ended.stdout, ended.stderr)
