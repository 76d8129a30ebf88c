"""Holdfast, through its public surface."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import holdfast
from bench import data
from bench.systems.subject import timed


def opened(directory: Path, url: str | None = None) -> holdfast.Store:
    """A store in a new file, or at `url`."""
    return holdfast.open(url or f"sqlite:{directory / 'runs.db'}")


class Save:
    """`save`: a whole state, one after another."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, *, claim: bool = False, url: str | None = None) -> None:
        self._store = opened(directory, url)
        self._store.save(data.RUN, data.state(0))
        self._claim = self._store.claim(data.RUN, owner="bench", lease=3600) if claim else None

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        states = [data.state(n) for n in range(first, first + count)]
        if self._claim is not None:
            return timed(self._claim.save, states)
        save = self._store.save
        return timed(lambda state: save(data.RUN, state), states)

    def close(self) -> None:
        self._store.close()


class Turns:
    """`turns`, `edit` and `blob`: change the state in place, then save all of it, or what has changed."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        directory: Path,
        total: int,
        *,
        blob: bool = False,
        url: str | None = None,
        tracked: bool = False,
        folder: bool = False,
        **script: Any,
    ) -> None:
        self._store = opened(directory, f"dir:{directory / 'runs'}" if folder else url)
        self._script = data.Script(total, **script)
        self._messages = self._script.beginning()
        self._state: dict[str, Any] = {"messages": self._messages}
        if blob:
            self._state["blob"] = data.blob()
        if self._messages or blob:
            self._store.save(data.RUN, self._state)
        self._chat = self._store.tracked(data.RUN) if tracked else None
        if self._chat is not None:
            self._messages = self._chat.state.setdefault("messages", [])

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return timed(self._change, self._script.changes(first, count))

    def _change(self, change: tuple[int, dict[str, Any]]) -> None:
        at, message = change
        if self._chat is None:
            self._messages[at : at + 1] = [message]
            self._store.save(data.RUN, self._state)
        else:
            self._messages[at : at + 1] = [message.copy()]  # a message that the bench keeps would not be tracked
            self._chat.save()

    def close(self) -> None:
        self._store.close()


class Tracked:
    """`tracked`: append to conversations of several lengths, each a tracked state of its own."""

    offers: ClassVar[tuple[str, ...]] = ("short", "middle", "long")

    def __init__(self, directory: Path, total: int, *, lengths: Sequence[int]) -> None:
        self._store = opened(directory)
        self._chats = {}
        for kind, length in zip(self.offers, lengths, strict=True):
            chat = self._chats[kind] = self._store.tracked(kind)
            chat.state["messages"] = list(data.messages(length))
            for turn in range(1 + length // 30):  # until the chunks of the first save are packed
                chat.state["turn"] = turn
                chat.save()

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        chat = self._chats[kind]
        messages = chat.state["messages"]

        def turn(message: dict[str, Any]) -> None:
            messages.append(message.copy())  # a message that the bench keeps would not be tracked
            chat.save()

        return timed(turn, [data.message(number) for number in range(first, first + count)])

    def close(self) -> None:
        self._store.close()


class Load:
    """`load`: from a file that another store wrote, one save per turn."""

    offers: ClassVar[tuple[str, ...]] = ("latest", "halfway", "history")

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        writer = Turns(directory, total)
        writer.slice("", 0, total)
        writer.close()
        self._store = opened(directory)
        self._total = total

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        if kind == "history":
            assert len(self._history(0)) == self._total
            return timed(self._history, [0] * count)
        step = self._total if kind == "latest" else self._total // 2
        assert len(self._load(step)) == step
        return timed(self._load, [step] * count)

    def _load(self, step: int) -> list[Any]:
        if step == self._total:
            found = self._store.load(data.RUN)
        else:
            found = self._store.load(data.RUN, step=step)
        assert found is not None
        messages: list[Any] = found.state["messages"]
        return messages

    def _history(self, _: int) -> list[Any]:
        return list(self._store.history(data.RUN))

    def close(self) -> None:
        self._store.close()
