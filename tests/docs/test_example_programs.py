"""The examples, run as a newcomer runs them: in an empty directory, each command a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def _run(example: str, directory: Path, *args: str, code: int = 0) -> str:
    command = [sys.executable, str(EXAMPLES / example), *args]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_a_langgraph_agent_asks_and_another_process_answers(tmp_path: Path) -> None:
    assert _run("langgraph_refund.py", tmp_path, "ask", "A-17", "40") == "A-17 waits: Refund 40?\n"
    answered = _run("langgraph_refund.py", tmp_path, "answer", "A-17", "yes")
    assert answered == "  … paying 40\nA-17: The refund was paid.\n"
    again = _run("langgraph_refund.py", tmp_path, "answer", "A-17", "yes", code=1)
    assert again == "A-17 has been answered already\n"
    steps = _run("langgraph_refund.py", tmp_path, "history", "A-17").splitlines()
    assert steps[0] == "  step  3  next: done"
    assert len(steps) == 5
