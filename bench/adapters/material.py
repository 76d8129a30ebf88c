"""The work that all frameworks get, and how it is done on Holdfast."""

from __future__ import annotations

import base64
import os
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import holdfast

Turns = list[tuple[str, str]]
"""What goes in and what comes out, 1 KiB each."""
Work = Callable[[holdfast.AsyncRun], Awaitable[Any]]
RUN_ID: Final = "work"
PAYMENT_S: Final = "BENCH_PAYMENT_S"
"""How long a payment takes."""
PAID: Final = "paid.txt"


def make_turns(seed: str, count: int) -> Turns:
    """Random text in base64, which neither repeats nor compresses well."""
    source = random.Random(seed)
    texts = [base64.b64encode(source.randbytes(768)).decode() for _ in range(2 * count)]
    return list(zip(texts[::2], texts[1::2], strict=True))


def pay(place: Path) -> str:
    """Pay: the bank notes a line, and takes its time."""
    with (place / PAID).open("a", encoding="utf-8") as bank:
        bank.write(f"{os.getpid()}\n")
    time.sleep(float(os.environ.get(PAYMENT_S, "0")))
    return "paid"


def url_of(place: Path) -> str:
    return f"sqlite:{place / 'runs.db'}"


def start(place: Path, work: Work) -> None:
    """Execute a workflow until it completes or waits."""
    with holdfast.App(url_of(place)) as app:
        app.workflow(name="work")(work)
        app.start("work", run_id=RUN_ID)
        assert app.handle(RUN_ID).status() in ("waiting", "completed"), app.handle(RUN_ID).result()


def approve(place: Path, work: Work) -> None:
    """Approve the payment that it waits for, and execute the rest."""
    with holdfast.App(url_of(place)) as app:
        app.workflow(name="work")(work)
        app.answer(RUN_ID, {"approve": True}, by=f"process {os.getpid()}").result()
