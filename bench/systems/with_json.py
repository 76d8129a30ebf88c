"""What people write themselves: the whole state as JSON in one file, replaced and synced at every save."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from pathlib import Path
from typing import Any, ClassVar

from bench import data
from bench.systems.subject import timed


class JsonFile:
    """Writes a new file beside the old one, syncs it, renames it and syncs the directory."""

    def __init__(self, directory: Path, name: str = "state.json") -> None:
        self._path = directory / name
        self._new = directory / f"{name}.new"
        self._directory = os.open(directory, os.O_RDONLY)

    def write(self, state: object) -> None:
        with open(self._new, "w", encoding="utf-8") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(self._new, self._path)
        os.fsync(self._directory)

    def read(self) -> Any:
        with open(self._path, encoding="utf-8") as file:
            return json.load(file)

    def close(self) -> None:
        os.close(self._directory)


class Save:
    """`save`."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        self._file = JsonFile(directory)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return timed(self._file.write, [data.state(n) for n in range(first, first + count)])

    def close(self) -> None:
        self._file.close()


class Turns:
    """`turns`, `edit` and `blob`. Keeps the newest state only."""

    offers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, directory: Path, total: int, *, blob: bool = False, **script: Any) -> None:
        self._file = JsonFile(directory)
        self._script = data.Script(total, **script)
        self._messages = self._script.beginning()
        self._state: dict[str, Any] = {"messages": self._messages}
        if blob:
            self._state["blob"] = b64encode(data.blob()).decode("ascii")
        self._file.write(self._state)

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return timed(self._change, self._script.changes(first, count))

    def _change(self, change: tuple[int, dict[str, Any]]) -> None:
        at, message = change
        self._messages[at : at + 1] = [message]
        self._file.write(self._state)

    def close(self) -> None:
        self._file.close()


class Load:
    """`load`: there is only the latest."""

    offers: ClassVar[tuple[str, ...]] = ("latest",)

    def __init__(self, directory: Path, total: int, **options: Any) -> None:
        self._file = JsonFile(directory)
        self._file.write({"messages": [data.message(number) for number in range(total)]})

    def slice(self, kind: str, first: int, count: int) -> list[float]:
        return timed(lambda _: self._file.read(), range(count))

    def close(self) -> None:
        self._file.close()
