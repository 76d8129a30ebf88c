"""`saver_load`: a long thread is read by the process that wrote it, and by a new one.

    python -m bench.systems.saver_load '{"saver": …, "place": …, "address": …, "delta": …, "messages": …}'

is the new one: it imports everything, the store's driver too, opens the saver, reads the thread once, and prints the
seconds of both. The operating system's cache is warm.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final

from bench.systems.saver_turns import CONFIG, Chat, Turns
from bench.systems.savers import Home
from bench.systems.subject import timed

_HISTORY: Final = 20
_DRIVERS: Final = {"sqlite": "holdfast.store.sqlite.sqlite_store", "postgres": "holdfast.store.postgres.postgres_store"}


class Load:
    """`get_state` and the newest of `get_state_history`; in a new process, to open the saver and to `get_state`."""

    offers: ClassVar[tuple[str, ...]] = ("state", "history", "open", "cold")

    def __init__(self, directory: Path, total: int, *, saver: str, place: str = "", delta: bool = False) -> None:
        self._turns = Turns(directory, total, saver=saver, place=place, delta=delta, durability="sync")
        self._turns.slice("", 0, total)
        self._graph = self._turns.chat.graph
        self._messages = 2 * total
        home = self._turns.home
        self._told = json.dumps(
            {
                "saver": home.saver,
                "place": home.place,
                "address": home.address,
                "delta": delta,
                "messages": self._messages,
            }
        )
        self._cold: list[float] = []

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        match kind:
            case "state":
                assert self._turns.chat.count() == self._messages
                return timed(lambda _: self._graph.get_state(CONFIG), range(count))
            case "history":
                assert len(self._history(0)) == _HISTORY
                return timed(self._history, range(count))
            case "open":
                found = [self._in_new_process() for _ in range(count)]
                self._cold = [one["state_s"] for one in found]
                return [one["open_s"] for one in found]
            case _:
                return self._cold  # by the processes that "open" has started

    def _history(self, _: int) -> list[Any]:
        return list(self._graph.get_state_history(CONFIG, limit=_HISTORY))

    def _in_new_process(self) -> dict[str, float]:
        command = [sys.executable, "-m", "bench.systems.saver_load", self._told]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        found: dict[str, float] = json.loads(ran.stdout)
        return found

    def close(self) -> None:
        self._turns.close()


class LoadHere(Load):
    """For savers that keep nothing when their process ends."""

    offers: ClassVar[tuple[str, ...]] = ("state", "history")


def main(saver: str, place: str, address: str, delta: bool, messages: int) -> None:
    if saver == "holdfast":
        import_module(_DRIVERS[place])
    home = Home(saver, place, address)
    opened: list[Any] = []
    open_s = timed(lambda _: opened.extend(home.open()), [0])[0]
    made, close = opened
    chat = Chat(made, delta=delta)
    state_s = timed(lambda _: chat.graph.get_state(CONFIG), [0])[0]
    assert chat.count() == messages
    print(json.dumps({"open_s": open_s, "state_s": state_s}))
    close()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
