"""Runs one harness in a fresh process, so that forks find no threads and a mutant's patches touch nobody else.

    python -m tests.faults.core.alone kills '{"kills": 20, "seed": 1, "mutant": null}'

The figures go to standard output as one line of JSON. Whatever the harness started is in its session and ends with it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.faults.core.report import Figures

ROOT = Path(__file__).resolve().parents[3]


def run_alone(harness: str, timeout_s: float = 280.0, **arguments: Any) -> Figures:
    """Run a harness and give its figures. A harness that hangs or breaks has found a problem."""
    command = [sys.executable, "-m", "tests.faults.core.alone", harness, json.dumps(arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
    problem = ""
    try:
        out, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        out, problem = b"", f"no end after {timeout_s:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if not problem and process.returncode == 0 and out.strip():
        return Figures.from_json(out.splitlines()[-1])
    broken = Figures(harness, int(arguments.get("seed", 0)), arguments.get("mutant"))
    broken.problem("harness_broken", problem or f"exit status {process.returncode}")
    return broken


def main(harness: str, arguments: str) -> None:
    """The fresh process."""
    module = importlib.import_module(f"tests.faults.{harness}")
    figures: Figures = module.run(**json.loads(arguments))
    print(figures.to_json(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
