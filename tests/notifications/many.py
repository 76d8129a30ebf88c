"""Stores with very many open gates and failed runs, written directly to the port."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from holdfast import Store
from holdfast.forms import form_of
from holdfast.model.commit import Commit, NewEntry, NewGate, NewRun
from holdfast.operations.views import encode_body

BATCH = 500


def fill(store: Store, *, gates: int, failures: int) -> None:
    """Add so many runs of each kind."""
    core = store.access.core
    body: dict[str, Any] = {"v": 1, "prompt": "Pay?", "form": form_of({"pay": bool}).as_data(), "show": {"order": 17}}
    body |= {"who": ["ana"], "purpose": "ask", "expired": "deny"}
    asked = encode_body(core, body, "a gate")
    ended = encode_body(core, {"kind": "failed", "error": {"type": "ValueError", "message": "no"}}, "an entry")

    def commits() -> Iterator[Commit]:
        for number in range(gates):
            gate = NewGate("ask#1", asked)
            yield Commit(
                f"gate-{number}", core.ids.token(8), create=NewRun(), workflow="asks", status="waiting", gates=(gate,)
            )
        for number in range(failures):
            entry = NewEntry("failed", ended)
            yield Commit(
                f"failed-{number}",
                core.ids.token(8),
                create=NewRun(),
                workflow="fails",
                status="failed",
                entries=(entry,),
            )

    for batch in _batched(commits()):
        store.port.commit(batch)


def _batched(found: Iterator[Commit]) -> Iterator[list[Commit]]:
    while batch := list(itertools.islice(found, BATCH)):
        yield batch
