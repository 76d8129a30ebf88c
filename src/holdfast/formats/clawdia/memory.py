"""Clawdia's store in memory."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterator
from typing import Any

from holdfast.formats.clawdia.verbs import JournalEnd, Verbs
from holdfast.formats.lossless import write_json
from holdfast.model.views import Problem

__all__ = ["Memory"]


class Memory(Verbs):
    """Checkpoints and journals that are gone with the process. Threads may share it.

    Example:
        runs = clawdia.Memory()
        runs.save(checkpoint, latest_journal_seq=1)
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._saved: dict[str, dict[str, dict[str, Any]]] = {}
        self._journals: dict[str, list[dict[str, Any]]] = {}

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        with self._lock:
            yield

    def _checkpoints(self, run_id: str) -> list[dict[str, Any]]:
        with self._lock:
            return copy.deepcopy(list(self._saved.get(run_id, {}).values()))

    def _put(self, checkpoint: dict[str, Any]) -> None:
        write_json(checkpoint)
        self._saved.setdefault(checkpoint["run_id"], {})[checkpoint["checkpoint_id"]] = copy.deepcopy(checkpoint)

    def _remove(self, run_id: str, gone: dict[str, dict[str, Any]]) -> None:
        for checkpoint_id in gone:
            del self._saved[run_id][checkpoint_id]

    def _records(self, run_id: str) -> tuple[list[dict[str, Any]], list[Problem]]:
        with self._lock:
            return copy.deepcopy(self._journals.get(run_id, [])), []

    def _journal_end(self, run_id: str) -> JournalEnd:
        with self._lock:
            records = self._journals.get(run_id, [])
            last = records[-1]["journal_seq"] if records else 0
            return JournalEnd(last_seq=last, seqs={r["record_id"]: r["journal_seq"] for r in records})

    def _append(self, record: dict[str, Any], end: JournalEnd) -> bool:  # noqa: ARG002 - see Verbs
        write_json(record)
        self._journals.setdefault(record["run_id"], []).append(record)
        return True

    def problems(self, run_id: str) -> list[Problem]:  # noqa: ARG002 - nothing here can be damaged
        """Nothing: memory is never torn.

        Example:
            runs.problems("run.a")
        """
        return []
