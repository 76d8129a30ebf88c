"""The demo, as somebody at a terminal sees it."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time

import httpx
import pytest

from tests.harness import until


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


def test_without_a_terminal_the_demo_prints_the_command_of_the_page_and_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.demo"], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.rstrip().endswith("holdfast demo --web")


def test_the_demo_serves_the_page_with_a_gate_that_waits_until_it_is_stopped() -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "demo", "--web"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert demo.stdout is not None
    try:
        address = next(line for line in demo.stdout if line.startswith("Open http")).split()[1]
        origin, _, token = address.partition("/login?token=")
        with httpx.Client(base_url=origin, timeout=240) as browser:
            assert browser.post("/login", data={"token": token}).status_code == 303
            assert "order-17" in browser.get("/runs").text
            until(lambda: "Refund 39.90 EUR for order B-18?" in browser.get("/").text, "the second run asks")
    finally:
        demo.terminate()
        demo.stdout.read()
        demo.stdout.close()
    assert demo.wait(240) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(origin, timeout=240)
