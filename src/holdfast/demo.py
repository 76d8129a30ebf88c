"""`python -m holdfast.demo`: the store at work. Saves a conversation, is killed in the middle of a save, and goes on.

Everything happens in real processes on a real file in a temporary directory.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import holdfast
from holdfast.clock import SystemClock

RUN = "order-17"
TEXT = """
the customer asks for a refund of order while agent looks up invoice payment and terms then finds parcel lost between
warehouse hub city so carrier was told to search again before money goes back or new item ships today
"""


class FatalClock(SystemClock):
    """A clock that kills its process when it is asked for the time too often: in the middle of a save."""

    def __init__(self, saves: int) -> None:
        super().__init__()
        self._left = saves

    def now_us(self) -> int:
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().now_us()


def message(turn: int) -> dict[str, Any]:
    words = random.Random(turn).choices(TEXT.split(), k=160)
    return {"role": "assistant" if turn % 2 else "user", "content": " ".join(words), "turn": turn}


def save_until_killed(url: str) -> None:
    """What the killed process does: a checkpoint a turn, each acknowledged on its output once it is durable."""
    store = holdfast.open(url, clock=FatalClock(saves=120))
    messages: list[dict[str, Any]] = []
    while True:
        messages.append(message(len(messages) + 1))
        saved = store.save(RUN, {"messages": messages}, workflow="refund", status="running", next_node="tool")
        print(saved.step, flush=True)


def claim_once(url: str, owner: str) -> None:
    """What each of the two claiming processes does."""
    with holdfast.open(url) as store:
        print("claimed" if store.claim(RUN, owner=owner, lease=60) else "refused", flush=True)


def in_process(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "holdfast.demo", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def show(title: str, *lines: str) -> None:
    print(f"\n{title}")
    for line in lines:
        print(f"    {line}")


def kilobytes(size: int) -> str:
    return f"{size / 1024:.1f} KiB"


def demo(directory: str) -> None:
    url = f"sqlite:{Path(directory) / 'runs.db'}"
    killed = in_process("save", url)
    output, _ = killed.communicate(timeout=60)
    acknowledged = int(output.split()[-1])
    show(
        "A process saved a checkpoint a turn and was killed in the middle of a save (SIGKILL).",
        f"exit status {killed.returncode}, last acknowledged turn {acknowledged}",
    )
    with holdfast.open(url) as store:
        latest = store.load(RUN)
        assert latest is not None
        assert latest.step == len(latest.state["messages"]) == acknowledged
        show(
            "Opened again: the last acknowledged checkpoint is there, whole.",
            f"step {latest.step}, {len(latest.state['messages'])} messages, next node {latest.next_node!r}",
            f"verified: {len(store.verify().problems)} problems",
        )
        answers = [process.communicate(timeout=60)[0].strip() for process in claim_from_two(url)]
        owners = [f"w{number}: {answer}" for number, answer in enumerate(answers, start=1)]
        show("Two processes claim the run at the same time. One holds it.", *owners)
        assert sorted(answers) == ["claimed", "refused"]
        show("What changed from turn 118 to turn 120:", *[f"{c.op} {c.pointer}" for c in store.diff(RUN, 118, 120)])
        show_sizes(store, latest.state["messages"])


def claim_from_two(url: str) -> list[subprocess.Popen[str]]:
    return [in_process("claim", url, f"w{number}") for number in (1, 2)]


def show_sizes(store: holdfast.Store, messages: list[dict[str, Any]]) -> None:
    raw = sum(len(m["content"]) for m in messages)
    every = sum(len(m["content"]) * (len(messages) - i) for i, m in enumerate(messages))
    stats = store.stats()
    show(
        f"All {stats.checkpoints} checkpoints are kept, and any of them can be loaded.",
        f"the messages themselves {kilobytes(raw)}",
        f"a full copy for every checkpoint would be {kilobytes(every)}",
        f"stored {kilobytes(stats.state_bytes)} in {stats.chunks} chunks and {stats.checkpoints} roots",
    )


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["save"]:
        save_until_killed(arguments[1])
    elif arguments[:1] == ["claim"]:
        claim_once(arguments[1], arguments[2])
    else:
        with tempfile.TemporaryDirectory() as directory:
            demo(directory)


if __name__ == "__main__":
    main(sys.argv[1:])
