"""The demo, as somebody at a terminal sees it."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest


def at_a_terminal(answer: str) -> str:
    """Run the demo at a terminal and answer its question; what it shows."""
    here, there = pty.openpty()
    demo = subprocess.Popen([sys.executable, "-m", "holdfast.demo"], stdin=there, stdout=there, stderr=there)
    os.close(there)
    shown, answers, until = b"", [answer, "no"], time.monotonic() + 240
    while time.monotonic() < until:
        if not select.select([here], [], [], 0.2)[0]:
            if demo.poll() is not None:
                break
            continue
        try:
            part = os.read(here, 65536)
        except OSError:  # the other side has closed
            break
        if not part:
            break
        shown += part
        if shown.count(b"yes or no") > 2 - len(answers):
            os.write(here, answers.pop(0).encode() + b"\n")
    assert demo.wait(30) == 0, shown.decode()
    os.close(here)
    return re.sub(r"\x1b\[\d+m", "", shown.decode())


@pytest.mark.parametrize(("answer", "end"), [("yes", "Paid once"), ("no", "Paid nothing")])
def test_who_sits_at_a_terminal_decides(answer: str, end: str) -> None:
    shown = at_a_terminal(answer)
    assert "yes or no?" in shown
    assert end in shown
    assert ("was killed (SIGKILL)" in shown) == (answer == "yes")
    assert "by you" in shown
