"""What the tests of this adapter share."""

from __future__ import annotations

import os
import random
import string
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("burr")
from burr.core import State, action

from holdfast.adapters.burr import HoldfastPersister
from tests.adapters import bank
from tests.adapters.burr import payer

ROOT: Final = Path(__file__).parents[3]


PATIENCE_S: Final = 120.0


KB: Final = 1024


def _save(persister: HoldfastPersister, app_id: str, sequence_id: int, key: str | None = "", **values: Any) -> None:
    persister.save(key, app_id, sequence_id, "act", State(values), "completed")


class Scene:
    """A store, the file of the outside world, and the processes that continue one application."""

    def __init__(self, place: Path) -> None:
        self.url = f"sqlite:{place / 'runs.db'}"
        self.log = place / "world.jsonl"
        self.go = place / "go"

    def begin(self, how: str, *, kill: str = "", wait: bool = False) -> subprocess.Popen[str]:
        environment = {**os.environ, bank.LOG: str(self.log), bank.KILL: kill, payer.GO: str(self.go) if wait else ""}
        command = [sys.executable, "-m", "tests.adapters.burr.payer", self.url, how]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)

    def end(self, process: subprocess.Popen[str]) -> str:
        """Wait for a process; returns its last word, or its signal."""
        out, _ = process.communicate(timeout=PATIENCE_S)
        return out.split()[-1] if process.returncode == 0 else str(process.returncode)

    def paid(self) -> int:
        return len(bank.lines(self.log, "pay"))

    def looked(self) -> int:
        return len(bank.lines(self.log, "look"))

    def state(self) -> dict[str, Any]:
        with HoldfastPersister(self.url) as persister:
            found = persister.load(None, payer.APP_ID)
            assert found is not None
            return {"status": found["status"], "position": found["position"], **found["state"].get_all()}


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def _converse(persister: Any, turns: int) -> None:
    chance = random.Random(17)

    @action(reads=["messages"], writes=["messages"])
    def turn(state: State[Any]) -> State[Any]:
        texts = ["".join(chance.choices(string.ascii_letters, k=KB)) for _ in range(2)]
        return state.append(messages={"role": "user", "content": texts[0]}).append(
            messages={"role": "assistant", "content": texts[1]}
        )

    application: Any = (
        payer.builder()
        .with_actions(turn)
        .with_transitions(("turn", "turn"))
        .with_state(messages=[])
        .with_entrypoint("turn")
        .with_state_persister(persister)
        .with_identifiers(app_id="a")
        .build()
    )
    for _ in range(turns):
        application.step()
