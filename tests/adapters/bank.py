"""The outside world of the story: a price list, a bank and a model, whose calls are lines in a file.

The processes of a story share the file, so a test sees every call of every process.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, Final

LOG: Final = "STORY_LOG"
KILL: Final = "STORY_KILL"
"""`after-pay`: the process dies after the first payment, before its outcome is recorded."""


def note(what: str, **facts: Any) -> None:
    """Write a line; it reaches the file even if the process is killed next."""
    line = json.dumps({"what": what, "pid": os.getpid(), **facts}) + "\n"
    place = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(place, line.encode())
    finally:
        os.close(place)


def lines(place: Path, what: str) -> list[dict[str, Any]]:
    """The lines of a kind."""
    text = place.read_text("utf-8") if place.exists() else ""
    return [line for line in map(json.loads, text.splitlines()) if line["what"] == what]


def look(order: str) -> int:
    """The price of an order."""
    note("look", order=order)
    return 40 if order == "A-17" else 25


def pay(order: str, amount: int, key: str | None) -> str:
    """Pay; returns the receipt. `key` is the idempotency key, which the bank does not use here."""
    note("pay", order=order, amount=amount, key=key)
    if os.environ.get(KILL) == "after-pay":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {amount} for {order}"


def model_called(turn: str) -> None:
    """The model was called; models of stories are functions of the conversation."""
    note("model", turn=turn)
