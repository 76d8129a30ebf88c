"""The terminal output in the documents is what the command prints today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_what_the_documents_show_is_what_the_command_prints() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/tour.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"`python scripts/tour.py` writes it anew\n{done.stdout}{done.stderr}"
