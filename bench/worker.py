"""The process in which one system runs: it does what it is told on its standard input, one JSON line each.

    {"do": "begin", "subject": "module:Class", "directory": "...", "total": n, "options": {...}}
    {"do": "slice", "kind": "...", "first": n, "count": n}
    {"do": "size"}
    {"do": "end"}

Every command is answered by one line on what was standard output when the process began; whatever the system itself
prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from bench.systems.subject import Subject


class Worker:
    """Holds the subject between commands."""

    def __init__(self) -> None:
        self._subject: Subject | None = None

    def begin(self, subject: str, directory: str, total: int, options: dict[str, Any]) -> dict[str, Any]:
        module, _, name = subject.partition(":")
        made: type[Subject] = getattr(import_module(module), name)
        self._subject = made(Path(directory), total, **options)
        return {"offers": made.offers}

    def slice(self, kind: str, first: int, count: int) -> dict[str, Any]:
        assert self._subject is not None
        seconds = self._subject.slice(kind, first, count)
        return {
            "ops": len(seconds),
            "seconds": sum(seconds),
            "median_us": median(seconds) * 1e6,
            "max_us": max(seconds) * 1e6,
            "each_us": [round(one * 1e6, 1) for one in seconds],
        }

    def size(self) -> dict[str, Any]:
        """What the system says it takes; None if its files tell."""
        size = getattr(self._subject, "size", None)
        return {"bytes": size() if size else None}

    def end(self) -> dict[str, Any]:
        found = self.size()
        if self._subject is not None:
            self._subject.close()
            self._subject = None
        return found


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(worker, command.pop("do"))(**command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)  # a system may have left threads behind


if __name__ == "__main__":
    main()
